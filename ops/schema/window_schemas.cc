// Convolution and pooling: ops that slide a window over an image.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// An image has a batch, channels, and `space` dimensions, 2 or 3, over which windows slide.
size_t FirstSpace(bool channels_last) { return channels_last ? 1 : 2; }
size_t ChannelAxis(bool channels_last, size_t space) { return channels_last ? space + 1 : 1; }

absl::StatusOr<const TensorType*> Image(const InferContext& context, const char* slot,
                                        size_t space) {
  const TensorType* image = context.Input(slot);
  if (image != nullptr && image->dims.size() != space + 2) {
    return context.InputError(
        slot, absl::StrCat(NumberWord(space + 2), " dimensions (batch, channels, ",
                           space == 2 ? "height, width)" : "depth, height, width)"));
  }
  return image;
}

// Sets the spatial dimensions of `out`, which holds those of the image, to the positions of the
// windows.
absl::Status SetPositions(const InferContext& context, const char* slot, bool channels_last,
                          const std::vector<Window>& windows, Rounding rounding, Dims* out) {
  for (size_t i = 0; i < windows.size(); ++i) {
    int64_t& dim = (*out)[FirstSpace(channels_last) + i];
    const absl::optional<int64_t> positions = NumPositions(dim, windows[i], rounding);
    if (!positions.has_value()) {
      const auto append_size = [](std::string* to, const Window& w) {
        absl::StrAppend(to, w.size);
      };
      return context.InputError(
          slot, absl::StrCat("an image that, padded, is at least as large as the window, ",
                             absl::StrJoin(windows, " x ", append_size)));
    }
    dim = *positions;
  }
  return absl::OkStatus();
}

bool BoolOr(const OpAttrs& attrs, const char* name, bool otherwise) {
  return attrs.Has(name) ? attrs.Bool(name) : otherwise;
}

// Of a convolution: its filter is [output channels, input channels / groups, height, width]. A
// transposed one computes what the gradient of a convolution computes: there, input and output
// change places.
absl::Status CheckFilter(const InferContext& context, size_t space, bool transposed,
                         int64_t channels) {
  const TensorType* filter = context.Input("Filter");
  const int64_t groups = context.attrs().Int("groups");
  if (groups < 1) return context.AttrError("groups", "1 or more", absl::StrCat(groups));
  if (filter->dims.size() != space + 2) {
    return context.InputError("Filter", absl::StrCat(NumberWord(space + 2), " dimensions"));
  }
  if (transposed && !DimFits(filter->dims[0], channels)) {
    return context.InputError("Filter", absl::StrCat("dimension 0 of ", channels, " channels"));
  }
  if (!transposed && !DimFits(MulDim(filter->dims[1], groups), channels)) {
    return context.InputError("Filter", absl::StrCat("dimension 1 of ", channels,
                                                     " input channels / ", groups, " groups"));
  }
  if (filter->dims[0] % groups != 0 && filter->dims[0] != -1) {
    return context.InputError("Filter",
                              absl::StrCat("dimension 0 a multiple of ", groups, " groups"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Window>> FilterWindows(const InferContext& context, size_t space) {
  WEFT_ASSIGN_OR_RETURN(std::vector<Window> windows, ReadWindows(context.attrs(), space));
  for (size_t i = 0; i < space; ++i) windows[i].size = context.Input("Filter")->dims[2 + i];
  return windows;
}

// The type of the output; none where a type is not known.
absl::StatusOr<absl::optional<TensorType>> ConvOutput(const InferContext& context, size_t space) {
  WEFT_ASSIGN_OR_RETURN(const bool channels_last, ReadChannelsLast(context.attrs(), space));
  WEFT_ASSIGN_OR_RETURN(const TensorType* input, Image(context, "Input", space));
  const TensorType* filter = context.Input("Filter");
  if (input == nullptr || filter == nullptr) return absl::optional<TensorType>();
  const size_t channel_axis = ChannelAxis(channels_last, space);
  WEFT_RETURN_IF_ERROR(
      CheckFilter(context, space, /*transposed=*/false, input->dims[channel_axis]));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, FilterWindows(context, space));
  TensorType output = *input;
  WEFT_RETURN_IF_ERROR(
      SetPositions(context, "Input", channels_last, windows, Rounding::kDown, &output.dims));
  output.dims[channel_axis] = filter->dims[0];
  return absl::optional<TensorType>(output);
}

// The size along a dimension of the image that a convolution by this window would shrink to
// `positions`: the smallest one, or what one of the attributes output_size and output_padding says.
absl::StatusOr<int64_t> TransposedSize(const InferContext& context, int64_t positions,
                                       const Window& window, size_t i, size_t space) {
  const std::vector<int64_t> sizes = context.attrs().Ints("output_size");
  const std::vector<int64_t> paddings = context.attrs().Ints("output_padding");
  for (const char* name : {"output_size", "output_padding"}) {
    const std::vector<int64_t> values = context.attrs().Ints(name);
    if (values.empty() || values.size() == space) continue;
    return context.AttrError(name, absl::StrCat("none, or ", NumberWord(space), " numbers"),
                             DimsToString(values));
  }
  if (positions == -1 || window.size == -1) return -1;
  const Window w = WithExplicitPaddings(window, positions);
  const int64_t smallest =
      AddDim(MulDim(positions - 1, w.stride), w.extent()) - w.pad_begin - w.pad_end;
  const int64_t room = sizes.empty() ? std::max(w.stride, w.dilation) : w.stride;
  int64_t size = smallest;
  if (!paddings.empty()) size += paddings[i];
  if (!sizes.empty()) size = sizes[i];
  if (size < smallest || size >= smallest + room) {
    return context.AttrError(sizes.empty() ? "output_padding" : "output_size",
                             sizes.empty() ? absl::StrCat("0 to ", room - 1)
                                           : absl::StrCat(smallest, " to ", smallest + room - 1),
                             absl::StrCat(sizes.empty() ? paddings[i] : sizes[i]));
  }
  if (size < 1) {
    return context.InputError("Input", "an image that is larger than its paddings, transposed");
  }
  return size;
}

absl::StatusOr<absl::optional<TensorType>> TransposedConvOutput(const InferContext& context,
                                                                size_t space) {
  WEFT_ASSIGN_OR_RETURN(const bool channels_last, ReadChannelsLast(context.attrs(), space));
  WEFT_ASSIGN_OR_RETURN(const TensorType* input, Image(context, "Input", space));
  const TensorType* filter = context.Input("Filter");
  if (input == nullptr || filter == nullptr) return absl::optional<TensorType>();
  const size_t channel_axis = ChannelAxis(channels_last, space);
  WEFT_RETURN_IF_ERROR(CheckFilter(context, space, /*transposed=*/true, input->dims[channel_axis]));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, FilterWindows(context, space));
  TensorType output = *input;
  for (size_t i = 0; i < space; ++i) {
    int64_t& dim = output.dims[FirstSpace(channels_last) + i];
    WEFT_ASSIGN_OR_RETURN(dim, TransposedSize(context, dim, windows[i], i, space));
  }
  output.dims[channel_axis] = MulDim(filter->dims[1], context.attrs().Int("groups"));
  return absl::optional<TensorType>(output);
}

using OutputFn = absl::StatusOr<absl::optional<TensorType>> (*)(const InferContext&, size_t);

OpSchema::InferFn InferConv(OutputFn output_of, size_t space) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> output, output_of(context, space));
    if (output.has_value()) context.SetOutput("Output", *output);
    return absl::OkStatus();
  };
}

