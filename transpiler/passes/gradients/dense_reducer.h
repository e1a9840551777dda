// The all-reduce of gradients with what other systems do around it: casts, clips, divisions.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_DENSE_REDUCER_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_DENSE_REDUCER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/gradient_writer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// What happens to gradients on their way, in this order: clip, multiply, cast; sum; cast back,
// multiply. Both products are in the wider of the two element types.
struct DenseReduction {
  bool averages = false;            // c_allreduce_avg, else c_allreduce_sum
  absl::optional<float> clip = {};  // elements are cut to [-clip, clip]
  float factor_before = 1, factor_after = 1;
  // The number of ranks for which the factors are right; none: any.
  absl::optional<int> nranks = {};
  // The element type of what travels; none: that of the gradient. Half precision takes fp32 only; a
  // wider type takes narrower ones, also of rows, and leaves others (fp64) as they are. Rows are
  // never narrowed.
  absl::optional<DType> comm_dtype = {};
  bool accumulates_natively = false;  // kAccumulateTypeAttr
  bool launches_groups = false;       // one op of several gradients instead of a fused buffer
};

// A bucket that is cast travels as a second buffer, with a slice for each gradient at the same
// element as in the first:
//
//   Output=[a@GRAD@FP16, b@GRAD@FP16], FusedOutput=[fused_gradient_0@FP16] = coalesce_tensor(...)
//   Out=[fused_gradient_0@FP16] = cast(X=[fused_gradient_0])
//   ...                                                          the all-reduce, the wait
//   Out=[fused_gradient_0] = cast(X=[fused_gradient_0@FP16])
//   Out=[fused_gradient_0] = scale(X=[fused_gradient_0])
class DenseReducer : public GradientExchange {
 public:
  // Sums several variables.
  static constexpr char kGroupType[] = "c_allreduce_xsum";

  // The program and the analysis must outlive the exchange.
  DenseReducer(const Program& program, const GradientAnalysis& analysis, int nrings,
               const DenseReduction& reduction);

  Sharing SharingOf(const GradientBucket& bucket) const override {
    return reduction_.launches_groups ? Sharing::kGroup : Sharing::kBuffer;
  }
  void Declare(const Bucket& bucket, Rewriter* rewriter) override;
  std::string Sent(const std::string& variable) override;
  void Prepare(const std::string& variable, Insert insert) override;
  const pb::OpDesc& Launch(absl::Span<const std::string> variables, int ring) override;
  void Finish(const std::string& variable, Insert insert) override;

  // The type of the op that reduces one variable.
  const std::string& op_type() const { return op_type_; }

 private:
  // What a variable travels as.
  struct Travelling {
    std::string name;
    DType from = DType::kFloat32, to = DType::kFloat32;
    absl::optional<pb::OpDesc> coalesce;  // of a fused buffer
    bool widens() const { return SizeOf(to) > SizeOf(from); }
  };

  // Null if the variable travels itself.
  const Travelling* TravellingOf(const std::string& variable) const;
  OpTemplate& Cast(DType from, DType to);

  const Program& program_;
  const GradientAnalysis& analysis_;
  const DenseReduction reduction_;
  const std::string op_type_;
  UniqueNames names_;
  absl::flat_hash_map<std::string, Travelling> travelling_;  // of those that are cast
  std::vector<OpTemplate> reduce_, reduce_group_;            // by ring
  OpTemplate clip_, multiply_before_, multiply_after_;
  std::map<std::pair<DType, DType>, OpTemplate> casts_;
};

// Reduces the gradients of the analysis in the buckets of a policy, for pass `pass`. Returns
// whether there are any. Errors: those of FillBuckets. O(arguments).
absl::StatusOr<bool> ReduceInBuckets(absl::string_view pass, const BucketPolicy& policy, int nrings,
                                     const GradientAnalysis& analysis,
                                     const DenseReduction& reduction, const PassContext& context,
                                     Program* program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_DENSE_REDUCER_H_
