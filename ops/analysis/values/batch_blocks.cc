#include "absl/algorithm/container.h"
#include "ops/analysis/values/batch_interpreter.h"

namespace weft {
namespace {

constexpr int kMaxVisitsOfBlock = 64;

}  // namespace

bool BatchInterpreter::ConditionHolds(const Op& op, absl::string_view slot) {
  for (Symbol name : op.Input(slot)) {
    if (Read(name).relation.IsSame()) continue;
    if (!has_effect_[op.id().value()]) flow_.conditions_.push_back({op.id(), name, Read(name)});
    has_effect_[op.id().value()] = true;
    return false;
  }
  return true;
}

bool BatchInterpreter::WalkBlocks(const Op& op, bool runs_alike) {
  bool has_changed = false;
  // What decides about the block, or goes into it, affects only what depends on it.
  const bool affects =
      absl::c_any_of(op.Input("Cond"), [&](Symbol name) { return Read(name).is_affected; });
  for (int block : op.SubBlocks()) {
    WalkBlock(block, kMaxVisitsOfBlock,
              [&](const LogEntry& entry, const BatchValue& inside, bool is_followed) {
                is_affected_ = affects;
                has_changed |= Leave(op, entry, inside, runs_alike && is_followed);
              });
    is_affected_ = affects;
  }
  return has_changed;
}

bool BatchInterpreter::Leave(const Op& op, const LogEntry& entry, BatchValue inside,
                             bool is_known) {
  const bool had_value = entry.is_held || OutlivesStep(entry.var) || start_.contains(entry.var);
  if (!is_known) {
    inside = BatchValue(BatchRelation::Unrelated(), op.id());
  } else if (had_value) {
    Merge(entry.value, &inside, op.id());
  }
  Write(op, entry.var, inside);
  return inside.relation != entry.value.relation;
}

void BatchInterpreter::VisitBranch(const Op& op) {
  for (int block : op.SubBlocks()) branches_[block] = op.id();
  WalkBlocks(op, ConditionHolds(op, "Cond"));
}

void BatchInterpreter::VisitLoop(const Op& op, const SignatureFacts& facts) {
  const bool is_loop = facts.schema != nullptr && facts.schema->Has(Trait::kLoop);
  for (int i = 0; i < kMaxIterations; ++i) {
    const bool runs_alike = is_loop && ConditionHolds(op, "Condition");
    if (!WalkBlocks(op, runs_alike && i + 1 < kMaxIterations)) break;
  }
  // What the loop passes on from iteration to iteration may decide about the next.
  if (is_loop && !ConditionHolds(op, "Condition")) WalkBlocks(op, false);
  // An unknown op may make them of anything.
  if (!is_loop) WriteAll(op, op.output_args(), BatchValue(BatchRelation::Unrelated(), op.id()));
}

void BatchInterpreter::VisitBlockGrad(const Op& op, const SignatureFacts& facts) {
  if (!facts.schema->Has(Trait::kLoop)) return VisitBranchGrad(op);
  flow_.loop_gradients_.push_back(op.id());
  TakeAtItsName(op, facts);
}

}  // namespace weft
