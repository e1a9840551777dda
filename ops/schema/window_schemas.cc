// Convolution and pooling: ops that slide a window over an image.
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Windows -------------------------------------------------------------------------------------

// Where batch, channels, height and width stand among the dimensions of an image.
struct ImageLayout {
  size_t channels;
  std::array<size_t, 2> space;
};

absl::StatusOr<ImageLayout> GetLayout(const InferContext& context) {
  const std::string& format = context.attrs().String("data_format");
  if (format == "NCHW" || format == "AnyLayout") return ImageLayout{1, {2, 3}};
  if (format == "NHWC") return ImageLayout{3, {1, 2}};
  return context.AttrError("data_format", "NCHW or NHWC", format);
}

absl::StatusOr<const TensorType*> Image(const InferContext& context, const char* slot) {
  const TensorType* image = context.Input(slot);
  if (image != nullptr && image->dims.size() != 4) {
    return context.InputError(slot, "four dimensions (batch, channels, height, width)");
  }
  return image;
}

// A window that slides along one dimension.
struct Window {
  int64_t size = 1;  // -1: not known
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_begin = 0;
  int64_t pad_end = 0;
};
using Windows = std::array<Window, 2>;

// Two positive numbers of an attribute.
absl::StatusOr<std::vector<int64_t>> TwoPositive(const InferContext& context, const char* attr) {
  std::vector<int64_t> values = context.attrs().Ints(attr);
  if (values.size() == 2 && values[0] > 0 && values[1] > 0) return values;
  return context.AttrError(attr, "two positive numbers", DimsToString(values));
}

// Strides and explicit paddings. Paddings are one number a dimension, or one before and one after.
absl::StatusOr<Windows> StridesAndPaddings(const InferContext& context) {
  Windows windows;
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, TwoPositive(context, "strides"));
  const std::vector<int64_t> paddings = context.attrs().Ints("paddings");
  if (paddings.size() != 2 && paddings.size() != 4) {
    return context.AttrError("paddings", "two or four numbers", DimsToString(paddings));
  }
  const size_t per_dim = paddings.size() / 2;
  for (size_t i = 0; i < 2; ++i) {
    windows[i].stride = strides[i];
    windows[i].pad_begin = paddings[i * per_dim];
    windows[i].pad_end = paddings[i * per_dim + per_dim - 1];
  }
  return windows;
}

enum class Rounding { kDown, kUp };

// How many positions a window takes along a dimension of `size`; none where it does not fit in.
absl::optional<int64_t> NumPositions(int64_t size, const Window& window,
                                     const std::string& padding_algorithm, Rounding rounding) {
  if (size == -1 || window.size == -1) return -1;
  if (padding_algorithm == "SAME") return (size + window.stride - 1) / window.stride;
  const bool is_explicit = padding_algorithm == "EXPLICIT";
  const int64_t padding = is_explicit ? window.pad_begin + window.pad_end : 0;
  const int64_t extent = AddDim(MulDim(window.dilation, window.size - 1), 1);
  const int64_t room = size + padding - extent;
  if (room < 0) return absl::nullopt;
  return (room + (rounding == Rounding::kUp ? window.stride - 1 : 0)) / window.stride + 1;
}

// Sets the spatial dimensions of `out`, which holds those of the image, to the positions of the
// windows.
absl::Status SetPositions(const InferContext& context, const char* slot, const ImageLayout& layout,
                          const Windows& windows, Rounding rounding, Dims* out) {
  const std::string& algorithm = context.attrs().String("padding_algorithm");
  if (algorithm != "EXPLICIT" && algorithm != "SAME" && algorithm != "VALID") {
    return context.AttrError("padding_algorithm", "EXPLICIT, SAME or VALID", algorithm);
  }
  for (size_t i = 0; i < 2; ++i) {
    int64_t& dim = (*out)[layout.space[i]];
    const absl::optional<int64_t> positions = NumPositions(dim, windows[i], algorithm, rounding);
    if (!positions.has_value()) {
      return context.InputError(
          slot, absl::StrCat("an image that, padded, is at least as large as the window, ",
                             windows[0].size, " x ", windows[1].size));
    }
    dim = *positions;
  }
  return absl::OkStatus();
}

// --- conv2d --------------------------------------------------------------------------------------

// Filter is [output channels, input channels / groups, height, width].
absl::Status CheckFilter(const InferContext& context, int64_t channels) {
  const TensorType* filter = context.Input("Filter");
  const int64_t groups = context.attrs().Int("groups");
  if (groups < 1) return context.AttrError("groups", "1 or more", absl::StrCat(groups));
  if (filter->dims.size() != 4) return context.InputError("Filter", "four dimensions");
  if (!DimFits(MulDim(filter->dims[1], groups), channels)) {
    return context.InputError("Filter", absl::StrCat("dimension 1 of ", channels,
                                                     " input channels / ", groups, " groups"));
  }
  if (filter->dims[0] % groups != 0 && filter->dims[0] != -1) {
    return context.InputError("Filter",
                              absl::StrCat("dimension 0 a multiple of ", groups, " groups"));
  }
  return absl::OkStatus();
}

