// Reductions, and results of the elements up to each one along a dimension.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The dimensions of x without those that are reduced, or with size 1 for them. The listed ones are
// reduced, or all if none is listed.
absl::StatusOr<Dims> ReducedDims(const InferContext& context, const Dims& x, const char* attr,
                                 const std::vector<int64_t>& axes, bool reduce_all, bool keep_dim) {
  std::vector<bool> reduced(x.size(), reduce_all || axes.empty());
  for (int64_t axis : axes) {
    // A scalar is reduced over "dimension 0" by default.
    if (x.empty() && (axis == 0 || axis == -1)) continue;
    WEFT_ASSIGN_OR_RETURN(const int resolved, ResolveAxis(context, attr, axis, x.size()));
    reduced[resolved] = true;
  }
  Dims dims;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!reduced[i]) dims.push_back(x[i]);
    if (reduced[i] && keep_dim) dims.push_back(1);
  }
  return dims;
}

absl::StatusOr<Dims> ReducedDims(const InferContext& context, const Dims& x) {
  const OpAttrs& attrs = context.attrs();
  return ReducedDims(context, x, "dim", attrs.Ints("dim"), attrs.Bool("reduce_all"),
                     attrs.Bool("keep_dim"));
}

absl::StatusOr<Dims> LogSumExpDims(const InferContext& context, const Dims& x) {
  const OpAttrs& attrs = context.attrs();
  return ReducedDims(context, x, "axis", attrs.Ints("axis"), attrs.Bool("reduce_all"),
                     attrs.Bool("keepdim"));
}

absl::StatusOr<Dims> PNormDims(const InferContext& context, const Dims& x) {
  const OpAttrs& attrs = context.attrs();
  return ReducedDims(context, x, "axis", {attrs.Int("axis")}, attrs.Bool("asvector"),
                     attrs.Bool("keepdim"));
}

// `sums`: whole numbers are added up in int64.
OpSchema Reduction(const char* type, bool sums = false) {
  const auto infer = [sums](InferContext& context, const TensorType& x) -> absl::Status {
    TensorType out;
    WEFT_ASSIGN_OR_RETURN(out.dims, ReducedDims(context, x.dims));
    const absl::optional<DType> wanted =
        DTypeFromProto(static_cast<int>(context.attrs().Int("out_dtype")));
    const bool widens = sums && (x.dtype == DType::kBool || x.dtype == DType::kInt32);
    out.dtype = wanted.value_or(widens ? DType::kInt64 : x.dtype);
    context.SetOutput("Out", out);
    return absl::OkStatus();
  };
  return OpSchema(type, "X -> Out")
      .Attr("dim", Ints{0})
      .Attr("in_dtype", -1)
      .Attr("keep_dim", false)
      .Attr("out_dtype", -1)
      .Attr("reduce_all", false)
      .Infer(IfKnown("X", infer));
}

// Out, if the gradient op reads it, and its gradient have the dimensions of the result.
absl::Status CheckReductionGrad(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(context, x.dims));
  for (const char* slot : {"Out@GRAD", "Out"}) {
    const TensorType* type = context.Input(slot);
    if (type == nullptr || DimsFit(type->dims, reduced)) continue;
    // Before version 2.5 Paddle gave a full reduction the dimensions [1].
    if (reduced.empty() && NumElements(type->dims) == 1) continue;
    return context.InputError(slot,
                              absl::StrCat("dimensions ", DimsToString(reduced), " of X reduced"));
  }
  return absl::OkStatus();
}

void AddReduction(OpSchemaTable* schemas, OpSchema op, std::vector<std::string> grad_reads) {
  AddWithGrad(schemas, std::move(op), {std::move(grad_reads), {"Out"}, {"X"}, /*optional=*/false},
              InOrder({IfKnown("X", CheckReductionGrad), GradsLikeInputs()}));
}

absl::Status InferMean(InferContext& context, const TensorType& x) {
  context.SetOutput("Out", {x.dtype, {}});
  return absl::OkStatus();
}

absl::Status InferSquaredNorm(InferContext& context, const TensorType& x) {
  context.SetOutput("Out", {x.dtype, {1}});
  return absl::OkStatus();
}

// --- Sums and products of the elements up to each one along a dimension -------------------------

OpSchema Cumulative(const char* type) {
  return OpSchema(type, "X -> Out")
      .Attr("axis", -1)
      .Attr("exclusive", false)
      .Attr("flatten", false)
      .Attr("reverse", false)
      .Infer(LikeXAlongAxis("axis"));
}

}  // namespace

