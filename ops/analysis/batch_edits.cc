#include "ops/analysis/batch_edits.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/losses.h"
#include "ops/schema/algebra.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// Each walk finds at least one edit.
constexpr int kMaxWalks = 16;

class EditFinder {
 public:
  EditFinder(const Program& program, BatchFlowOptions options)
      : program_(program), options_(std::move(options)), losses_(FindLosses(program)) {
    options_.only_losses = true;
    options_.edits = {};
    IndexWriters();
  }

  BatchEdits Find() {
    const Targets all = TargetsOf(BatchFlow::Of(program_, options_));
    if (all.empty()) return {};
    const Targets failed = EditFor(all);
    if (!failed.empty()) {
      // Again, without those that no edits help.
      options_.edits = {};
      EditFor(Without(failed, all));
    }
    const Targets left = TargetsOf(BatchFlow::Of(program_, options_));
    if (!Without(failed, left).empty()) return {};
    return std::move(options_.edits);
  }

 private:
  // Losses and conditions that are not what one device has.
  using Targets = std::vector<VarId>;

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
      for (int block : op.SubBlocks()) CollectWrites(block);
    }
  }

  void CollectWrites(int block) {
    for (OpId id : program_.block(block).ops()) {
      for (Symbol name : program_.op(id).output_args()) {
        const VarId var = program_.block(block).Resolve(name);
        if (var.valid()) has_several_writers_.insert(var);
      }
    }
  }

  Targets TargetsOf(const BatchFlow& flow) const {
    Targets targets;
    for (Symbol loss : losses_) {
      const VarId var = program_.block(0).Resolve(loss);
      if (var.valid() && flow.AtEnd(var).relation.IsUnrelated()) targets.push_back(var);
    }
    for (OpId id : flow.conditions()) {
      const Op op = program_.op(id);
      for (const char* slot : {"Cond", "Condition"}) {
        for (Symbol name : op.Input(slot)) {
          const VarId var = program_.block(op.block()).Resolve(name);
          if (var.valid() && !flow.AtEnd(var).relation.IsSame()) targets.push_back(var);
        }
      }
    }
    return targets;
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
      const BatchFlow flow = BatchFlow::Of(program_, options_);
      left.clear();
      for (VarId target : TargetsOf(flow)) {
        if (absl::c_linear_search(wanted, target)) left.push_back(target);
      }
      if (AddDivisions(flow, needed)) continue;
      bool has_changed = false;
      for (const RelationLoss& loss : flow.losses_of_relation()) {
        if (needed.contains(loss.op)) has_changed |= EditInputs(loss);
      }
      if (!has_changed) break;
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

  // Reduces inputs of an op so that its outputs have known relations. Returns whether it could.
  bool EditInputs(const RelationLoss& loss) {
    const Op op = program_.op(loss.op);
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema == nullptr) return false;
    // In this order: without the gradient's path, as few and as cheap as possible.
    for (const bool with_gradients : {false, true}) {
      for (const Reduction of_sums : {Reduction::kAvg, Reduction::kSum}) {
        if (TryEdit(op, *schema, loss.inputs, with_gradients, of_sums)) return true;
      }
    }
    return false;
  }

  bool TryEdit(const Op& op, const OpSchema& schema, std::vector<BatchRelation> inputs,
               bool with_gradients, Reduction of_sums) {
    std::vector<std::pair<VarId, Reduction>> found;
    for (size_t i = 0; i < inputs.size(); ++i) {
      BatchRelation& in = inputs[i];
      const VarId var = program_.block(0).FindVar(op.input_args()[i]);
      if (!in.IsPartial() || !CanReduce(var) || (HasGradient(var) && !with_gradients)) continue;
      // The gradient of a sum over the ranks would itself have to be summed over them.
      const bool is_sum = in.power == -1 && !HasGradient(var) && of_sums == Reduction::kSum;
      const Reduction reduction = is_sum ? Reduction::kSum : Reduction::kAvg;
      if (!is_sum && !IsFloat(var)) continue;  // the mean of integers is none
      in = BatchRelation::Replicated(is_sum ? 0 : in.power);
      found.emplace_back(var, reduction);
    }
    if (found.empty()) return false;
    const TypeLookup types = [&](Symbol name) -> absl::optional<TensorType> {
      const VarId var = program_.block(0).FindVar(name);
      return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
    };
    for (BatchRelation out : ApplyBatchRule(op, &schema, types, inputs).relations) {
      // A value with a gradient on ranks that go on with their own parts would have one of its own
      // on each.
      if (out.IsUnrelated() || (with_gradients && !out.IsReplicated())) return false;
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

  bool IsFloat(VarId var) const {
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    return type.has_value() && IsFloating(type->dtype);
  }

  bool HasGradient(VarId var) const {
    const Symbol gradient =
        program_.FindSymbol(absl::StrCat(program_.var(var).name(), kGradSuffix));
    const VarId of = gradient.valid() ? program_.block(0).FindVar(gradient) : VarId();
    return of.valid() && writers_.contains(of);
  }

  // Of partial sums by replicated values: the quotient becomes a partial mean.
  bool AddDivisions(const BatchFlow& flow, const absl::flat_hash_set<OpId>& needed) {
    if (!options_.nranks.has_value()) return false;
    bool has_changed = false;
    for (OpId id : needed) {
      const Op op = program_.op(id);
      const absl::Span<const Symbol> x = op.Input("X"), y = op.Input("Y");
      if (AlgebraOf(op.type(), FindOpSchema(op.type())) != Algebra::kDivide) continue;
      if (x.size() != 1 || y.size() != 1 || x[0] == y[0]) continue;
      const VarId dividend = program_.block(0).FindVar(x[0]);
      const VarId divisor = program_.block(0).FindVar(y[0]);
      if (!dividend.valid() || !divisor.valid() || HasGradient(divisor)) continue;
      if (flow.AtEnd(dividend).relation != BatchRelation::PartialSum()) continue;
      if (!flow.AtEnd(divisor).relation.IsSame() || !IsReduced(divisor)) continue;
      has_changed |= options_.edits.divisions.insert(id).second;
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

  const Program& program_;
  BatchFlowOptions options_;
  const std::vector<Symbol> losses_;
  absl::flat_hash_map<VarId, OpId> writers_;  // in the root block, forward before backward
  absl::flat_hash_set<VarId> has_several_writers_;
};

}  // namespace

BatchEdits FindBatchEdits(const Program& program, BatchFlowOptions options) {
  return EditFinder(program, std::move(options)).Find();
}

}  // namespace weft
