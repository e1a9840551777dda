// How long the parts of a step take, for plans.
#ifndef WEFT_TRANSPILER_BUCKETS_STEP_TIMES_H_
#define WEFT_TRANSPILER_BUCKETS_STEP_TIMES_H_

#include <map>
#include <string>
#include <vector>

#include "transpiler/buckets/collective_time.h"

namespace weft {

// By name of a gradient: when its values are complete, one after the other, in seconds since the
// step began.
using ReadyTimes = std::map<std::string, std::vector<double>>;

struct StepTimes {
  // Of the ops of the root block, by position, in the program before the first pass. Measured by
  // `weft run --profile`; empty: estimated (ops/analysis/devices/op_times.h).
  std::vector<double> op_seconds;
  // Measured by `weft comm_bench`, or the alpha-beta model.
  CollectiveTime collective;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_STEP_TIMES_H_
