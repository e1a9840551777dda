// The scalars of a program over steps: counters, and conditions on them.
#ifndef WEFT_OPS_ANALYSIS_VALUES_SCALAR_SLICE_H_
#define WEFT_OPS_ANALYSIS_VALUES_SCALAR_SLICE_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/schema/algebra.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// The ops that one scalar depends on, as a small program that can be run: a counter, its remainder,
// a comparison. The scalars are replicated: they depend neither on data nor on random draws nor on
// values from other ranks.
class ScalarSlice {
 public:
  // The slice for the value of `variable` before op `before` of the root block of `main`. The
  // startup program sets the initial values of persistable variables. Unimplemented, naming the
  // variable, if it depends on a variable that is not a scalar or that `startup` does not set, or
  // on an op that is not arithmetic. O(arguments).
  static absl::StatusOr<ScalarSlice> Of(const Program& main, const Program& startup, OpId before,
                                        Symbol variable);

  // Runs the next step, and returns the scalar; 0 or 1 for a bool. InvalidArgument if an integer is
  // divided by 0 or overflows. O(ops of the slice).
  absl::StatusOr<double> RunStep();
  // Of the slice.
  size_t num_ops() const { return instructions_.size(); }

 private:
  friend class ScalarSlicer;

  struct Instruction {
    OpId op;  // invalid: reads x, the result of the slice
    // kConstant is `number`, kScale is (x + before) * number + bias.
    Algebra algebra = Algebra::kNone;
    DType dtype = DType::kFloat32;  // of the result
    // Indices into numbers_.
    int out = -1, x = -1, y = -1;
    double number = 0, before = 0, bias = 0;
    double (*compute)(DType dtype, double x, double y) = nullptr;  // of other arithmetic
  };

  absl::Status Run(double* result);

  std::vector<Instruction> instructions_;
  std::vector<double> numbers_;  // the values of variables
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_SCALAR_SLICE_H_
