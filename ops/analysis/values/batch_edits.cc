#include "ops/analysis/values/batch_edits.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/values/sum_losses.h"
#include "ops/schema/algebra.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// Each walk finds at least one edit.
constexpr int kMaxWalks = 16;

bool IsOfForwardPass(const Op& op) {
  return (op.role() & (kRoleBackward | kRoleOptimize | kRoleLrSched)) == 0;
}

// Edits a program until values are what one device has.
class EditFinder {
 public:
  // Adds to the edits of `options`.
  EditFinder(const ProgramFacts& facts, BatchFlowOptions options, BatchFlowOptions::Extent extent)
      : facts_(facts), program_(facts.program()), options_(std::move(options)) {
    options_.extent = extent;
    IndexWriters();
  }
  virtual ~EditFinder() = default;

  BatchEdits Find() {
    const BatchEdits given = options_.edits;
    const Targets all = TargetsOf(BatchFlow::Of(facts_, options_));
    if (all.empty()) return given;
    const Targets failed = EditFor(all);
    if (!failed.empty()) {
      // Again, without those that no edits help.
      options_.edits = given;
      EditFor(Without(failed, all));
    }
    const Targets left = TargetsOf(BatchFlow::Of(facts_, options_));
    if (!Without(failed, left).empty() || !GradientsAreRight()) return given;
    return std::move(options_.edits);
  }

 protected:
  // Variables that are not what one device has.
  using Targets = std::vector<VarId>;

  virtual Targets TargetsOf(const BatchFlow& flow) const = 0;
  // Of values that the edits reduce.
  virtual bool GradientsAreRight() const { return true; }
  // Adds edits of the ops in `needed`. Returns whether there are any.
  virtual bool Edit(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) = 0;

  // Those that decide whether and how often blocks run.
  void AppendConditions(const BatchFlow& flow, Targets* targets) const {
    for (const BatchCondition& condition : flow.conditions()) {
      const Op op = program_.op(condition.op);
      for (const char* slot : {"Cond", "Condition"}) {
        for (Symbol name : op.Input(slot)) {
          const VarId var = program_.block(op.block()).Resolve(name);
          if (var.valid() && !flow.AtEnd(var).relation.IsSame()) targets->push_back(var);
        }
      }
    }
  }

  void IndexWriters() {
    const Block& root = program_.block(0);
    for (OpId id : root.ops()) {
      const Op op = program_.op(id);
      for (Symbol name : op.output_args()) {
        const VarId var = root.FindVar(name);
        if (!var.valid()) continue;
        OpId& writer = writers_[var];
        if (writer.valid()) has_several_writers_.insert(var);
        if (!writer.valid() || !IsBackward(op)) writer = id;
      }
      // Blocks may write what their op does not name.
      for (const Op& inner : OpsInside(op)) {
        for (Symbol name : inner.output_args()) {
          const VarId var = program_.block(inner.block()).Resolve(name);
          if (var.valid()) has_several_writers_.insert(var);
        }
      }
    }
  }

  static Targets Without(const Targets& some, const Targets& all) {
    Targets others;
    for (VarId target : all) {
      if (!absl::c_linear_search(some, target)) others.push_back(target);
    }
    return others;
  }

  // Adds edits for the targets. Returns those that still are not what one device has.
  Targets EditFor(const Targets& wanted) {
    const absl::flat_hash_set<OpId> needed = OpsFor(wanted);
    Targets left;
    for (int walk = 0; walk < kMaxWalks && !wanted.empty(); ++walk) {
      const BatchFlow flow = BatchFlow::Of(facts_, options_);
      left.clear();
      for (VarId target : TargetsOf(flow)) {
        if (absl::c_linear_search(wanted, target)) left.push_back(target);
      }
      if (!Edit(flow, needed)) break;
    }
    return left;
  }

  // The ops of the root block from which the variables are computed.
  absl::flat_hash_set<OpId> OpsFor(const Targets& variables) const {
    absl::flat_hash_set<OpId> ops;
    std::vector<VarId> open = variables;
    while (!open.empty()) {
      const auto writer = writers_.find(open.back());
      open.pop_back();
      if (writer == writers_.end() || !ops.insert(writer->second).second) continue;
      for (Symbol name : program_.op(writer->second).input_args()) {
        const VarId var = program_.block(0).FindVar(name);
        if (var.valid()) open.push_back(var);
      }
    }
    return ops;
  }