void AddReduceSchemas(OpSchemaTable* schemas) {
  AddReduction(schemas,
               Reduction("reduce_mean")
                   .With(Trait::kLinear)
                   .Batch({batch::Reduced(batch::Reduces::kMean), Powers::kMean})
                   .Pir("mean(x, axis:@dim) {keepdim=keep_dim}"),
               {"X"});
  AddReduction(schemas,
               Reduction("reduce_sum", /*sums=*/true)
                   .With(Trait::kLinear)
                   .Batch({batch::Reduced(batch::Reduces::kSum), Powers::kFirst})
                   .Pir("sum(x, axis:@dim) {keepdim=keep_dim, dtype=out_dtype}"),
               {"X"});
  const struct {
    const char *type, *pir;
    batch::Reduces batch;
    Powers powers = Powers::kNone;
  } reductions[] = {
      {"frobenius_norm", "(x, axis:@dim)", batch::Reduces::kOther, Powers::kPositive},
      {"reduce_amax", "amax {axis=dim, keepdim=keep_dim}", batch::Reduces::kMax, Powers::kPositive},
      {"reduce_amin", "amin {axis=dim, keepdim=keep_dim}", batch::Reduces::kMin, Powers::kPositive},
      {"reduce_max", "max(x, axis:@dim) {keepdim=keep_dim}", batch::Reduces::kMax,
       Powers::kPositive},
      {"reduce_min", "min(x, axis:@dim) {keepdim=keep_dim}", batch::Reduces::kMin,
       Powers::kPositive},
      {"reduce_prod", "prod(x, axis:@dim) {keepdim=keep_dim}", batch::Reduces::kProd}};
  for (const auto& r : reductions) {
    AddReduction(schemas, Reduction(r.type).Batch({batch::Reduced(r.batch), r.powers}).Pir(r.pir),
                 {"Out", "X"});
  }
  schemas->Add(Reduction("reduce_any")
                   .Batch({batch::Reduced(batch::Reduces::kOther)})
                   .Pir("any {axis=dim, keepdim=keep_dim}"));
  schemas->Add(Reduction("reduce_all")
                   .Batch({batch::Reduced(batch::Reduces::kOther)})
                   .Pir("all {axis=dim, keepdim=keep_dim}"));
  AddWithGrad(schemas,
              OpSchema("logsumexp", "X -> Out")
                  .Attr("axis", Ints{0})
                  .Attr("keepdim", false)
                  .Attr("reduce_all", false)
                  .Infer(OutDims(LogSumExpDims))
                  .Batch({batch::Reduced(batch::Reduces::kOther, "axis", "reduce_all", "keepdim")})
                  .Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("p_norm", "X -> Out")
                  .Attr("asvector", false)
                  .Attr("axis", -1)
                  .Attr("epsilon", 1e-12f)
                  .Attr("keepdim", false)
                  .Attr("porder", 2.0f)
                  .Infer(OutDims(PNormDims))
                  .Batch({batch::Along("X", "axis", "asvector", "keepdim")})
                  .Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("l1_norm", "X -> Out")
                  .Infer(IfKnown("X", InferMean))
                  .Batch({batch::Whole(BatchRelation::PartialSum()), Powers::kPositive}),
              GradOfX());
  const GradSlots required = {{"X"}, {"Out"}, {"X"}, /*optional=*/false};
  AddWithGrad(schemas,
              OpSchema("mean", "X -> Out")
                  .With(Trait::kLinear)
                  .Infer(IfKnown("X", InferMean))
                  .Batch({batch::Whole(BatchRelation::Partial()), Powers::kMean})
                  .Pir("mean_all"),
              required);
  AddWithGrad(schemas,
              OpSchema("squared_l2_norm", "X -> Out")
                  .Infer(IfKnown("X", InferSquaredNorm))
                  .Rows(RowsRule::kIgnoresZeros)
                  .Batch({batch::Whole(BatchRelation::PartialSum())})
                  .Pir(),
              required);
  AddWithGrad(schemas,
              Cumulative("cumsum")
                  .With(Trait::kLinear)
                  .Batch({batch::Along("X", "axis", "flatten"), Powers::kFirst})
                  .Pir("(x, @axis)"),
              {{"X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              Cumulative("logcumsumexp").Batch({batch::Along("X", "axis", "flatten")}).Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("cumprod", "X -> Out")
                  .RequiredAttr("dim", 0)
                  .Infer(LikeXAlongAxis("dim"))
                  .Batch({batch::Along("X", "dim")})
                  .Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
