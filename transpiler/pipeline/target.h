// What is fixed before the first pass runs.
#ifndef WEFT_TRANSPILER_PIPELINE_TARGET_H_
#define WEFT_TRANSPILER_PIPELINE_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ops/analysis/values/sum_losses.h"
#include "transpiler/buckets/collective_time.h"
#include "transpiler/buckets/step_times.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {

// kPaddle: passes write, op for op, what Paddle's transpiler writes. kWeft: they write the same
// rewrite without Paddle's defects.
enum class Dialect { kWeft, kPaddle };

enum class TargetDevice { kCuda, kXpu, kCustom, kCpu };

// What is known of the result before the passes run, from the programs and from what passes say
// (Pass::Foresee).
struct Forecast {
  // The losses that are sums over the batch, or will be.
  SumLosses sum_losses;
  // When gradients are complete, if a pass reads the times of ops.
  ReadyTimes gradient_ready;
  // Parameters that are updated on the host, from gradients of the accelerator. No bucket has
  // gradients of these and of others.
  std::set<std::string> updated_on_host;
  // Updates in half precision get fp32 master weights or state.
  bool raises_precision = false;
  // The ids from which on ops are new, in the main and in the startup program.
  size_t first_new_op = 0, first_new_startup_op = 0;
};

// What passes write programs for.
struct Target {
  Dialect dialect = Dialect::kWeft;
  // The major version. Paddle 3 has other ops for communication than Paddle 2.
  int paddle_version = 2;
  TargetDevice device_kind = TargetDevice::kCuda;
  Cluster cluster;
  // Of parameters that the user describes. Setting::distributed_params has those that are not
  // replicated.
  ParamAttrsByName param_attrs;
  // The groups of ranks of the run, also those to which this rank does not belong. Passes decide by
  // these, so that the programs of all ranks agree.
  std::vector<RankGroup> groups;
  // How long collectives take, for passes that go by it (PassTrait::kReadsCollectiveTimes).
  CollectiveTime collective_time;
  Forecast forecast;
};

// The major version of the Paddle that wrote a program of `version` (Program::version): 2 for older
// ones and for development builds, which write 0.
constexpr int PaddleVersionOf(int64_t version) { return version >= 3'000'000 ? 3 : 2; }

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_TARGET_H_
