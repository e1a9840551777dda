// Layers: embedding, normalization, dropout, softmax. (Convolution and pooling are in
// window_schemas.cc.)
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

// --- softmax, dropout ----------------------------------------------------------------------------

absl::Status CheckSoftmaxAxis(InferContext& context) {
  const char* const slot = context.HasInput("X") ? "X" : "Out";
  const TensorType* type = context.Input(slot);
  if (type == nullptr) return absl::OkStatus();
  return ResolveAxis(context, "axis", context.attrs().Int("axis"), type->dims.size()).status();
}

absl::Status InferDropout(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  context.SetOutput("Out", *x);
  context.SetOutput("Mask", {DType::kUint8, x->dims});
  return absl::OkStatus();
}

OpSchema WithDropoutAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("fix_seed", false)
      .Attr("seed", 0)
      .Attr("dropout_implementation", "downgrade_in_infer")
      .Attr("dropout_prob", 0.5f)
      .Attr("is_test", false);
}

void AddSoftmaxAndDropout(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("softmax")
                   .In("X")
                   .Out("Out")
                   .Attr("axis", -1)
                   .Infer(InOrder({CheckSoftmaxAxis, OutputsLike("X")})));
  schemas->Add(
      OpSchema("softmax_grad")
          .In("Out")
          .In("Out@GRAD")
          .Out("X@GRAD")
          .Attr("axis", -1)
          .Infer(InOrder({CheckSoftmaxAxis, SameType("Out", "Out@GRAD"), OutputsLike("Out")})));

  schemas->Add(WithDropoutAttrs(OpSchema("dropout")
                                    .In("Seed", kOptional)
                                    .In("X")
                                    .Out("Mask", kOptional)
                                    .Out("Out")
                                    .With(Trait::kSideEffect)
                                    .Infer(InferDropout)));
  schemas->Add(WithDropoutAttrs(
      OpSchema("dropout_grad")
          .In("Mask", kOptional)
          .In("Out@GRAD")
          .Out("X@GRAD")
          .With(Trait::kElementwise)
          .With(Trait::kRowSplittable)
          .Infer(InOrder({SameDims("Out@GRAD", "Mask"), OutputsLike("Out@GRAD")}))));
}

// --- layer_norm ----------------------------------------------------------------------------------

// Statistics of half-precision tensors are kept in fp32.
DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

// Where the dimensions begin that are normalized together.
absl::StatusOr<size_t> NormBegin(const InferContext& context, const TensorType& x) {
  const int64_t begin = context.attrs().Int("begin_norm_axis");
  if (begin < 1 || begin >= static_cast<int64_t>(x.dims.size())) {
    return context.AttrError("begin_norm_axis",
                             absl::StrCat("1 or more, and less than ", x.dims.size()),
                             absl::StrCat(begin));
  }
  return static_cast<size_t>(begin);
}

absl::Status CheckVector(const InferContext& context, const char* slot, int64_t size) {
  const TensorType* type = context.Input(slot);
  if (type == nullptr || DimsFit(type->dims, {size})) return absl::OkStatus();
  return context.InputError(slot, absl::StrCat("dimensions [", size, "]"));
}

absl::Status CheckLayerNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const size_t begin, NormBegin(context, *x));
  const int64_t size = Product(absl::MakeSpan(x->dims).subspan(begin));
  WEFT_RETURN_IF_ERROR(CheckVector(context, "Scale", size));
  return CheckVector(context, "Bias", size);
}

absl::Status InferLayerNorm(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLayerNorm(context));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const size_t begin, NormBegin(context, *x));
  TensorType statistics;
  statistics.dtype = StatisticsDType(x->dtype);
  statistics.dims.assign(x->dims.begin(), x->dims.begin() + begin);
  context.SetOutput("Y", *x);
  context.SetOutput("Mean", statistics);
  context.SetOutput("Variance", statistics);
  return absl::OkStatus();
}

void AddLayerNorm(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("layer_norm")
                   .In("Bias", kOptional)
                   .In("Scale", kOptional)
                   .In("X")
                   .Out("Mean")
                   .Out("Variance")
                   .Out("Y")
                   .Attr("begin_norm_axis", 1)
                   .Attr("epsilon", 1e-5f)
                   .With(Trait::kRowSplittable)
                   .Infer(InferLayerNorm));
  schemas->Add(OpSchema("layer_norm_grad")
                   .In("Bias", kOptional)
                   .In("Mean")
                   .In("Scale", kOptional)
                   .In("Variance")
                   .In("X")
                   .In("Y@GRAD")
                   .Out("Bias@GRAD", kOptional)
                   .Out("Scale@GRAD", kOptional)
                   .Out("X@GRAD", kOptional)
                   .Attr("begin_norm_axis", 1)
                   .Attr("epsilon", 1e-5f)
                   .Infer(InOrder({CheckLayerNorm, SameType("X", "Y@GRAD"), GradsLikeInputs()})));
}

// --- batch_norm ----------------------------------------------------------------------------------

absl::StatusOr<int64_t> Channels(const InferContext& context, const TensorType& x) {
  if (x.dims.size() < 2) return context.InputError("X", "rows and channels");
  return context.attrs().String("data_layout") == "NHWC" ? x.dims.back() : x.dims[1];
}