  absl::optional<TensorType> TypeOf(Symbol name) const {
    const VarId var = program_.block(0).FindVar(name);
    return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  }

  // The relations of the op's outputs for other inputs.
  std::vector<BatchRelation> OutputsOf(const Op& op, const std::vector<BatchRelation>& inputs) {
    return ApplyBatchRule(
               op, FindOpSchema(op.type()), [&](Symbol name) { return TypeOf(name); }, inputs)
        .relations;
  }

  bool IsFloat(VarId var) const {
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    return type.has_value() && IsFloating(type->dtype);
  }

  bool AnyHasGradient(absl::Span<const Symbol> names) const {
    return absl::c_any_of(names, [&](Symbol name) {
      const VarId var = program_.block(0).FindVar(name);
      return var.valid() && HasGradient(var);
    });
  }

  // Invalid: it has none.
  VarId GradientOf(VarId var) const {
    const Symbol gradient =
        program_.FindSymbol(absl::StrCat(program_.var(var).name(), kGradSuffix));
    const VarId of = gradient.valid() ? program_.block(0).FindVar(gradient) : VarId();
    return of.valid() && writers_.contains(of) ? of : VarId();
  }
  bool HasGradient(VarId var) const { return GradientOf(var).valid(); }

  const ProgramFacts facts_;
  const Program& program_;
  BatchFlowOptions options_;
  absl::flat_hash_map<VarId, OpId> writers_;  // in the root block, forward before backward
  absl::flat_hash_set<VarId> has_several_writers_;
};

// Reduces in place what losses are computed from.
class LossEditFinder : public EditFinder {
 public:
  // What becomes of a sum that is divided by a sum: a mean, if the number of ranks is known.
  enum class Quotients : uint8_t { kMeans, kSums };
  // Whether sums that have a gradient may be summed over the ranks, and their gradients, too.
  enum class TrainedSums : uint8_t { kStay, kAreSummed };
  // `of_sums`: of sums that no gradient flows through, if both help.
  LossEditFinder(const ProgramFacts& facts, const BatchFlowOptions& options, Quotients quotients,
                 Reduction of_sums, TrainedSums trained_sums)
      : EditFinder(facts, options, BatchFlowOptions::Extent::kToLosses),
        losses_(facts.Get(FindLosses)),
        quotients_(quotients),
        of_sums_{of_sums, of_sums == Reduction::kSum ? Reduction::kAvg : Reduction::kSum},
        trained_sums_(trained_sums) {}

 private:
  Targets TargetsOf(const BatchFlow& flow) const override {
    Targets targets;
    for (Symbol loss : losses_) {
      const VarId var = program_.block(0).Resolve(loss);
      if (!var.valid()) continue;
      const BatchRelation relation = flow.AtEnd(var).relation;
      const bool is_multiple = relation.IsReplicated() && relation.power != 0;
      if (relation.IsUnrelated() || (is_multiple && trained_sums_ == TrainedSums::kAreSummed)) {
        targets.push_back(var);
      }
    }
    AppendConditions(flow, &targets);
    return targets;
  }

  // Nobody averages the gradients of means: all ranks must have the same. Where ranks go on with
  // their own samples, each has one of its own.
  bool GradientsAreRight() const override {
    std::vector<VarId> gradients;
    for (const auto& [var, reduction] : options_.edits.reductions) {
      if (reduction != Reduction::kSum && HasGradient(var)) gradients.push_back(GradientOf(var));
    }
    if (gradients.empty()) return true;
    BatchFlowOptions options = options_;
    options.extent = BatchFlowOptions::Extent::kOneStep;
    const BatchFlow flow = BatchFlow::Of(facts_, options);
    return absl::c_all_of(
        gradients, [&](VarId gradient) { return flow.AtEnd(gradient).relation.IsReplicated(); });
  }

  bool Edit(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) override {
    if (AddDivisions(flow, needed)) return true;
    bool has_changed = false;
    for (const LostRelation& lost : flow.lost_relations()) {
      if (needed.contains(lost.op)) has_changed |= EditInputs(lost);
    }
    return has_changed;
  }

