// When ops run on the streams of ranks: as measured, or as predicted.
#ifndef WEFT_TOOLS_VIEW_LANES_H_
#define WEFT_TOOLS_VIEW_LANES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "transpiler/buckets/step_times.h"

namespace weft {

// Times are nanoseconds. Lanes are numbered from 0; ops are numbered over all blocks of a program,
// one block after the other.
struct LaneSpan {
  static constexpr int64_t kNoOp = -1;
  int lane = 0;
  int64_t op = kNoOp;  // the first of combined ops
  int64_t begin = 0, end = 0;
  int64_t bytes = 0;  // of its inputs; for a collective, what the rank passes to it
  bool communicates = false;
};

// A stream waits until another one has come so far.
struct LaneWait {
  static constexpr int kUnknown = -1;
  int lane = 0;
  int64_t begin = 0, end = 0;
  int from = kUnknown;    // the lane that it waits for
  int64_t from_time = 0;  // when the awaited op of that lane ended
};

struct LaneStep {
  int rank = 0;
  int64_t step = 0;
  int64_t begin = 0, end = 0;
};

struct Lane {
  int rank = 0;
  std::string stream;  // "compute", "ring 0"
};

// Means over the steps of one rank.
struct LaneTotals {
  int rank = 0;
  int64_t num_steps = 0;
  double step = 0, computation = 0, communication = 0;
  double exposed = 0;  // communication while nothing computes
};

struct Lanes {
  std::vector<Lane> lanes;      // by rank
  std::vector<LaneSpan> spans;  // by lane, then in order
  std::vector<LaneWait> waits;
  std::vector<LaneStep> steps;
  LaneTotals totals;
};

struct PredictOptions {
  StepTimes times;     // op_seconds: empty, or a time for every op of the root block
  int64_t batch = 32;  // where shapes have an unknown dimension
};

// What a step of a rank is expected to take, if all ranks begin it together: an op starts when its
// stream and what the program's waits order before it are done; collectives take what
// options.times.collective says; other ops what options.times.op_seconds says, or, if that is
// empty, EstimateOpTimes. Ops of sub-blocks count as part of the op that runs the block.
// O(arguments + synchronizations * rings).
Lanes PredictLanes(const Program& program, const PredictOptions& options);

// What a trace says (tools/inspect/chrome_trace.h) of this program. InvalidArgument for other JSON,
// and for a trace of another program. The totals are those of the first rank, without its first
// step if there are others: that one allocates. O(text).
absl::StatusOr<Lanes> ReadTrace(absl::string_view json, const Program& program);

// The totals of the first rank. O(n log n).
LaneTotals TotalsOf(const Lanes& lanes);

// By op number: what the op takes in a step of the rank of the totals, a mean; 0 for ops that do
// not occur.
std::vector<double> TimesOfOps(const Lanes& lanes, size_t num_ops);

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_LANES_H_
