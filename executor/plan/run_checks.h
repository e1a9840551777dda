// Checks of programs, parameters and fetched variables before a run starts.
#ifndef WEFT_EXECUTOR_PLAN_RUN_CHECKS_H_
#define WEFT_EXECUTOR_PLAN_RUN_CHECKS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/plan/plan.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// Whether dimensions match the declared ones in number, and in value where those are fixed (not
// -1).
bool FitsDeclared(const Dims& dims, const Dims& declared);

// Names of variables.
using NameSet = absl::flat_hash_set<std::string>;

// FailedPrecondition for the first op that reads a variable before an op has written it, if the
// variable is neither in `holds_value` nor fed. The message says how to give it a value.
absl::Status CheckInitialized(const Plan& plan, const NameSet& holds_value,
                              const std::vector<int>& fed);

// FailedPrecondition if ops of the program, in any block, update parameters but none is a
// collective: several ranks would each train a separate model.
absl::Status CheckSynchronized(const Program& main, int nranks);

// InvalidArgument, naming the variable, expected and found, if a parameter is not a persistable
// variable of the root block that is declared as a tensor, or has another type.
absl::Status CheckParam(const Program& main, absl::string_view name, const TensorType& type);

// Returns the variables of the plan with these names; the losses for no names. InvalidArgument for
// an unknown variable, one that never gets a value (not written, fed or persistable), one that
// servers update, and one that is named twice.
absl::StatusOr<std::vector<int>> ResolveFetch(const Plan& plan,
                                              const std::vector<std::string>& names);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_RUN_CHECKS_H_
