// Does a rewritten program compute what the original computes? Runs both and compares.
//
// The original runs on one rank with the batch of all ranks, the rewritten program on its ranks,
// each with its part. What both start from is made up so that sums come out the same in any order
// wherever the ops allow it: parameters and data are small integers, or such divided by a power of
// two; learning rates are the power of two that is nearest to that of the startup program; a batch
// is a power of two for each rank. A program of products, sums and means is then equal bit by bit.
// Where results are rounded (softmax, roots, division by 3 ranks), sums depend on their order, and
// equal means: within kNumericTolerance of the largest element of the variable.
//
// Some optimizers make more of it: adam's first step is lr g / (|g| + 1e-8), whatever the rounding
// of a g of 1e-8. How much shows in the original itself, which runs with its batch in two other
// orders besides: kRoundingFactor times that difference is allowed. What differs by more than
// kMaxNumericTolerance is not called equal, whatever the original does.
//
// Rounding is no reason for ranks to disagree: what one collective gives, and what is computed from
// it, has the same bits on all of them. So parameters and states of optimizers have to be the same
// bits on all ranks, too.
//
// This shows what a proof over expressions (transpiler/verify/equivalence.h) does not get through;
// it holds for the numbers of this run only. What has no effect on them is not seen: a race that
// does not happen, or a missing division by the number of ranks before clipping by norm, which
// makes up for it. Layers that run nothing find both.
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
inline constexpr double kRoundingFactor = 8;
inline constexpr double kMaxNumericTolerance = 1e-3;

struct NumericPrograms {
  const Program* main = nullptr;
  // Where states begin; null: at 0. Parameters are made up in any case.
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
    // As in the original, as far as can be told, but not the same on all ranks: expected is what
    // rank 0 has.
    bool is_among_ranks = false;
    int64_t step = 0;
    int rank = 0;
    Dims index;
    double expected = 0, found = 0;
    double relative = 0;  // to the largest element
    // By how much the original differs, at most, with its batch in another order: relative, too.
    double of_original = 0;
  };

  int nranks = 0;
  int64_t steps = 0;
  int64_t batch = 0;  // rows of all ranks together
  // The persistable variables that the original writes, sorted, are in one of these:
  std::vector<std::string> compared;
  // States of no optimizer of which each rank has its own, such as gradients that are accumulated
  // over steps.
  std::vector<std::string> own_to_ranks;
  // Too rough to tell: they differ by more than kMaxNumericTolerance, but so does the original.
  std::vector<std::string> rough;
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
//                       parameter changes, or no variable can be compared
//   ResourceExhausted   more than kMaxNumericElements to make up
// and whatever stops a run (executor/runner.h).
// Takes as long as so many steps of the rewritten program, and three times those of the original.
absl::StatusOr<NumericReport> CheckNumerically(const NumericPrograms& original,
                                               const NumericPrograms& rewritten,
                                               const NumericOptions& options);

// Elements of all parameters, states and data of a step.
inline constexpr int64_t kMaxNumericElements = int64_t{1} << 28;

// "2 steps on 2 ranks, batch 8: 3 variables equal bit by bit", or where they differ: lines.
std::string NumericReportText(const NumericReport& report);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_CHECK_H_
