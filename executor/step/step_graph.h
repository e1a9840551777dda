// A step that runs as one graph (GraphRecorder): the host launches it by one call, not op by op.
#ifndef WEFT_EXECUTOR_STEP_STEP_GRAPH_H_
#define WEFT_EXECUTOR_STEP_STEP_GRAPH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/plan/plan.h"
#include "executor/step/bound_step.h"
#include "executor/streams/stream.h"

namespace weft {

enum class GraphMode : uint8_t {
  kOff,
  kAuto,  // where nothing prevents it
  kOn,    // an obstacle is an error
};

// How the steps of a rank have run.
struct GraphUse {
  GraphMode mode = GraphMode::kOff;
  int64_t steps = 0;
  int64_t replayed = 0;  // as a graph
  int64_t recorded = 0;  // graphs
  std::string obstacle;  // why the last step has not run as a graph; empty: nothing prevents it
};

// Why a graph cannot stand for the step: what the host decides, reads or moves in it. Names the op.
// Empty: it can.
std::string FindGraphObstacle(const Plan& plan, const BoundStep& step);

// Runs the steps of one rank. The first one bound to some types, at some addresses, runs op by op,
// and kernels allocate what they keep; the second one is recorded. A change of an address, or of
// the types, starts anew: kernels share what they keep among all types.
class StepGraph {
 public:
  // `streams`: of the device; work is launched on all of them. The first one is the compute stream.
  // All must outlive this.
  StepGraph(GraphMode mode, Device* device, absl::Span<const std::unique_ptr<Stream>> streams)
      : device_(device), streams_(streams) {
    use_.mode = mode;
  }

  // Call it when another step is bound. `obstacle`: FindGraphObstacle, or another reason of the
  // caller.
  void Reset(std::string obstacle);

  // One step, which `launch` launches op by op. `addresses`: of memory that may move.
  // FailedPrecondition with the obstacle in mode kOn. Errors of a recording are those of the op.
  absl::Status Run(const std::function<absl::Status()>& launch,
                   absl::Span<const void* const> addresses);

  const GraphUse& use() const { return use_; }

 private:
  absl::Status Record(const std::function<absl::Status()>& launch);
  absl::Status ForkAndJoin(const std::function<absl::Status()>& launch);

  Device* device_;
  const absl::Span<const std::unique_ptr<Stream>> streams_;
  GraphUse use_;
  std::vector<const void*> addresses_;          // of the last step; empty: there was none
  std::vector<std::unique_ptr<Event>> events_;  // by stream
  std::unique_ptr<Graph> graph_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_STEP_GRAPH_H_