  // Reduces inputs of an op so that its outputs have known relations. Returns whether it could.
  bool EditInputs(const LostRelation& lost) {
    const Op op = program_.op(lost.op);
    // In this order: without the gradient's path, as few and as cheap as possible.
    for (const bool with_gradients : {false, true}) {
      for (const Reduction of_sums : of_sums_) {
        if (TryEdit(op, lost.inputs, with_gradients, of_sums)) return true;
      }
    }
    return false;
  }

  bool TryEdit(const Op& op, std::vector<BatchRelation> inputs, bool with_gradients,
               Reduction of_sums) {
    std::vector<std::pair<VarId, Reduction>> found;
    for (size_t i = 0; i < inputs.size(); ++i) {
      BatchRelation& in = inputs[i];
      const VarId var = program_.block(0).FindVar(op.input_args()[i]);
      if (!in.IsPartial() || !CanReduce(var) || (HasGradient(var) && !with_gradients)) continue;
      const bool is_sum = in.power == -1 && of_sums == Reduction::kSum &&
                          (!HasGradient(var) || CanSumGradient(var));
      const Reduction reduction = is_sum ? Reduction::kSum : Reduction::kAvg;
      if (!is_sum && !IsFloat(var)) continue;  // the mean of integers is none
      in = BatchRelation::Replicated(is_sum ? 0 : in.power);
      found.emplace_back(var, reduction);
    }
    if (found.empty()) return false;
    // A mean with a gradient on ranks that go on with their own parts would have one of its own on
    // each. Those of sums are summed.
    const bool are_right = absl::c_all_of(found, [&](const auto& one) {
      return one.second == Reduction::kSum || !HasGradient(one.first);
    });
    for (BatchRelation out : OutputsOf(op, inputs)) {
      if (out.IsUnrelated() || (!are_right && !out.IsReplicated())) return false;
    }
    for (const auto& [var, reduction] : found) options_.edits.reductions[var] = reduction;
    return true;
  }

  bool CanReduce(VarId id) const {
    if (!id.valid() || has_several_writers_.contains(id)) return false;
    const Var var = program_.var(id);
    const auto writer = writers_.find(id);
    if (var.persistable() || var.need_check_feed() || writer == writers_.end()) return false;
    return var.block() == 0 && !IsBackward(program_.op(writer->second)) &&
           !IsOptimize(program_.op(writer->second));
  }

  // Over the ranks. That of a loss is what it begins with.
  bool CanSumGradient(VarId var) const {
    const VarId gradient = GradientOf(var);
    return trained_sums_ == TrainedSums::kAreSummed && IsFloat(var) &&
           !has_several_writers_.contains(gradient) &&
           !IsLossGrad(program_.op(writers_.at(gradient)));
  }

  // Of partial sums by replicated values: the quotient becomes a partial mean.
  bool AddDivisions(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) {
    if (!options_.setting.nranks.has_value() || quotients_ == Quotients::kSums) return false;
    bool has_changed = false;
    for (OpId id : needed) {
      const Op op = program_.op(id);
      const absl::Span<const Symbol> x = op.Input("X"), y = op.Input("Y");
      if (AlgebraOf(op, FindOpSchema(op.type())) != Algebra::kDivide) continue;
      if (x.size() != 1 || y.size() != 1 || op.Output("Out").size() != 1 || x[0] == y[0]) continue;
      const VarId dividend = program_.block(0).FindVar(x[0]);
      const VarId divisor = program_.block(0).FindVar(y[0]);
      if (!dividend.valid() || !divisor.valid() || HasGradient(divisor)) continue;
      if (flow.AtEnd(dividend).relation != BatchRelation::PartialSum()) continue;
      if (!flow.AtEnd(divisor).relation.IsSame() || !IsReduced(divisor)) continue;
      const absl::Span<const Symbol> args = op.input_args();
      const size_t i = absl::c_find(args, y[0]) - args.begin();
      has_changed |= options_.edits.inputs[id].emplace(i, BatchInputEdit::kDivide).second;
    }
    return has_changed;
  }

  // Whether the value is computed from one that an edit sums over the ranks.
  bool IsReduced(VarId var) const {
    for (OpId id : OpsFor({var})) {
      for (Symbol name : program_.op(id).output_args()) {
        const VarId out = program_.block(0).FindVar(name);
        if (out.valid() && options_.edits.reductions.contains(out)) return true;
      }
    }
    return false;
  }

