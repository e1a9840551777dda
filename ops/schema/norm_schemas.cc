// Normalization shifts elements that belong together to mean 0 and scales them to variance 1. Then
// parameters scale and shift them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

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

// The first of the dimensions that are normalized together.
absl::StatusOr<size_t> NormBegin(const InferContext& context, const TensorType& x) {
  const int64_t begin = context.attrs().Int("begin_norm_axis");
  if (begin < 1 || begin >= static_cast<int64_t>(x.dims.size())) {
    return context.AttrError("begin_norm_axis",
                             absl::StrCat("1 or more, and less than ", x.dims.size()),
                             absl::StrCat(begin));
  }
  return static_cast<size_t>(begin);
}

absl::Status InferLayerNorm(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const size_t begin, NormBegin(context, x));
  const int64_t size = Product(absl::MakeSpan(x.dims).subspan(begin));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, size));
  TensorType statistics;
  statistics.dtype = StatisticsDType(x.dtype);
  statistics.dims.assign(x.dims.begin(), x.dims.begin() + begin);
  context.SetOutput("Y", x);
  context.SetOutput("Mean", statistics);
  context.SetOutput("Variance", statistics);
  return absl::OkStatus();
}

// The inference of gradient ops that need not read Bias: it is like Scale.
OpSchema::InferFn GradOfScaleAndBias(OpSchema::InferFn forward) {
  const auto set_bias_grad = [](InferContext& context, const TensorType& scale) {
    if (!context.HasInput("Bias")) context.SetOutput("Bias@GRAD", scale);
    return absl::OkStatus();
  };
  return InOrder({GradOf(std::move(forward)), IfKnown("Scale", set_bias_grad)});
}

// SavedVariance is the inverse standard deviation of the batch. ReserveSpace is for back ends that
// keep something in it; these kernels do not.
absl::Status InferBatchNorm(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, x));
  WEFT_RETURN_IF_ERROR(CheckVectors(
      context,
      {"Scale", "Bias", "Mean", "Variance", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"},
      channels));
  const TensorType statistics = {StatisticsDType(x.dtype), {channels}};
  context.SetOutput("Y", x);
  context.SetOutput("SavedMean", statistics);
  context.SetOutput("SavedVariance", statistics);
  context.SetOutput("ReserveSpace", {x.dtype, {0}});
  return absl::OkStatus();
}

OpSchema WithBatchNormAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("data_layout", "NCHW")
      .Attr("epsilon", 1e-5f)
      .Attr("is_test", false)
      .Attr("momentum", 0.9f)
      .Attr("trainable_statistics", false)
      .Attr("use_global_stats", false)
      .Images("data_layout", {"X", "Y"}, {"NHWC", "NHWC"});
}

// sync_batch_norm takes its moments over the batches of all ranks (across_ranks.h).
// unbiased_variance is Weft's own, for PyTorch: the running variance is mixed with n / (n - 1)
// times the variance of the n elements of a channel.
OpSchema BatchNorm(const char* type) {
  return WithBatchNormAttrs(
      OpSchema(type,
               "Bias, Mean, MomentumTensor{momentum}, Scale, Variance, X -> MeanOut=Mean, "
               "ReserveSpace?~, SavedMean?~, SavedVariance?~, VarianceOut=Variance, Y")
          .Attr("unbiased_variance", false)
          .Infer(IfKnown("X", InferBatchNorm)));
}

void AddBatchNorm(OpSchemaTable* schemas, OpSchema op) {
  // Reads the statistics that normalized Y: Mean and Variance with use_global_stats, otherwise
  // those of the batch.
  schemas->Add(WithBatchNormAttrs(
      OpSchema(op.type() + "_grad",
               "Bias?, Mean?, MeanOut?, ReserveSpace?, SavedMean?, SavedVariance?, Scale, "
               "Variance?, VarianceOut?, X, Y@GRAD -> Bias@GRAD?, Scale@GRAD?, X@GRAD?")
          .Infer(GradOfScaleAndBias(op.infer()))));
  schemas->Add(std::move(op));
}

// Two numbers of each channel, the first of all channels before the second, then the number of its
// elements.
absl::Status InferChannelSums(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, x));
  context.SetOutput("Sums", {DType::kFloat64, {channels == -1 ? -1 : 2 * channels + 1}});
  return absl::OkStatus();
}

// What a rank adds to the moments of a sync_batch_norm, or to its gradient (across_ranks.h).
OpSchema ChannelSums(const char* type, absl::string_view inputs) {
  return OpSchema(type, absl::StrCat(inputs, " -> Sums"))
      .Attr("data_layout", "NCHW")
      .Infer(IfKnown("X", InferChannelSums))
      .Batch({batch::ChannelSums});
}

// A mean and a variance for each group of channels of each image.
absl::Status InferGroupNorm(InferContext& context, const TensorType& x) {
  const int64_t groups = context.attrs().Int("groups");
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, x));
  if (channels != -1 && channels % groups != 0) {
    return context.InputError("X", absl::StrCat("channels a multiple of ", groups, " groups"));
  }
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, channels));
  const TensorType statistics = {StatisticsDType(x.dtype), {x.dims[0], groups}};
  context.SetOutput("Y", x);
  context.SetOutput("Mean", statistics);
  context.SetOutput("Variance", statistics);
  return absl::OkStatus();
}

