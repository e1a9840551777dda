#include "transpiler/passes/compat/grad_reduce.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

using Method = GradReduce::Method;
using Division = GradReduce::Division;

constexpr char kRanks[] = "ranks";

// A number, or the word "ranks". "true" is none, although it is an int in Python.
absl::StatusOr<absl::optional<int>> ParseDegree(absl::string_view text) {
  int degree = 0;
  if (text == kRanks) return absl::optional<int>();
  if (absl::SimpleAtoi(text, &degree) && degree >= 1) return absl::make_optional(degree);
  return absl::InvalidArgumentError(absl::StrCat("expected ", kRanks, " or an integer >= 1"));
}

absl::StatusOr<absl::optional<float>> ParseClip(absl::string_view text) {
  double clip = 0;
  const bool fits = absl::SimpleAtod(text, &clip) && clip >= 0 && clip <= 3e38 &&
                    (clip == 0 || static_cast<float>(clip) > 0);
  if (!fits) return absl::InvalidArgumentError("expected a number >= 0");
  return clip > 0 ? absl::make_optional(static_cast<float>(clip)) : absl::nullopt;
}

bool IsHalved(const DenseReduction& reduction) {
  return reduction.comm_dtype.has_value() && SizeOf(*reduction.comm_dtype) < 4;
}

absl::Status CheckGradients(const Program& program, const GradientAnalysis& analysis,
                            const DenseReduction& reduction) {
  for (const Gradient& gradient : analysis.gradients) {
    const Var var = program.var(program.block(0).Resolve(gradient.grad));
    const absl::optional<TensorType> type = DeclaredType(var);
    const auto error = [&](absl::string_view expected, absl::string_view found) {
      return absl::FailedPreconditionError(
          absl::StrCat("gradient ", var.name(), " of parameter ", program.name(gradient.param),
                       ", completed by ", program.op(gradient.completed_by).DebugName(),
                       ": expected ", expected, ", found ", found));
    };
    const bool is_dense = type->kind == TensorType::Kind::kDense;
    if (!is_dense && reduction.clip.has_value()) {
      return error("a dense gradient, as no op clips rows (option:sparse dense makes them dense)",
                   "SelectedRows");
    }
    if (is_dense && IsHalved(reduction) && type->dtype != DType::kFloat32) {
      return error(absl::StrCat("fp32, which can travel as ", DTypeName(*reduction.comm_dtype)),
                   DTypeName(type->dtype));
    }
  }
  return absl::OkStatus();
}

// By symbol: the last op of the root block that reduces the variable, or waits for that.
std::vector<OpId> LastExchanges(const Program& program) {
  std::vector<OpId> last(program.symbols().size());
  OpTraits traits(program);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!traits.Has(op, Trait::kCollective) && !traits.Has(op, Trait::kStreamSync)) continue;
    for (Symbol symbol : op.output_args()) last[symbol.value()] = id;
  }
  return last;
}

// Multiplies gradients that are reduced already, after the last op that reduces or waits for them.
absl::Status MultiplyReduced(const GradientAnalysis& analysis, const Program& program,
                             const DenseReduction& reduction, const PassContext& context,
                             Rewriter* rewriter) {
  const std::vector<OpId> last = LastExchanges(program);
  const NewAttrs attrs = {{"scale", reduction.factor_after}};
  OpTemplate multiply(BuildOp(InPlaceOp("scale", {}, attrs, kRoleBackward, reduction.nranks)));
  for (const Gradient& gradient : analysis.gradients) {
    const std::string name(program.name(gradient.grad));
    const OpId after = last[gradient.grad.value()];
    if (!after.valid()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "gradient ", name, " of parameter ", program.name(gradient.param),
          ": expected an op of the root block that reduces it in place, found none; where it is "
          "cast or accumulated on its way, divide in the pass that reduces it"));
    }
    rewriter->InsertAfter(after, multiply.InPlace({name}));
    context.sink.Explain(
        GradReduce::kName, name, "multiplied", "it is reduced already",
        {{"by", absl::StrCat(reduction.factor_after)}, {"after", program.op(after).DebugName()}});
  }
  return absl::OkStatus();
}

}  // namespace

void GradReduce::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Parsed("buckets", &buckets, "none", "which gradients travel together", kBucketPolicies,
              BucketPolicy::Parse);
  bind.Choice("reduce_method", &method, "sum or mean over the ranks",
              {{"sum", Method::kSum}, {"mean", Method::kMean}});
  bind.Parsed("degree", &degree, kRanks, "what a mean divides by, if not the number of ranks",
              "ranks or an integer >= 1", ParseDegree);
  bind.Choice(
      "division", &division,
      "how a mean is computed: after the sum, times the fp32 reciprocal or as a quotient; or times "
      "the reciprocal before gradients are cast, so that their sum does not overflow",
      {{"reciprocal", Division::kReciprocal},
       {"quotient", Division::kQuotient},
       {"before", Division::kBefore}});
  bind.Choice("comm_dtype", &travel.comm_dtype,
              "the element type that is sent; native: as it is; fp32: grad-reduce casts narrower "
              "gradients, local-sgd casts nothing",
              {{"native", absl::nullopt},
               {"fp32", DType::kFloat32},
               {"fp16", DType::kFloat16},
               {"bf16", DType::kBFloat16}});
  bind.OldName("travel_type");
  bind.Choice("accumulate_type", &travel.accumulates_natively,
              "how half precision is added: in fp32, or rounded after each addition",
              {{"fp32", false}, {"native", true}});
  bind.Parsed(
      "clip", &travel.clip, "0",
      "clip each rank's gradient elements to [-clip, clip] before the reduction; 0 disables",
      "a number >= 0", ParseClip);
  bind.Choice("lowering", &travel.launches_groups,
              "how gradients share a collective: in a fused buffer, or as variables of one op",
              {{"buffer", false}, {"group", true}});
  bind.Bool("reduce_done", &is_done, "gradients are reduced already: only divide");
}

