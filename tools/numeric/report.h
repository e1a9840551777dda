// The result of a numeric check: differences of tensors.
#ifndef WEFT_TOOLS_NUMERIC_REPORT_H_
#define WEFT_TOOLS_NUMERIC_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "ops/tensor.h"

namespace weft {

// Rounding, relative to the largest element of a variable. See numeric_check.h.
inline constexpr double kNumericTolerance = 1e-5;
// The same for a program that computes in fp16 or bf16.
inline constexpr double kHalfTolerance = 1.0 / 512;
inline constexpr double kBrainHalfTolerance = 1.0 / 64;
inline constexpr double kRoundingFactor = 8;
inline constexpr double kMaxNumericTolerance = 1e-3;

struct NumericReport {
  // A variable that is wrong, at the element that differs most.
  struct Difference {
    std::string variable;
    bool is_parameter = false;
    // Equal to the original, as far as known, but different between ranks: `expected` is the value
    // of rank 0.
    bool is_among_ranks = false;
    int64_t step = 0;
    int rank = 0;
    Dims index;
    double expected = 0, found = 0;
    double relative = 0;  // relative to the largest element
    // The largest difference of the original itself with its batch in another order, also relative.
    double of_original = 0;
  };

  int nranks = 0;
  int64_t steps = 0;
  int64_t batch = 0;  // rows of all ranks together
  double tolerance = kNumericTolerance;
  // The verifier says of every variable with a difference that it is not that of one device.
  bool is_explained = false;
  // Each persistable variable that the original writes is in one of these lists, sorted:
  std::vector<std::string> compared;
  // Rank-local states that belong to no optimizer, such as gradients accumulated over steps.
  std::vector<std::string> rank_local;
  // Too rough to compare: they differ by more than kMaxNumericTolerance, but so does the original.
  std::vector<std::string> rough;
  // Parameters that the original updates without changing their value: nothing was learned about
  // them.
  std::vector<std::string> unchanged;
  // One per variable, after the first step with a difference.
  std::vector<Difference> differences;
  // The largest difference that rounding may explain; none: bit-identical.
  absl::optional<Difference> largest_rounding;

  bool IsEqual() const { return differences.empty(); }
};

double ElementAt(const Tensor& tensor, int64_t i);

// The largest difference of two tensors of one type: index, expected, found and relative are set.
// None if all elements are equal (0 and -0 are). O(elements).
absl::optional<NumericReport::Difference> CompareTensors(const Tensor& expected,
                                                         const Tensor& found);

// "2 steps on 2 ranks, batch 8: 3 variables equal bit by bit", or, for differences, several lines.
std::string NumericReportText(const NumericReport& report);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_REPORT_H_
