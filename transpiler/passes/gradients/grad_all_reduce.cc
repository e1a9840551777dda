#include "transpiler/passes/gradients/grad_all_reduce.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "proto/rewriter.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/dense_exchange.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_writer.h"
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

std::set<PassTrait> GradAllReduce::traits() const { return TraitsOf(options_.buckets); }

absl::StatusOr<bool> GradAllReduce::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(program, context, options_.scale));
  const GradientAnalysis& analysis = reduction.analysis;
  const BucketInputs inputs{context.target.forecast.gradient_ready, context.target.collective_time,
                            options_.nrings, context.target.param_attrs,
                            context.target.forecast.updated_on_host};
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled,
                        FillBuckets(program, analysis, options_.buckets, inputs));
  for (const std::string& warning : filled.warnings) context.sink.Warn(warning);
  Rewriter rewriter(programs.main);
  DenseReduction all_reduce;
  all_reduce.averages = reduction.averages;
  DenseExchange exchange(program, analysis, options_.nrings, all_reduce);
  GradientWriter writer(program, analysis, options_.nrings, &exchange, &rewriter);
  writer.Write(filled.buckets);
  writer.Explain(kName, "reduced", exchange.op_type(), filled.buckets, context);
  return CommitEdits(&rewriter);
}

}  // namespace weft
