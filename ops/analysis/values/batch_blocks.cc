#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/analysis/values/batch_interpreter.h"

namespace weft {
namespace {

constexpr int kMaxVisitsOfBlock = 64;

// Of one step of a sequence, whose steps lie along dimension 0, and of a sequence of such steps.
BatchRelation OfStep(BatchRelation sequence) {
  if (!sequence.IsSharded()) return sequence;
  return sequence.axis == 0 ? BatchRelation::Unrelated() : sequence.Along(sequence.axis - 1);
}
BatchRelation OfSequence(BatchRelation step) {
  return step.IsSharded() ? step.Along(step.axis + 1) : step;
}

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

// In the block, sequences are steps, and a state begins as it was after the step before. Of these
// variables the op itself writes those that the block only reads.
void BatchInterpreter::VisitRecurrent(const Op& op) {
  const Block block = program_.block(op.SubBlocks()[0]);
  const auto inside = [&](absl::string_view name) {
    const Symbol symbol = program_.FindSymbol(name);
    return symbol.valid() ? block.FindVar(symbol) : VarId();
  };
  const auto with = [](BatchValue value, BatchRelation relation) {
    value.relation = relation;
    return value;
  };
  for (Symbol sequence : op.Input("inputs")) {
    const BatchValue value = Read(sequence);
    const VarId step = inside(program_.name(sequence));
    if (step.valid()) Write(op, step, with(value, OfStep(value.relation)));
  }
  const absl::Span<const Symbol> initial = op.Input("initial_states");
  const std::vector<std::string> before =
      op.StringsAttr("ex_states").value_or(std::vector<std::string>());
  const std::vector<std::string> after =
      op.StringsAttr("states").value_or(std::vector<std::string>());
  const size_t num_states = std::min({initial.size(), before.size(), after.size()});
  for (size_t i = 0; i < num_states; ++i) {
    if (inside(before[i]).valid()) Write(op, inside(before[i]), Read(initial[i]));
  }
  for (int walk = 0, is_changed = 1; is_changed != 0; ++walk) {
    WalkBlocks(op, /*runs_alike=*/true);
    is_changed = 0;
    for (size_t i = 0; i < num_states; ++i) {
      const VarId state = inside(before[i]), passed = inside(after[i]);
      if (!state.valid() || !passed.valid()) continue;
      BatchValue value = at(passed);
      Merge(at(state), &value, op.id());
      if (walk + 1 >= kMaxIterations) value = BatchValue(BatchRelation::Unrelated(), op.id());
      if (value.relation != at(state).relation) is_changed = 1;
      Write(op, state, value);
    }
  }
  for (Symbol output : op.Output("outputs")) {
    const VarId step = inside(program_.name(output));
    const BatchValue value =
        step.valid() ? at(step) : BatchValue(BatchRelation::Unrelated(), op.id());
    Write(op, output, with(value, OfSequence(value.relation)));
  }
}

void BatchInterpreter::VisitLoop(const Op& op, const SignatureFacts& facts) {
  if (facts.schema != nullptr && facts.schema->FindAttr("ex_states") != nullptr) {
    return VisitRecurrent(op);
  }
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
