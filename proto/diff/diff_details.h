// Differences within a pair of ops, variables, blocks or programs, for proto/diff/program_diff.h.
#ifndef WEFT_PROTO_DIFF_DIFF_DETAILS_H_
#define WEFT_PROTO_DIFF_DIFF_DETAILS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/diff/program_diff.h"

namespace weft {

// These return one detail for each aspect that differs; none if and only if the messages are equal.
std::vector<DifferenceDetail> CompareOps(const Op& a, const Op& b);
std::vector<DifferenceDetail> CompareVars(const Var& a, const Var& b);
// `a` and `b` have neither variables nor ops.
std::vector<DifferenceDetail> CompareBlocks(const pb::BlockDesc& a, const pb::BlockDesc& b);
// `a` and `b` have no blocks.
std::vector<DifferenceDetail> ComparePrograms(const pb::ProgramDesc& a, const pb::ProgramDesc& b);

// Hashes by which ops are aligned. Ops with equal keys are still compared, so a collision can
// worsen the alignment, but cannot hide a difference.
struct OpKeys {
  std::vector<uint64_t> whole;
  std::vector<uint64_t> type_and_outputs;
  std::vector<uint64_t> type;
};

// The keys of each op; 0 for ops in `skip`, which are not decoded.
OpKeys KeysOf(const Program& program, absl::Span<const OpId> ops, const std::vector<bool>& skip);
// One key for each op: equal for equal bytes.
std::vector<uint64_t> ByteKeysOf(const Program& program, absl::Span<const OpId> ops);

}  // namespace weft

#endif  // WEFT_PROTO_DIFF_DIFF_DETAILS_H_