  const std::vector<Symbol>& losses_;
  const Quotients quotients_;
  const Reduction of_sums_[2];
  const TrainedSums trained_sums_;
};

// Divides means, and values that all ranks have, by the number of ranks where they are added to
// sums: the whole is a sum over the batch.
class SumTermEditFinder : public EditFinder {
 public:
  SumTermEditFinder(const ProgramFacts& facts, const BatchFlowOptions& options)
      : EditFinder(facts, options, BatchFlowOptions::Extent::kToLosses),
        losses_(facts.Get(FindLosses)) {
    for (OpId id : program_.block(0).ops()) ++num_with_args_[KeyOf(program_.op(id))];
  }

 private:
  Targets TargetsOf(const BatchFlow& flow) const override {
    Targets targets;
    for (Symbol loss : losses_) {
      const VarId var = program_.block(0).Resolve(loss);
      if (var.valid() && flow.AtEnd(var).relation.IsUnrelated()) targets.push_back(var);
    }
    return targets;
  }

  bool Edit(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) override {
    bool has_changed = false;
    for (const LostRelation& lost : flow.lost_relations()) {
      if (needed.contains(lost.op)) has_changed |= EditInputs(program_.op(lost.op), lost.inputs);
    }
    return has_changed;
  }

  bool EditInputs(const Op& op, const std::vector<BatchRelation>& inputs) {
    const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
    const bool adds = algebra == Algebra::kAdd || algebra == Algebra::kSubtract;
    if (!adds || !IsOfForwardPass(op) || inputs.size() != 2 || !HasOneGradientOp(op)) return false;
    if (options_.edits.inputs.count(op.id()) > 0) return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const VarId mean = program_.block(0).FindVar(op.input_args()[i]);
      const VarId sum = program_.block(0).FindVar(op.input_args()[1 - i]);
      const bool is_mean = inputs[i] == BatchRelation::Partial() || inputs[i].IsSame();
      if (!is_mean || inputs[1 - i] != BatchRelation::PartialSum()) continue;
      if (!IsMadeOnce(mean) || !IsMadeOnce(sum) || !IsFloat(mean)) continue;
      options_.edits.inputs[op.id()][i] = BatchInputEdit::kDivide;
      return true;
    }
    return false;
  }

  // By an op of the forward pass.
  bool IsMadeOnce(VarId id) const {
    const auto writer = writers_.find(id);
    return id.valid() && writer != writers_.end() && !has_several_writers_.contains(id) &&
           !program_.var(id).persistable() && IsOfForwardPass(program_.op(writer->second));
  }

  // Of its own type, that reads what it reads.
  bool HasOneGradientOp(const Op& op) const {
    const auto found = num_with_args_.find(KeyOf(op, "_grad"));
    return found != num_with_args_.end() && found->second == 1;
  }

  // Type and operands.
  static std::string KeyOf(const Op& op, absl::string_view suffix = "") {
    std::string key = absl::StrCat(op.type(), suffix);
    for (const char* slot : {"X", "Y"}) {
      const absl::Span<const Symbol> names = op.Input(slot);
      absl::StrAppend(&key, " ", names.size() == 1 ? names[0].value() : 0);
    }
    return key;
  }

  const std::vector<Symbol>& losses_;
  absl::flat_hash_map<std::string, int> num_with_args_;  // ops by KeyOf
};

// Has ops that compare samples read those of all ranks. What follows is computed on every rank as
// on one device.
class SampleEditFinder : public EditFinder {
 public:
  SampleEditFinder(const ProgramFacts& facts, const BatchFlowOptions& options)
      : EditFinder(facts, options, BatchFlowOptions::Extent::kToLosses),
        losses_(facts.Get(FindLosses)) {}

 private:
  // Losses that are a multiple of that of one device count, too.
  Targets TargetsOf(const BatchFlow& flow) const override {
    Targets targets;
    for (Symbol loss : losses_) {
      const VarId var = program_.block(0).Resolve(loss);
      if (!var.valid()) continue;
      const BatchRelation relation = flow.AtEnd(var).relation;
      const bool is_multiple = relation.IsReplicated() && relation.power != 0;
      if (relation.IsUnrelated() || is_multiple) targets.push_back(var);
    }
    return targets;
  }

