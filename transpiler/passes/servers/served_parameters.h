// The parameters that go to servers, and what a program does with them.
#ifndef WEFT_TRANSPILER_PASSES_SERVERS_SERVED_PARAMETERS_H_
#define WEFT_TRANSPILER_PASSES_SERVERS_SERVED_PARAMETERS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {

struct ServedParameter {
  Symbol param;
  TensorType type;  // of known dimensions
  Symbol grad;      // that workers push
  bool grad_is_sparse = false;
  OpId update;
  // Ops of role optimize for this parameter that keep state, such as a velocity with a momentum
  // that decays, and what else they compute. They are part of the optimizer.
  std::vector<OpId> before_update;
  std::vector<Symbol> temporaries;
  // What the optimizer keeps, and what else it reads: a learning rate, and others with their slots.
  std::vector<Symbol> states;
  Symbol learning_rate;  // invalid: none
  std::vector<std::pair<std::string, Symbol>> others;
  OpId first_use;  // of the root block; invalid: none before the update
  // Servers hold it by rows: these ops alone read it. Otherwise both are empty.
  std::vector<OpId> lookups, lookup_grads;

  bool is_table() const { return !lookups.empty(); }
};

// In the order of the updates; empty if no parameter is given to servers. FailedPrecondition: those
// of pass parameter-server.
absl::StatusOr<std::vector<ServedParameter>> FindServedParameters(const Program& program,
                                                                  const ParamAttrsByName& attrs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SERVERS_SERVED_PARAMETERS_H_
