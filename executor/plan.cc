#include "executor/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "executor/communicator.h"
#include "executor/control_kernels.h"
#include "executor/losses.h"
#include "ops/analysis/type_flow.h"
#include "ops/make_kernel.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft {
namespace {

constexpr int kComputeStream = 0;

// Feeding and fetching are done between steps.
bool IsFeed(absl::string_view type) { return type == "feed"; }
bool IsFetch(absl::string_view type) { return type == "fetch" || type == "fetch_v2"; }

bool IsArray(const Var& var) { return var.type() == pb::VarType::LOD_TENSOR_ARRAY; }

bool RunsBlock(const OpSchema& schema) {
  return schema.Has(Trait::kBranch) || schema.Has(Trait::kLoop) || schema.Has(Trait::kBlockGrad);
}

// `has_rows`: a variable of the op is SelectedRows.
bool CanRun(absl::string_view type, bool has_rows, const KernelTable& kernels) {
  if (IsFeed(type) || IsFetch(type) || FindControlKernel(type) != nullptr) return true;
  const OpSchema* schema = FindOpSchema(type);
  if (schema == nullptr) return false;
  if (schema->Has(Trait::kRingSetup)) return true;
  if (schema->Has(Trait::kStreamSync)) return FindStreamSyncOp(type).has_value();
  if (schema->Has(Trait::kCollective)) {
    const CollectiveOp* op = FindCollectiveOp(type);
    return op != nullptr && CanRun(*op, has_rows);
  }
  if (RunsBlock(*schema)) return true;
  return (has_rows ? kernels.FindForRows(type) : kernels.Find(type)) != nullptr;
}

// "op 17", "block 1, op 0". Not Op::DebugName: that counts the ops before.
std::string OpPlace(int block, int index) {
  return absl::StrCat(block == 0 ? "" : absl::StrCat("block ", block, ", "), "op ", index);
}

// Types of outputs must follow from those of inputs, as far as they are known before a step.
class TypeChecker {
 public:
  explicit TypeChecker(const Program& program)
      : program_(program), has_rows_(program.op_id_limit(), false) {}

  absl::Status Check() {
    TypeFlow flow(program_);
    absl::Status status;
    flow.Run(0, [&](const TypeFlow::Step& step) {
      if (!step.fits) {
        status = flow.Error(step);
        return false;
      }
      bool has_rows = false;
      for (TypeId type : step.inputs) has_rows = has_rows || IsRows(flow.types().type(type));
      for (VarId var : step.outputs) {
        has_rows = has_rows || (var.valid() && IsRows(flow.types().type(flow.current(var))));
      }
      has_rows_[step.op.id().value()] = has_rows;
      return true;
    });
    return status;
  }

  // Whether a variable of the op is SelectedRows when it runs, as declared or inferred. Known after
  // Check, up to the op that it failed at.
  bool HasRows(OpId id) const { return has_rows_[id.value()]; }

 private:
  static bool IsRows(const absl::optional<TensorType>& type) {
    return type.has_value() && type->layout == TensorType::Layout::kSelectedRows;
  }

  const Program& program_;
  std::vector<bool> has_rows_;  // by OpId
};

absl::Status CheckKernels(const Program& program, const TypeChecker& types,
                          const KernelTable& kernels) {
  using Kind = std::pair<absl::string_view, bool>;  // op type, has rows
  struct Missing {
    Kind kind;
    std::string first;  // where it stands
    int count = 0;
  };
  std::vector<Missing> missing;  // in order of first occurrence
  absl::flat_hash_map<Kind, bool> can_run;
  absl::flat_hash_map<Kind, size_t> missing_of_kind;
  for (int block = 0; block < program.num_blocks(); ++block) {
    int index = -1;
    for (OpId id : program.block(block).ops()) {
      ++index;
      const Kind kind(program.op(id).type(), types.HasRows(id));
      const auto [it, is_new] = can_run.try_emplace(kind, false);
      if (is_new) it->second = CanRun(kind.first, kind.second, kernels);
      if (it->second) continue;
      const size_t at = missing_of_kind.try_emplace(kind, missing.size()).first->second;
      if (at == missing.size()) missing.push_back({kind, OpPlace(block, index)});
      ++missing[at].count;
    }
  }
  if (missing.empty()) return absl::OkStatus();
  const auto format = [](std::string* out, const Missing& m) {
    absl::StrAppend(out, m.kind.first, m.kind.second ? " with SelectedRows" : "", " (", m.count,
                    m.count == 1 ? " op" : " ops", ", first ", m.first, ")");
  };
  return absl::UnimplementedError(absl::StrCat(
      "no kernel for ", missing.size(),
      missing.size() == 1 ? " op type: " : " op types: ", absl::StrJoin(missing, ", ", format)));
}

}  // namespace

class PlanBuilder {
 public:
  PlanBuilder(const Program& program, const PlanOptions& options)
      : program_(program),
        options_(options),
        types_(program),
        slots_are_known_(program.num_layouts(), false) {}

