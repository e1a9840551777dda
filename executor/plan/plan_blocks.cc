// Ops that run blocks: branches, loops, and their gradients.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "executor/plan/plan_builder.h"
#include "ops/analysis/core/block_names.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

std::vector<int> Concat(std::initializer_list<std::vector<int>> lists) {
  std::vector<int> all;
  for (const std::vector<int>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

void PlanBuilder::AddOwnOp(const std::string& name, ControlKernel control, std::vector<int> inputs,
                           std::vector<int> outputs) {
  Plan::PlanOp own;
  own.name = name;
  own.reads_inputs = false;
  own.inputs = std::move(inputs);
  own.outputs = std::move(outputs);
  SetControl(std::move(control), &own);
  AddPlanOp(std::move(own));
}

std::vector<int> PlanBuilder::ArraysOf(int block) const {
  std::vector<int> arrays;
  for (VarId id : program_.block(block).vars()) {
    const Var var = program_.var(id);
    if (!plan_.variables[id.value()].is_array || var.persistable() ||
        plan_variable_.contains(id.value()))
      continue;
    arrays.push_back(PlanVariable(id));
  }
  return arrays;
}

void PlanBuilder::AddClear(const std::string& name, std::vector<int> arrays) {
  if (!arrays.empty()) AddOwnOp(name, ClearElements, {}, std::move(arrays));
}

Plan::Branch PlanBuilder::CondBranch(const OpAttrs& attrs) {
  using Test = Plan::Branch::Test;
  Plan::Branch branch;
  branch.slot = "Cond";
  branch.test = attrs.Bool("is_scalar_condition") ? Test::kTrue : Test::kNoneEmpty;
  return branch;
}

absl::Status PlanBuilder::AddBranchGrad(const Op& op, const OpAttrs& attrs,
                                        const std::string& name) {
  const int block = attrs.Block("sub_block");
  WEFT_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients,
                        GradientsOf(op, "Input", block, name));
  for (const Gradient& gradient : gradients) {
    AddOwnOp(name, ZerosLike, {gradient.of}, {gradient.outside});
  }
  BlockEnds ends;
  ends.end = [&] {
    for (const Gradient& gradient : gradients) {
      if (gradient.inside == Plan::kNoVariable) {
        AddOwnOp(name, ZerosLike, {gradient.of}, {gradient.outside});
      } else {
        AddOwnOp(name, CopyValue, {gradient.inside}, {gradient.outside});
      }
    }
  };
  return AddBranchTo(block, op, CondBranch(attrs), ends);
}

absl::StatusOr<std::vector<PlanBuilder::Gradient>> PlanBuilder::GradientsOf(
    const Op& op, absl::string_view slot, int block, const std::string& name) const {
  const std::string grad_slot = absl::StrCat(slot, kGradSuffix);
  const absl::Span<const Symbol> inputs = op.Input(slot), grads = op.Output(grad_slot);
  if (!grads.empty() && grads.size() != inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " output ", grad_slot, ": expected ",
                                                   inputs.size(), " variables, as in ", slot,
                                                   ", found ", grads.size()));
  }
  WEFT_ASSIGN_OR_RETURN(const BlockGradientNames names, BlockGradientNames::Of(op));
  std::vector<Gradient> gradients;
  for (size_t i = 0; i < grads.size(); ++i) {
    Gradient gradient;
    WEFT_ASSIGN_OR_RETURN(gradient.outside, Resolve(grads[i], name));
    if (gradient.outside == Plan::kNoVariable) continue;
    WEFT_ASSIGN_OR_RETURN(gradient.of, Resolve(inputs[i], name));
    if (gradient.of == Plan::kNoVariable) {
      return absl::InvalidArgumentError(absl::StrCat(name, " input ", slot,
                                                     ": expected a variable, as ", grad_slot,
                                                     " has one at this position"));
    }
    gradient.inside_name =
        program_.FindSymbol(absl::StrCat(names.Original(program_.name(inputs[i])), kGradSuffix));
    const VarId inside = gradient.inside_name.valid()
                             ? program_.block(block).FindVar(gradient.inside_name)
                             : VarId();
    gradient.inside = inside.valid() ? PlanVariable(inside) : Plan::kNoVariable;
    gradients.push_back(gradient);
  }
  return gradients;
}

