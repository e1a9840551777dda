// Which variables of a program are trained.
#ifndef WEFT_TRANSPILER_VERIFY_COMPARED_VARIABLES_H_
#define WEFT_TRANSPILER_VERIFY_COMPARED_VARIABLES_H_

#include <set>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// The persistable variables that a rewrite has to compute as the original does: parameters, which
// have to be equal on all ranks, and states, which need not be.
class ComparedVariables {
 public:
  // `original` must outlive this object. O(ops + variables).
  ComparedVariables(const Program& original, const std::set<std::string>& distributed_params);

  // Trained: by an optimizer, or by other ops. Not what Paddle marks as a parameter although it is
  // a state: running statistics, states of optimizers.
  bool IsParam(absl::string_view name) const { return params_.contains(name); }
  // Sharded, with its optimizer states: each rank has a slice, and nothing to compare it with.
  bool IsSkipped(absl::string_view name) const { return skipped_.contains(name); }

 private:
  absl::flat_hash_set<absl::string_view> params_, skipped_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_COMPARED_VARIABLES_H_
