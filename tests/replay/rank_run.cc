#include "tests/replay/rank_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/communication_ops.h"

namespace weft::testing {
namespace {

constexpr int kComputeStream = 0;

}  // namespace

const ReplayOp* RankRun::RunToCall() {
  while (!frames_.empty() && unsupported_.empty()) {
    RunningBlock& frame = frames_.back();
    if (frame.next == program_.blocks[frame.block].size()) {
      frames_.pop_back();
      continue;
    }
    const ReplayOp& op = program_.blocks[frame.block][frame.next++];
    storage_.set_block(frame.block);
    if (op.call != RankCall::kNone) return &op;
    Run(op);
  }
  return nullptr;
}

RunGraph RankRun::Pending() {
  graph_.Block(kComputeStream);
  return graph_.Pending();
}

void RankRun::SetUp(const ReplayOp& op, ValueId id) {
  graph_.Block(kComputeStream);
  if (op.call != RankCall::kMakeId) return;
  for (const SlotArg& out : op.outputs) storage_.Write(out.name, id);
}

std::string RankRun::Signature(const ReplayOp& op) const {
  std::string text = absl::StrCat(CollectiveKindName(op.collective->kind), " ",
                                  ReductionName(op.collective->reduction));
  if (!op.collective->root_attr.empty()) {
    absl::StrAppend(&text, " root ", NumberOf(*op.desc, op.collective->root_attr));
  }
  for (const SlotArg& arg : op.inputs) {
    if (arg.slot != "X") continue;
    const pb::VarDesc* var = storage_.Var(arg.name);
    if (var == nullptr) continue;
    absl::StrAppend(&text, " of ", TypeText(*var));
    const std::vector<std::string>* slices = storage_.SliceTypesOf(arg.name);
    if (slices == nullptr) continue;
    for (const std::string& slice : *slices) absl::StrAppend(&text, " ", slice);
  }
  return text;
}

std::vector<std::vector<CellId>> RankRun::Cells(const ReplayOp& op, const std::string& slot,
                                                bool input) {
  std::vector<std::vector<CellId>> cells;
  for (const SlotArg& arg : input ? op.inputs : op.outputs) {
    if (arg.slot == slot) cells.push_back(storage_.CellsOf(arg.name));
  }
  return cells;
}

void RankRun::SetValue(const ReplayOp& op, size_t out, CellId cell, ValueId value) {
  size_t i = 0;
  for (const SlotArg& arg : op.outputs) {
    if (arg.slot != "Out") continue;
    if (i++ == out) storage_.SetValue(cell, arg.name, value);
  }
}

int RankRun::StreamOf(const ReplayOp& op) const {
  return op.on_compute ? kComputeStream : op.ring + 1;
}

void RankRun::Issue(const ReplayOp& op, int stream) {
  std::vector<RunGraph::Access> accesses;
  for (const SlotArg& arg : op.inputs) {
    for (CellId cell : storage_.CellsOf(arg.name)) accesses.push_back({cell, false});
  }
  for (const SlotArg& arg : op.outputs) {
    for (CellId cell : storage_.CellsOf(arg.name)) accesses.push_back({cell, true});
  }
  graph_.Issue(stream, std::move(accesses), op.place);
}

void RankRun::Run(const ReplayOp& op) {
  if (op.sync.has_value()) return Synchronize(op);
  if (op.type == "coalesce_tensor") return Coalesce(op);
  if (op.type == "conditional_block") return Branch(op);
  if (op.sub_block >= 0) {
    unsupported_ = op.type;
    return;
  }
  Issue(op, kComputeStream);
  values_.Compute(op);
}

void RankRun::Synchronize(const ReplayOp& op) {
  const bool uses_ring =
      *op.sync != StreamSync::kAllWaitForCompute && *op.sync != StreamSync::kStreamWaitsForStream;
  if (uses_ring && setting_.rings != nullptr && setting_.rings->count(op.ring) == 0) {
    failure_ = absl::StrCat("deadlock: ring ", op.ring, " is not set up");
    frames_.clear();
    return;
  }
  const int ring = op.ring + 1;
  switch (*op.sync) {
    case StreamSync::kRingWaitsForCompute:
      return graph_.Wait(kComputeStream, ring);
    case StreamSync::kComputeWaitsForRing:
      return graph_.Wait(ring, kComputeStream);
    case StreamSync::kAllWaitForCompute:
      return graph_.Block(kComputeStream);
    case StreamSync::kAllWaitForRing:
      return graph_.Block(ring);
    case StreamSync::kStreamWaitsForStream:
      unsupported_ = op.type;
      return;
  }
}

void RankRun::Branch(const ReplayOp& op) {
  graph_.Block(kComputeStream);
  bool runs = true;
  for (const SlotArg& arg : op.inputs) {
    if (arg.slot == "Cond" && NumberOf(*op.desc, "is_scalar_condition") != 0) {
      runs = runs && IsTrue(storage_.Read(arg.name));
    }
  }
  if (runs) frames_.push_back({op.sub_block, 0});
}

bool RankRun::IsTrue(ValueId condition) {
  const absl::optional<double> number = table_.NumberOf(condition);
  if (number.has_value()) return *number != 0;
  ++num_guesses_;
  // By chance, but the same for the same value.
  return (((condition + 1) * 2654435761U) >> (7 + setting_.seed) & 1) != 0;
}

void RankRun::Coalesce(const ReplayOp& op) {
  const bool copies = NumberOf(*op.desc, "copy_data") != 0;
  const bool fills = NumberOf(*op.desc, "set_constant") != 0;
  std::vector<std::string> from, to;
  std::string buffer;
  for (const SlotArg& arg : op.inputs) {
    if (arg.slot == "Input") from.push_back(arg.name);
  }
  for (const SlotArg& arg : op.outputs) {
    if (arg.slot == "Output") to.push_back(arg.name);
    if (arg.slot == "FusedOutput") buffer = arg.name;
  }
  std::vector<RunGraph::Access> accesses;
  std::vector<ValueId> old(to.size(), 0);
  for (size_t i = 0; copies && i < std::min(from.size(), to.size()); ++i) {
    old[i] = storage_.Read(from[i]);
    for (CellId cell : storage_.CellsOf(from[i])) accesses.push_back({cell, false});
  }
  std::vector<CellId> slices;
  std::vector<std::string> types;
  for (size_t i = 0; i < to.size(); ++i) {
    ValueId value = table_.Named(absl::StrCat("undefined slice ", to[i], " ", setting_.rank));
    if (copies) value = old[i];
    if (fills) value = table_.Number(NumberOf(*op.desc, "constant"));
    const CellId cell = storage_.AddSlice(to[i], value);
    slices.push_back(cell);
    if (copies || fills) accesses.push_back({cell, true});
    const pb::VarDesc* var = storage_.Var(to[i]);
    types.push_back(var == nullptr ? "" : TypeText(*var));
  }
  if (!buffer.empty()) storage_.SetSlices(buffer, std::move(slices), std::move(types));
  graph_.Issue(kComputeStream, std::move(accesses), op.place);
}

}  // namespace weft::testing