// Before Paddle 2, it finds X from Y.
absl::Status InferGroupNormGrad(InferContext& context) {
  if (context.HasInput("X")) return GradOf(IfKnown("X", InferGroupNorm))(context);
  const TensorType* y = context.Input("Y");
  if (y == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, *y));
  const int64_t groups = context.attrs().Int("groups");
  if (channels != -1 && channels % groups != 0) {
    return context.InputError("Y", absl::StrCat("channels a multiple of ", groups, " groups"));
  }
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Y@GRAD", y->dims));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, channels));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Variance", {y->dims[0], groups}));
  context.SetOutput("X@GRAD", *y);
  context.SetOutput("Scale@GRAD", {y->dtype, {channels}});
  context.SetOutput("Bias@GRAD", {y->dtype, {channels}});
  return absl::OkStatus();
}

// A mean and an inverse standard deviation for each channel of each image.
absl::Status InferInstanceNorm(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, x));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"Scale", "Bias"}, channels));
  const TensorType statistics = {StatisticsDType(x.dtype), {MulDim(x.dims[0], channels)}};
  context.SetOutput("Y", x);
  context.SetOutput("SavedMean", statistics);
  context.SetOutput("SavedVariance", statistics);
  return absl::OkStatus();
}

absl::Status InferAffineChannel(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const int64_t channels, Channels(context, x));
  context.SetOutput("Out", x);
  return CheckVectors(context, {"Scale", "Bias"}, channels);
}

}  // namespace

void AddNormSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("layer_norm", "Bias?, Scale?, X -> Mean~, Variance~, Y")
                  .Attr("begin_norm_axis", 1)
                  .Attr("epsilon", 1e-5f)
                  .With(Trait::kRowSplittable)
                  .Infer(IfKnown("X", InferLayerNorm))
                  .Batch({batch::LayerNorm})
                  .Pir("(x, scale, bias) -> out:Y, mean, variance"),
              {{"Bias", "Mean", "Scale", "Variance", "X"}, {"Y"}, {"Bias", "Scale", "X"}});
  AddBatchNorm(schemas,
               BatchNorm("batch_norm")
                   .Batch({batch::BatchNorm, Powers::kOwn})
                   .Pir("batch_norm_(x, mean, variance, scale?, bias?) -> out:Y, mean_out, "
                        "variance_out, saved_mean, saved_variance, reserve_space "
                        "{data_format=data_layout}",
                        "(x, scale?, bias?, mean_out, variance_out, saved_mean!, saved_variance!, "
                        "reserve_space, out_grad:Y@GRAD)"));
  AddBatchNorm(schemas,
               BatchNorm("sync_batch_norm")
                   .Batch({batch::SyncBatchNorm, Powers::kOwn})
                   .Pir("sync_batch_norm_(x, mean, variance, scale, bias) -> out:Y, mean_out, "
                        "variance_out, saved_mean, saved_variance, reserve_space "
                        "{data_format=data_layout}",
                        "(x, scale, bias, saved_mean!, saved_variance!, reserve_space, "
                        "out_grad:Y@GRAD)"));
  schemas->Add(ChannelSums("sync_batch_norm_sums", "X"));  // the mean m of x, and Σ(x - m)²
  // Σdy and Σ(dy x̂).
  schemas->Add(ChannelSums("sync_batch_norm_grad_sums", "SavedMean, SavedVariance, X, Y@GRAD"));
  AddWithGrad(schemas,
              OpSchema("group_norm", "Bias?, Scale?, X -> Mean~, Variance~, Y")
                  .Attr("data_layout", "NCHW")
                  .Attr("epsilon", 1e-5f)
                  .RequiredAttr("groups", 1, range::AtLeast(1))
                  .With(Trait::kRowSplittable)
                  .Infer(IfKnown("X", InferGroupNorm))
                  .Batch({batch::Rows({"X"})})
                  .Pir("(x, scale, bias) -> y, mean, variance {data_format=data_layout}"),
              {{"Bias", "Mean+", "Scale", "Variance", "X+", "Y"}, {"Y"}, {"Bias", "Scale", "X"}},
              InferGroupNormGrad);
  AddWithGrad(schemas,
              OpSchema("instance_norm", "Bias?, Scale?, X -> SavedMean~, SavedVariance~, Y")
                  .Attr("epsilon", 1e-5f)
                  .With(Trait::kRowSplittable)
                  .Infer(IfKnown("X", InferInstanceNorm))
                  .Batch({batch::Rows({"X"})})
                  .Pir("(x, scale, bias) -> y, saved_mean, saved_variance",
                       "(x, scale, bias:-, saved_mean, saved_variance, y_grad)"),
              // Paddle 3 gives it Bias, too.
              {{"Bias", "SavedMean", "SavedVariance", "Scale", "X"}, {"Y"}, {"Bias", "Scale", "X"}},
              GradOfScaleAndBias(IfKnown("X", InferInstanceNorm)));
  AddWithGrad(schemas,
              OpSchema("affine_channel", "Bias, Scale, X -> Out")
                  .Attr("data_layout", "NCHW")
                  .With(Trait::kRowSplittable)
                  .Infer(IfKnown("X", InferAffineChannel))
                  .Batch({batch::Rows({"X"})}),
              {{"Scale", "X"}, {"Out"}, {"Bias", "Scale", "X"}},
              GradOfScaleAndBias(IfKnown("X", InferAffineChannel)));
}

}  // namespace weft