  bool Edit(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) override {
    bool has_changed = false;
    for (const LostRelation& lost : flow.lost_relations()) {
      if (needed.contains(lost.op)) has_changed |= EditInputs(program_.op(lost.op), lost.inputs);
    }
    if (has_changed || options_.edits.inputs.empty()) return has_changed;
    // Numbers of samples beside what all ranks compute now.
    for (OpId id : needed) {
      const Op op = program_.op(id);
      std::vector<BatchRelation> inputs;
      for (Symbol name : op.input_args()) {
        const VarId in = program_.block(0).FindVar(name);
        inputs.push_back(in.valid() ? flow.AtEnd(in).relation : BatchRelation::Unrelated());
      }
      const bool are_replicated =
          absl::c_all_of(inputs, [](BatchRelation in) { return in.IsReplicated(); });
      const bool has_same = absl::c_any_of(inputs, [](BatchRelation in) { return in.IsSame(); });
      if (are_replicated && has_same) has_changed |= EditInputs(op, inputs);
    }
    return has_changed;
  }

  bool EditInputs(const Op& op, std::vector<BatchRelation> inputs) {
    if (!IsOfForwardPass(op) || FindOpSchema(op.type()) == nullptr) return false;
    if (options_.edits.inputs.count(op.id()) > 0) return false;
    std::map<size_t, BatchInputEdit> edits;
    bool gathers = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!program_.block(0).FindVar(op.input_args()[i]).valid()) continue;
      if (inputs[i].IsSharded() && inputs[i].axis == 0) {
        edits[i] = BatchInputEdit::kGather;
        gathers = true;
      } else if (inputs[i].IsReplicated() && inputs[i].power == -1) {
        edits[i] = BatchInputEdit::kSum;  // a number of samples
      } else {
        continue;
      }
      inputs[i] = AfterEdit(edits[i], inputs[i]);
    }
    const std::vector<BatchRelation> outputs = OutputsOf(op, inputs);
    const bool are_same = absl::c_all_of(outputs, [](BatchRelation out) { return out.IsSame(); });
    if (edits.empty() || !are_same || (gathers && !options_.setting.nranks.has_value()))
      return false;
    options_.edits.inputs[op.id()] = std::move(edits);
    return true;
  }

  const std::vector<Symbol>& losses_;
};

// Has ops read what the ranks have together.
class InputEditFinder : public EditFinder {
 public:
  InputEditFinder(const ProgramFacts& facts, const BatchFlowOptions& options)
      : EditFinder(facts, options, BatchFlowOptions::Extent::kOneStep) {
    FindTrainedOn();
  }

