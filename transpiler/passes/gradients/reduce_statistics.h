#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_REDUCE_STATISTICS_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_REDUCE_STATISTICS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Makes persistable variables that the forward pass computes from the batch those of one device
// (FindStateEdits, ops/analysis/values/batch_edits.h): running means, counts, codebooks, and
// metrics such as the histograms of auc,
//
//   Out=[s] = reduce_sum(X=[hits])
//   Out=[s@SUM] = c_allreduce_sum(X=[s])
//   Out=[count] = elementwise_add(X=[count], Y=[s@SUM])
//
// States that stay as they are get W703 from the verifier, batch normalization W704.
//
// The collectives run on ring 0 and on the compute stream. Samples are gathered only if the number
// of ranks is known. FailedPrecondition in the paddle dialect. O(arguments) for each of at most 34
// walks.
class ReduceStatistics : public Pass {
 public:
  static constexpr absl::string_view kName = "reduce-statistics";
  static constexpr absl::string_view kDescription =
      "main program: reduces over the ranks what statistics and metrics are computed from";
  struct Options {
    bool statistics = true;
    void Bind(OptionBinder& bind);
  };
  explicit ReduceStatistics(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_REDUCE_STATISTICS_H_
