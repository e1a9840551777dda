// Normalization: elements that belong together are shifted to mean 0 and scaled to variance 1, then
// scaled and shifted by parameters.
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

// Statistics of half-precision tensors are kept in fp32.
DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

absl::Status CheckVector(const InferContext& context, const char* slot, int64_t size) {
  const TensorType* type = context.Input(slot);
  if (type == nullptr || DimsFit(type->dims, {size})) return absl::OkStatus();
  return context.InputError(slot, absl::StrCat("dimensions [", size, "]"));
}

absl::Status CheckVectors(const InferContext& context, std::initializer_list<const char*> slots,
                          int64_t size) {
  for (const char* slot : slots) WEFT_RETURN_IF_ERROR(CheckVector(context, slot, size));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Channels(const InferContext& context, const TensorType& x) {
  if (x.dims.size() < 2) return context.InputError("X", "rows and channels");
  const bool channels_last =
      context.attrs().Has("data_layout") && context.attrs().String("data_layout") == "NHWC";
  return channels_last ? x.dims.back() : x.dims[1];
}

// --- layer_norm ----------------------------------------------------------------------------------

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

absl::Status InferLayerNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const size_t begin, NormBegin(context, *x));
  const int64_t size = Product(absl::MakeSpan(x->dims).subspan(begin));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, size));
  TensorType statistics;
  statistics.dtype = StatisticsDType(x->dtype);
  statistics.dims.assign(x->dims.begin(), x->dims.begin() + begin);
  context.SetOutput("Y", *x);
  context.SetOutput("Mean", statistics);
  context.SetOutput("Variance", statistics);
  return absl::OkStatus();
}

// Of a gradient that is not given Bias: it is like Scale.
absl::Status InferBiasGrad(InferContext& context) {
  const TensorType* scale = context.Input("Scale");
  if (scale != nullptr && !context.HasInput("Bias")) context.SetOutput("Bias@GRAD", *scale);
  return absl::OkStatus();
}

void AddLayerNorm(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("layer_norm")
                  .In("Bias", kOptional)
                  .In("Scale", kOptional)
                  .In("X")
                  .Out("Mean")
                  .Out("Variance")
                  .Out("Y")
                  .Attr("begin_norm_axis", 1)
                  .Attr("epsilon", 1e-5f)
                  .With(Trait::kRowSplittable)
                  .Infer(InferLayerNorm),
              {{"Bias", "Mean", "Scale", "Variance", "X"}, {"Y"}, {"Bias", "Scale", "X"}});
}

// --- batch_norm ----------------------------------------------------------------------------------

// SavedVariance is the inverse standard deviation of the batch. ReserveSpace is the back end's.
absl::Status InferBatchNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *x));
  WEFT_RETURN_IF_ERROR(CheckVectors(
      context,
      {"Scale", "Bias", "Mean", "Variance", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"},
      channels));
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

// sync_batch_norm takes its moments over the batches of all ranks (across_ranks.h).
void AddBatchNorm(OpSchemaTable* schemas, const std::string& type) {
  schemas->Add(WithBatchNormAttrs(OpSchema(type)
                                      .In("Bias")
                                      .In("Mean")
                                      .AttrIn("MomentumTensor", {"momentum"})
                                      .In("Scale")
                                      .In("Variance")
                                      .In("X")
                                      .OutInPlace("MeanOut", "Mean")
                                      .Out("ReserveSpace", kOptional)
                                      .Out("SavedMean", kOptional)
                                      .Out("SavedVariance", kOptional)
                                      .OutInPlace("VarianceOut", "Variance")
                                      .Out("Y")
                                      .Infer(InferBatchNorm)));
  // Reads the statistics that Y was normalized by: Mean and Variance, which the forward op used
  // with use_global_stats, or those of the batch.
  schemas->Add(WithBatchNormAttrs(OpSchema(type + "_grad")
                                      .In("Bias", kOptional)
                                      .In("Mean", kOptional)
                                      .In("MeanOut", kOptional)
                                      .In("ReserveSpace", kOptional)
                                      .In("SavedMean", kOptional)
                                      .In("SavedVariance", kOptional)
                                      .In("Scale")
                                      .In("Variance", kOptional)
                                      .In("VarianceOut", kOptional)
                                      .In("X")
                                      .In("Y@GRAD")
                                      .Out("Bias@GRAD", kOptional)
                                      .Out("Scale@GRAD", kOptional)
                                      .Out("X@GRAD", kOptional)
                                      .Infer(InOrder({GradOf(InferBatchNorm), InferBiasGrad}))));
}

// --- cvm -----------------------------------------------------------------------------------------

// X, and CVM with two counts for each of its rows. Y is as X, without use_cvm by two columns less.
absl::Status InferCvm(InferContext& context) {
  const TensorType *x = context.Input("X"), *counts = context.Input("CVM");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 2 || (x->dims[1] != -1 && x->dims[1] < 2)) {
    return context.InputError("X", "a matrix of two columns or more");
  }
  if (counts != nullptr && !DimsFit(counts->dims, Dims{x->dims[0], 2})) {
    return context.InputError("CVM", "two columns, and as many rows as X has");
  }
  const bool keeps_counts = context.attrs().Bool("use_cvm");
  const int64_t columns = keeps_counts || x->dims[1] == -1 ? x->dims[1] : x->dims[1] - 2;
  context.SetOutput("Y", {x->dtype, {x->dims[0], columns}});
  return absl::OkStatus();
}

