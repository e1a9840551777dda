#include "executor/step/step_graph.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"

namespace weft {
namespace {

std::string ObstacleOf(const Plan::PlanOp& op, const BoundOp& bound) {
  if (op.server.has_value()) return "exchanges values with parameter servers";
  if (bound.communicator == OutsideOfRing()) return "";
  if (bound.communicator != nullptr) return "communicates: ranks rendezvous on the host";
  if (op.control) return "moves values on the host";
  if (bound.kernel.kernel().uses_host) return "uses the host";
  if (!bound.is_static) return "has types that are known only when it runs";
  return "";
}

}  // namespace

std::string FindGraphObstacle(const Plan& plan, BoundStep* step) {
  using Kind = Plan::Instruction::Kind;
  if (plan.on_two_devices) return "the program is on two devices";
  for (const Plan::Instruction& instruction : step->instructions()) {
    if (instruction.kind == Kind::kSynchronize) {
      return absl::StrCat("the host waits for stream ", plan.stream_names[instruction.stream]);
    }
    if (instruction.kind == Kind::kBranch) {
      return absl::StrCat(step->branches()[instruction.index].name,
                          " has a block, whose condition the host reads");
    }
    if (instruction.kind != Kind::kRunOp) continue;
    const BoundOp& bound = step->op(instruction.index);
    const std::string obstacle = ObstacleOf(*bound.op, bound);
    if (!obstacle.empty()) return absl::StrCat(bound.op->name, " ", obstacle);
  }
  return "";
}

void StepGraph::Reset(std::string obstacle) {
  graph_ = nullptr;
  addresses_.clear();
  use_.obstacle = std::move(obstacle);
  if (device_->graphs() == nullptr) use_.obstacle = "the device records no graphs";
}

absl::Status StepGraph::Run(const std::function<absl::Status()>& launch,
                            absl::Span<const void* const> addresses) {
  ++use_.steps;
  if (!use_.obstacle.empty()) {
    if (use_.mode != GraphMode::kOn) return launch();
    return absl::FailedPreconditionError(
        absl::StrCat("the step cannot run as a graph: ", use_.obstacle));
  }
  if (addresses_.empty() || !absl::c_equal(addresses, addresses_)) {
    graph_ = nullptr;
    addresses_.assign(addresses.begin(), addresses.end());
    return launch();
  }
  if (graph_ == nullptr) WEFT_RETURN_IF_ERROR(Annotate("recording a graph", Record(launch)));
  ++use_.replayed;
  return device_->graphs()->Launch(graph_.get(), streams_[0].get());
}

absl::Status StepGraph::Record(const std::function<absl::Status()>& launch) {
  while (events_.size() < streams_.size()) {
    WEFT_ASSIGN_OR_RETURN(events_.emplace_back(), device_->NewEvent());
  }
  WEFT_RETURN_IF_ERROR(device_->graphs()->Begin(streams_[0].get()));
  const absl::Status launched = ForkAndJoin(launch);
  absl::StatusOr<std::unique_ptr<Graph>> graph = device_->graphs()->End(streams_[0].get());
  WEFT_RETURN_IF_ERROR(launched);
  // The error of an op says more than what it makes of the recording.
  for (const std::unique_ptr<Stream>& stream : streams_) {
    WEFT_RETURN_IF_ERROR(stream->Synchronize());
  }
  WEFT_RETURN_IF_ERROR(graph.status());
  graph_ = *std::move(graph);
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