  absl::StatusOr<Plan> Build() {
    // Told of after kernels that are missing.
    const absl::Status types_fit = types_.Check();
    WEFT_RETURN_IF_ERROR(CheckKernels(program_, types_, *options_.kernels));
    AddVariables();
    WEFT_RETURN_IF_ERROR(FindLoopGradients());
    AddClear("the step", ArraysOf(0));
    WEFT_RETURN_IF_ERROR(AddBlock(0));
    if (!unsupported_.empty()) {
      return absl::UnimplementedError(absl::StrJoin(unsupported_, "; "));
    }
    WEFT_RETURN_IF_ERROR(types_fit);
    AddLosses();
    AddStreams();
    for (const Step& step : steps_) AddInstructions(step);
    return std::move(plan_);
  }

 private:
  // What the program does, in its order: an op, a synchronization, the beginning or end of a block
  // that runs on a condition, or a branch to a block that stands further up.
  struct Step {
    enum class Kind { kOp, kSync, kBeginBranch, kEndBranch, kBranchBack };
    Kind kind = Kind::kSync;
    int index = -1;  // into plan_.ops_ or plan_.branches_
    StreamSync sync = StreamSync::kAllWaitForCompute;
    int ring_id = -1;       // of `sync`
    int first_branch = -1;  // of kBranchBack: into plan_.branches_, the one that the block follows
  };

  void AddVariables() {
    for (size_t i = 0; i < program_.var_id_limit(); ++i) {
      const Var var = program_.var(VarId(static_cast<uint32_t>(i)));
      if (var.block() == 0) plan_.variable_of_name_.emplace(var.name(), static_cast<int>(i));
      Plan::Variable variable;
      variable.name = std::string(var.name());
      variable.persistable = var.persistable();
      variable.is_array = IsArray(var);
      variable.is_feed = var.need_check_feed();
      variable.declared = DeclaredType(var);
      plan_.variables_.push_back(std::move(variable));
    }
  }