OpSchema::InferFn CheckConvGrad(OutputFn output_of, size_t space) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> output, output_of(context, space));
    const TensorType* grad = context.Input("Output@GRAD");
    if (!output.has_value() || grad == nullptr || DimsFit(grad->dims, output->dims)) {
      return absl::OkStatus();
    }
    return context.InputError("Output@GRAD", absl::StrCat(ToString(*output), " as Output"));
  };
}

enum class ConvKind { kForward, kTransposed };

OpSchema WithConvAttrs(OpSchema schema, ConvKind kind, size_t space) {
  std::move(schema)
      .Attr("data_format", std::string(space == 2 ? "NCHW" : "NCDHW"))
      .Attr("dilations", Ints(space, 1))
      .Attr("groups", 1);
  if (kind == ConvKind::kTransposed) {
    std::move(schema).Attr("output_padding", Ints{}).Attr("output_size", Ints{});
  }
  return std::move(schema)
      .Attr("padding_algorithm", "EXPLICIT")
      .Attr("paddings", Ints(space, 0))
      .Attr("strides", Ints(space, 1));
}

void AddConv(OpSchemaTable* schemas, const std::string& type, ConvKind kind, size_t space) {
  const OutputFn output = kind == ConvKind::kForward ? ConvOutput : TransposedConvOutput;
  schemas->Add(
      WithConvAttrs(OpSchema(type)
                        .In("Bias", OpSchema::kOptional)
                        .In("Filter")
                        .In("Input")
                        .Out("Output")
                        .With(Trait::kRowSplittable)
                        .Infer(InOrder({SameDType("Input", "Filter"), InferConv(output, space)})),
                    kind, space));
  schemas->Add(WithConvAttrs(OpSchema(type + "_grad")
                                 .In("Bias", OpSchema::kOptional)
                                 .In("Filter")
                                 .In("Input")
                                 .In("Output@GRAD")
                                 .Out("Bias@GRAD", OpSchema::kOptional)
                                 .Out("Filter@GRAD", OpSchema::kOptional)
                                 .Out("Input@GRAD", OpSchema::kOptional)
                                 .Infer(InOrder({SameDType("Input", "Filter"),
                                                 CheckConvGrad(output, space), GradsLikeInputs()})),
                             kind, space));
}

