#include "tests/properties/random_runs.h"

#include <cmath>
#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/all_ops.h"
#include "proto/rewriter.h"

namespace weft::testing {
namespace {

constexpr double kMaxMagnitude = 1e6;
constexpr double kMaxRoundingError = 1e-12;

template <typename T>
Values Read(const Tensor& tensor) {
  return {tensor.dims(), {tensor.data<T>(), tensor.data<T>() + tensor.size()}};
}

absl::optional<Values> AsDoubles(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat64:
      return Read<double>(tensor);
    case DType::kFloat32:
      return Read<float>(tensor);
    case DType::kInt64:
      return Read<int64_t>(tensor);
    case DType::kInt32:
      return Read<int32_t>(tensor);
    case DType::kBool:
      return Read<bool>(tensor);
    case DType::kUint8:
      return Read<uint8_t>(tensor);
    default:
      return absl::nullopt;
  }
}

// The persistable variables of inner blocks. Those of one name are one variable.
std::vector<VarId> InnerStates(const Program& program) {
  std::vector<VarId> states;
  std::set<Symbol> seen;
  for (const Var& var : AllVars(program)) {
    if (var.block() == 0 || !var.persistable()) continue;
    if (seen.insert(var.name_symbol()).second) states.push_back(var.id());
  }
  return states;
}

// With the states of inner blocks declared in the root block, too. A run fetches variables of the
// root block; a persistable variable has one value in all blocks.
absl::StatusOr<Program> WithRootStates(const Program& program) {
  Program copy = program;
  Rewriter rewriter(&copy);
  for (VarId state : InnerStates(program)) {
    if (program.block(0).FindVar(program.var(state).name_symbol()).valid()) continue;
    rewriter.AddVar(0, program.var(state).ToProto());
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return copy;
}

}  // namespace

std::vector<std::string> Compared(const Program& program) {
  std::vector<std::string> names;
  std::set<Symbol> seen;
  for (OpId id : program.block(0).ops()) {
    for (Symbol name : program.op(id).output_args()) {
      const VarId var = program.block(0).Resolve(name);
      if (!var.valid() || !DeclaredType(program.var(var)).has_value()) continue;
      if (!seen.insert(name).second) continue;
      if (!absl::EndsWith(program.name(name), ".XShape")) names.emplace_back(program.name(name));
    }
  }
  for (VarId state : InnerStates(program)) {
    if (seen.insert(program.var(state).name_symbol()).second) {
      names.emplace_back(program.var(state).name());
    }
  }
  return names;
}

absl::StatusOr<Results> RunRandomProgram(const RandomProgram& drawn, const Program& main,
                                         const Program& startup, int nranks, int steps) {
  WEFT_ASSIGN_OR_RETURN(const Program to_run, WithRootStates(main));
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  options.steps = steps;
  options.fetch = Compared(drawn.main);
  options.timeout_s = 20;
  Results results(steps);
  RunInputs inputs;
  inputs.main = &to_run;
  inputs.startup = &startup;
  inputs.feeds = drawn.feeds;
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      const absl::optional<Values> values = AsDoubles(result.values[i]);
      if (values.has_value()) results[result.step][options.fetch[i]].push_back(*values);
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  return results;
}

bool HasLargeValues(const Results& results) {
  for (const auto& step : results) {
    for (const auto& [name, values] : step) {
      if (Largest(values[0]) > kMaxMagnitude) return true;
    }
  }
  return false;
}

bool HasRoundingErrors(const Results& results) {
  for (const auto& step : results) {
    for (const auto& [name, values] : step) {
      for (double value : values[0].data) {
        if (value != 0 && std::fabs(value) < kMaxRoundingError) return true;
      }
    }
  }
  return false;
}

}  // namespace weft::testing