absl::Status CheckBatchNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *x));
  for (const char* slot : {"Scale", "Bias", "Mean", "Variance", "SavedMean", "SavedVariance"}) {
    WEFT_RETURN_IF_ERROR(CheckVector(context, slot, channels));
  }
  return absl::OkStatus();
}

// SavedVariance is the inverse standard deviation of the batch. ReserveSpace is the back end's.
absl::Status InferBatchNorm(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckBatchNorm(context));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *x));
  const TensorType statistics = {StatisticsDType(x->dtype), {channels}};
  context.SetOutput("Y", *x);
  context.SetOutput("SavedMean", statistics);
  context.SetOutput("SavedVariance", statistics);
  context.SetOutput("ReserveSpace", {x->dtype, {-1}});
  return absl::OkStatus();
}

OpSchema WithBatchNormAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("data_layout", "NCHW")
      .Attr("epsilon", 1e-5f)
      .Attr("is_test", false)
      .Attr("momentum", 0.9f)
      .Attr("trainable_statistics", false)
      .Attr("use_global_stats", false);
}

void AddBatchNorm(OpSchemaTable* schemas) {
  schemas->Add(WithBatchNormAttrs(OpSchema("batch_norm")
                                      .In("Bias")
                                      .In("Mean")
                                      .In("MomentumTensor", kOptional)
                                      .In("Scale")
                                      .In("Variance")
                                      .In("X")
                                      .OutInPlace("MeanOut", "Mean")
                                      .Out("ReserveSpace", kOptional)
                                      .Out("SavedMean")
                                      .Out("SavedVariance")
                                      .OutInPlace("VarianceOut", "Variance")
                                      .Out("Y")
                                      .Infer(InferBatchNorm)));
  schemas->Add(WithBatchNormAttrs(
      OpSchema("batch_norm_grad")
          .In("Bias", kOptional)
          .In("MeanOut", kOptional)
          .In("ReserveSpace", kOptional)
          .In("SavedMean")
          .In("SavedVariance")
          .In("Scale")
          .In("VarianceOut", kOptional)
          .In("X")
          .In("Y@GRAD")
          .Out("Bias@GRAD", kOptional)
          .Out("Scale@GRAD", kOptional)
          .Out("X@GRAD", kOptional)
          .Infer(InOrder({CheckBatchNorm, SameType("X", "Y@GRAD"), GradsLikeInputs()}))));
}

// --- lookup_table_v2 -----------------------------------------------------------------------------

absl::Status CheckTable(const InferContext& context) {
  const TensorType* w = context.Input("W");
  if (w != nullptr && w->dims.size() != 2) {
    return context.InputError("W", "a table: rows and columns");
  }
  const TensorType* ids = context.Input("Ids");
  if (ids != nullptr && ids->dtype != DType::kInt64 && ids->dtype != DType::kInt32) {
    return context.InputError("Ids", "int64 or int32 row numbers");
  }
  return absl::OkStatus();
}

// A row of the table for every id.
absl::StatusOr<absl::optional<TensorType>> LookedUpRows(const InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckTable(context));
  const TensorType* w = context.Input("W");
  const TensorType* ids = context.Input("Ids");
  if (w == nullptr || ids == nullptr) return absl::optional<TensorType>();
  TensorType rows = {w->dtype, ids->dims};
  rows.dims.push_back(w->dims[1]);
  return absl::optional<TensorType>(rows);
}

absl::Status InferLookup(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> rows, LookedUpRows(context));
  if (rows.has_value()) context.SetOutput("Out", *rows);
  return absl::OkStatus();
}

// The gradient of the table: dense, or only the rows that were looked up.
absl::Status InferLookupGrad(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> rows, LookedUpRows(context));
  const TensorType* grad = context.Input("Out@GRAD");
  if (rows.has_value() && grad != nullptr &&
      (grad->dtype != rows->dtype || !DimsFit(grad->dims, rows->dims))) {
    return context.InputError("Out@GRAD", absl::StrCat(ToString(*rows), " as Out"));
  }
  const TensorType* w = context.Input("W");
  if (w == nullptr) return absl::OkStatus();
  const bool is_sparse = context.attrs().Bool("is_sparse");
  context.SetOutput("W@GRAD",
                    {w->dtype, w->dims,
                     is_sparse ? TensorType::Layout::kSelectedRows : TensorType::Layout::kDense});
  return absl::OkStatus();
}

OpSchema WithLookupAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("is_distributed", false)
      .Attr("is_sparse", false)
      .Attr("padding_idx", int64_t{-1});
}

void AddLookup(OpSchemaTable* schemas) {
  schemas->Add(WithLookupAttrs(OpSchema("lookup_table_v2")
                                   .In("Ids")
                                   .In("W")
                                   .Out("Out")
                                   .With(Trait::kRowSplittable)
                                   .Infer(InferLookup)));
  schemas->Add(WithLookupAttrs(OpSchema("lookup_table_v2_grad")
                                   .In("Ids")
                                   .In("Out@GRAD")
                                   .In("W")
                                   .Out("W@GRAD")
                                   .Infer(InferLookupGrad)));
}

}  // namespace

void AddNnSchemas(OpSchemaTable* schemas) {
  AddSoftmaxAndDropout(schemas);
  AddLayerNorm(schemas);
  AddBatchNorm(schemas);
  AddLookup(schemas);
}

}  // namespace weft