// The type of the output; none where that of the input is not known.
absl::StatusOr<absl::optional<TensorType>> PoolOutput(const InferContext& context, size_t space) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const bool channels_last, ReadChannelsLast(attrs, space));
  WEFT_ASSIGN_OR_RETURN(const TensorType* x, Image(context, "X", space));
  if (x == nullptr) return absl::optional<TensorType>();
  TensorType out = *x;
  const size_t first = FirstSpace(channels_last);
  if (attrs.Bool("global_pooling")) {
    for (size_t i = 0; i < space; ++i) out.dims[first + i] = 1;
    return absl::optional<TensorType>(out);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ksize, ReadPositive(attrs, "ksize", space));
  if (attrs.Bool("adaptive")) {
    for (size_t i = 0; i < space; ++i) out.dims[first + i] = ksize[i];
    return absl::optional<TensorType>(out);
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Window> windows, ReadWindows(attrs, space));
  for (size_t i = 0; i < space; ++i) windows[i].size = ksize[i];
  const Rounding rounding = BoolOr(attrs, "ceil_mode", false) ? Rounding::kUp : Rounding::kDown;
  WEFT_RETURN_IF_ERROR(SetPositions(context, "X", channels_last, windows, rounding, &out.dims));
  return absl::optional<TensorType>(out);
}

OpSchema::InferFn InferPool(size_t space) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> out, PoolOutput(context, space));
    if (!out.has_value()) return absl::OkStatus();
    context.SetOutput("Out", *out);
    context.SetOutput("Mask", {DType::kInt32, out->dims});
    return absl::OkStatus();
  };
}

OpSchema::InferFn CheckPoolGrad(size_t space) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> out, PoolOutput(context, space));
    if (!out.has_value()) return absl::OkStatus();
    for (const char* slot : {"Mask", "Out", "Out@GRAD"}) {
      const TensorType* type = context.Input(slot);
      if (type == nullptr || DimsFit(type->dims, out->dims)) continue;
      return context.InputError(slot, absl::StrCat(ToString(*out), " that X is pooled to"));
    }
    return absl::OkStatus();
  };
}

OpSchema WithPoolAttrs(OpSchema schema, size_t space) {
  return std::move(schema)
      .Attr("adaptive", false)
      .Attr("ceil_mode", false)
      .Attr("data_format", std::string(space == 2 ? "NCHW" : "NCDHW"))
      .Attr("exclusive", true)
      .Attr("global_pooling", false)
      .RequiredAttr("ksize", Ints{})
      .Attr("padding_algorithm", "EXPLICIT")
      .Attr("paddings", Ints(space, 0))
      .RequiredAttr("pooling_type", std::string())
      .Attr("strides", Ints(space, 1));
}

void AddPool(OpSchemaTable* schemas, const std::string& type, size_t space) {
  schemas->Add(WithPoolAttrs(
      OpSchema(type).In("X").Out("Out").With(Trait::kRowSplittable).Infer(InferPool(space)),
      space));
  schemas->Add(WithPoolAttrs(OpSchema(type + "_grad")
                                 .In("Out")
                                 .In("Out@GRAD")
                                 .In("X")
                                 .Out("X@GRAD")
                                 .With(Trait::kRowSplittable)
                                 .Infer(InOrder({CheckPoolGrad(space), GradsLikeInputs()})),
                             space));
}

OpSchema WithIndexedPoolAttrs(OpSchema schema, size_t space) {
  return std::move(schema)
      .Attr("adaptive", false)
      .Attr("global_pooling", false)
      .RequiredAttr("ksize", Ints{})
      .Attr("paddings", Ints(space, 0))
      .Attr("strides", Ints(space, 1));
}

// Max pooling. Mask: where in its image and channel each maximum stands, counted row by row.
void AddIndexedPool(OpSchemaTable* schemas, const std::string& type, size_t space) {
  schemas->Add(WithIndexedPoolAttrs(OpSchema(type)
                                        .In("X")
                                        .Out("Mask")
                                        .Out("Out")
                                        .With(Trait::kRowSplittable)
                                        .Infer(InferPool(space)),
                                    space));
  schemas->Add(WithIndexedPoolAttrs(OpSchema(type + "_grad")
                                        .In("Mask")
                                        .In("Out@GRAD")
                                        .In("X")
                                        .Out("X@GRAD")
                                        .With(Trait::kRowSplittable)
                                        .Infer(InOrder({CheckPoolGrad(space), GradsLikeInputs()})),
                                    space));
}

}  // namespace

void AddWindowSchemas(OpSchemaTable* schemas) {
  AddConv(schemas, "conv2d", ConvKind::kForward, 2);
  AddConv(schemas, "depthwise_conv2d", ConvKind::kForward, 2);
  AddConv(schemas, "conv3d", ConvKind::kForward, 3);
  AddConv(schemas, "conv2d_transpose", ConvKind::kTransposed, 2);
  AddConv(schemas, "depthwise_conv2d_transpose", ConvKind::kTransposed, 2);
  AddConv(schemas, "conv3d_transpose", ConvKind::kTransposed, 3);
  AddPool(schemas, "pool2d", 2);
  AddPool(schemas, "pool3d", 3);
  AddIndexedPool(schemas, "max_pool2d_with_index", 2);
  AddIndexedPool(schemas, "max_pool3d_with_index", 3);
}

}  // namespace weft