absl::Status PlanBuilder::FindLoopGradients() {
  for (const Op& op : AllOps(program_)) {
    block_ = op.block();
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr || !schema->Has(Trait::kLoop) || !schema->Has(Trait::kBlockGrad)) {
      continue;
    }
    const char* const slot = IsRecurrent(*schema) ? "step_scopes" : "StepScopes";
    WEFT_ASSIGN_OR_RETURN(const int iterations, StepScopes(op.Input(slot), op.DebugName()));
    absl::flat_hash_set<Symbol>& reads = reads_of_gradient_[iterations];
    for (int block : op.SubBlocks()) {
      VisitOps(block, LoopBlocks::kVisited, [&](const Op& inner) {
        reads.insert(inner.input_args().begin(), inner.input_args().end());
      });
    }
  }
  block_ = 0;
  return absl::OkStatus();
}

absl::flat_hash_set<Symbol> PlanBuilder::WrittenIn(int block) const {
  absl::flat_hash_set<Symbol> written;
  VisitOps(block, LoopBlocks::kVisited,
           [&](const Op& op) { written.insert(op.output_args().begin(), op.output_args().end()); });
  return written;
}

absl::StatusOr<int> PlanBuilder::StepScopes(absl::Span<const Symbol> names,
                                            const std::string& name) const {
  if (names.size() == 1 && program_.name(names[0]) != kEmptyVarName) return Resolve(names[0], name);
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected one variable in StepScopes, found ", names.size()));
}

absl::Status PlanBuilder::AddLoop(const Op& op, const OpAttrs& attrs, const std::string& name) {
  const int block = attrs.Block("sub_block");
  Plan::Branch branch;
  branch.slot = "Condition";
  branch.is_loop = true;
  const absl::Span<const Symbol> names = op.Output("StepScopes");
  if (names.empty() || reads_of_gradient_.empty()) return AddBranchTo(block, op, branch);
  WEFT_ASSIGN_OR_RETURN(const int step_scopes, StepScopes(names, name));
  const auto reads = reads_of_gradient_.find(step_scopes);
  if (reads == reads_of_gradient_.end()) return AddBranchTo(block, op, branch);
  WEFT_ASSIGN_OR_RETURN(const Iterations iterations, IterationsOf(op, attrs, reads->second, name));
  if (!iterations_.emplace(step_scopes, iterations).second) {
    return absl::UnimplementedError(
        absl::StrCat(name, ": another op also keeps its iterations in ", program_.name(names[0])));
  }
  AddClear(name, {step_scopes});
  BlockEnds ends;
  ends.begin = [&] { AddOwnOp(name, BeginIteration, iterations.found, {step_scopes}); };
  ends.end = [&] { AddOwnOp(name, EndIteration, {}, Concat({{step_scopes}, iterations.made})); };
  return AddBranchTo(block, op, branch, ends);
}

absl::StatusOr<PlanBuilder::Iterations> PlanBuilder::IterationsOf(
    const Op& loop, const OpAttrs& attrs, const absl::flat_hash_set<Symbol>& reads,
    const std::string& name) {
  const int block = attrs.Block("sub_block");
  Iterations iterations;
  // Keeps no variable that is changed in place: the gradient reverts that change.
  absl::flat_hash_set<Symbol> in_place;
  for (const Op& op : BlockOps(program_, block)) {
    for (Symbol out : op.output_args()) {
      const absl::Span<const Symbol> in = op.input_args();
      if (std::find(in.begin(), in.end(), out) != in.end()) in_place.insert(out);
    }
  }
  const absl::flat_hash_set<Symbol> written = WrittenIn(block);
  const bool keeps = attrs.Does("keeps the tensors that it carries");
  for (Symbol symbol : loop.Input("X")) {
    if (!keeps || !reads.contains(symbol) || !written.contains(symbol) ||
        in_place.contains(symbol)) {
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(symbol, name));
    if (variable == Plan::kNoVariable) continue;
    const Plan::Variable& found = plan_.variables[variable];
    if (found.is_array || found.persistable) continue;
    iterations.found.push_back(variable);
    iterations.found_then.push_back(AddLocal(symbol, found));
    iterations.found_names.push_back(symbol);
  }
  // Blocks in this one that loops run have separate iterations.
  absl::flat_hash_set<int> blocks;
  VisitOps(block, LoopBlocks::kSkipped, [&](const Op& op) {
    if (!blocks.insert(op.block()).second) return;
    for (VarId id : program_.block(op.block()).vars()) {
      const Var var = program_.var(id);
      if (reads.contains(var.name_symbol()) && !var.persistable()) {
        iterations.made.push_back(PlanVariable(id));
      }
    }
  });
  return iterations;
}

