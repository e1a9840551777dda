// What a program must be so that a plan can be made of it: there are kernels for its ops, and the
// types of its variables fit.
#ifndef WEFT_EXECUTOR_PLAN_CHECKS_H_
#define WEFT_EXECUTOR_PLAN_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ops/kernel.h"
#include "proto/program.h"

namespace weft {

// Feeding and fetching are done between steps.
bool IsFeed(absl::string_view type);
bool IsFetch(absl::string_view type);

// "op 17", "block 1, op 0": Op::DebugName without the type.
std::string OpPlace(const Op& op);

// Types of outputs must follow from those of inputs, as far as they are known before a step.
class TypeChecker {
 public:
  explicit TypeChecker(const Program& program)
      : program_(program), has_rows_(program.op_id_limit(), false) {}

  absl::Status Check();

  // Whether a variable of the op is SelectedRows when it runs, as declared or inferred. Known after
  // Check, up to the op that it failed at.
  bool HasRows(OpId id) const { return has_rows_[id.value()]; }

 private:
  const Program& program_;
  std::vector<bool> has_rows_;  // by OpId
};

// Unimplemented, with all op types that there is no kernel for, how many ops each has, and where
// the first one stands.
absl::Status CheckKernels(const Program& program, const TypeChecker& types,
                          const KernelTable& kernels);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_CHECKS_H_