// --- data_norm -----------------------------------------------------------------------------------

// Moments of columns come from summaries of the batches before: their size, sum and sum of squares.
// Where slot_dim is positive, that many columns belong together, and the first one counts what they
// were made of: if that is 0 they have no values.
absl::Status InferDataNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (context.attrs().Bool("sync_stats")) return context.AttrError("sync_stats", "false", "true");
  if (context.attrs().Bool("enable_scale_and_shift") &&
      (!context.HasInput("scale_w") || !context.HasInput("bias"))) {
    return absl::InvalidArgumentError("inputs scale_w and bias: missing");
  }
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 2) return context.InputError("X", "two dimensions");
  const int64_t columns = x->dims[1], slot = context.attrs().Int("slot_dim");
  if (slot > 0 && columns != -1 && columns % slot != 0) {
    return context.AttrError("slot_dim", absl::StrCat("a divisor of ", columns),
                             absl::StrCat(slot));
  }
  WEFT_RETURN_IF_ERROR(CheckVectors(
      context, {"BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias", "Means", "Scales"},
      columns));
  context.SetOutput("Y", *x);
  context.SetOutput("Means", {x->dtype, {columns}});
  context.SetOutput("Scales", {x->dtype, {columns}});
  return absl::OkStatus();
}

// The gradients of the summaries are what the batch adds to them.
absl::Status InferDataNormSummaries(InferContext& context) {
  const TensorType* means = context.Input("Means");
  if (means == nullptr) return absl::OkStatus();
  for (const char* slot : {"BatchSize@GRAD", "BatchSum@GRAD", "BatchSquareSum@GRAD"}) {
    context.SetOutput(slot, *means);
  }
  return absl::OkStatus();
}

OpSchema WithDataNormAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("data_layout", "NCHW")
      .Attr("enable_scale_and_shift", false)
      .Attr("epsilon", 1e-4f)
      .Attr("slot_dim", -1)
      .Attr("summary_decay_rate", 0.9999999f)
      .Attr("sync_stats", false);
}

void AddCountedFeatures(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("cvm")
                  .In("CVM")
                  .In("X")
                  .Out("Y")
                  .Attr("use_cvm", true)
                  .Infer(InOrder({SameDType("X", "CVM"), InferCvm})),
              {{"CVM", "X"}, {"Y"}, {"X"}});
  schemas->Add(WithDataNormAttrs(OpSchema("data_norm")
                                     .In("BatchSize")
                                     .In("BatchSquareSum")
                                     .In("BatchSum")
                                     .In("X")
                                     .In("bias", kOptional)
                                     .In("scale_w", kOptional)
                                     .Out("Means")
                                     .Out("Scales")
                                     .Out("Y")
                                     .Infer(InferDataNorm)));
  schemas->Add(
      WithDataNormAttrs(OpSchema("data_norm_grad")
                            .In("Means")
                            .In("Scales")
                            .In("X")
                            .In("Y@GRAD")
                            .In("bias", kOptional)
                            .In("scale_w", kOptional)
                            .Out("BatchSize", kOptional)
                            .Out("BatchSize@GRAD", kOptional)
                            .Out("BatchSquareSum", kOptional)
                            .Out("BatchSquareSum@GRAD", kOptional)
                            .Out("BatchSum", kOptional)
                            .Out("BatchSum@GRAD", kOptional)
                            .Out("X@GRAD", kOptional)
                            .Out("bias@GRAD", kOptional)
                            .Out("scale_w@GRAD", kOptional)
                            .Infer(InOrder({GradOf(InferDataNorm), InferDataNormSummaries}))));
}

// --- group_norm, instance_norm, affine_channel ---------------------------------------------------

// A mean and a variance for each group of channels of each image.
absl::Status InferGroupNorm(InferContext& context) {
  const int64_t groups = context.attrs().Int("groups");
  if (groups < 1) return context.AttrError("groups", "1 or more", absl::StrCat(groups));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *x));
  if (channels != -1 && channels % groups != 0) {
    return context.InputError("X", absl::StrCat("channels a multiple of ", groups, " groups"));
  }
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, channels));
  const TensorType statistics = {StatisticsDType(x->dtype), {x->dims[0], groups}};
  context.SetOutput("Y", *x);
  context.SetOutput("Mean", statistics);
  context.SetOutput("Variance", statistics);
  return absl::OkStatus();
}

// A mean and an inverse standard deviation for each channel of each image.
absl::Status InferInstanceNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *x));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, channels));
  const TensorType statistics = {StatisticsDType(x->dtype), {MulDim(x->dims[0], channels)}};
  context.SetOutput("Y", *x);
  context.SetOutput("SavedMean", statistics);
  context.SetOutput("SavedVariance", statistics);
  return absl::OkStatus();
}

