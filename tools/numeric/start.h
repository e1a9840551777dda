// The values from which both programs of a numeric check start.
#ifndef WEFT_TOOLS_NUMERIC_START_H_
#define WEFT_TOOLS_NUMERIC_START_H_

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "executor/plan.h"
#include "ops/tensor.h"
#include "proto/program_pair.h"
#include "tools/numeric/data.h"
#include "tools/numeric/setting.h"
#include "tools/numeric/values.h"

namespace weft {

// Variables of a program that take part in learning, by name.
struct LearningVariables {
  // The parameter whose value each holds: a master weight has that of its parameter.
  std::map<std::string, std::string, std::less<>> parameters;
  std::set<std::string, std::less<>> optimizer_states, rates;
};
LearningVariables FindLearningVariables(const Program& program);

// Persistable tensors at the beginning of the first step. Parameters and learning rates are
// generated; others are what the startup program of the original leaves, or 0 without one.
absl::StatusOr<std::map<std::string, Tensor>> MakeStart(
    const ConstProgramPair& original, const NumericOptions& options, const Plan& plan,
    const LearningVariables& variables, const NumericData& data, ElementBudget* budget);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_START_H_
