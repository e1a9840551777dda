// What a numeric check has found.
#ifndef WEFT_TOOLS_NUMERIC_REPORT_H_
#define WEFT_TOOLS_NUMERIC_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Rounding: relative to the largest element of a variable. See numeric_check.h.
inline constexpr double kNumericTolerance = 1e-5;
inline constexpr double kRoundingFactor = 8;
inline constexpr double kMaxNumericTolerance = 1e-3;

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

// "2 steps on 2 ranks, batch 8: 3 variables equal bit by bit", or where they differ: lines.
std::string NumericReportText(const NumericReport& report);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_REPORT_H_
