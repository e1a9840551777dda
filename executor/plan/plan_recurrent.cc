// Ops that run a block once for each step of sequences: recurrent and its gradient.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/plan/plan_builder.h"
#include "proto/op_role.h"

namespace weft {

absl::StatusOr<int> PlanBuilder::InBlock(int block, absl::string_view variable,
                                         const std::string& name) const {
  const Symbol symbol = program_.FindSymbol(variable);
  const VarId found = symbol.valid() ? program_.block(block).FindVar(symbol) : VarId();
  if (found.valid()) return PlanVariable(found);
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected a variable ", variable, " of block ", block, ", found none"));
}

int PlanBuilder::GradientInBlock(int block, absl::string_view of, int like) {
  const Symbol symbol = program_.FindSymbol(absl::StrCat(of, kGradSuffix));
  if (!symbol.valid()) return Plan::kNoVariable;  // no op names it
  const VarId found = program_.block(block).FindVar(symbol);
  if (found.valid()) return PlanVariable(found);
  const auto [it, is_new] = locals_.try_emplace({block, symbol}, 0);
  if (is_new) it->second = AddLocal(symbol, plan_.variables[like]);
  return it->second;
}

int PlanBuilder::AddOwnArray(const std::string& name, int like) {
  Plan::Variable array;
  array.name = name;
  array.is_array = true;
  array.is_written = true;
  array.memory = plan_.variables[like].memory;
  plan_.variables.push_back(std::move(array));
  return static_cast<int>(plan_.variables.size()) - 1;
}

absl::StatusOr<PlanBuilder::Recurrence> PlanBuilder::RecurrenceOf(const Op& op,
                                                                  const OpAttrs& attrs,
                                                                  const std::string& name) const {
  Recurrence found;
  found.ex_states = attrs.Strings("ex_states");
  found.states = attrs.Strings("states");
  WEFT_RETURN_IF_ERROR(ResolveAll(op.Input("inputs"), name, &found.sequences));
  WEFT_RETURN_IF_ERROR(ResolveAll(op.Input("initial_states"), name, &found.initial_states));
  if (found.sequences.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " input inputs: expected a sequence"));
  }
  for (const auto& [what, size] : {std::make_pair("ex_states", found.ex_states.size()),
                                   std::make_pair("states", found.states.size())}) {
    if (size == found.initial_states.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " attribute ", what, ": expected ", found.initial_states.size(),
                     " names, as input initial_states has, found ", size));
  }
  return found;
}

