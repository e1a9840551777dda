// The number of ranks that run a program, as far as it is known.
#ifndef WEFT_OPS_ANALYSIS_RANK_COUNT_H_
#define WEFT_OPS_ANALYSIS_RANK_COUNT_H_

#include "absl/types/optional.h"
#include "ops/analysis/rank_values.h"

namespace weft {

class RankCount {
 public:
  explicit RankCount(const RankValuesOptions& options)
      : known_(options.nranks), is_one_(options.is_one_device || options.nranks == 1) {}

  // Nothing can differ between ranks.
  bool IsOne() const { return is_one_; }
  bool Is(double n) const { return known_.has_value() && *known_ == n; }
  bool IsKnown() const { return known_.has_value(); }
  // A number to calculate with. Where it is not known, what holds for it holds for any, as no
  // product of its powers with factors of a program is 1 by chance.
  double AsFactor() const { return known_.has_value() ? *known_ : 7.38905609893065; }

 private:
  absl::optional<int> known_;
  bool is_one_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_COUNT_H_
