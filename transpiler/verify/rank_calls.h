// The calls that one rank makes together with others.
#ifndef WEFT_TRANSPILER_VERIFY_RANK_CALLS_H_
#define WEFT_TRANSPILER_VERIFY_RANK_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.h"

namespace weft {

struct RankCall {
  // The begin and end of a block with collectives: in the sequences of all rings.
  static constexpr int64_t kNoRing = -1;

  OpId op;
  int64_t ring;
  // All that the ranks must agree on: "all-reduce sum of 16 fp32", "block on condition due".
  std::string what;
  // By name; a fused buffer is its members.
  std::string variables;
};

// In the order of the program; those of a block where it runs first. O(arguments).
std::vector<RankCall> ReadRankCalls(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_RANK_CALLS_H_
