#include "transpiler/passes/compat/partial_averaging.h"

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "transpiler/buckets/bucket_planner.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/averaging/averaging_plan.h"
#include "transpiler/passes/averaging/averaging_writer.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/step_condition.h"

namespace weft {
namespace {

// What is averaged, one variable each.
struct Averaged {
  DType dtype;
  std::string name;
  Dims dims;
  absl::optional<AveragingPlan::Cast> cast;
};

// The variables of the plan in the order in which the gradients of their parameters are complete;
// those without a gradient last.
absl::StatusOr<std::vector<Averaged>> InBackwardOrder(const Program& main,
                                                      const AveragingPlan& plan,
                                                      const PassContext& context) {
  absl::flat_hash_map<std::string, const AveragingPlan::Cast*> cast_of;  // by master
  absl::flat_hash_map<std::string, std::string> master_of;               // by parameter
  for (const AveragingPlan::Cast& cast : plan.casts) {
    cast_of[cast.master] = &cast;
    master_of[cast.param] = cast.master;
  }
  std::vector<Averaged> all;
  absl::flat_hash_map<std::string, size_t> number_of;
  for (const FusedTensors& tensors : plan.averaged) {
    for (size_t i = 0; i < tensors.names.size(); ++i) {
      number_of[tensors.names[i]] = all.size();
      all.push_back({tensors.dtype, tensors.names[i], tensors.dims[i], absl::nullopt});
      const auto cast = cast_of.find(tensors.names[i]);
      if (cast != cast_of.end()) all.back().cast = *cast->second;
    }
  }
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                        AnalyzeGradients(main, context.setting.distributed_params));
  std::vector<Averaged> ordered;
  std::vector<bool> is_taken(all.size(), false);
  const auto take = [&](size_t number) {
    if (is_taken[number]) return;
    is_taken[number] = true;
    ordered.push_back(all[number]);
  };
  for (const Gradient& gradient : analysis.gradients) {
    std::string name(main.name(gradient.param));
    const auto master = master_of.find(name);
    const auto found = number_of.find(master == master_of.end() ? name : master->second);
    if (found != number_of.end()) take(found->second);
  }
  for (size_t i = 0; i < all.size(); ++i) take(i);
  return ordered;
}

absl::StatusOr<std::vector<AveragingPlan>> PlanPartitions(const std::vector<Averaged>& all,
                                                          int64_t threshold) {
  // No buffer outlives a step, so that none is too small.
  WEFT_ASSIGN_OR_RETURN(const BucketPolicy policy,
                        BucketPolicy::Parse(absl::StrCat(
                            "singa{threshold=", threshold,
                            ",buffer_elements=", std::numeric_limits<int64_t>::max(), "}")));
  std::vector<BucketGradient> sizes;
  for (const Averaged& averaged : all) {
    BucketGradient size;
    size.dtype = averaged.dtype;
    size.elements = NumElements(averaged.dims);
    size.bytes = size.elements * static_cast<int64_t>(SizeOf(averaged.dtype));
    sizes.push_back(size);
  }
  WEFT_ASSIGN_OR_RETURN(const BucketPlan buckets, PlanBuckets(policy, sizes));
  std::vector<AveragingPlan> partitions;
  for (const Bucket& bucket : buckets.buckets) {
    FusedTensors tensors;
    AveragingPlan partition;
    for (int member : bucket.members) {
      const Averaged& averaged = all[member];
      tensors.dtype = averaged.dtype;
      tensors.names.push_back(averaged.name);
      tensors.dims.push_back(averaged.dims);
      if (averaged.cast.has_value()) partition.casts.push_back(*averaged.cast);
    }
    partition.averaged.push_back(std::move(tensors));
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

void Explain(const std::vector<AveragingPlan>& partitions, int nrings, const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  const size_t k = partitions.size();
  for (size_t i = 0; i < k; ++i) {
    const std::string when =
        k == 1 ? "every step" : absl::StrCat("every ", k, " steps from step ", i + 1, " on");
    for (const FusedTensors& tensors : partitions[i].averaged) {
      for (const std::string& name : tensors.names) {
        context.sink.Explain(PartialAveraging::kName, name, "averaged",
                             "ranks train separately in between",
                             {{"when", when},
                              {"partition", absl::StrCat(i + 1, " of ", k)},
                              {"ring", absl::StrCat(i % nrings)}});
      }
    }
    for (const AveragingPlan::Cast& cast : partitions[i].casts) {
      context.sink.Explain(PartialAveraging::kName, cast.param, "cast",
                           "its master weight is averaged", {{"from", cast.master}});
    }
  }
}

}  // namespace

void PartialAveraging::Options::Bind(OptionBinder& bind) {
  bind.Int64("threshold", &threshold,
             "a tensor with more elements than this travels alone; others share a collective until "
             "it has more",
             /*min=*/0);
  BindRings(bind, &nrings);
}

Contract PartialAveraging::contract() const {
  // Nothing sums the divided gradients.
  return Contract()
      .ProvidesOnce(kParametersAveraged)
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kLossGradientScaled);
}

Claims PartialAveraging::claims(const PassContext& context) const {
  return Claims::Of(AveragingSchedule::InTurn());
}

absl::StatusOr<bool> PartialAveraging::Run(const PassContext& context,
                                           ProgramPair& programs) const {
  const Program& main = *programs.main;
  WEFT_RETURN_IF_ERROR(RefuseCompressedGradients(main));
  WEFT_ASSIGN_OR_RETURN(const AveragingPlan plan, PlanAveraging(programs, context, {}));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Averaged> all, InBackwardOrder(main, plan, context));
  WEFT_ASSIGN_OR_RETURN(const std::vector<AveragingPlan> partitions,
                        PlanPartitions(all, options_.threshold));
  const int k = static_cast<int>(partitions.size());
  if (k > 1 && programs.startup == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "counting steps needs the startup program, which sets the counter to 0: expected one, or a "
        "threshold that leaves one partition; found ",
        k, " partitions"));
  }
  ProgramEdits edits(programs);
  absl::optional<StepCounter> counter;
  std::string remainder;
  if (k > 1) {
    counter.emplace("partial_averaging", /*before=*/OpId(), &edits);
    remainder = counter->Remainder(k);
  }
  for (int i = 0; i < k; ++i) {
    AveragingPlace place;
    place.nrings = options_.nrings;
    place.first_ring = i % options_.nrings;
    place.buffer = "partial_averaging_buffer";
    if (counter.has_value()) {
      const std::string suffix = absl::StrCat("_", i + 1);
      const std::string is_due = counter->IsDue(remainder, (i + 1) % k, suffix);
      place.block = AppendBranch(/*parent=*/0, is_due, VariablesOf(partitions[i]),
                                 absl::StrCat("partial_averaging_scope", suffix), &edits);
    }
    WriteAveraging(partitions[i], place, context.target.cluster.nranks(), &edits);
  }
  Explain(partitions, options_.nrings, context);
  WEFT_RETURN_IF_ERROR(ExplainLocalGradients(kName, main, context));
  return edits.Commit();
}

}  // namespace weft
