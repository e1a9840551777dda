// Does a rewritten program compute what the original computes? Runs both and compares.
//
// The original runs on one rank with the batch of all ranks, the rewritten program on its ranks,
// each with its part. What both start from is made up so that sums come out the same in any order
// wherever the ops allow it: parameters and data are small integers, or such divided by a power of
// two; learning rates are a power of two; a batch is a power of two for each rank. A program of
// products, sums and means is then equal bit by bit. Where results are rounded (softmax, roots,
// division by 3 ranks), sums depend on their order, and equal means: within kNumericTolerance of
// the largest element of the variable.
//
// This shows what a proof over expressions (transpiler/verify/equivalence.h) does not get through;
// it holds for the numbers of this run only.
#ifndef WEFT_TOOLS_NUMERIC_CHECK_H_
#define WEFT_TOOLS_NUMERIC_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

inline constexpr double kNumericTolerance = 1e-5;

struct NumericPrograms {
  const Program* main = nullptr;
  // Where states begin; null: at 0. Parameters and learning rates are made up in any case.
  const Program* startup = nullptr;
};

struct NumericOptions {
  const KernelTable* kernels = nullptr;  // must be given
  int nranks = 2;
  int64_t steps = 2;
  double timeout_s = 60;  // for a rank that does not arrive at a collective
};

struct NumericReport {
  // A variable that is not what it should be, where it differs most.
  struct Difference {
    std::string variable;
    bool is_parameter = false;
    int64_t step = 0;
    int rank = 0;
    Dims index;
    double expected = 0, found = 0;
    double relative = 0;  // to the largest element
  };

  int nranks = 0;
  int64_t steps = 0;
  int64_t batch = 0;  // rows of all ranks together
  // All persistable variables that the original writes, sorted, but those of `own_to_ranks`: states
  // of which each rank has a value of its own, such as gradients that are accumulated over steps.
  std::vector<std::string> compared;
  std::vector<std::string> own_to_ranks;
  // Parameters that the original updates, but which are what they were: nothing was learned of
  // them.
  std::vector<std::string> unchanged;
  // One a variable, after the first step that has any.
  std::vector<Difference> differences;
  // The largest difference that rounding may explain; none: equal bit by bit.
  absl::optional<Difference> largest_rounding;

  bool IsEqual() const { return differences.empty(); }
};

// Errors begin with the program that they are about:
//   Unimplemented       ops without a kernel; an element type that no values are made for
//   FailedPrecondition  the first dimension of data is fixed, so that the original cannot take the
//                       batches of all ranks; the rewritten program has lost a variable; no
//                       parameter changes
//   ResourceExhausted   more than kMaxNumericElements to make up
// and whatever stops a run (executor/runner.h).
// Takes as long as so many steps of both programs.
absl::StatusOr<NumericReport> CheckNumerically(const NumericPrograms& original,
                                               const NumericPrograms& rewritten,
                                               const NumericOptions& options);

// Elements of all parameters, states and data of a step.
inline constexpr int64_t kMaxNumericElements = int64_t{1} << 28;

// "2 steps on 2 ranks, batch 8: 3 variables equal bit by bit", or where they differ: lines.
std::string NumericReportText(const NumericReport& report);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_CHECK_H_