absl::Status PlanBuilder::AddRecurrent(const Op& op, const OpAttrs& attrs,
                                       const std::string& name) {
  const int block = attrs.Block("sub_block");
  const bool is_reverse = attrs.Bool("reverse");
  WEFT_ASSIGN_OR_RETURN(const Recurrence of, RecurrenceOf(op, attrs, name));
  WEFT_ASSIGN_OR_RETURN(const int scopes, StepScopes(op.Output("step_scopes"), name));
  std::vector<int> steps, outputs, made, before, after, next;
  for (Symbol sequence : op.Input("inputs")) {
    WEFT_ASSIGN_OR_RETURN(steps.emplace_back(), InBlock(block, program_.name(sequence), name));
  }
  for (Symbol output : op.Output("outputs")) {
    WEFT_ASSIGN_OR_RETURN(outputs.emplace_back(), InBlock(block, program_.name(output), name));
  }
  for (size_t i = 0; i < of.states.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(before.emplace_back(), InBlock(block, of.ex_states[i], name));
    WEFT_ASSIGN_OR_RETURN(after.emplace_back(), InBlock(block, of.states[i], name));
    next.push_back(AddLocal(program_.FindSymbol(of.states[i]), plan_.variables[after[i]]));
  }
  const auto reads = reads_of_gradient_.find(scopes);
  const bool keeps = reads != reads_of_gradient_.end();
  for (VarId id : program_.block(block).vars()) {
    const Var var = program_.var(id);
    if (keeps && reads->second.contains(var.name_symbol()) && !var.persistable()) {
      made.push_back(PlanVariable(id));
    }
  }
  if (keeps && !iterations_.emplace(scopes, Iterations{{}, {}, made, {}}).second) {
    return absl::UnimplementedError(
        absl::StrCat(name, ": another op also keeps its steps in ", plan_.variables[scopes].name));
  }

  const int pending = AddOwnArray(absl::StrCat(name, " steps"), of.sequences[0]);
  AddOwnOp(name, SplitSteps(is_reverse ? StepOrder::kForward : StepOrder::kReverse), of.sequences,
           {pending});
  std::vector<int> collected;
  for (int output : outputs) collected.push_back(AddOwnArray(name, output));
  AddClear(name, collected);
  if (keeps) AddClear(name, {scopes});
  for (size_t i = 0; i < before.size(); ++i) {
    AddOwnOp(name, CopyValue, {of.initial_states[i]}, {before[i]});
  }
  Plan::Branch branch;
  branch.conditions = {pending};
  branch.test = Plan::Branch::Test::kIterationsLeft;
  branch.is_loop = true;
  BlockEnds ends;
  ends.begin = [&] {
    std::vector<int> popped = {pending};
    popped.insert(popped.end(), steps.begin(), steps.end());
    AddOwnOp(name, PopIteration, {}, popped);
  };
  ends.end = [&] {
    for (size_t k = 0; k < outputs.size(); ++k) {
      AddOwnOp(name, AppendStep, {outputs[k]}, {collected[k]});
    }
    for (size_t i = 0; i < after.size(); ++i) AddOwnOp(name, CopyValue, {after[i]}, {next[i]});
    if (keeps) {
      AddOwnOp(name, BeginIteration, {}, {scopes});
      std::vector<int> kept = {scopes};
      kept.insert(kept.end(), made.begin(), made.end());
      AddOwnOp(name, EndIteration, {}, kept);
    }
    for (size_t i = 0; i < after.size(); ++i) AddOwnOp(name, CopyValue, {next[i]}, {before[i]});
  };
  WEFT_RETURN_IF_ERROR(AddBranchTo(block, op, branch, ends));
  for (size_t k = 0; k < outputs.size(); ++k) {
    WEFT_ASSIGN_OR_RETURN(const int outside, Resolve(op.Output("outputs")[k], name));
    if (outside == Plan::kNoVariable) continue;
    AddOwnOp(name, StackSteps(is_reverse ? StepOrder::kReverse : StepOrder::kForward),
             {collected[k]}, {outside});
  }
  return absl::OkStatus();
}

