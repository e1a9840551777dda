// Which ops ranks have to run together: the one answer for all checks.
#ifndef WEFT_OPS_ANALYSIS_CORE_COMMUNICATION_H_
#define WEFT_OPS_ANALYSIS_CORE_COMMUNICATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/op_assumptions.h"
#include "proto/program.h"

namespace weft {

enum class Communication : uint8_t {
  kNone,
  kCollective,  // trait kCollective
  kMoments,     // ComputesAcrossRanks: an all-reduce inside the op, on ring 0, if there are ranks
  kSend,        // MessageOp
  kReceive,
  kBarrier,
  // An unregistered op that names a ring, and of which there is no OpAssumption; no ring is
  // negative.
  kUnknown,
};

// Of the ops of one program, decided by signature where that suffices. O(ops) to make.
class Communications {
 public:
  explicit Communications(const ProgramFacts& facts);

  Communication Of(const Op& op) const;

 private:
  Communication Classify(const Op& op) const;

  OpTraits traits_;
  OpAssumptions assumptions_;
  std::vector<absl::optional<Communication>> by_signature_;  // none: no op has it
};

// Whether an op does nothing but communicate with other ranks.
inline bool OnlyCommunicates(Communication communication) {
  return communication != Communication::kNone && communication != Communication::kMoments &&
         communication != Communication::kUnknown;
}

// Whether an op of any block exchanges values with other ranks. Moments do not count: one device
// computes them alone, so that a program without other communication is one for a single device.
// O(ops).
bool Communicates(const ProgramFacts& facts);

// The ring of an op that communicates.
inline int64_t RingOf(const Op& op) { return op.IntAttr("ring_id").value_or(0); }

// Attribute kGroupRanksAttr of a collective or of ring set-up: the ranks that take part, ascending;
// empty: all. InvalidArgument, naming the op, if it is no list of distinct, ascending ranks.
absl::StatusOr<std::vector<int>> GroupRanksOf(const Op& op);

// "ranks 0, 2"; "all ranks" for none.
std::string GroupText(const std::vector<int>& ranks);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_COMMUNICATION_H_