// Normalizes by the squares of neighboring channels, which MidOut has.
absl::Status InferLrn(InferContext& context) {
  const int64_t n = context.attrs().Int("n");
  if (n < 1 || n % 2 == 0) return context.AttrError("n", "an odd number", absl::StrCat(n));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 4) return context.InputError("X", "four dimensions");
  context.SetOutput("MidOut", *x);
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

absl::Status InferAffineChannel(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *x));
  context.SetOutput("Out", *x);
  return CheckVectors(context, {"Scale", "Bias"}, channels);
}

// Of gradient ops that do not read Bias.
OpSchema::InferFn GradWithoutBias(OpSchema::InferFn forward) {
  return InOrder({GradOf(std::move(forward)), [](InferContext& context) {
                    const TensorType* scale = context.Input("Scale");
                    if (scale != nullptr) context.SetOutput("Bias@GRAD", *scale);
                    return absl::OkStatus();
                  }});
}

// Weight is a matrix with rows along `dim`; U has a number for each row, V one for each column.
absl::Status InferSpectralNorm(InferContext& context) {
  const TensorType* weight = context.Input("Weight");
  if (weight == nullptr) return absl::OkStatus();
  const int64_t rank = static_cast<int64_t>(weight->dims.size());
  const int64_t dim = context.attrs().Int("dim");
  if (dim < 0 || dim >= rank) {
    return context.AttrError("dim", absl::StrCat("a dimension of ", rank), absl::StrCat(dim));
  }
  if (context.attrs().Int("power_iters") < 0) {
    return context.AttrError("power_iters", "0 or more",
                             absl::StrCat(context.attrs().Int("power_iters")));
  }
  Dims columns = weight->dims;
  columns.erase(columns.begin() + dim);
  WEFT_RETURN_IF_ERROR(CheckVector(context, "U", weight->dims[dim]));
  WEFT_RETURN_IF_ERROR(CheckVector(context, "V", Product(columns)));
  context.SetOutput("Out", *weight);
  return absl::OkStatus();
}

void AddOthers(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("group_norm")
                  .In("Bias", kOptional)
                  .In("Scale", kOptional)
                  .In("X")
                  .Out("Mean")
                  .Out("Variance")
                  .Out("Y")
                  .Attr("data_layout", "NCHW")
                  .Attr("epsilon", 1e-5f)
                  .RequiredAttr("groups", 1)
                  .With(Trait::kRowSplittable)
                  .Infer(InferGroupNorm),
              {{"Bias", "Mean", "Scale", "Variance", "X", "Y"}, {"Y"}, {"Bias", "Scale", "X"}});

  AddWithGrad(schemas,
              OpSchema("lrn")
                  .In("X")
                  .Out("MidOut")
                  .Out("Out")
                  .Attr("alpha", 1e-4f)
                  .Attr("beta", 0.75f)
                  .Attr("data_format", "NCHW")
                  .Attr("k", 2.0f)
                  .Attr("n", 5)
                  .With(Trait::kRowSplittable)
                  .Infer(InferLrn),
              {{"MidOut", "Out", "X"}, {"Out"}, {"X"}});

  OpSchema instance_norm = OpSchema("instance_norm")
                               .In("Bias", kOptional)
                               .In("Scale", kOptional)
                               .In("X")
                               .Out("SavedMean")
                               .Out("SavedVariance")
                               .Out("Y")
                               .Attr("epsilon", 1e-5f)
                               .With(Trait::kRowSplittable)
                               .Infer(InferInstanceNorm);
  schemas->Add(
      GradSchema(instance_norm, "instance_norm_grad",
                 {{"SavedMean", "SavedVariance", "Scale", "X"}, {"Y"}, {"Bias", "Scale", "X"}},
                 GradWithoutBias(InferInstanceNorm)));
  schemas->Add(std::move(instance_norm));

  AddWithGrad(schemas,
              OpSchema("spectral_norm")
                  .In("U")
                  .In("V")
                  .In("Weight")
                  .Out("Out")
                  .Attr("dim", 0)
                  .Attr("eps", 1e-12f)
                  .Attr("power_iters", 1)
                  .Infer(InferSpectralNorm),
              {{"U", "V", "Weight"}, {"Out"}, {"Weight"}});

  OpSchema affine_channel = OpSchema("affine_channel")
                                .In("Bias")
                                .In("Scale")
                                .In("X")
                                .Out("Out")
                                .Attr("data_layout", "NCHW")
                                .With(Trait::kRowSplittable)
                                .Infer(InferAffineChannel);
  schemas->Add(GradSchema(affine_channel, "affine_channel_grad",
                          {{"Scale", "X"}, {"Out"}, {"Bias", "Scale", "X"}},
                          GradWithoutBias(InferAffineChannel)));
  schemas->Add(std::move(affine_channel));
}

}  // namespace

void AddNormSchemas(OpSchemaTable* schemas) {
  AddLayerNorm(schemas);
  AddBatchNorm(schemas, "batch_norm");
  AddBatchNorm(schemas, "sync_batch_norm");
  AddCountedFeatures(schemas);
  AddOthers(schemas);
}

}  // namespace weft