 private:
  // Values of the step on which gradients and updates depend, other than through a state or a
  // condition. O(arguments).
  void FindTrainedOn() {
    const absl::Span<const OpId> ops = program_.block(0).ops();
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op op = program_.op(*id);
      if (!Trains(op)) continue;
      AddReadsOf(op);
      for (const Op& inner : OpsInside(op)) AddReadsOf(inner);
    }
  }

  bool Trains(const Op& op) const {
    const auto trains = [&](const Op& one) {
      return (one.role() & (kRoleBackward | kRoleOptimize)) != 0 ||
             AnyHasGradient(one.output_args()) || AnyIsTrainedOn(one.output_args());
    };
    // Blocks may write what their op does not name.
    return trains(op) || absl::c_any_of(OpsInside(op), trains);
  }

  void AddReadsOf(const Op& op) {
    for (Symbol name : op.input_args()) {
      const VarId var = program_.block(op.block()).Resolve(name);
      const bool is_read = var.valid() && !IsConditionOf(op, name);
      if (is_read && !program_.var(var).persistable()) trained_on_.insert(var);
    }
  }

  bool AnyIsTrainedOn(absl::Span<const Symbol> names) const {
    return absl::c_any_of(names, [&](Symbol name) {
      const VarId var = program_.block(0).FindVar(name);
      return var.valid() && trained_on_.contains(var);
    });
  }

  // Whether the op reads the variable to choose between values that other variables have.
  static bool IsConditionOf(const Op& op, Symbol name) {
    const bool selects = SelectsByMask(op.type());
    for (const char* slot : {"Cond", "Condition", "Mask"}) {
      if (!selects && op.SubBlocks().empty()) return false;
      if (absl::c_linear_search(op.Input(slot), name)) return true;
    }
    return false;
  }

  bool Edit(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) override {
    bool has_changed = false;
    for (const LostRelation& lost : flow.lost_relations()) {
      if (needed.contains(lost.op)) has_changed |= EditInputs(program_.op(lost.op), lost.inputs);
    }
    if (has_changed) return true;
    // Ops that write a state with the relation of their inputs.
    for (VarId var : TargetsOf(flow)) {
      const auto found = writers_.find(var);
      // The condition of a block in a block.
      if (found == writers_.end() || !needed.contains(found->second)) continue;
      const OpId writer = found->second;
      std::vector<BatchRelation> inputs;
      for (Symbol name : program_.op(writer).input_args()) {
        const VarId in = program_.block(0).FindVar(name);
        // The step has overwritten the state.
        const bool is_state = in.valid() && program_.var(in).persistable();
        inputs.push_back(is_state     ? BatchRelation::Replicated()
                         : in.valid() ? flow.AtEnd(in).relation
                                      : BatchRelation::Unrelated());
      }
      has_changed |= EditInputs(program_.op(writer), inputs);
    }
    return has_changed;
  }

  // Whether there are edits after which the outputs are what one device has.
  bool EditInputs(const Op& op, const std::vector<BatchRelation>& inputs) {
    if (!IsOfForwardPass(op) || AnyHasGradient(op.output_args())) return false;
    if (options_.edits.inputs.count(op.id()) > 0) return false;
    const bool is_trained_on = AnyIsTrainedOn(op.output_args());
    for (const BatchInputEdit of_sums : {BatchInputEdit::kAverage, BatchInputEdit::kSum}) {
      std::map<size_t, BatchInputEdit> edits;
      std::vector<BatchRelation> edited = inputs;
      bool is_possible = true;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const VarId var = program_.block(0).FindVar(op.input_args()[i]);
        if (!var.valid() || program_.var(var).persistable()) continue;
        if (inputs[i].IsSharded() && inputs[i].axis == 0 && options_.setting.nranks.has_value()) {
          edits[i] = BatchInputEdit::kGather;
        } else if (inputs[i].IsReplicated() && inputs[i].power == -1) {
          edits[i] = BatchInputEdit::kSum;  // a number of samples
        } else if (inputs[i].IsPartial() && inputs[i].power == -1) {
          edits[i] = of_sums;
        } else if (inputs[i].IsPartial()) {
          edits[i] = BatchInputEdit::kAverage;
        } else {
          continue;
        }
        // The mean of integers is none.
        is_possible = is_possible && (edits[i] != BatchInputEdit::kAverage || IsFloat(var));
        // With the samples of all ranks, training would go on beside labels of the rank alone.
        is_possible = is_possible && (edits[i] != BatchInputEdit::kGather || !is_trained_on);
        edited[i] = AfterEdit(edits[i], inputs[i]);
      }
      const std::vector<BatchRelation> outputs = OutputsOf(op, edited);
      const bool are_same = absl::c_all_of(outputs, [](BatchRelation out) { return out.IsSame(); });
      if (edits.empty() || !is_possible || !are_same) continue;
      options_.edits.inputs[op.id()] = std::move(edits);
      return true;
    }
    return false;
  }

  absl::flat_hash_set<VarId> trained_on_;
};

class StateEditFinder : public InputEditFinder {
 public:
  using InputEditFinder::InputEditFinder;

 private:
  // States that forward ops write.
  Targets TargetsOf(const BatchFlow& flow) const override {
    Targets targets;
    for (VarId var : program_.block(0).vars()) {
      if (!program_.var(var).persistable() || !flow.IsWritten(var)) continue;
      const auto writer = writers_.find(var);
      if (flow.AtEnd(var).relation.IsSame() || writer == writers_.end()) continue;
      if (IsOfForwardPass(program_.op(writer->second))) targets.push_back(var);
    }
    return targets;
  }
};

class ConditionEditFinder : public InputEditFinder {
 public:
  using InputEditFinder::InputEditFinder;

 private:
  Targets TargetsOf(const BatchFlow& flow) const override {
    Targets targets;
    AppendConditions(flow, &targets);
    return targets;
  }
};

