// What differs within a pair of ops, variables, blocks or programs: the parts of
// proto/diff/program_diff.h.
#ifndef WEFT_PROTO_DIFF_DIFF_DETAILS_H_
#define WEFT_PROTO_DIFF_DIFF_DETAILS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/diff/program_diff.h"

namespace weft {

// Each gives one detail for each aspect that differs, and none exactly where the messages are
// equal.
std::vector<DifferenceDetail> CompareOps(const Op& a, const Op& b);
std::vector<DifferenceDetail> CompareVars(const Var& a, const Var& b);
// Of messages without variables and ops.
std::vector<DifferenceDetail> CompareBlocks(pb::BlockDesc a, pb::BlockDesc b);
// Of messages without blocks.
std::vector<DifferenceDetail> ComparePrograms(pb::ProgramDesc a, pb::ProgramDesc b);

// By what ops are aligned. Ops of equal keys are still compared, so a clash of hashes can make a
// worse alignment, but hide nothing.
struct OpKeys {
  std::vector<uint64_t> whole;
  std::vector<uint64_t> type_and_outputs;
  std::vector<uint64_t> type;
};

// One key of each kind for each op; of those in `skip`, which are not decoded, 0.
OpKeys KeysOf(const Program& program, absl::Span<const OpId> ops, const std::vector<bool>& skip);
// One key for each op: equal where the bytes are.
std::vector<uint64_t> ByteKeysOf(const Program& program, absl::Span<const OpId> ops);

}  // namespace weft

#endif  // WEFT_PROTO_DIFF_DIFF_DETAILS_H_
