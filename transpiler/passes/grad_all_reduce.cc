#include "transpiler/passes/grad_all_reduce.h"

#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/bucket_policy.h"
#include "transpiler/passes/facts.h"
#include "transpiler/passes/gradient_buckets.h"
#include "transpiler/passes/gradient_reduction.h"
#include "transpiler/passes/gradient_writer.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/rings.h"

namespace weft {
namespace {

class AllReduce : public GradientExchange {
 public:
  AllReduce(const std::string& type, int nrings) {
    for (int ring = 0; ring < nrings; ++ring) {
      ops_.emplace_back(BuildOp(
          InPlaceOp(type, {}, {{"ring_id", ring}, {"use_calc_stream", false}}, kRoleBackward),
          Dialect::kWeft));
    }
  }

  const pb::OpDesc& Launch(const std::string& variable, int ring) override {
    return ops_[ring].InPlace({variable});
  }

 private:
  std::vector<OpTemplate> ops_;  // by ring
};

}  // namespace

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

absl::StatusOr<bool> GradAllReduce::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(program, context, options_.scale));
  const GradientAnalysis& analysis = reduction.analysis;
  const std::string reduce_type = reduction.averages ? "c_allreduce_avg" : "c_allreduce_sum";
  const std::vector<GradientBucket> buckets = FillBuckets(program, analysis, options_.buckets);
  Rewriter rewriter(programs.main);
  AllReduce all_reduce(reduce_type, options_.nrings);
  GradientWriter writer(program, analysis, options_.nrings, &all_reduce, &rewriter);
  writer.Write(buckets);
  writer.Explain(kName, "reduced", reduce_type, buckets, context);
  return CommitEdits(&rewriter);
}

}  // namespace weft