  absl::Status AddBlock(int block) {
    const int around = block_;
    block_ = block;
    int index = 0;
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      WEFT_RETURN_IF_ERROR(AddOp(op, absl::StrCat(OpPlace(block, index), " (", op.type(), ")")));
      ++index;
    }
    block_ = around;
    return absl::OkStatus();
  }

  absl::Status AddOp(const Op& op, const std::string& name) {
    if (IsFeed(op.type())) {
      for (Symbol out : op.Output("Out")) {
        WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(out, name));
        if (variable != Plan::kNoVariable) plan_.variables_[variable].is_feed = true;
      }
      return absl::OkStatus();
    }
    if (IsFetch(op.type())) return absl::OkStatus();
    const OpSchema* schema = FindOpSchema(op.type());
    WEFT_ASSIGN_OR_RETURN(OpAttrs attrs, OpAttrs::Decode(op, *schema));
    WEFT_RETURN_IF_ERROR(CheckNumRanks(op, name));
    if (schema->Has(Trait::kRingSetup)) {
      // In Paddle setting up a ring blocks the host, and the programs that its transpiler writes
      // count on it: broadcasts of what initializers made follow without a synchronization.
      steps_.push_back(Step());
      return absl::OkStatus();
    }
    if (schema->Has(Trait::kStreamSync)) {
      Step step;
      step.kind = Step::Kind::kSync;
      step.sync = *FindStreamSyncOp(op.type());
      if (attrs.Has("ring_id")) step.ring_id = static_cast<int>(attrs.Int("ring_id"));
      steps_.push_back(step);
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(CheckSlotsAreKnown(op, *schema));
    if (schema->Has(Trait::kLoop)) {
      return schema->Has(Trait::kBlockGrad) ? AddLoopGrad(op, attrs, name)
                                            : AddLoop(op, attrs, name);
    }
    if (schema->Has(Trait::kBlockGrad)) return AddBranchGrad(op, attrs, name);
    if (schema->Has(Trait::kBranch)) return AddBranch(op, attrs, name);
    Plan::PlanOp plan_op;
    plan_op.name = name;
    plan_op.type = std::string(op.type());
    plan_op.has_rows = types_.HasRows(op.id());
    plan_op.reads_inputs = !schema->Has(Trait::kAlias) || attrs.Bool("copy_data");
    WEFT_ASSIGN_OR_RETURN(const ControlKernelFactory* control, ControlKernelOf(op, name));
    if (control != nullptr) {
      plan_op.reads_inputs = false;
      plan_op.kernel_spec.attrs = std::move(attrs);
      WEFT_RETURN_IF_ERROR(FillArguments(op, &plan_op));
      WEFT_RETURN_IF_ERROR(CheckSlotsAreThere(*schema, plan_op));
      plan_op.control = (*control)(plan_op.kernel_spec);
      SetAdd(&plan_op);
    } else if (schema->Has(Trait::kCollective)) {
      WEFT_RETURN_IF_ERROR(FillCollective(op, attrs, &plan_op));
    } else {
      WEFT_RETURN_IF_ERROR(FillKernel(op, *schema, std::move(attrs), &plan_op));
    }
    AddPlanOp(std::move(plan_op));
    return absl::OkStatus();
  }

  // A newer writer may have given the op an input that kernels do not look at.
  absl::Status CheckSlotsAreKnown(const Op& op, const OpSchema& schema) {
    if (slots_are_known_[op.layout_id()]) return absl::OkStatus();
    slots_are_known_[op.layout_id()] = true;
    return CheckNoUnknownSlots(op, schema);
  }

  // --- Ops that move values ---------------------------------------------------------------------

  // Null where the op has, or needs, another kernel.
  absl::StatusOr<const ControlKernelFactory*> ControlKernelOf(const Op& op,
                                                              const std::string& name) const {
    const ControlKernelFactory* control = FindControlKernel(op.type());
    if (control != nullptr) return control;
    for (Symbol symbol : op.args()) {
      WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(symbol, name));
      if (variable == Plan::kNoVariable || !plan_.variables_[variable].is_array) continue;
      control = FindArrayKernel(op.type());
      if (control != nullptr) return control;
      return absl::UnimplementedError(absl::StrCat(name, ": variable ", program_.name(symbol),
                                                   " is an array of tensors, for which the op has "
                                                   "no kernel"));
    }
    return nullptr;
  }

  static absl::Status CheckSlotsAreThere(const OpSchema& schema, const Plan::PlanOp& plan_op) {
    for (const SlotSchema& slot : schema.inputs()) {
      const auto it = plan_op.kernel_spec.inputs.find(slot.name);
      const bool is_there = it != plan_op.kernel_spec.inputs.end() && it->second.count > 0;
      if (is_there || slot.optional) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(plan_op.name, " input ", slot.name, ": expected a variable, found none"));
    }
    for (int v : plan_op.outputs) {
      if (v != Plan::kNoVariable || schema.outputs()[0].duplicable) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(plan_op.name, ": expected a variable for every output"));
    }
    return absl::OkStatus();
  }

  // For kernels that add: the sum of two tensors.
  void SetAdd(Plan::PlanOp* plan_op) const {
    static const OpSchema& sum = *FindOpSchema("sum");
    KernelSpec spec;
    spec.schema = &sum;
    spec.attrs = OpAttrs::Make(sum);
    spec.inputs["X"] = {0, 2};
    spec.outputs["Out"] = {0, 1};
    plan_op->make_kernel = options_.kernels->Find(sum.type());
    plan_op->kernel_spec = std::move(spec);
  }

  // What an op that runs a block does besides.
  void AddOwnOp(const std::string& name, ControlKernel control, std::vector<int> inputs,
                std::vector<int> outputs) {
    Plan::PlanOp own;
    own.name = name;
    own.reads_inputs = false;
    own.inputs = std::move(inputs);
    own.outputs = std::move(outputs);
    own.control = std::move(control);
    SetAdd(&own);
    AddPlanOp(std::move(own));
  }

  // That a block declares, but for those of a gradient that it goes on with.
  std::vector<int> ArraysOf(int block) const {
    std::vector<int> arrays;
    for (VarId id : program_.block(block).vars()) {
      const Var var = program_.var(id);
      if (!IsArray(var) || var.persistable() || plan_variable_.contains(id.value())) continue;
      arrays.push_back(PlanVariable(id));
    }
    return arrays;
  }

  void AddClear(const std::string& name, std::vector<int> arrays) {
    if (!arrays.empty()) AddOwnOp(name, ClearElements(), {}, std::move(arrays));
  }

  // --- Ops that run blocks ----------------------------------------------------------------------

  // What the op lists as Input and Out, the ops of its block name too.
  absl::Status AddBranch(const Op& op, const OpAttrs& attrs, const std::string& name) {
    return AddBranchTo(attrs.Block("sub_block"), op, CondBranch(attrs, name));
  }

  static Plan::Branch CondBranch(const OpAttrs& attrs, const std::string& name) {
    using Test = Plan::Branch::Test;
    Plan::Branch branch;
    branch.name = name;
    branch.slot = "Cond";
    branch.test = attrs.Bool("is_scalar_condition") ? Test::kTrue : Test::kNoneEmpty;
    return branch;
  }

  // Where the condition holds, Input@GRAD is what the block makes in its own variables of these
  // names: the gradients of Input. Where it does not, nothing depended on Input: zeros, as where
  // the block has no such variable, whatever it writes to one around it.
  absl::Status AddBranchGrad(const Op& op, const OpAttrs& attrs, const std::string& name) {
    const int block = attrs.Block("sub_block");
    WEFT_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients,
                          GradientsOf(op, "Input", block, name));
    for (const Gradient& gradient : gradients) {
      AddOwnOp(name, ZerosLike(), {gradient.of}, {gradient.outside});
    }
    BlockEnds ends;
    ends.end = [&] {
      for (const Gradient& gradient : gradients) {
        if (gradient.inside == Plan::kNoVariable) {
          AddOwnOp(name, ZerosLike(), {gradient.of}, {gradient.outside});
        } else {
          AddOwnOp(name, CopyValue(), {gradient.inside}, {gradient.outside});
        }
      }
    };
    return AddBranchTo(block, op, CondBranch(attrs, name), ends);
  }

  // One that an op which goes back through a block gives: of an input, outside and in the block,
  // where the block declares it.
  struct Gradient {
    Symbol inside_name;
    int of, outside, inside;
  };

  absl::StatusOr<std::vector<Gradient>> GradientsOf(const Op& op, absl::string_view slot, int block,
                                                    const std::string& name) const {
    const std::string grad_slot = absl::StrCat(slot, kGradSuffix);
    const absl::Span<const Symbol> inputs = op.Input(slot), grads = op.Output(grad_slot);
    if (!grads.empty() && grads.size() != inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " output ", grad_slot, ": expected ",
                                                     inputs.size(), " variables, as in ", slot,
                                                     ", found ", grads.size()));
    }
    std::vector<Gradient> gradients;
    for (size_t i = 0; i < grads.size(); ++i) {
      Gradient gradient;
      WEFT_ASSIGN_OR_RETURN(gradient.outside, Resolve(grads[i], name));
      if (gradient.outside == Plan::kNoVariable) continue;
      WEFT_ASSIGN_OR_RETURN(gradient.of, Resolve(inputs[i], name));
      if (gradient.of == Plan::kNoVariable) {
        return absl::InvalidArgumentError(absl::StrCat(name, " input ", slot,
                                                       ": expected a variable, as ", grad_slot,
                                                       " has one in its place"));
      }
      gradient.inside_name =
          program_.FindSymbol(absl::StrCat(program_.name(inputs[i]), kGradSuffix));
      const VarId inside = gradient.inside_name.valid()
                               ? program_.block(block).FindVar(gradient.inside_name)
                               : VarId();
      gradient.inside = inside.valid() ? PlanVariable(inside) : Plan::kNoVariable;
      gradients.push_back(gradient);
    }
    return gradients;
  }

  // What a loop keeps of each round for its gradient: the values of `found` when the round begins,
  // which the gradient sees as `found_then`, and of `made` when it ends.
  struct Rounds {
    std::vector<int> found, found_then, made;
    std::vector<Symbol> found_names;
  };

  // Of each variable that a gradient takes as StepScopes: what the gradient's block, and those in
  // it, read.
  absl::Status FindLoopGradients() {
    for (int b = 0; b < program_.num_blocks(); ++b) {
      block_ = b;
      int index = -1;
      for (OpId id : program_.block(b).ops()) {
        ++index;
        const Op op = program_.op(id);
        const OpSchema* schema = FindOpSchema(op.type());
        if (schema == nullptr || !schema->Has(Trait::kLoop) || !schema->Has(Trait::kBlockGrad)) {
          continue;
        }
        WEFT_ASSIGN_OR_RETURN(const int rounds,
                              StepScopes(op, op.Input("StepScopes"), OpPlace(b, index)));
        absl::flat_hash_set<Symbol>& reads = reads_of_gradient_[rounds];
        for (int block : op.SubBlocks()) {
          VisitOps(block, /*skips_loops=*/false, [&](const Op& inner) {
            reads.insert(inner.input_args().begin(), inner.input_args().end());
          });
        }
      }
    }
    block_ = 0;
    return absl::OkStatus();
  }

  // Ops of a block and, `in_blocks`, of those within it; or not of those that loops run.
  template <typename Visit>
  void VisitOps(int block, bool skips_loops, Visit visit) const {
    absl::flat_hash_set<int> seen = {block};
    std::vector<int> todo = {block};
    while (!todo.empty()) {
      const int current = todo.back();
      todo.pop_back();
      for (OpId id : program_.block(current).ops()) {
        const Op op = program_.op(id);
        visit(op);
        const OpSchema* schema = FindOpSchema(op.type());
        if (skips_loops && schema != nullptr && schema->Has(Trait::kLoop)) continue;
        for (int inner : op.SubBlocks()) {
          if (seen.insert(inner).second) todo.push_back(inner);
        }
      }
    }
  }

  absl::StatusOr<int> StepScopes(const Op& op, absl::Span<const Symbol> names,
                                 const std::string& name) const {
    if (names.size() == 1 && program_.name(names[0]) != kEmptyVarName) {
      return Resolve(names[0], name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected one variable in StepScopes, found ", names.size()));
  }

  // What the op lists as X and Out, the ops of its block name too.
  absl::Status AddLoop(const Op& op, const OpAttrs& attrs, const std::string& name) {
    const int block = attrs.Block("sub_block");
    Plan::Branch branch;
    branch.name = name;
    branch.slot = "Condition";
    branch.is_loop = true;
    const absl::Span<const Symbol> names = op.Output("StepScopes");
    if (names.empty() || reads_of_gradient_.empty()) return AddBranchTo(block, op, branch);
    WEFT_ASSIGN_OR_RETURN(const int step_scopes, StepScopes(op, names, name));
    const auto reads = reads_of_gradient_.find(step_scopes);
    if (reads == reads_of_gradient_.end()) return AddBranchTo(block, op, branch);
    WEFT_ASSIGN_OR_RETURN(const Rounds rounds, RoundsOf(op, block, reads->second, name));
    if (!rounds_.emplace(step_scopes, rounds).second) {
      return absl::UnimplementedError(
          absl::StrCat(name, ": another op keeps its rounds in ", program_.name(names[0]), " too"));
    }
    AddClear(name, {step_scopes});
    BlockEnds ends;
    ends.begin = [&] { AddOwnOp(name, BeginRound(), rounds.found, {step_scopes}); };
    ends.end = [&] {
      std::vector<int> outputs = {step_scopes};
      outputs.insert(outputs.end(), rounds.made.begin(), rounds.made.end());
      AddOwnOp(name, EndRound(), {}, std::move(outputs));
    };
    return AddBranchTo(block, op, branch, ends);
  }

  absl::StatusOr<Rounds> RoundsOf(const Op& loop, int block,
                                  const absl::flat_hash_set<Symbol>& reads,
                                  const std::string& name) {
    Rounds rounds;
    // Of what is written in its place, nothing is kept: the gradient undoes that.
    absl::flat_hash_set<Symbol> in_place, written;
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      for (Symbol out : op.output_args()) {
        const absl::Span<const Symbol> in = op.input_args();
        if (std::find(in.begin(), in.end(), out) != in.end()) in_place.insert(out);
      }
    }
    VisitOps(block, /*skips_loops=*/false, [&](const Op& op) {
      written.insert(op.output_args().begin(), op.output_args().end());
    });
    for (Symbol symbol : loop.Input("X")) {
      if (!reads.contains(symbol) || !written.contains(symbol) || in_place.contains(symbol)) {
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(symbol, name));
      if (variable == Plan::kNoVariable) continue;
      const Plan::Variable& found = plan_.variables_[variable];
      if (found.is_array || found.persistable) continue;
      rounds.found.push_back(variable);
      rounds.found_then.push_back(AddLocal(symbol, found));
      rounds.found_names.push_back(symbol);
    }
    // Blocks in this one that loops run have rounds of their own.
    absl::flat_hash_set<int> blocks;
    VisitOps(block, /*skips_loops=*/true, [&](const Op& op) {
      if (!blocks.insert(op.block()).second) return;
      for (VarId id : program_.block(op.block()).vars()) {
        const Var var = program_.var(id);
        if (reads.contains(var.name_symbol()) && !var.persistable()) {
          rounds.made.push_back(PlanVariable(id));
        }
      }
    });
    return rounds;
  }

  // Goes back through the rounds of the loop. Gradients of what the loop has in X are added up over
  // the rounds; but those that are gradients of what it leaves in Out, too, go from round to round.
  absl::Status AddLoopGrad(const Op& op, const OpAttrs& attrs, const std::string& name) {
    const int block = attrs.Block("sub_block");
    WEFT_ASSIGN_OR_RETURN(const int step_scopes, StepScopes(op, op.Input("StepScopes"), name));
    const auto it = rounds_.find(step_scopes);
    if (it == rounds_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " input StepScopes: ", plan_.variables_[step_scopes].name,
                       " is not that of a loop before it"));
    }
    const Rounds& rounds = it->second;
    for (size_t i = 0; i < rounds.found.size(); ++i) {
      locals_[{block, rounds.found_names[i]}] = rounds.found_then[i];
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients, GradientsOf(op, "X", block, name));
    WEFT_ASSIGN_OR_RETURN(const std::vector<Link> given,
                          LinkGiven(op, attrs, block, gradients, name));
    std::vector<Link> added;
    std::vector<int> arrays;
    for (const Gradient& gradient : gradients) {
      const int inside = InsideOf(block, gradient);
      if (inside == gradient.outside) continue;
      AddOwnOp(name, ZerosLike(), {gradient.of}, {gradient.outside});
      added.push_back({gradient.outside, inside});
      if (gradient.inside == Plan::kNoVariable && plan_.variables_[inside].is_array) {
        arrays.push_back(inside);
      }
    }
    Plan::Branch branch;
    branch.name = name;
    branch.slot = "StepScopes";
    branch.test = Plan::Branch::Test::kRounds;
    branch.is_loop = true;
    BlockEnds ends;
    ends.begin = [&] {
      AddClear(name, arrays);
      std::vector<int> outputs = {step_scopes};
      outputs.insert(outputs.end(), rounds.found_then.begin(), rounds.found_then.end());
      outputs.insert(outputs.end(), rounds.made.begin(), rounds.made.end());
      AddOwnOp(name, TakeRound(), {}, std::move(outputs));
      for (const auto& [outside, inside] : given) {
        AddOwnOp(name, CopyValue(), {outside}, {inside});
      }
    };
    ends.end = [&] {
      for (const auto& [outside, inside] : added) {
        AddOwnOp(name, AddTo(), {outside, inside}, {outside});
      }
    };
    return AddBranchTo(block, op, branch, ends);
  }

  struct Link {
    int outside, inside;
  };

  // Where the block finds Out@GRAD: in variables of the names in original_output_grad. They are the
  // same variables where the op gives them on as X@GRAD, or the block does not change them; else
  // they are given anew to each round: returned, as outside and inside. What nothing has made is
  // zero.
  absl::StatusOr<std::vector<Link>> LinkGiven(const Op& op, const OpAttrs& attrs, int block,
                                              const std::vector<Gradient>& gradients,
                                              const std::string& name) {
    const absl::Span<const Symbol> outside_names = op.Input("Out@GRAD");
    const std::vector<std::string>& inside_names = attrs.Strings("original_output_grad");
    if (outside_names.size() != inside_names.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " input Out@GRAD: expected ", inside_names.size(),
          " variables, as in attribute original_output_grad, found ", outside_names.size()));
    }
    absl::flat_hash_set<Symbol> written;
    VisitOps(block, /*skips_loops=*/false, [&](const Op& inner) {
      written.insert(inner.output_args().begin(), inner.output_args().end());
    });
    absl::flat_hash_map<absl::string_view, Symbol> forward;
    for (Symbol out : op.Input("Out")) forward.emplace(program_.name(out), out);
    std::vector<Link> given;
    for (size_t i = 0; i < outside_names.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const int outside, Resolve(outside_names[i], name));
      const Symbol inside_name = program_.FindSymbol(inside_names[i]);
      if (outside == Plan::kNoVariable || !inside_name.valid()) continue;
      const auto of = forward.find(absl::StripSuffix(inside_names[i], kGradSuffix));
      if (!plan_.variables_[outside].is_written && of != forward.end()) {
        WEFT_ASSIGN_OR_RETURN(const int like, Resolve(of->second, name));
        if (like != Plan::kNoVariable && !plan_.variables_[like].is_array) {
          AddOwnOp(name, ZerosLike(), {like}, {outside});
        }
      }
      const bool is_carried =
          std::any_of(gradients.begin(), gradients.end(), [&](const Gradient& gradient) {
            return gradient.outside == outside && gradient.inside_name == inside_name;
          });
      const VarId declared = program_.block(block).FindVar(inside_name);
      if (is_carried || !written.contains(inside_name)) {
        if (declared.valid()) {
          plan_variable_[declared.value()] = outside;
        } else {
          locals_[{block, inside_name}] = outside;
        }
        continue;
      }
      const int inside = declared.valid() ? PlanVariable(declared)
                                          : AddLocal(inside_name, plan_.variables_[outside]);
      if (!declared.valid()) locals_[{block, inside_name}] = inside;
      given.push_back({outside, inside});
    }
    return given;
  }

  // Where the block of a loop's gradient makes the gradient.
  int InsideOf(int block, const Gradient& gradient) {
    const VarId declared = program_.block(block).FindVar(gradient.inside_name);
    if (declared.valid()) return PlanVariable(declared);
    const auto [it, is_new] = locals_.try_emplace({block, gradient.inside_name}, 0);
    if (is_new) it->second = AddLocal(gradient.inside_name, plan_.variables_[gradient.outside]);
    return it->second;
  }

  // A variable that the program does not declare.
  int AddLocal(Symbol name, const Plan::Variable& like) {
    Plan::Variable variable;
    variable.name = std::string(program_.name(name));
    variable.is_array = like.is_array;
    variable.declared = like.declared;
    variable.is_written = true;
    plan_.variables_.push_back(std::move(variable));
    return static_cast<int>(plan_.variables_.size()) - 1;
  }

  void AddPlanOp(Plan::PlanOp plan_op) {
    NoteAccesses(plan_op);
    Step step;
    step.kind = Step::Kind::kOp;
    step.index = static_cast<int>(plan_.ops_.size());
    plan_.ops_.push_back(std::move(plan_op));
    steps_.push_back(step);
  }

  // Adds what an op does besides when its block begins and ends; may be null.
  struct BlockEnds {
    std::function<void()> begin, end;
  };

  absl::Status AddBranchTo(int block, const Op& op, Plan::Branch branch,
                           const BlockEnds& ends = {}) {
    WEFT_RETURN_IF_ERROR(ResolveAll(op.Input(branch.slot), branch.name, &branch.conditions));
    for (int v : branch.conditions) {
      if (v != Plan::kNoVariable) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(branch.name, " input ", branch.slot, ": expected a variable"));
    }
    if (branch.conditions.empty() ||
        (branch.test != Plan::Branch::Test::kNoneEmpty && branch.conditions.size() != 1)) {
      return absl::InvalidArgumentError(absl::StrCat(branch.name, " input ", branch.slot,
                                                     ": expected one variable, found ",
                                                     branch.conditions.size()));
    }
    Plan::PlanOp reader;
    reader.name = branch.name;
    reader.inputs = branch.conditions;
    NoteAccesses(reader);
    Step step;
    step.index = static_cast<int>(plan_.branches_.size());
    plan_.branches_.push_back(std::move(branch));
    const auto [it, is_first] = branch_to_block_.try_emplace(block, step.index);
    if (!is_first && (ends.begin || ends.end)) {
      return absl::UnimplementedError(absl::StrCat(plan_.branches_.back().name, ": runs block ",
                                                   block, ", which another op runs too"));
    }
    if (!is_first) {
      step.kind = Step::Kind::kBranchBack;
      step.first_branch = it->second;
      steps_.push_back(step);
      return absl::OkStatus();
    }
    step.kind = Step::Kind::kBeginBranch;
    steps_.push_back(step);
    AddClear(plan_.branches_[step.index].name, ArraysOf(block));
    if (ends.begin) ends.begin();
    WEFT_RETURN_IF_ERROR(AddBlock(block));
    if (ends.end) ends.end();
    step.kind = Step::Kind::kEndBranch;
    steps_.push_back(step);
    return absl::OkStatus();
  }

  // Whoever wrote a number of ranks into an op, of whatever type, meant the ranks of the run.
  absl::Status CheckNumRanks(const Op& op, const std::string& name) const {
    const absl::optional<pb::OpDesc::Attr> attr = op.FindAttr(kNumRanksAttr);
    if (!attr.has_value()) return absl::OkStatus();
    const int64_t nranks = attr->type() == pb::LONG ? attr->l() : attr->i();
    if (nranks == options_.nranks) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": written for ", nranks, nranks == 1 ? " rank" : " ranks",
                     " (attribute nranks), but the run has ", options_.nranks));
  }

  int PlanVariable(VarId id) const {
    const auto it = plan_variable_.find(id.value());
    return it == plan_variable_.end() ? static_cast<int>(id.value()) : it->second;
  }

  absl::StatusOr<int> Resolve(Symbol symbol, const std::string& op_name) const {
    if (program_.name(symbol) == kEmptyVarName) return Plan::kNoVariable;
    for (int b = block_; b != -1; b = program_.block(b).parent_idx()) {
      VarId variable = program_.block(b).FindVar(symbol);
      const int forward = program_.block(b).forward_block_idx();
      if (!variable.valid() && forward >= 0 && forward < program_.num_blocks()) {
        variable = program_.block(forward).FindVar(symbol);
      }
      if (variable.valid()) return PlanVariable(variable);
      const auto local = locals_.find({b, symbol});
      if (local != locals_.end()) return local->second;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(op_name, ": variable ", program_.name(symbol), " is not declared"));
  }

  absl::Status ResolveAll(absl::Span<const Symbol> symbols, const std::string& op_name,
                          std::vector<int>* variables) const {
    for (Symbol symbol : symbols) {
      WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(symbol, op_name));
      variables->push_back(variable);
    }
    return absl::OkStatus();
  }

  // A slot whose only argument stands for no variable is empty.
  int CountOfSlot(const Op& op, const OpLayout::Slot& slot) const {
    if (slot.count == 1 && program_.name(op.args(slot)[0]) == kEmptyVarName) return 0;
    return static_cast<int>(slot.count);
  }

  // Slots and variables of an op that has a kernel.
  absl::Status FillArguments(const Op& op, Plan::PlanOp* plan_op) const {
    KernelSpec& spec = plan_op->kernel_spec;
    const OpLayout& layout = op.layout();
    const int num_inputs = static_cast<int>(layout.num_input_args);
    for (const OpLayout::Slot& slot : layout.inputs) {
      spec.inputs[std::string(program_.name(slot.name))] = {static_cast<int>(slot.first),
                                                            CountOfSlot(op, slot)};
    }
    for (const OpLayout::Slot& slot : layout.outputs) {
      spec.outputs[std::string(program_.name(slot.name))] = {
          static_cast<int>(slot.first) - num_inputs, CountOfSlot(op, slot)};
    }
    WEFT_RETURN_IF_ERROR(ResolveAll(op.input_args(), plan_op->name, &plan_op->inputs));
    return ResolveAll(op.output_args(), plan_op->name, &plan_op->outputs);
  }

  absl::Status FillKernel(const Op& op, const OpSchema& schema, OpAttrs attrs,
                          Plan::PlanOp* plan_op) {
    KernelSpec& spec = plan_op->kernel_spec;
    spec.schema = &schema;
    spec.attrs = std::move(attrs);
    spec.paddle_cpu_quirks = options_.paddle_cpu_quirks;
    WEFT_RETURN_IF_ERROR(FillArguments(op, plan_op));
    plan_op->make_kernel = plan_op->has_rows ? options_.kernels->FindForRows(op.type())
                                             : options_.kernels->Find(op.type());
    // Only to learn whether it can be made.
    const absl::Status status = MakeKernel(*plan_op->make_kernel, spec).status();
    if (status.ok()) return status;
    const std::string message = absl::StrCat(plan_op->name, ": ", status.message());
    if (!absl::IsUnimplemented(status)) return absl::Status(status.code(), message);
    unsupported_.push_back(message);
    return absl::OkStatus();
  }

  absl::Status FillCollective(const Op& op, const OpAttrs& attrs, Plan::PlanOp* plan_op) {
    const CollectiveOp& collective = *FindCollectiveOp(op.type());
    plan_op->desc.kind = collective.kind;
    plan_op->desc.reduction = collective.reduction;
    if (!collective.root_attr.empty()) {
      plan_op->desc.root = static_cast<int>(attrs.Int(collective.root_attr));
    }
    WEFT_RETURN_IF_ERROR(ResolveAll(op.Input("X"), plan_op->name, &plan_op->inputs));
    WEFT_RETURN_IF_ERROR(ResolveAll(op.Output("Out"), plan_op->name, &plan_op->outputs));
    if (plan_op->inputs.size() != 1 || plan_op->outputs.size() != 1 ||
        plan_op->inputs[0] == Plan::kNoVariable || plan_op->outputs[0] == Plan::kNoVariable) {
      return absl::InvalidArgumentError(
          absl::StrCat(plan_op->name, ": expected one variable in X and one in Out, found ",
                       plan_op->inputs.size(), " and ", plan_op->outputs.size()));
    }
    WEFT_RETURN_IF_ERROR(ResolveAll(op.Input("Cond"), plan_op->name, &plan_op->inputs));
    plan_op->ring =
        RingIndex(RingKey{static_cast<int>(attrs.Int("ring_id")), attrs.Bool("use_calc_stream")});
    return absl::OkStatus();
  }

  int RingIndex(RingKey ring) {
    std::vector<RingKey>& rings = plan_.rings_;
    const auto it = std::find(rings.begin(), rings.end(), ring);
    if (it != rings.end()) return static_cast<int>(it - rings.begin());
    rings.push_back(ring);
    return static_cast<int>(rings.size()) - 1;
  }

  void NoteAccesses(const Plan::PlanOp& op) {
    for (int v : op.inputs) {
      if (v == Plan::kNoVariable || !op.reads_inputs) continue;
      Plan::Variable& variable = plan_.variables_[v];
      if (!variable.is_written && variable.first_reader < 0) {
        if (plan_.reader_names_.empty() || plan_.reader_names_.back() != op.name) {
          plan_.reader_names_.push_back(op.name);
        }
        variable.first_reader = static_cast<int>(plan_.reader_names_.size()) - 1;
      }
    }
    for (int v : op.outputs) {
      if (v != Plan::kNoVariable) plan_.variables_[v].is_written = true;
    }
  }

  void AddLosses() {
    for (Symbol loss : FindLosses(program_)) {
      const int variable = plan_.FindVariable(program_.name(loss));
      if (variable != Plan::kNoVariable) plan_.losses_.push_back(variable);
    }
  }

  void AddStreams() {
    std::set<int> ring_ids;
    for (RingKey ring : plan_.rings_) {
      if (!ring.on_compute_stream) ring_ids.insert(ring.ring_id);
    }
    plan_.stream_names_.push_back("compute");
    for (int ring_id : ring_ids) {
      stream_of_ring_[ring_id] = static_cast<int>(plan_.stream_names_.size());
      plan_.stream_names_.push_back(absl::StrCat("ring ", ring_id));
    }
  }

  // -1 where the ring has no stream of its own.
  int StreamOfRing(int ring_id) const {
    const auto it = stream_of_ring_.find(ring_id);
    return it == stream_of_ring_.end() ? -1 : it->second;
  }

  void AddInstructions(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kOp:
        return AddRunOp(step.index);
      case Step::Kind::kSync:
        return AddSync(step.sync, StreamOfRing(step.ring_id));
      case Step::Kind::kBeginBranch:
        AddBranchInstruction(step.index);
        plan_.branches_[step.index].begin = NextInstruction();
        return;
      case Step::Kind::kEndBranch:
        plan_.branches_[step.index].end = NextInstruction();
        plan_.branches_[step.index].next = NextInstruction();
        return;
      case Step::Kind::kBranchBack: {
        AddBranchInstruction(step.index);
        const Plan::Branch& first = plan_.branches_[step.first_branch];
        Plan::Branch& branch = plan_.branches_[step.index];
        branch.begin = first.begin;
        branch.end = first.end;
        branch.next = NextInstruction();
        return;
      }
    }
  }

  int NextInstruction() const { return static_cast<int>(plan_.instructions_.size()); }

  void AddBranchInstruction(int branch) {
    plan_.instructions_.push_back({Plan::Instruction::Kind::kBranch, kComputeStream, branch});
  }

  void AddRunOp(int index) {
    const int ring = plan_.ops_[index].ring;
    const bool on_compute = ring < 0 || plan_.rings_[ring].on_compute_stream;
    const int stream = on_compute ? kComputeStream : StreamOfRing(plan_.rings_[ring].ring_id);
    plan_.instructions_.push_back({Plan::Instruction::Kind::kRunOp, stream, index});
  }

  // `ring`: its stream; -1 where it has none.
  void AddSync(StreamSync sync, int ring) {
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

  void AddHostSync(int stream) {
    if (stream < 0) return;
    if (options_.strict_host_sync) {
      plan_.instructions_.push_back({Plan::Instruction::Kind::kSynchronize, stream, -1});
      return;
    }
    std::vector<int> others;
    for (size_t other = 0; other < plan_.stream_names_.size(); ++other) {
      if (static_cast<int>(other) != stream) others.push_back(static_cast<int>(other));
    }
    AddWaits(stream, others);
  }

  // `to` wait for `from`; nothing where there is no such stream (-1).
  void AddWaits(int from, const std::vector<int>& to) {
    using Kind = Plan::Instruction::Kind;
    if (from < 0 || to.empty() || to[0] < 0) return;
    const int event = plan_.num_events_++;
    plan_.instructions_.push_back({Kind::kRecord, from, event});
    for (int stream : to) plan_.instructions_.push_back({Kind::kWait, stream, event});
  }

  const Program& program_;
  const PlanOptions& options_;
  TypeChecker types_;
  std::vector<bool> slots_are_known_;  // by layout
  int block_ = 0;                      // whose ops are being added
  // Variables that stand for another one, which a block gives on: by VarId.
  absl::flat_hash_map<uint32_t, int> plan_variable_;
  // Variables that blocks have besides those that they declare.
  absl::flat_hash_map<std::pair<int, Symbol>, int> locals_;
  absl::flat_hash_map<int, absl::flat_hash_set<Symbol>> reads_of_gradient_;  // by StepScopes
  absl::flat_hash_map<int, Rounds> rounds_;                                  // the same
  // By block that an op runs: the first branch to it, which its instructions follow.
  absl::flat_hash_map<int, int> branch_to_block_;
  std::vector<Step> steps_;
  std::vector<std::string> unsupported_;
  std::map<int, int> stream_of_ring_;
  Plan plan_;
};

absl::StatusOr<Plan> Plan::Build(const Program& program, const PlanOptions& options) {
  return PlanBuilder(program, options).Build();
}

int Plan::FindVariable(absl::string_view name) const {
  const auto it = variable_of_name_.find(name);
  return it == variable_of_name_.end() ? kNoVariable : it->second;
}

}  // namespace weft
