// What must be right of programs, parameters and fetched variables before a run starts.
#ifndef WEFT_EXECUTOR_RUN_CHECKS_H_
#define WEFT_EXECUTOR_RUN_CHECKS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/plan.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"
#include "proto/program.h"

namespace weft {

// Are dimensions as many as the declared ones, and equal where those are fixed (not -1)?
bool FitsDeclared(const Dims& dims, const Dims& declared);

// Names of variables.
using NameSet = absl::flat_hash_set<std::string>;

// The persistable variables that some op of the plan writes.
NameSet WrittenPersistables(const Plan& plan);

// FailedPrecondition for the first op that reads a variable before an op has written it, where the
// variable is neither in `holds_value` nor fed; says how to give it a value.
absl::Status CheckInitialized(const Plan& plan, const NameSet& holds_value,
                              const std::vector<int>& fed);

// FailedPrecondition where ops of the program, in any block, update parameters but none is a
// collective: on several ranks each would train a model of its own.
absl::Status CheckSynchronized(const Program& main, int nranks);

// InvalidArgument, naming the variable, expected and found, where a parameter is no persistable
// variable of the program's root block that is declared as a tensor, or has another type.
absl::Status CheckParam(const Program& main, absl::string_view name, const TensorType& type);
absl::Status CheckParams(const Program& main, const std::map<std::string, Tensor>& params);

// The variables of the plan with these names; the losses for no names. InvalidArgument where there
// is no such variable, one that never holds anything, or one that is named twice.
absl::StatusOr<std::vector<int>> ResolveFetch(const Plan& plan,
                                              const std::vector<std::string>& names);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_CHECKS_H_
