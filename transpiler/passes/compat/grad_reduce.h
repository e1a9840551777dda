#ifndef WEFT_TRANSPILER_PASSES_COMPAT_GRAD_REDUCE_H_
#define WEFT_TRANSPILER_PASSES_COMPAT_GRAD_REDUCE_H_

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/option_binder.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/dense_reducer.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Reduces every gradient over the ranks as MindSpore's DistributedGradReducer, SINGA's DistOpt and
// MegEngine's DistributedOptimizer do: they leave the gradient of the loss as it is, and divide
// after the sum. Where ops go is as in pass grad-all-reduce; what goes around each collective is in
// transpiler/passes/gradients/dense_reducer.h.
//
//   system     division of the sum                   element type           additions
//   MindSpore  x fp32(1 / degree), or none           fp32                   -
//   SINGA      x fp32(1 / ranks)                     fp32, or fp16 (half)   rounded each
//   MegEngine  / ranks, or none                      that of the gradient   rounded each
//
// If the number of ranks is unknown, or a parameter has a group of ranks, c_allreduce_avg takes the
// place of the product.
//
// Row-sparse gradients travel as rows; narrower ones are cast too, but rows are never narrowed.
// MindSpore gathers rows and values, and multiplies the values; so does the all-reduce of rows
// here, for any number of rows per rank.
//
// `degree` divides the mean of all gradients, also of those that a group of ranks reduces. A sum
// ignores it, as MindSpore does; a note says so.
//
// With reduce_done, gradients are reduced already (MindSpore's reducer after the hooks of PyNative
// mode have run): only the product is written, after the last op that reduces each or waits for it.
//
// FailedPrecondition: the conditions of transpiler/passes/gradients/gradient_reduction.h; loss
// gradients that are divided already; gradients of another element type than fp32 that would travel
// in half precision; rows that would be clipped. InvalidArgument: options that contradict each
// other; a factor 1 / ranks where the number is unknown. By contract, a program with averaged
// parameters, or with reduced gradients (with reduce_done: without). O(arguments + gradients).
class GradReduce : public Pass {
 public:
  static constexpr absl::string_view kName = "grad-reduce";
  static constexpr absl::string_view kDescription =
      "main program: reduces gradients as MindSpore, SINGA and MegEngine do: sum or mean, casts, "
      "clips";
  enum class Method { kSum, kMean };
  enum class Division { kReciprocal, kQuotient, kBefore };
  struct Options {
    int nrings = 1;
    BucketPolicy buckets;
    Method method = Method::kSum;
    absl::optional<int> degree = {};  // none: the number of ranks
    Division division = Division::kReciprocal;
    // How gradients travel: element type, additions, clip and lowering.
    DenseReduction travel = {};
    bool is_done = false;  // gradients are reduced already
    void Bind(OptionBinder& bind);
  };
  explicit GradReduce(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  bool HasTrait(PassTrait trait) const override {
    return trait == PassTrait::kLeavesServed || ReadsTimes(options_.buckets, trait);
  }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  absl::StatusOr<DenseReduction> ReductionFor(const PassContext& context) const;
  void NoteSums(const PassContext& context) const;
  // Whether the mean is over another number than that of the ranks.
  bool HasOwnDegree(const PassContext& context) const;

  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_COMPAT_GRAD_REDUCE_H_
