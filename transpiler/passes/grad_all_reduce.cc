#include "transpiler/passes/grad_all_reduce.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/buckets/bucket_policy.h"
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

  const pb::OpDesc& Launch(absl::Span<const std::string> variables, int ring) override {
    return ops_[ring].InPlace(variables);
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

void GradAllReduce::Prepare(const ConstProgramPair& programs, PassContext* context) const {
  if (options_.buckets.is_optimal()) PrepareReadyTimes(*programs.main, context);
}

absl::StatusOr<bool> GradAllReduce::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(program, context, options_.scale));
  const GradientAnalysis& analysis = reduction.analysis;
  const std::string reduce_type = reduction.averages ? "c_allreduce_avg" : "c_allreduce_sum";
  const BucketInputs inputs{context.gradient_ready, context.times.collective, options_.nrings,
                            context.param_attrs};
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled,
                        FillBuckets(program, analysis, options_.buckets, inputs));
  for (const std::string& warning : filled.warnings)
    context.Note(absl::StrCat("warning: ", warning));
  Rewriter rewriter(programs.main);
  AllReduce all_reduce(reduce_type, options_.nrings);
  GradientWriter writer(program, analysis, options_.nrings, &all_reduce, &rewriter);
  writer.Write(filled.buckets);
  writer.Explain(kName, "reduced", reduce_type, filled.buckets, context);
  return CommitEdits(&rewriter);
}

}  // namespace weft
