#include "transpiler/passes/gradients/grad_all_reduce.h"

#include "base/status_macros.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/dense_reducer.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {

void GradAllReduce::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  BindGradientScale(bind, &scale);
  bind.Parsed("buckets", &buckets, "none", "which gradients travel together", kBucketPolicies,
              BucketPolicy::Parse);
}

Contract GradAllReduce::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

Claims GradAllReduce::claims(const PassContext& context) const {
  return Claims::Of(GradientsUnder(options_.scale, context));
}

absl::StatusOr<bool> GradAllReduce::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(const GradientReduction found,
                        AnalyzeReduction(*programs.main, context, options_.scale));
  DenseReduction all_reduce;
  all_reduce.averages = found.averages;
  return ReduceInBuckets(kName, options_.buckets, options_.nrings, found.analysis, all_reduce,
                         context, programs.main);
}

}  // namespace weft
