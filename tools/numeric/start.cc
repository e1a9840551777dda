#include "tools/numeric/start.h"

#include <utility>

#include "base/status_macros.h"
#include "executor/runner.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/updates.h"
#include "tools/numeric/tensor_difference.h"

namespace weft {

LearningVariables FindLearningVariables(const Program& program) {
  LearningVariables found;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (var.is_parameter()) found.parameters.emplace(std::string(var.name()), var.name());
  }
  for (const ParamUpdate& update : FindUpdates(program)) {
    const std::string param(program.name(update.param));
    found.parameters.emplace(param, param);
    // Holds the same values with higher precision.
    if (update.master.valid()) found.parameters[std::string(program.name(update.master))] = param;
    for (Symbol state : update.states) found.optimizer_states.emplace(program.name(state));
  }
  OpTraits traits(program);
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      if (!traits.Has(op, Trait::kOptimizer)) continue;
      for (Symbol rate : op.Input("LearningRate")) found.rates.emplace(program.name(rate));
    }
  }
  return found;
}

absl::StatusOr<std::map<std::string, Tensor>> MakeStart(
    const ConstProgramPair& original, const NumericOptions& options, const Plan& plan,
    const LearningVariables& variables, const NumericData& data, ElementBudget* budget) {
  std::map<std::string, Tensor> start;
  std::map<std::string, Tensor> from_startup;
  if (original.startup != nullptr) {
    RunInputs inputs;
    inputs.main = original.main;
    inputs.startup = original.startup;
    inputs.feeds = data.Source();
    RunOptions run = RunOptionsFor(options, 1);
    run.steps = 0;
    WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, run));
    from_startup = std::move(result.persistables);
  }
  for (size_t v = 0; v < plan.variables().size(); ++v) {
    const Plan::Variable& variable = plan.variables()[v];
    if (!IsTensorOfRoot(plan, v) || !variable.persistable || variable.is_feed) continue;
    const std::string& name = variable.name;
    const TensorType& type = *variable.declared;
    const auto parameter = variables.parameters.find(name);
    const auto started = from_startup.find(name);
    absl::StatusOr<Tensor> tensor;
    if (parameter != variables.parameters.end() && IsFloating(type.dtype)) {
      WEFT_RETURN_IF_ERROR(budget->Take(name, type.dims));
      tensor = MakeParameter(parameter->second, type);
    } else if (variables.rates.count(name) > 0 && !variable.is_written && IsFloating(type.dtype)) {
      WEFT_RETURN_IF_ERROR(budget->Take(name, type.dims));
      const bool is_given = started != from_startup.end() && started->second.size() > 0;
      const double rate = is_given ? ElementAt(started->second, 0) : kDefaultLearningRate;
      tensor = MakeConstant(name, type, RoundedRate(rate));
    } else if (started != from_startup.end()) {
      tensor = started->second;
    } else if (original.startup == nullptr) {
      WEFT_RETURN_IF_ERROR(budget->Take(name, type.dims));
      tensor = MakeConstant(name, type, 0);
    } else {
      continue;  // the run reports it if it is read
    }
    WEFT_RETURN_IF_ERROR(tensor.status());
    start.emplace(name, *std::move(tensor));
  }
  return start;
}

}  // namespace weft