absl::Status PlanBuilder::AddRecurrentGrad(const Op& op, const OpAttrs& attrs,
                                           const std::string& name) {
  const int block = attrs.Block("sub_block");
  const bool is_reverse = attrs.Bool("reverse");
  WEFT_ASSIGN_OR_RETURN(const Recurrence of, RecurrenceOf(op, attrs, name));
  WEFT_ASSIGN_OR_RETURN(const int scopes, StepScopes(op.Input("step_scopes"), name));
  const auto kept = iterations_.find(scopes);
  if (kept == iterations_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " input step_scopes: ", plan_.variables[scopes].name,
                     " does not belong to an earlier op"));
  }
  const absl::flat_hash_set<Symbol> written = WrittenIn(block);
  const auto is_made = [&](absl::string_view of_name) {
    const Symbol symbol = program_.FindSymbol(absl::StrCat(of_name, kGradSuffix));
    return symbol.valid() && written.contains(symbol);
  };

  // Gradients of the outputs, by step. Those that no op makes are zero.
  std::vector<int> given, given_inside;
  const absl::Span<const Symbol> outputs = op.Input("outputs"), grads = op.Input("outputs@GRAD");
  for (size_t k = 0; k < outputs.size(); ++k) {
    WEFT_ASSIGN_OR_RETURN(const int output, Resolve(outputs[k], name));
    if (output == Plan::kNoVariable) continue;
    const int inside = GradientInBlock(block, program_.name(outputs[k]), output);
    if (inside == Plan::kNoVariable) continue;
    const absl::StatusOr<int> grad =
        k < grads.size() ? Resolve(grads[k], name) : absl::StatusOr<int>(Plan::kNoVariable);
    int outside = grad.ok() ? *grad : Plan::kNoVariable;
    if (outside == Plan::kNoVariable || !plan_.variables[outside].is_written) {
      outside = AddLocal(outputs[k], plan_.variables[output]);
      AddOwnOp(name, ZerosLike, {output}, {outside});
    }
    given.push_back(outside);
    given_inside.push_back(inside);
  }
  if (given.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " input outputs@GRAD: expected a gradient"));
  }
  const int pending = AddOwnArray(absl::StrCat(name, " steps"), given[0]);
  AddOwnOp(name, SplitSteps(is_reverse ? StepOrder::kReverse : StepOrder::kForward), given,
           {pending});

  // The gradient of a state passes from each step to the one before.
  std::vector<std::pair<int, int>> passed;  // after the step, before the step
  std::vector<int> of_states;
  for (size_t i = 0; i < of.states.size(); ++i) {
    const int initial = of.initial_states[i];
    of_states.push_back(GradientInBlock(block, of.states[i], initial));
    if (of_states[i] == Plan::kNoVariable) continue;
    AddOwnOp(name, ZerosLike, {initial}, {of_states[i]});
    if (!is_made(of.ex_states[i])) continue;
    passed.emplace_back(of_states[i], GradientInBlock(block, of.ex_states[i], initial));
  }

  // Gradients of the sequences, by step, and sums of those of the parameters.
  struct Collected {
    int inside, steps, outside;
  };
  std::vector<Collected> collected;
  std::vector<Link> added;
  const auto for_each = [&](const char* slot, const auto& visit) -> absl::Status {
    const absl::Span<const Symbol> inputs = op.Input(slot);
    const absl::Span<const Symbol> made = op.Output(absl::StrCat(slot, kGradSuffix));
    for (size_t i = 0; i < inputs.size() && i < made.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const int outside, Resolve(made[i], name));
      if (outside == Plan::kNoVariable) continue;
      WEFT_ASSIGN_OR_RETURN(const int input, Resolve(inputs[i], name));
      if (is_made(program_.name(inputs[i]))) {
        visit(GradientInBlock(block, program_.name(inputs[i]), input), input, outside);
      } else {
        AddOwnOp(name, ZerosLike, {input}, {outside});
      }
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(for_each("inputs", [&](int inside, int input, int outside) {
    collected.push_back({inside, AddOwnArray(name, input), outside});
    AddClear(name, {collected.back().steps});
  }));
  WEFT_RETURN_IF_ERROR(for_each("parameters", [&](int inside, int input, int outside) {
    AddOwnOp(name, ZerosLike, {input}, {outside});
    added.push_back({outside, inside});
  }));

  Plan::Branch branch;
  branch.conditions = {pending};
  branch.test = Plan::Branch::Test::kIterationsLeft;
  branch.is_loop = true;
  BlockEnds ends;
  ends.begin = [&] {
    std::vector<int> popped = {scopes};
    popped.insert(popped.end(), kept->second.made.begin(), kept->second.made.end());
    AddOwnOp(name, PopIteration, {}, popped);
    popped = {pending};
    popped.insert(popped.end(), given_inside.begin(), given_inside.end());
    AddOwnOp(name, PopIteration, {}, popped);
  };
  ends.end = [&] {
    for (const Collected& of_step : collected) {
      AddOwnOp(name, AppendStep, {of_step.inside}, {of_step.steps});
    }
    for (const auto& [outside, inside] : added) AddOwnOp(name, AddTo, {outside, inside}, {outside});
    for (const auto& [later, earlier] : passed) AddOwnOp(name, CopyValue, {earlier}, {later});
  };
  WEFT_RETURN_IF_ERROR(AddBranchTo(block, op, branch, ends));
  for (const Collected& all : collected) {
    AddOwnOp(name, StackSteps(is_reverse ? StepOrder::kForward : StepOrder::kReverse), {all.steps},
             {all.outside});
  }
  const absl::Span<const Symbol> of_initial = op.Output("initial_states@GRAD");
  for (size_t i = 0; i < of_initial.size() && i < of_states.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int outside, Resolve(of_initial[i], name));
    if (outside == Plan::kNoVariable) continue;
    const bool is_zero = !is_made(of.ex_states[i]) || of_states[i] == Plan::kNoVariable;
    if (is_zero) AddOwnOp(name, ZerosLike, {of.initial_states[i]}, {outside});
    if (!is_zero) AddOwnOp(name, CopyValue, {of_states[i]}, {outside});
  }
  return absl::OkStatus();
}

}  // namespace weft