absl::Status PlanBuilder::AddLoopGrad(const Op& op, const OpAttrs& attrs, const std::string& name) {
  const int block = attrs.Block("sub_block");
  WEFT_ASSIGN_OR_RETURN(const int step_scopes, StepScopes(op.Input("StepScopes"), name));
  const auto it = iterations_.find(step_scopes);
  if (it == iterations_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " input StepScopes: ", plan_.variables[step_scopes].name,
                     " does not belong to an earlier loop"));
  }
  const Iterations& iterations = it->second;
  for (size_t i = 0; i < iterations.found.size(); ++i) {
    locals_[{block, iterations.found_names[i]}] = iterations.found_then[i];
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients, GradientsOf(op, "X", block, name));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Link> given,
                        LinkGiven(op, attrs, block, gradients, name));
  std::vector<Link> added, cleared;  // cleared: forward variables, and their gradients
  std::vector<int> arrays;
  const bool carries = attrs.Does("carries gradients of tensors to earlier iterations");
  for (const Gradient& gradient : gradients) {
    if (!gradient.inside_name.valid()) {  // no op makes it: a gradient of zero
      AddOwnOp(name, ZerosLike, {gradient.of}, {gradient.outside});
      continue;
    }
    const int inside = InsideOf(block, gradient);
    if (inside == gradient.outside) {
      if (!carries && !plan_.variables[inside].is_array) {
        cleared.push_back({gradient.of, gradient.outside});
      }
      continue;
    }
    AddOwnOp(name, ZerosLike, {gradient.of}, {gradient.outside});
    added.push_back({gradient.outside, inside});
    if (gradient.inside == Plan::kNoVariable && plan_.variables[inside].is_array) {
      arrays.push_back(inside);
    }
  }
  Plan::Branch branch;
  branch.slot = "StepScopes";
  branch.test = Plan::Branch::Test::kIterationsLeft;
  branch.is_loop = true;
  BlockEnds ends;
  ends.begin = [&] {
    AddClear(name, arrays);
    AddOwnOp(name, PopIteration, {},
             Concat({{step_scopes}, iterations.found_then, iterations.made}));
    for (const auto& [outside, inside] : given) AddOwnOp(name, CopyValue, {outside}, {inside});
  };
  ends.end = [&] {
    for (const auto& [outside, inside] : added) AddOwnOp(name, AddTo, {outside, inside}, {outside});
    for (const auto& [of, gradient] : cleared) AddOwnOp(name, ZerosLike, {of}, {gradient});
  };
  return AddBranchTo(block, op, branch, ends);
}