Contract GradReduce::contract() const {
  if (options_.is_done) return Contract().Needs(kGradientsReduced);
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

bool GradReduce::HasOwnDegree(const PassContext& context) const {
  return options_.method == Method::kMean && options_.degree.has_value() &&
         (options_.degree != context.target.cluster.nranks() || !context.target.groups.empty());
}

Claims GradReduce::claims(const PassContext& context) const {
  const bool averages = options_.method == Method::kMean && !HasOwnDegree(context);
  Claims claims = Claims::Of(averages ? Claims::Gradients::kAveraged : Claims::Gradients::kSummed);
  claims.rounds_gradients = IsHalved(options_.travel);
  if (HasOwnDegree(context) || options_.travel.clip.has_value()) {
    claims.computation = Claims::Computation::kChanged;
  }
  return claims;
}

absl::StatusOr<DenseReduction> GradReduce::ReductionFor(const PassContext& context) const {
  const std::vector<RankGroup>& groups = context.target.groups;
  const std::string group = groups.empty() ? "" : groups[0].name;
  const absl::optional<int> nranks = context.target.cluster.nranks();
  const DenseReduction& travel = options_.travel;
  const bool is_mean = options_.method == Method::kMean;
  const absl::optional<int> degree = is_mean ? options_.degree : absl::nullopt;
  const bool is_quotient = is_mean && options_.division == Division::kQuotient;
  const bool changes_travel = travel.clip || travel.comm_dtype || travel.accumulates_natively ||
                              travel.launches_groups || !options_.buckets.is_none() ||
                              options_.division != Division::kReciprocal;
  const bool needs_factor = degree || options_.division == Division::kBefore || options_.is_done ||
                            travel.launches_groups;
  // A group of ranks has another number than all.
  const bool averages = is_quotient || (is_mean && !needs_factor && (!nranks || !groups.empty()));
  const bool by_ranks = is_mean && !averages && !degree;
  const std::pair<bool, absl::Status> problems[] = {
      {options_.is_done && (changes_travel || !is_mean),
       absl::InvalidArgumentError(
           "with reduce_done, gradients have travelled: expected reduce_method mean, and neither "
           "clip, comm_dtype, accumulate_type, division, buckets nor lowering")},
      {is_quotient && needs_factor,
       absl::InvalidArgumentError(
           "division quotient divides by the number of ranks, in the all-reduce: expected neither "
           "degree, reduce_done nor lowering group")},
      {by_ranks && !groups.empty(),
       absl::UnimplementedError(absl::StrCat(
           "group '", group,
           "' of ranks: the mean multiplies by 1 / the number of all ranks; expected division "
           "reciprocal or quotient, lowering buffer and not reduce_done"))},
      {by_ranks && !nranks,
       absl::InvalidArgumentError(
           "the mean multiplies by 1 / ranks, but the number of ranks is unknown; give it as "
           "option:nranks N, or the endpoints as option:endpoints")}};
  for (const auto& [is_wrong, problem] : problems) {
    if (is_wrong) return problem;
  }
  DenseReduction reduction = travel;
  reduction.averages = averages;
  if (!is_mean || averages) return reduction;
  const int divisor = degree.value_or(nranks.value_or(1));
  (options_.division == Division::kBefore ? reduction.factor_before : reduction.factor_after) =
      static_cast<float>(1.0 / divisor);
  if (!HasOwnDegree(context)) reduction.nranks = divisor;
  return reduction;
}

// Updates are often larger than the user of a mean loss expects.
void GradReduce::NoteSums(const PassContext& context) const {
  if (options_.method == Method::kSum && options_.degree.has_value()) {
    context.sink.Note(absl::StrCat("degree ", *options_.degree,
                                   " is not used: gradients are summed; reduce_method mean divides "
                                   "by it"));
  }
  if (options_.method != Method::kSum || context.target.forecast.sum_losses.are_all) return;
  if (context.target.cluster.nranks() == 1) return;
  context.sink.Note(
      "gradients are summed over the ranks: gradients of a mean loss are as many times as "
      "large "
      "as there are ranks; reduce_method mean averages them");
}

absl::StatusOr<bool> GradReduce::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const DenseReduction reduction, ReductionFor(context));
  NoteSums(context);
  if (options_.is_done) {
    Rewriter rewriter(programs.main);
    WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                          AnalyzeGradients(program, context.setting.distributed_params));
    if (reduction.factor_after != 1) {
      WEFT_RETURN_IF_ERROR(MultiplyReduced(analysis, program, reduction, context, &rewriter));
    }
    return CommitEdits(&rewriter);
  }
  const bool is_mean = options_.method == Method::kMean;
  WEFT_ASSIGN_OR_RETURN(
      const GradientReduction found,
      AnalyzeReduction(program, context, is_mean ? GradientScale::kAvg : GradientScale::kNone));
  const GradientAnalysis& analysis = found.analysis;
  WEFT_RETURN_IF_ERROR(CheckGradients(program, analysis, reduction));
  if (HasOwnDegree(context)) {
    context.sink.Note(
        absl::StrCat("gradients are divided by degree ", *options_.degree,
                     options_.degree != context.target.cluster.nranks() &&
                             context.target.cluster.nranks().has_value()
                         ? absl::StrCat(", not by the ", *context.target.cluster.nranks(), " ranks")
                         : ", whatever the number of ranks"));
  }
  return ReduceInBuckets(kName, options_.buckets, options_.nrings, analysis, reduction, context,
                         programs.main);
}

}  // namespace weft
