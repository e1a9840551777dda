// A step that runs as one graph (GraphRecorder): the host launches it by one call, not op by op.
#ifndef WEFT_EXECUTOR_STEP_STEP_GRAPH_H_
#define WEFT_EXECUTOR_STEP_STEP_GRAPH_H_

#include <cstdint>
#include <functional>
#include <map>
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
  // Why steps have not run as graphs, by the last of them; empty: nothing has prevented it.
  std::string obstacle;
};

// Why a graph cannot stand for the step: what the host decides, reads or moves in it. Names the op.
// Empty: it can.
std::string FindGraphObstacle(const Plan& plan, const BoundStep& step);

// Runs the steps of one rank. The first one bound to some types, at some addresses, runs op by op,
// and kernels allocate what they keep; the second one is recorded. Each bound step has a graph of
// its own. Kernels share what they keep among all of them: when memory comes or goes while one is
// bound or runs op by op, the others start anew, as after a change of an address.
class StepGraph {
 public:
  // `streams`: of the device; work is launched on all of them. The first one is the compute stream.
  // Both must outlive this.
  StepGraph(GraphMode mode, Device* device, absl::Span<const std::unique_ptr<Stream>> streams)
      : recorder_(device->graphs()), device_(device), streams_(streams) {
    use_.mode = mode;
  }

  // Of the device (GraphRecorder).
  int64_t memory_changes() const { return recorder_ == nullptr ? 0 : recorder_->memory_changes(); }

  // Steps are those of `step` from now on, which was bound. `changes_before`: memory_changes()
  // before it was. `obstacle`: FindGraphObstacle, or another reason of the caller.
  void Enter(const BoundStep* step, int64_t changes_before, std::string obstacle);
  // The step, which is not the current one, does not come again.
  void Forget(const BoundStep* step) { steps_.erase(step); }

  // One step, which `launch` launches op by op. `addresses`: of memory that may move. In mode
  // kAuto, a step that cannot be recorded runs op by op, now and later. FailedPrecondition with the
  // obstacle in mode kOn; there, errors of a recording are those of the op.
  absl::Status Run(const std::function<absl::Status()>& launch,
                   absl::Span<const void* const> addresses);

  const GraphUse& use() const { return use_; }
  // While `launch` is called to record.
  bool is_recording() const { return is_recording_; }

 private:
  struct Step {
    std::vector<const void*> addresses;  // when it ran last; empty: it has not
    std::unique_ptr<Graph> graph;
    std::string obstacle;
  };

  absl::Status RunOps(const std::function<absl::Status()>& launch);
  // Drops all graphs. Steps except `kept` run op by op before they are recorded.
  void DropIfChanged(int64_t changes_before, const Step* kept);
  absl::Status Record(const std::function<absl::Status()>& launch);
  absl::Status ForkAndJoin(const std::function<absl::Status()>& launch);

  GraphRecorder* const recorder_;
  Device* device_;
  const absl::Span<const std::unique_ptr<Stream>> streams_;
  GraphUse use_;
  std::map<const BoundStep*, Step> steps_;
  Step* step_ = nullptr;
  bool is_recording_ = false;
  std::vector<std::unique_ptr<Event>> events_;  // by stream
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_STEP_GRAPH_H_
