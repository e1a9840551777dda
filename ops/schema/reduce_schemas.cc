// Reductions.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The dimensions of x without (or with size 1 for) those that are reduced: the listed ones, or all
// of them where none is listed.
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

absl::Status InferLogSumExp(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const Dims dims,
                        ReducedDims(context, x->dims, "axis", attrs.Ints("axis"),
                                    attrs.Bool("reduce_all"), attrs.Bool("keepdim")));
  context.SetOutput("Out", {x->dtype, dims});
  return absl::OkStatus();
}

absl::Status InferPNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const Dims dims,
                        ReducedDims(context, x->dims, "axis", {attrs.Int("axis")},
                                    attrs.Bool("asvector"), attrs.Bool("keepdim")));
  context.SetOutput("Out", {x->dtype, dims});
  return absl::OkStatus();
}

// `sums`: whole numbers are added up in int64.
absl::Status InferReduction(InferContext& context, bool sums) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  TensorType out;
  WEFT_ASSIGN_OR_RETURN(out.dims, ReducedDims(context, x->dims));
  const absl::optional<DType> wanted =
      DTypeFromProto(static_cast<int>(context.attrs().Int("out_dtype")));
  const bool widens = sums && (x->dtype == DType::kBool || x->dtype == DType::kInt32);
  out.dtype = wanted.value_or(widens ? DType::kInt64 : x->dtype);
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// That of the result and the result itself, where it is read.
absl::Status CheckReductionGrad(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(context, x->dims));
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

OpSchema NonlinearReduction(const char* type) {
  return OpSchema(type)
      .In("X")
      .Out("Out")
      .Attr("dim", Ints{0})
      .Attr("in_dtype", -1)
      .Attr("keep_dim", false)
      .Attr("out_dtype", -1)
      .Attr("reduce_all", false);
}

OpSchema Reduction(const char* type) { return NonlinearReduction(type).With(Trait::kLinear); }

enum class GradReads { kX, kXAndOut };

OpSchema ReductionGrad(const char* type, GradReads reads = GradReads::kX) {
  OpSchema schema(type);
  if (reads == GradReads::kXAndOut) std::move(schema).In("Out");
  return std::move(schema)
      .In("Out@GRAD")
      .In("X")
      .Out("X@GRAD")
      .Attr("dim", Ints{0})
      .Attr("in_dtype", -1)
      .Attr("keep_dim", false)
      .Attr("out_dtype", -1)
      .Attr("reduce_all", false)
      .Infer(InOrder({CheckReductionGrad, GradsLikeInputs()}));
}

absl::Status InferMean(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x != nullptr) context.SetOutput("Out", {x->dtype, {}});
  return absl::OkStatus();
}

absl::Status InferSquaredNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x != nullptr) context.SetOutput("Out", {x->dtype, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddReduceSchemas(OpSchemaTable* schemas) {
  schemas->Add(Reduction("reduce_mean").Infer([](InferContext& context) {
    return InferReduction(context, /*sums=*/false);
  }));
  schemas->Add(Reduction("reduce_sum").Infer([](InferContext& context) {
    return InferReduction(context, /*sums=*/true);
  }));
  schemas->Add(ReductionGrad("reduce_mean_grad"));
  schemas->Add(ReductionGrad("reduce_sum_grad"));
  for (const char* type : {"reduce_amax", "reduce_amin", "reduce_max", "reduce_min", "reduce_prod",
                           "frobenius_norm"}) {
    schemas->Add(NonlinearReduction(type).Infer(
        [](InferContext& context) { return InferReduction(context, /*sums=*/false); }));
    schemas->Add(ReductionGrad(absl::StrCat(type, "_grad").c_str(), GradReads::kXAndOut));
  }
  for (const char* type : {"reduce_any", "reduce_all"}) {
    schemas->Add(NonlinearReduction(type).Infer(
        [](InferContext& context) { return InferReduction(context, /*sums=*/false); }));
  }
  AddWithGrad(schemas,
              OpSchema("logsumexp")
                  .In("X")
                  .Out("Out")
                  .Attr("axis", Ints{0})
                  .Attr("keepdim", false)
                  .Attr("reduce_all", false)
                  .Infer(InferLogSumExp),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("p_norm")
                  .In("X")
                  .Out("Out")
                  .Attr("asvector", false)
                  .Attr("axis", -1)
                  .Attr("epsilon", 1e-12f)
                  .Attr("keepdim", false)
                  .Attr("porder", 2.0f)
                  .Infer(InferPNorm),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas, OpSchema("l1_norm").In("X").Out("Out").Infer(InferMean),
              {{"X"}, {"Out"}, {"X"}});
  schemas->Add(OpSchema("squared_l2_norm_grad")
                   .In("Out@GRAD")
                   .In("X")
                   .Out("X@GRAD")
                   .Infer(GradOf(InferSquaredNorm)));
  schemas->Add(OpSchema("mean").In("X").Out("Out").With(Trait::kLinear).Infer(InferMean));
  schemas->Add(OpSchema("mean_grad").In("Out@GRAD").In("X").Out("X@GRAD").Infer(GradOf(InferMean)));
  schemas->Add(OpSchema("squared_l2_norm").In("X").Out("Out").Infer(InferSquaredNorm));
}

}  // namespace weft