absl::StatusOr<std::vector<PlanBuilder::Link>> PlanBuilder::LinkGiven(
    const Op& op, const OpAttrs& attrs, int block, const std::vector<Gradient>& gradients,
    const std::string& name) {
  const absl::Span<const Symbol> outside_names = op.Input("Out@GRAD");
  const std::vector<std::string>& inside_names = attrs.Strings("original_output_grad");
  if (outside_names.size() != inside_names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " input Out@GRAD: expected ", inside_names.size(),
        " variables, as in attribute original_output_grad, found ", outside_names.size()));
  }
  const absl::flat_hash_set<Symbol> written = WrittenIn(block);
  WEFT_ASSIGN_OR_RETURN(const BlockGradientNames names, BlockGradientNames::Of(op));
  absl::flat_hash_map<absl::string_view, Symbol> forward;
  for (Symbol out : op.Input("Out")) forward.emplace(names.Original(program_.name(out)), out);
  const bool carries = attrs.Does("carries gradients of tensors to earlier iterations");
  const absl::Span<const Symbol> inputs = op.Input("X");
  std::vector<Link> given;
  for (size_t i = 0; i < outside_names.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int outside, Resolve(outside_names[i], name));
    const Symbol inside_name = program_.FindSymbol(inside_names[i]);
    if (outside == Plan::kNoVariable || !inside_name.valid()) continue;
    const auto of = forward.find(absl::StripSuffix(inside_names[i], kGradSuffix));
    if (!plan_.variables[outside].is_written && of != forward.end()) {
      WEFT_ASSIGN_OR_RETURN(const int like, Resolve(of->second, name));
      if (like != Plan::kNoVariable && !plan_.variables[like].is_array) {
        AddOwnOp(name, ZerosLike, {like}, {outside});
      }
    }
    const bool is_carried =
        std::any_of(gradients.begin(), gradients.end(),
                    [&](const Gradient& gradient) {
                      return gradient.outside == outside && gradient.inside_name == inside_name;
                    }) ||
        // Whether the op returns it or not: Paddle has one tensor for both.
        (carries && of != forward.end() && !plan_.variables[outside].is_array &&
         absl::c_linear_search(inputs, of->second));
    const VarId declared = program_.block(block).FindVar(inside_name);
    if (is_carried || !written.contains(inside_name)) {
      if (declared.valid()) {
        plan_variable_[declared.value()] = outside;
      } else {
        locals_[{block, inside_name}] = outside;
      }
      continue;
    }
    const int inside =
        declared.valid() ? PlanVariable(declared) : AddLocal(inside_name, plan_.variables[outside]);
    if (!declared.valid()) locals_[{block, inside_name}] = inside;
    given.push_back({outside, inside});
  }
  return given;
}

int PlanBuilder::InsideOf(int block, const Gradient& gradient) {
  const VarId declared = program_.block(block).FindVar(gradient.inside_name);
  if (declared.valid()) return PlanVariable(declared);
  const auto [it, is_new] = locals_.try_emplace({block, gradient.inside_name}, 0);
  if (is_new) it->second = AddLocal(gradient.inside_name, plan_.variables[gradient.outside]);
  return it->second;
}

int PlanBuilder::AddLocal(Symbol name, const Plan::Variable& like) {
  Plan::Variable variable;
  variable.name = std::string(program_.name(name));
  variable.is_array = like.is_array;
  variable.memory = like.memory;
  variable.declared = like.declared;
  variable.is_written = true;
  plan_.variables.push_back(std::move(variable));
  return static_cast<int>(plan_.variables.size()) - 1;
}

absl::Status PlanBuilder::AddBranchTo(int block, const Op& op, Plan::Branch branch,
                                      const BlockEnds& ends) {
  branch.name = op.DebugName();
  branch.device = placement_.DeviceOf(op.id());
  if (branch.conditions.empty()) {
    WEFT_RETURN_IF_ERROR(ResolveAll(op.Input(branch.slot), branch.name, &branch.conditions));
  }
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
  RecordAccesses(reader);
  Step step;
  step.index = static_cast<int>(plan_.branches.size());
  plan_.branches.push_back(std::move(branch));
  const auto [it, is_first] = branch_to_block_.try_emplace(block, step.index);
  if (!is_first && (ends.begin || ends.end)) {
    return absl::UnimplementedError(absl::StrCat(plan_.branches.back().name, ": runs block ", block,
                                                 ", which another op runs too"));
  }
  if (!is_first) {
    step.kind = Step::Kind::kBranchBack;
    step.first_branch = it->second;
    steps_.push_back(step);
    return absl::OkStatus();
  }
  step.kind = Step::Kind::kBeginBranch;
  steps_.push_back(step);
  AddClear(plan_.branches[step.index].name, ArraysOf(block));
  if (ends.begin) ends.begin();
  WEFT_RETURN_IF_ERROR(AddBlock(block));
  if (ends.end) ends.end();
  step.kind = Step::Kind::kEndBranch;
  steps_.push_back(step);
  return absl::OkStatus();
}

}  // namespace weft
