#include "absl/algorithm/container.h"
#include "ops/analysis/values/batch_interpreter.h"

namespace weft {
namespace {

// The number of ways into a block may be exponential in the size of the program.
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
    const bool is_followed = visits_[block] < kMaxVisitsOfBlock && !is_entered_.contains(block);
    ++visits_[block];
    walk_.BeginLog();
    if (is_followed) {
      is_entered_.insert(block);
      Walk(block);
      is_entered_.erase(block);
    } else {
      CollectWrites(op, block);
    }
    const std::vector<LogEntry> log = walk_.EndLog();
    is_affected_ = affects;
    has_changed |= Leave(op, block, log, runs_alike && is_followed);
  }
  return has_changed;
}

bool BatchInterpreter::Leave(const Op& op, int block, const std::vector<LogEntry>& log,
                             bool is_known) {
  bool has_changed = false;
  for (const LogEntry& entry : log) {
    const Var var = program_.var(entry.var);
    if (var.block() == block && !var.persistable()) continue;
    BatchValue value = walk_.TakeBack(entry);
    const bool had_value =
        entry.is_held || walk_.OutlivesStep(entry.var) || start_.contains(entry.var);
    if (!is_known) {
      value = BatchValue(BatchRelation::Unrelated(), op.id());
    } else if (had_value) {
      Merge(entry.value, &value, op.id());
    }
    has_changed |= value.relation != entry.value.relation;
    Write(op, entry.var, value);
  }
  return has_changed;
}

void BatchInterpreter::CollectWrites(const Op& op, int block) {
  for (OpId id : program_.block(block).ops()) {
    for (Symbol name : program_.op(id).output_args()) {
      const VarId var = program_.block(block).Resolve(name);
      if (var.valid()) Write(op, var, walk_.at(var));
    }
  }
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

}  // namespace weft
