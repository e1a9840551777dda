// What a program computes of single numbers, step after step: counters, and conditions on them.
#ifndef WEFT_OPS_ANALYSIS_SCALAR_SLICE_H_
#define WEFT_OPS_ANALYSIS_SCALAR_SLICE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/schema/algebra.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// The ops that one number depends on, as a small program that can be run: a counter that grows, its
// remainder, a comparison. The same numbers on every rank: no data, no random draw and no value
// that ranks exchange may be among them.
class ScalarSlice {
 public:
  // The slice for what `variable` holds when op `before` of the root block of `main` runs. The
  // startup program says what persistable variables begin with.
  // Unimplemented, with what it depends on: something that is no number of one element, an op that
  // is no arithmetic on numbers, a variable that `startup` does not give a value. O(arguments).
  static absl::StatusOr<ScalarSlice> Of(const Program& main, const Program& startup, OpId before,
                                        Symbol variable);

  // Runs the next step, and returns the number; 0 or 1 for a bool. InvalidArgument where an integer
  // is divided by 0. O(ops of the slice).
  absl::StatusOr<double> RunStep();

 private:
  friend class ScalarSlicer;

  struct Instruction {
    OpId op;  // invalid: reads x, the number that the slice is for
    // kConstant is `number`, kScale is x * number + bias.
    Algebra algebra = Algebra::kNone;
    DType dtype = DType::kFloat32;  // of the result
    // Numbers, by index.
    int out = -1, x = -1, y = -1;
    double number = 0, bias = 0;
  };

  static absl::StatusOr<double> Compute(const Instruction& instruction,
                                        absl::Span<const double> numbers);
  absl::Status Run(double* result);

  std::vector<Instruction> instructions_;
  std::vector<double> numbers_;  // what variables of the slice hold
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_SCALAR_SLICE_H_
