// Checks that a plan can be built from a program: its ops have kernels, and the types of its
// variables match.
#ifndef WEFT_EXECUTOR_PLAN_CHECKS_H_
#define WEFT_EXECUTOR_PLAN_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernel.h"
#include "proto/program.h"

namespace weft {

// "op 17", "block 1, op 0": Op::DebugName without the type.
std::string OpPlace(const Op& op);

// Checks that the types of outputs follow from those of inputs, as far as they are known before a
// step.
class TypeChecker {
 public:
  explicit TypeChecker(const Program& program)
      : program_(program), has_rows_(program.op_id_limit(), false) {}

  absl::Status Check();

  // Whether a variable of the op is SelectedRows at run time, as declared or inferred. Valid after
  // Check, up to the op at which Check failed.
  bool HasRows(OpId id) const { return has_rows_[id.value()]; }

 private:
  const Program& program_;
  std::vector<bool> has_rows_;  // by OpId
};

// Unimplemented, listing all op types without a kernel, with the number of ops and the first
// position of each.
absl::Status CheckKernels(const Program& program, const TypeChecker& types,
                          const KernelTable& kernels);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_CHECKS_H_
