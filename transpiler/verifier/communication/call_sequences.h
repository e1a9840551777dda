// Layer 5: do all ranks call the same collectives, in an order that cannot deadlock?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_CALL_SEQUENCES_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_CALL_SEQUENCES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// A call of a rank that waits for other ranks (ring set-up is one, too), or the begin or end of a
// block with such calls.
struct RankCall {
  // Of blocks: they belong to the sequences of all rings.
  static constexpr int64_t kNoRing = -1;

  OpId op;
  int64_t ring;
  // What ranks must agree on: "all-reduce sum of 16 fp32", "block on condition due".
  // A size that is not known equals only sizes of the same declaration.
  std::string what;
  // By name; a fused buffer is given by its slices.
  std::string variables;
  // Of a send or receive: the other rank. None: all ranks of the ring make the call.
  absl::optional<int64_t> peer = absl::nullopt;
  bool sends = false;
  // The ranks that make the call, ascending; empty: all.
  std::vector<int> group = {};
};

// The calls in program order; a block counts where it first runs. O(arguments).
std::vector<RankCall> ReadRankCalls(const ProgramFacts& facts);

// Checks the main programs of all ranks, in rank order:
// - on each ring, by all of its ranks, the same sequence of collectives, with equal kind,
//   reduction, element type, count and root (W501), of variables with the same names (W505);
// - no two ranks order the collectives of several rings inconsistently (W502);
// - each send is received by the rank that it names, in order (W508).
// Ops that communicate, but are no collectives, count as such (ops/analysis/core/communication.h).
// Conditional blocks are compared like collectives: equal conditions at equal positions.
// O(ops of all programs).
void CheckCallSequences(absl::Span<const Program* const> mains, Findings* findings);

// Checks the startup programs in the same way, and their rings (CheckRingSetups).
void CheckStartupCallSequences(absl::Span<const Program* const> startups, Findings* findings);

// Reports sends and receives in a program that all ranks run, of more than one rank (W508).
// O(arguments).
void CheckMessagesInOneProgram(const ProgramFacts& facts, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_CALL_SEQUENCES_H_
