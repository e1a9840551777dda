// The variables that gradients belong to, by their names.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_GRADIENT_NAMES_H_
#define WEFT_OPS_ANALYSIS_TRAINING_GRADIENT_NAMES_H_

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "proto/program.h"

namespace weft {

// w for "w@GRAD", "w@GRAD@RENAME@block0@1" and "w@GRAD_0". Which "@GRAD" counts if a name has
// several: with the last, "w@GRAD@GRAD" is the gradient of w@GRAD; with the first, of w.
enum class GradSuffix { kFirst, kLast };

// Invalid if the name is not that of a gradient, or if the program has no such variable name.
Symbol DifferentiatedName(const Program& program, Symbol gradient, GradSuffix suffix);

// The variables that a backward op has in an input S, and the gradients of which it writes to
// S@GRAD. O(arguments).
absl::flat_hash_set<VarId> FindDifferentiated(const Program& program);

// The same as DifferentiatedName for many gradients of one program. The first call looks up all
// names of the program: in order, that takes a small part of the time. Not thread-safe.
class GradientNames {
 public:
  // The program must outlive it and not change.
  GradientNames(const Program& program, GradSuffix suffix) : program_(program), suffix_(suffix) {}

  Symbol DifferentiatedName(Symbol gradient) {
    if (differentiated_.empty()) FindAll();
    return differentiated_[gradient.value()];
  }

 private:
  void FindAll();

  const Program& program_;
  const GradSuffix suffix_;
  std::vector<Symbol> differentiated_;  // by symbol; empty: not computed yet
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_GRADIENT_NAMES_H_
