// Assigns ops to streams, and adds waits.
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "executor/plan/plan_builder.h"

namespace weft {
namespace {

constexpr int kComputeStream = 0;

// In the order of their streams.
constexpr DeviceStream::Kind kDeviceStreams[] = {
    DeviceStream::Kind::kHost, DeviceStream::Kind::kToHost, DeviceStream::Kind::kFromHost};

}  // namespace

void PlanBuilder::AddStreams() {
  std::set<int> ring_ids;
  for (const RingKey& ring : plan_.rings) {
    if (!ring.on_compute_stream) ring_ids.insert(ring.ring_id);
  }
  plan_.stream_names.push_back("compute");
  for (int ring_id : ring_ids) {
    stream_of_ring_[ring_id] = static_cast<int>(plan_.stream_names.size());
    plan_.stream_names.push_back(absl::StrCat("ring ", ring_id));
  }
  if (!plan_.on_two_devices) return;
  first_device_stream_ = static_cast<int>(plan_.stream_names.size());
  for (DeviceStream::Kind kind : kDeviceStreams) {
    plan_.stream_names.emplace_back(DeviceStreamName(kind));
  }
}

int PlanBuilder::StreamOf(DeviceStream stream) const {
  if (stream.kind == DeviceStream::Kind::kAccelerator) return kComputeStream;
  if (stream.kind == DeviceStream::Kind::kRing) {
    const auto it = stream_of_ring_.find(stream.ring_id);
    return it == stream_of_ring_.end() ? -1 : it->second;
  }
  for (size_t i = 0; first_device_stream_ >= 0 && i < std::size(kDeviceStreams); ++i) {
    if (kDeviceStreams[i] == stream.kind) return first_device_stream_ + static_cast<int>(i);
  }
  return -1;
}

void PlanBuilder::AddInstructions(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kOp:
      return AddRunOp(step.index);
    case Step::Kind::kSync:
      return AddSync(step);
    case Step::Kind::kBeginBranch:
      AddBranchInstruction(step.index);
      plan_.branches[step.index].begin = NextInstruction();
      return;
    case Step::Kind::kEndBranch:
      plan_.branches[step.index].end = NextInstruction();
      plan_.branches[step.index].next = NextInstruction();
      return;
    case Step::Kind::kBranchBack: {
      AddBranchInstruction(step.index);
      const Plan::Branch& first = plan_.branches[step.first_branch];
      Plan::Branch& branch = plan_.branches[step.index];
      branch.begin = first.begin;
      branch.end = first.end;
      branch.next = NextInstruction();
      return;
    }
  }
}

void PlanBuilder::AddBranchInstruction(int index) {
  Plan::Branch& branch = plan_.branches[index];
  branch.stream = StreamOf({ComputeStreamOf(branch.device), -1});
  plan_.instructions.push_back({Plan::Instruction::Kind::kBranch, branch.stream, index});
}

void PlanBuilder::AddRunOp(int index) {
  const Plan::PlanOp& op = plan_.ops[index];
  DeviceStream stream{ComputeStreamOf(op.device), -1};
  const Plan::RingWork* const work = op.ring_work();
  if (work != nullptr && !plan_.rings[work->ring].on_compute_stream) {
    stream = {DeviceStream::Kind::kRing, plan_.rings[work->ring].ring_id};
  } else if (op.Is<Plan::CopyWork>()) {
    stream.kind = CopyStreamFrom(op.device);
  }
  plan_.instructions.push_back({Plan::Instruction::Kind::kRunOp, StreamOf(stream), index});
}

void PlanBuilder::AddSync(const Step& step) {
  const int awaited = StreamOf(step.awaited);
  switch (step.sync) {
    case StreamSync::kAllWaitForCompute:
    case StreamSync::kAllWaitForRing:
      return AddHostSync(awaited);
    case StreamSync::kRingWaitsForCompute:
    case StreamSync::kComputeWaitsForRing:
    case StreamSync::kStreamWaitsForStream:
      return AddWaits(awaited, {StreamOf(step.waiting)});
  }
}

void PlanBuilder::AddHostSync(int stream) {
  if (stream < 0) return;
  if (options_.strict_host_sync) {
    plan_.instructions.push_back({Plan::Instruction::Kind::kSynchronize, stream, -1});
    return;
  }
  std::vector<int> others;
  for (size_t other = 0; other < plan_.stream_names.size(); ++other) {
    if (static_cast<int>(other) != stream) others.push_back(static_cast<int>(other));
  }
  AddWaits(stream, others);
}

void PlanBuilder::AddWaits(int from, const std::vector<int>& to) {
  using Kind = Plan::Instruction::Kind;
  if (from < 0 || to.empty() || to[0] < 0 || to[0] == from) return;
  const int event = plan_.num_events++;
  plan_.instructions.push_back({Kind::kRecord, from, event});
  for (int stream : to) plan_.instructions.push_back({Kind::kWait, stream, event});
}

}  // namespace weft
