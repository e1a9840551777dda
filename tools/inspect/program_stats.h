// Statistics of a program.
#ifndef WEFT_TOOLS_INSPECT_PROGRAM_STATS_H_
#define WEFT_TOOLS_INSPECT_PROGRAM_STATS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ops/analysis/core/liveness.h"
#include "proto/program.h"

namespace weft {

// Totals over some tensors.
struct TensorTotals {
  int64_t count = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  // Tensors among `count` of unknown size (unknown dimensions, no tensor); they are not in
  // `elements` and `bytes`.
  int64_t unknown = 0;
  // Of these, elements that pass a threshold: their number depends on values, but not the most
  // bytes, `bound_bytes`, that they can be.
  int64_t bounded = 0;
  int64_t bound_bytes = 0;
};

// Collectives that are counted together.
struct CollectiveKey {
  int ring = 0;
  std::string op_type;
  // They run once in this many steps; 0: on a condition of unknown period (BlockPeriods).
  int64_t period = 1;

  friend bool operator<(const CollectiveKey& a, const CollectiveKey& b) {
    return std::tie(a.ring, a.op_type, a.period) < std::tie(b.ring, b.op_type, b.period);
  }
};

struct ProgramStats {
  int64_t version = 0;
  int64_t blocks = 0;
  int64_t ops = 0;
  int64_t variables = 0;
  std::string fingerprint;

  // The number of ops of each type, by role, in all blocks.
  std::map<std::string, std::map<int, int64_t>> ops_by_type;

  // Files of Paddle before 2.2 do not mark parameters. For these, count persistable variables that
  // are paired with a gradient or updated by an optimizer.
  TensorTotals parameters;
  TensorTotals state;      // persistable tensors that are no parameters
  TensorTotals gradients;  // the gradients that backward ops complete, each counted once

  // What one rank passes to collectives, in a step in which all of them run. The size of a fused
  // tensor is that of its members, with the padding between them that coalesce_tensor (align_size)
  // or the variable's declaration implies. If neither does, padding depends on the device and does
  // not count.
  std::map<CollectiveKey, TensorTotals> collectives;

  // For one rank, with `batch` for unknown first dimensions: see EstimatePeakMemory.
  int64_t batch = 1;
  PeakMemory peak_memory;
  std::string peak_op;  // its name; empty if there are no ops

  // Ops whose op_role_var has an odd length, so that it counts no gradients; a line each.
  std::vector<std::string> malformed;
};

// O(ops + variables).
ProgramStats ComputeProgramStats(const Program& program, int64_t batch = 1);

// XXH3-64 of the serialized program, as 16 hexadecimal digits: equal for equal bytes, on every
// machine. It does not protect against forgery. O(bytes).
std::string Fingerprint(const Program& program);

// A table for readers.
std::string ProgramStatsText(const ProgramStats& stats);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_PROGRAM_STATS_H_
