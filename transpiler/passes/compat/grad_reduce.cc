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
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/passes/gradients/gradient_writer.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

using Method = GradReduce::Method;
using Division = GradReduce::Division;
using TravelType = GradReduce::TravelType;
using Lowering = GradReduce::Lowering;

constexpr char kRanks[] = "ranks";

// A number, or the word "ranks". "true" is none, although it is an int in Python.
absl::StatusOr<absl::optional<int>> ParseDegree(absl::string_view text) {
  int degree = 0;
  if (text == kRanks) return absl::optional<int>();
  if (absl::SimpleAtoi(text, &degree) && degree >= 1) return absl::make_optional(degree);
  return absl::InvalidArgumentError(absl::StrCat("expected ", kRanks, " or an integer >= 1"));
}

absl::StatusOr<double> ParseClip(absl::string_view text) {
  double clip = 0;
  const bool fits = absl::SimpleAtod(text, &clip) && clip >= 0 && clip <= 3e38 &&
                    (clip == 0 || static_cast<float>(clip) > 0);
  if (fits) return clip;
  return absl::InvalidArgumentError("expected a number >= 0");
}

absl::optional<DType> DTypeOf(TravelType type) {
  switch (type) {
    case TravelType::kNative:
      return absl::nullopt;
    case TravelType::kFp32:
      return DType::kFloat32;
    case TravelType::kFp16:
      return DType::kFloat16;
    case TravelType::kBf16:
      return DType::kBFloat16;
  }
  return absl::nullopt;
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
    const bool is_halved = reduction.travels_as.has_value() && SizeOf(*reduction.travels_as) < 4;
    if (is_dense && is_halved && type->dtype != DType::kFloat32) {
      return error(absl::StrCat("fp32, which can travel as ", DTypeName(*reduction.travels_as)),
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
  OpTemplate multiply(
      BuildOp(InPlaceOp("scale", {}, attrs, kRoleBackward, reduction.nranks), Dialect::kWeft));
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
  bind.Choice("division", &division,
              "how a mean divides: times the fp32 reciprocal, or truly, after the sum; or times "
              "the reciprocal before gradients are cast, so that their sum does not overflow",
              {{"reciprocal", Division::kReciprocal},
               {"quotient", Division::kQuotient},
               {"before", Division::kBefore}});
  bind.Choice("comm_dtype", &travel_type,
              "the element type that is sent; fp32: narrower gradients are cast",
              {{"native", TravelType::kNative},
               {"fp32", TravelType::kFp32},
               {"fp16", TravelType::kFp16},
               {"bf16", TravelType::kBf16}});
  bind.OldName("travel_type");
  bind.Choice("accumulate_type", &accumulation,
              "how half precision is added: in fp32, or rounded after each addition",
              {{"fp32", Accumulation::kFp32}, {"native", Accumulation::kNative}});
  bind.Parsed(
      "clip", &clip, "0",
      "clip each rank's gradient elements to [-clip, clip] before the reduction; 0 disables",
      "a number >= 0", ParseClip);
  bind.Choice("lowering", &lowering,
              "how gradients share a collective: in a fused buffer, or as variables of one op",
              {{"buffer", Lowering::kBuffer}, {"group", Lowering::kGroup}});
  bind.Bool("reduce_done", &is_done, "gradients are reduced already: only divide");
}

Contract GradReduce::contract() const {
  if (options_.is_done) return Contract().Needs(kGradientsReduced);
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

bool GradReduce::HasOwnDegree(const PassContext& context) const {
  return options_.method == Method::kMean && options_.degree.has_value() &&
         options_.degree != context.target.cluster.nranks();
}

Claims GradReduce::claims(const PassContext& context) const {
  const bool averages = options_.method == Method::kMean && !HasOwnDegree(context);
  Claims claims = Claims::Of(averages ? Claims::Gradients::kAveraged : Claims::Gradients::kSummed);
  const bool is_halved =
      options_.travel_type == TravelType::kFp16 || options_.travel_type == TravelType::kBf16;
  claims.rounds_gradients = is_halved;
  if (HasOwnDegree(context) || options_.clip > 0) {
    claims.computation = Claims::Computation::kChanged;
  }
  return claims;
}

std::set<PassTrait> GradReduce::traits() const {
  std::set<PassTrait> traits = TraitsOf(options_.buckets);
  traits.insert(PassTrait::kLeavesServed);
  return traits;
}

absl::Status GradReduce::CheckOptions(const PassContext& context) const {
  const bool changes_travel = options_.clip > 0 || options_.travel_type != TravelType::kNative ||
                              options_.accumulation != Accumulation::kFp32 ||
                              options_.division != Division::kReciprocal ||
                              !options_.buckets.is_none() || options_.lowering != Lowering::kBuffer;
  if (options_.is_done && (changes_travel || options_.method == Method::kSum)) {
    return absl::InvalidArgumentError(
        "with reduce_done, gradients have travelled: expected reduce_method mean, and neither "
        "clip, comm_dtype, accumulate_type, division, buckets nor lowering");
  }
  if (options_.degree.has_value() && !context.target.groups.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("degree ", *options_.degree, ": group '", context.target.groups[0].name,
                     "' of ranks has another number of ranks than all; leave degree out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DenseReduction> GradReduce::ReductionFor(const PassContext& context) const {
  WEFT_RETURN_IF_ERROR(CheckOptions(context));
  const absl::optional<int> nranks = context.target.cluster.nranks();
  DenseReduction reduction;
  reduction.travels_as = DTypeOf(options_.travel_type);
  reduction.accumulates_natively = options_.accumulation == Accumulation::kNative;
  reduction.launches_groups = options_.lowering == Lowering::kGroup;
  if (options_.clip > 0) reduction.clip = static_cast<float>(options_.clip);
  if (options_.method == Method::kSum) {
    if (options_.degree.has_value()) {
      return absl::InvalidArgumentError("degree is for reduce_method mean, found sum");
    }
    return reduction;
  }
  const bool needs_factor = options_.degree.has_value() || options_.division == Division::kBefore ||
                            options_.is_done || reduction.launches_groups;
  if (options_.division == Division::kQuotient && needs_factor) {
    return absl::InvalidArgumentError(
        "division quotient divides by the number of ranks, in the all-reduce: expected neither "
        "degree, reduce_done nor lowering group");
  }
  // A group of ranks has another number than all.
  const std::vector<RankGroup>& groups = context.target.groups;
  const bool one_factor_fits = nranks.has_value() && groups.empty();
  if (options_.division == Division::kQuotient || (!needs_factor && !one_factor_fits)) {
    reduction.averages = true;
    return reduction;
  }
  if (!options_.degree.has_value() && !groups.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "group '", groups[0].name,
        "' of ranks: the mean multiplies by 1 / the number of all ranks; expected division "
        "reciprocal or quotient, lowering buffer and not reduce_done"));
  }
  if (!options_.degree.has_value() && !nranks.has_value()) {
    return absl::InvalidArgumentError(
        "the mean multiplies by 1 / ranks, but the number of ranks is unknown; give the number of "
        "ranks or the endpoints");
  }
  const int degree = options_.degree.value_or(nranks.value_or(1));
  const auto factor = static_cast<float>(1.0 / degree);
  (options_.division == Division::kBefore ? reduction.factor_before : reduction.factor_after) =
      factor;
  if (!HasOwnDegree(context)) reduction.nranks = degree;
  return reduction;
}

// Updates are often larger than the user of a mean loss expects.
void GradReduce::NoteSums(const PassContext& context) const {
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
  Rewriter rewriter(programs.main);
  if (options_.is_done) {
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
                     context.target.cluster.nranks().has_value()
                         ? absl::StrCat(", not by the ", *context.target.cluster.nranks(), " ranks")
                         : ", whatever the number of ranks"));
  }
  const BucketInputs inputs{context.target.forecast.gradient_ready, context.target.collective_time,
                            options_.nrings, context.target.param_attrs,
                            context.target.forecast.updated_on_host};
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled,
                        FillBuckets(program, analysis, options_.buckets, inputs));
  for (const std::string& warning : filled.warnings) context.sink.Warn(warning);
  DenseExchange exchange(program, analysis, options_.nrings, reduction);
  GradientWriter writer(program, analysis, options_.nrings, &exchange, &rewriter);
  writer.Write(filled.buckets);
  writer.Explain(kName, "reduced", exchange.op_type(), filled.buckets, context,
                 DenseExchange::kGroupType);
  return CommitEdits(&rewriter);
}

}  // namespace weft
