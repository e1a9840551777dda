// Normalization: elements that belong together are shifted to mean 0 and scaled to variance 1, then
// scaled and shifted by parameters.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional, kLooseType = OpSchema::kLooseType;

// Statistics of half-precision tensors are kept in fp32.
DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

absl::StatusOr<int64_t> Channels(const InferContext& context, const TensorType& x) {
  if (x.dims.size() < 2) return context.InputError("X", "rows and channels");
  const bool channels_last =
      context.attrs().Has("data_layout") && context.attrs().String("data_layout") == "NHWC";
  return channels_last ? x.dims.back() : x.dims[1];
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
                                      .Out("ReserveSpace", kOptional | kLooseType)
                                      .Out("SavedMean", kOptional | kLooseType)
                                      .Out("SavedVariance", kOptional | kLooseType)
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

}  // namespace

void AddNormSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("layer_norm")
                  .In("Bias", kOptional)
                  .In("Scale", kOptional)
                  .In("X")
                  .Out("Mean", kLooseType)
                  .Out("Variance", kLooseType)
                  .Out("Y")
                  .Attr("begin_norm_axis", 1)
                  .Attr("epsilon", 1e-5f)
                  .With(Trait::kRowSplittable)
                  .Infer(InferLayerNorm),
              {{"Bias", "Mean", "Scale", "Variance", "X"}, {"Y"}, {"Bias", "Scale", "X"}});
  AddBatchNorm(schemas, "batch_norm");
  AddBatchNorm(schemas, "sync_batch_norm");
  AddWithGrad(schemas,
              OpSchema("group_norm")
                  .In("Bias", kOptional)
                  .In("Scale", kOptional)
                  .In("X")
                  .Out("Mean", kLooseType)
                  .Out("Variance", kLooseType)
                  .Out("Y")
                  .Attr("data_layout", "NCHW")
                  .Attr("epsilon", 1e-5f)
                  .RequiredAttr("groups", 1)
                  .With(Trait::kRowSplittable)
                  .Infer(InferGroupNorm),
              {{"Bias", "Mean", "Scale", "Variance", "X", "Y"}, {"Y"}, {"Bias", "Scale", "X"}});
  OpSchema instance_norm = OpSchema("instance_norm")
                               .In("Bias", kOptional)
                               .In("Scale", kOptional)
                               .In("X")
                               .Out("SavedMean", kLooseType)
                               .Out("SavedVariance", kLooseType)
                               .Out("Y")
                               .Attr("epsilon", 1e-5f)
                               .With(Trait::kRowSplittable)
                               .Infer(InferInstanceNorm);
  schemas->Add(
      GradSchema(instance_norm, "instance_norm_grad",
                 {{"SavedMean", "SavedVariance", "Scale", "X"}, {"Y"}, {"Bias", "Scale", "X"}},
                 GradWithoutBias(InferInstanceNorm)));
  schemas->Add(std::move(instance_norm));
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

}  // namespace weft
