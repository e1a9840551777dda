// Assigns ops to streams, and adds waits.
#include <set>

#include "absl/strings/str_cat.h"
#include "executor/plan_builder.h"

namespace weft {
namespace {

constexpr int kComputeStream = 0;

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
}

int PlanBuilder::StreamOfRing(int ring_id) const {
  const auto it = stream_of_ring_.find(ring_id);
  return it == stream_of_ring_.end() ? -1 : it->second;
}

void PlanBuilder::AddInstructions(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kOp:
      return AddRunOp(step.index);
    case Step::Kind::kSync:
      return AddSync(step.sync, StreamOfRing(step.ring_id));
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

void PlanBuilder::AddBranchInstruction(int branch) {
  plan_.instructions.push_back({Plan::Instruction::Kind::kBranch, kComputeStream, branch});
}

void PlanBuilder::AddRunOp(int index) {
  const int ring = plan_.ops[index].ring;
  const bool on_compute = ring < 0 || plan_.rings[ring].on_compute_stream;
  const int stream = on_compute ? kComputeStream : StreamOfRing(plan_.rings[ring].ring_id);
  plan_.instructions.push_back({Plan::Instruction::Kind::kRunOp, stream, index});
}

void PlanBuilder::AddSync(StreamSync sync, int ring) {
  switch (sync) {
    case StreamSync::kRingWaitsForCompute:
      return AddWaits(kComputeStream, {ring});
    case StreamSync::kComputeWaitsForRing:
      return AddWaits(ring, {kComputeStream});
    case StreamSync::kAllWaitForCompute:
      return AddHostSync(kComputeStream);
    case StreamSync::kAllWaitForRing:
      return AddHostSync(ring);
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
  if (from < 0 || to.empty() || to[0] < 0) return;
  const int event = plan_.num_events++;
  plan_.instructions.push_back({Kind::kRecord, from, event});
  for (int stream : to) plan_.instructions.push_back({Kind::kWait, stream, event});
}

}  // namespace weft