// Only where all losses are sums then, and nothing else makes them so: an op that is divided counts
// in another way in gradients of means.
BatchEdits FindSumTermEdits(const ProgramFacts& program, BatchFlowOptions options) {
  if (!options.setting.nranks.has_value()) return {};
  options.edits = SumTermEditFinder(program, options).Find();
  if (options.edits.empty()) return {};
  options.extent = BatchFlowOptions::Extent::kToLosses;
  const BatchFlow flow = BatchFlow::Of(program, options);
  const SumLosses sums = FindSumLosses(program, flow);
  const bool are_all = sums.are_all && !sums.gradients.empty() && flow.forward_reductions().empty();
  return are_all ? std::move(options.edits) : BatchEdits();
}

// For losses that the edits of `options` do not help.
void AddLossEdits(const ProgramFacts& program, LossEditFinder::TrainedSums trained_sums,
                  BatchFlowOptions* options) {
  using Quotients = LossEditFinder::Quotients;
  const auto num_edits = [&] {
    return options->edits.reductions.size() + options->edits.inputs.size();
  };
  const size_t num_before = num_edits();
  // Of a count, a mean of it makes the loss a mean for any number of ranks, but is the n-th part of
  // what a penalty is to be divided by.
  for (const Reduction of_sums : {Reduction::kAvg, Reduction::kSum}) {
    // Samples may be divided before they are summed: such quotients stay sums.
    for (const Quotients quotients : {Quotients::kMeans, Quotients::kSums}) {
      const bool may_differ = quotients == Quotients::kMeans || options->setting.nranks.has_value();
      if (num_edits() > num_before || !may_differ) continue;
      options->edits = LossEditFinder(program, *options, quotients, of_sums, trained_sums).Find();
    }
  }
}

}  // namespace

BatchEdits FindLossEdits(const ProgramFacts& program, BatchFlowOptions options) {
  options.edits = {};
  using TrainedSums = LossEditFinder::TrainedSums;
  AddLossEdits(program, TrainedSums::kStay, &options);
  // Conditions after the losses.
  options.edits = ConditionEditFinder(program, options).Find();
  if (options.edits.empty()) options.edits = FindSumTermEdits(program, options);
  AddLossEdits(program, TrainedSums::kAreSummed, &options);
  return std::move(options.edits);
}

BatchEdits FindSampleEdits(const ProgramFacts& program, BatchFlowOptions options) {
  options.edits = {};
  return SampleEditFinder(program, options).Find();
}

BatchEdits FindStateEdits(const ProgramFacts& program, BatchFlowOptions options) {
  options.edits = {};
  return StateEditFinder(program, options).Find();
}

std::string WhatIfFlows::OptionsFor(Option option,
                                    absl::FunctionRef<bool(const BatchFlow&)> is_wanted) {
  constexpr const char* kTexts[] = {"option:exact_loss", "option:gather_negatives",
                                    "option:statistics true"};
  for (const bool knows_ranks : {false, true}) {
    const BatchFlow* const flow = With(option, knows_ranks);
    if (flow == nullptr || !is_wanted(*flow)) continue;
    const absl::optional<int> nranks = options_.setting.nranks;
    if (!knows_ranks) return kTexts[option];
    return absl::StrCat(kTexts[option], " option:nranks ",
                        nranks.has_value() ? absl::StrCat(*nranks) : "N");
  }
  return "";
}

const BatchFlow* WhatIfFlows::With(Option option, bool knows_ranks) {
  constexpr decltype(&FindLossEdits) kFind[] = {FindLossEdits, FindSampleEdits, FindStateEdits};
  constexpr int kAnyNumber = 2;
  absl::optional<absl::optional<BatchFlow>>& flow = flows_[option][knows_ranks];
  if (!flow.has_value()) {
    BatchFlowOptions edited = options_;
    edited.setting.nranks = absl::nullopt;
    if (knows_ranks) edited.setting.nranks = options_.setting.nranks.value_or(kAnyNumber);
    edited.edits = kFind[option](program_, edited);
    edited.setting.nranks = options_.setting.nranks;
    flow.emplace();
    if (!edited.edits.empty()) *flow = BatchFlow::Of(program_, edited);
  }
  return flow->has_value() ? &**flow : nullptr;
}

}  // namespace weft
