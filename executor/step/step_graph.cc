#include "executor/step/step_graph.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/communicator.h"
#include "executor/step/step_calls.h"

namespace weft {
namespace {

// For each op, why a graph cannot stand for it.
absl::string_view ObstacleOf(const ServerCall&) {
  return "exchanges values with parameter servers";
}
absl::string_view ObstacleOf(const ControlCall&) { return "moves values on the host"; }
absl::string_view ObstacleOf(const RowsCall& call) {
  return call.communicator == OutsideOfRing() ? "" : "communicates rows, which the host merges";
}
template <typename Call>
absl::string_view ObstacleOf(const Call& call) {
  if constexpr (std::is_base_of_v<KernelCall, Call>) {
    if (call.kernel.kernel().uses_host) return "uses the host";
    if (!call.is_static) return "has types that are known only when it runs";
  } else if (call.communicator != OutsideOfRing()) {
    return "communicates: each rank decides when it records";
  }
  return "";
}

}  // namespace

std::string FindGraphObstacle(const Plan& plan, const BoundStep& step) {
  if (plan.on_two_devices) return "the program is on two devices";
  for (const StepCall& call : step.calls()) {
    if (std::holds_alternative<SynchronizeCall>(call.work)) {
      return absl::StrCat("the host waits for stream ", plan.stream_names[call.stream]);
    }
    if (const auto* const branch = std::get_if<BranchCall>(&call.work)) {
      return absl::StrCat(step.branches()[branch->branch].name,
                          " has a block, whose condition the host reads");
    }
    std::string obstacle;
    ForEachOp(call, [&](const auto& op) {
      const absl::string_view found = ObstacleOf(op);
      if (obstacle.empty() && !found.empty()) obstacle = absl::StrCat(op.op->name, " ", found);
    });
    if (!obstacle.empty()) return obstacle;
  }
  return "";
}

void StepGraph::Enter(const BoundStep* step, int64_t changes_before, std::string obstacle) {
  step_ = &steps_[step];
  DropIfChanged(changes_before, /*kept=*/nullptr);
  if (recorder_ == nullptr) obstacle = "the device records no graphs";
  if (!obstacle.empty()) step_->obstacle = std::move(obstacle);
  if (!step_->obstacle.empty()) use_.obstacle = step_->obstacle;
}

void StepGraph::DropIfChanged(int64_t changes_before, const Step* kept) {
  if (memory_changes() == changes_before) return;
  for (auto& [key, step] : steps_) {
    step.graph = nullptr;
    if (&step != kept) step.addresses.clear();
  }
}

absl::Status StepGraph::Run(const std::function<absl::Status()>& launch,
                            absl::Span<const void* const> addresses) {
  ++use_.steps;
  if (!step_->obstacle.empty()) {
    if (use_.mode != GraphMode::kOn) return RunOps(launch);
    return absl::FailedPreconditionError(
        absl::StrCat("the step cannot run as a graph: ", step_->obstacle));
  }
  if (step_->addresses.empty() || !absl::c_equal(addresses, step_->addresses)) {
    step_->graph = nullptr;
    step_->addresses.assign(addresses.begin(), addresses.end());
    return RunOps(launch);
  }
  if (step_->graph == nullptr) {
    const absl::Status recorded = Annotate("recording a graph", Record(launch));
    if (!recorded.ok() && use_.mode == GraphMode::kOn) return recorded;
    if (!recorded.ok()) {
      for (const std::unique_ptr<Stream>& stream : streams_) stream->ForgetErrors();
      use_.obstacle = step_->obstacle = std::string(recorded.message());
      return RunOps(launch);
    }
  }
  ++use_.replayed;
  return recorder_->Launch(step_->graph.get(), streams_[0].get());
}

absl::Status StepGraph::RunOps(const std::function<absl::Status()>& launch) {
  const int64_t before = memory_changes();
  const absl::Status status = launch();
  DropIfChanged(before, /*kept=*/step_);
  return status;
}

absl::Status StepGraph::Record(const std::function<absl::Status()>& launch) {
  while (events_.size() < streams_.size()) {
    WEFT_ASSIGN_OR_RETURN(events_.emplace_back(), device_->NewEvent());
  }
  WEFT_RETURN_IF_ERROR(recorder_->Begin(streams_[0].get()));
  is_recording_ = true;
  const absl::Status launched = ForkAndJoin(launch);
  is_recording_ = false;
  absl::StatusOr<std::unique_ptr<Graph>> graph = recorder_->End(streams_[0].get());
  WEFT_RETURN_IF_ERROR(launched);
  // The error of an op says more than what it makes of the recording.
  for (const std::unique_ptr<Stream>& stream : streams_) {
    WEFT_RETURN_IF_ERROR(stream->Synchronize());
  }
  WEFT_RETURN_IF_ERROR(graph.status());
  step_->graph = *std::move(graph);
  ++use_.recorded;
  return absl::OkStatus();
}

// The other streams record from their wait for the first one on, which waits for them at the end.
absl::Status StepGraph::ForkAndJoin(const std::function<absl::Status()>& launch) {
  streams_[0]->Record(events_[0].get());
  for (size_t i = 1; i < streams_.size(); ++i) streams_[i]->Wait(events_[0].get());
  const absl::Status status = launch();
  for (size_t i = 1; i < streams_.size(); ++i) {
    streams_[i]->Record(events_[i].get());
    streams_[0]->Wait(events_[i].get());
  }
  return status;
}

}  // namespace weft