// The type of the output; none where a type is not known.
absl::StatusOr<absl::optional<TensorType>> ConvOutput(const InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ImageLayout layout, GetLayout(context));
  WEFT_ASSIGN_OR_RETURN(const TensorType* input, Image(context, "Input"));
  const TensorType* filter = context.Input("Filter");
  if (input == nullptr || filter == nullptr) return absl::optional<TensorType>();
  WEFT_RETURN_IF_ERROR(CheckFilter(context, input->dims[layout.channels]));
  WEFT_ASSIGN_OR_RETURN(Windows windows, StridesAndPaddings(context));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations, TwoPositive(context, "dilations"));
  for (size_t i = 0; i < 2; ++i) {
    windows[i].size = filter->dims[2 + i];
    windows[i].dilation = dilations[i];
  }
  TensorType output = *input;
  WEFT_RETURN_IF_ERROR(
      SetPositions(context, "Input", layout, windows, Rounding::kDown, &output.dims));
  output.dims[layout.channels] = filter->dims[0];
  return absl::optional<TensorType>(output);
}

absl::Status InferConv(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> output, ConvOutput(context));
  if (output.has_value()) context.SetOutput("Output", *output);
  return absl::OkStatus();
}

absl::Status CheckConvGrad(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> output, ConvOutput(context));
  const TensorType* grad = context.Input("Output@GRAD");
  if (!output.has_value() || grad == nullptr || DimsFit(grad->dims, output->dims)) {
    return absl::OkStatus();
  }
  return context.InputError("Output@GRAD", absl::StrCat(ToString(*output), " as Output"));
}

OpSchema WithConvAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("data_format", "NCHW")
      .Attr("dilations", Ints{1, 1})
      .Attr("groups", 1)
      .Attr("padding_algorithm", "EXPLICIT")
      .Attr("paddings", Ints{0, 0})
      .Attr("strides", Ints{1, 1});
}

// --- pool2d --------------------------------------------------------------------------------------

// The type of the output; none where that of the input is not known.
absl::StatusOr<absl::optional<TensorType>> PoolOutput(const InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const ImageLayout layout, GetLayout(context));
  WEFT_ASSIGN_OR_RETURN(const TensorType* x, Image(context, "X"));
  if (x == nullptr) return absl::optional<TensorType>();
  TensorType out = *x;
  if (attrs.Bool("global_pooling")) {
    for (size_t dim : layout.space) out.dims[dim] = 1;
    return absl::optional<TensorType>(out);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ksize, TwoPositive(context, "ksize"));
  if (attrs.Bool("adaptive")) {
    for (size_t i = 0; i < 2; ++i) out.dims[layout.space[i]] = ksize[i];
    return absl::optional<TensorType>(out);
  }
  WEFT_ASSIGN_OR_RETURN(Windows windows, StridesAndPaddings(context));
  for (size_t i = 0; i < 2; ++i) windows[i].size = ksize[i];
  const Rounding rounding = attrs.Bool("ceil_mode") ? Rounding::kUp : Rounding::kDown;
  WEFT_RETURN_IF_ERROR(SetPositions(context, "X", layout, windows, rounding, &out.dims));
  return absl::optional<TensorType>(out);
}

absl::Status InferPool(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> out, PoolOutput(context));
  if (out.has_value()) context.SetOutput("Out", *out);
  return absl::OkStatus();
}

absl::Status CheckPoolGrad(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> out, PoolOutput(context));
  if (!out.has_value()) return absl::OkStatus();
  for (const char* slot : {"Out", "Out@GRAD"}) {
    const TensorType* type = context.Input(slot);
    if (type == nullptr || DimsFit(type->dims, out->dims)) continue;
    return context.InputError(slot, absl::StrCat(ToString(*out), " that X is pooled to"));
  }
  return absl::OkStatus();
}

OpSchema WithPoolAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("adaptive", false)
      .Attr("ceil_mode", false)
      .Attr("data_format", "NCHW")
      .Attr("exclusive", true)
      .Attr("global_pooling", false)
      .RequiredAttr("ksize", Ints{})
      .Attr("padding_algorithm", "EXPLICIT")
      .Attr("paddings", Ints{0, 0})
      .RequiredAttr("pooling_type", std::string())
      .Attr("strides", Ints{1, 1});
}

}  // namespace

void AddWindowSchemas(OpSchemaTable* schemas) {
  schemas->Add(WithConvAttrs(OpSchema("conv2d")
                                 .In("Bias", OpSchema::kOptional)
                                 .In("Filter")
                                 .In("Input")
                                 .Out("Output")
                                 .With(Trait::kRowSplittable)
                                 .Infer(InOrder({SameDType("Input", "Filter"), InferConv}))));
  schemas->Add(WithConvAttrs(
      OpSchema("conv2d_grad")
          .In("Bias", OpSchema::kOptional)
          .In("Filter")
          .In("Input")
          .In("Output@GRAD")
          .Out("Bias@GRAD", OpSchema::kOptional)
          .Out("Filter@GRAD", OpSchema::kOptional)
          .Out("Input@GRAD", OpSchema::kOptional)
          .Infer(InOrder({SameDType("Input", "Filter"), CheckConvGrad, GradsLikeInputs()}))));

  schemas->Add(WithPoolAttrs(
      OpSchema("pool2d").In("X").Out("Out").With(Trait::kRowSplittable).Infer(InferPool)));
  schemas->Add(WithPoolAttrs(OpSchema("pool2d_grad")
                                 .In("Out")
                                 .In("Out@GRAD")
                                 .In("X")
                                 .Out("X@GRAD")
                                 .With(Trait::kRowSplittable)
                                 .Infer(InOrder({CheckPoolGrad, GradsLikeInputs()}))));
}

}  // namespace weft
