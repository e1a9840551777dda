// Convolution and pooling: ops that slide a window over an image.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
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

// Sets the spatial dimensions of `out`, which begin at `first`, from those of the image in `slot`
// to the number of positions of the windows.
absl::Status SetPositions(const InferContext& context, const char* slot, size_t first,
                          const std::vector<Window>& windows, Rounding rounding, Dims* out) {
  for (size_t i = 0; i < windows.size(); ++i) {
    int64_t& dim = (*out)[first + i];
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

// The filter of a convolution is [output channels, input channels / groups, height, width]. A
// transposed convolution computes the gradient of a convolution: input and output channels are
// swapped.
absl::Status CheckFilter(const InferContext& context, size_t space, bool transposed,
                         int64_t channels) {
  const TensorType* filter = context.Input("Filter");
  const int64_t groups = context.attrs().Int("groups");
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

// The size along a dimension of the image that a convolution by this window would shrink to
// `positions`: the smallest one, unless attribute output_size or output_padding gives another.
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
    return context.InputError("Input", "an image that, transposed, is larger than its paddings");
  }
  return size;
}

bool Fits(const TensorType& found, const TensorType& expected) {
  return found.dtype == expected.dtype && DimsFit(found.dims, expected.dims);
}

enum class ConvKind { kForward, kTransposed };

// Also checks Output@GRAD, for the gradient op.
OpSchema::InferFn InferConv(ConvKind kind, size_t space) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool channels_last, ReadChannelsLast(context.attrs(), space));
    WEFT_ASSIGN_OR_RETURN(const TensorType* input, Image(context, "Input", space));
    const TensorType* filter = context.Input("Filter");
    if (input == nullptr || filter == nullptr) return absl::OkStatus();
    const bool transposed = kind == ConvKind::kTransposed;
    const size_t channel_axis = ChannelAxis(channels_last, space);
    WEFT_RETURN_IF_ERROR(CheckFilter(context, space, transposed, input->dims[channel_axis]));
    WEFT_ASSIGN_OR_RETURN(std::vector<Window> windows, ReadWindows(context.attrs(), space));
    for (size_t i = 0; i < space; ++i) windows[i].size = filter->dims[2 + i];
    TensorType output = *input;
    if (transposed) {
      for (size_t i = 0; i < space; ++i) {
        int64_t& dim = output.dims[FirstSpace(channels_last) + i];
        WEFT_ASSIGN_OR_RETURN(dim, TransposedSize(context, dim, windows[i], i, space));
      }
      output.dims[channel_axis] = MulDim(filter->dims[1], context.attrs().Int("groups"));
    } else {
      WEFT_RETURN_IF_ERROR(SetPositions(context, "Input", FirstSpace(channels_last), windows,
                                        Rounding::kDown, &output.dims));
      output.dims[channel_axis] = filter->dims[0];
    }
    const TensorType* grad = context.Input("Output@GRAD");
    if (grad != nullptr && !Fits(*grad, output)) {
      return context.InputError("Output@GRAD", absl::StrCat(ToString(output), " as Output"));
    }
    context.SetOutput("Output", output);
    return absl::OkStatus();
  };
}

std::string DataFormat(size_t space) { return space == 2 ? "NCHW" : "NCDHW"; }

void AddConv(OpSchemaTable* schemas, const char* type, ConvKind kind, size_t space,
             const char* pir = "(input, filter)") {
  OpSchema op = OpSchema(type, "Bias?, Filter, Input -> Output")
                    .Attr("data_format", DataFormat(space))
                    .Attr("dilations", Ints(space, 1))
                    .Attr("groups", 1, range::AtLeast(1));
  if (kind == ConvKind::kTransposed) {
    std::move(op).Attr("output_padding", Ints{}).Attr("output_size", Ints{});
  }
  const OpSchema::InferFn infer = InOrder({SameDType("Input", "Filter"), InferConv(kind, space)});
  std::move(op)
      .Attr("padding_algorithm", "EXPLICIT")
      .Attr("paddings", Ints(space, 0))
      .Attr("strides", Ints(space, 1))
      .Images("data_format", {"Input", "Output"}, {"NHWC", "NDHWC"})
      .With(Trait::kRowSplittable)
      .Infer(infer)
      .Batch({batch::Rows({"Input"}), Powers::kProduct})
      .Work(kind == ConvKind::kForward ? WorkKind::kConvolution : WorkKind::kTransposedConvolution)
      .Pir(pir);
  const std::vector<std::string> inputs = {"Bias", "Filter", "Input"};
  AddWithGrad(schemas, std::move(op), {inputs, {"Output"}, inputs},
              InOrder({infer, GradsLikeInputs()}));
}

// The dims of an image, whose spatial dimensions begin at `first`, after pooling.
absl::StatusOr<Dims> PooledDims(const InferContext& context, const char* slot, Dims dims,
                                size_t first, size_t space) {
  const OpAttrs& attrs = context.attrs();
  if (attrs.Bool("global_pooling")) {
    std::fill_n(dims.begin() + first, space, 1);
    return dims;
  }
  const char* const size_attr = attrs.Has("kernel_size") ? "kernel_size" : "ksize";
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ksize, ReadPositive(attrs, size_attr, space));
  if (attrs.Bool("adaptive")) {
    std::copy(ksize.begin(), ksize.end(), dims.begin() + first);
    return dims;
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Window> windows, ReadWindows(attrs, space));
  for (size_t i = 0; i < space; ++i) windows[i].size = ksize[i];
  const bool rounds_up = attrs.Has("ceil_mode") && attrs.Bool("ceil_mode");
  WEFT_RETURN_IF_ERROR(SetPositions(context, slot, first, windows,
                                    rounds_up ? Rounding::kUp : Rounding::kDown, &dims));
  return dims;
}

// Also checks the inputs of the gradient op.
OpSchema::InferFn InferPool(size_t space, const char* x_slot, const std::string& out_slot) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool channels_last, ReadChannelsLast(context.attrs(), space));
    WEFT_ASSIGN_OR_RETURN(const TensorType* x, Image(context, x_slot, space));
    if (x == nullptr || HasAttrInput(context)) return absl::OkStatus();
    TensorType out = *x;
    WEFT_ASSIGN_OR_RETURN(out.dims,
                          PooledDims(context, x_slot, x->dims, FirstSpace(channels_last), space));
    for (const std::string& slot : {std::string("Mask"), out_slot, out_slot + "@GRAD"}) {
      const TensorType* type = context.Input(slot);
      if (type == nullptr) continue;
      // Paddle's adaptive_pool2d declares Mask with the element type of X.
      const bool is_mask = slot == "Mask";
      if (is_mask ? DimsFit(type->dims, out.dims) : Fits(*type, out)) continue;
      return context.InputError(slot,
                                absl::StrCat(ToString(out), " that ", x_slot, " is pooled to"));
    }
    context.SetOutput(out_slot, out);
    context.SetOutput("Mask", {DType::kInt32, out.dims});
    return absl::OkStatus();
  };
}

void AddPool(OpSchemaTable* schemas, OpSchema op, const char* grad_reads, size_t space) {
  std::move(op).With(Trait::kRowSplittable).Infer(InferPool(space, "X", "Out"));
  schemas->Add(GradSchema(op, op.type() + "_grad",
                          {{grad_reads, "X"}, {"Out"}, {"X"}, /*optional=*/false},
                          InOrder({op.infer(), GradsLikeInputs()}))
                   .With(Trait::kRowSplittable));
  schemas->Add(std::move(op));
}

OpSchema Pool(const char* type, size_t space) {
  return OpSchema(type, "X -> Out")
      .Attr("adaptive", false)
      .Attr("ceil_mode", false)
      .Attr("data_format", DataFormat(space))
      .Attr("exclusive", true)
      .Attr("global_pooling", false)
      .RequiredAttr("ksize", Ints{})
      .Attr("padding_algorithm", "EXPLICIT")
      .Attr("paddings", Ints(space, 0))
      .RequiredAttr("pooling_type", std::string(), range::OneOf({"max", "avg"}))
      .Attr("strides", Ints(space, 1))
      .Since(kPaddle2, "counts none beyond padding")
      .Images("data_format", {"X", "Out"}, {"NHWC", "NDHWC"});
}

// Max pooling. Mask is the index of each maximum in its image and channel, counted row by row.
OpSchema IndexedPool(const char* type, size_t space) {
  return OpSchema(type, "X -> Mask~, Out")
      .Attr("adaptive", false)
      .Attr("global_pooling", false)
      .RequiredAttr("ksize", Ints{})
      .Attr("paddings", Ints(space, 0))
      .Attr("strides", Ints(space, 1));
}

absl::Status CheckDegree(InferContext& context) {
  if (context.attrs().String("pooling_type") != "lp") return absl::OkStatus();
  if (context.attrs().Float("norm_type") != 0) return absl::OkStatus();
  return context.AttrError("norm_type", "a number other than 0", "0");
}

// The root of degree norm_type of the sum of the powers of that degree. Its slots are in lower
// case, as Paddle 3 writes them; kernel_size is a list of integers there, or of scalars.
void AddNormPool(OpSchemaTable* schemas) {
  OpSchema op = OpSchema("lp_pool2d",
                         "KernelSizeTensor{kernel_size}, KernelSizeTensorList*{kernel_size}, "
                         "x -> out")
                    .Attr("adaptive", false)
                    .Attr("ceil_mode", false)
                    .Attr("data_format", DataFormat(2))
                    .Attr("exclusive", true)
                    .Attr("global_pooling", false)
                    .RequiredAttr("kernel_size", Ints{})
                    .Attr("norm_type", 0.0f)
                    .Attr("padding_algorithm", "EXPLICIT")
                    .Attr("paddings", Ints(2, 0))
                    .Attr("pooling_type", "lp", range::OneOf({"max", "avg", "lp"}))
                    .Attr("strides", Ints(2, 1))
                    .With(Trait::kRowSplittable)
                    .Infer(InOrder({CheckDegree, InferPool(2, "x", "out")}))
                    .Batch({batch::Rows({"x"})})
                    .Pir();
  schemas->Add(GradSchema(op, "lp_pool2d_grad",
                          {{"KernelSizeTensor", "KernelSizeTensorList", "out", "x"},
                           {"out"},
                           {"x"},
                           /*optional=*/false},
                          InOrder({op.infer(), GradsLikeInputs()}))
                   .With(Trait::kRowSplittable));
  schemas->Add(std::move(op));
}

}  // namespace

void AddWindowSchemas(OpSchemaTable* schemas) {
  AddConv(schemas, "conv2d", ConvKind::kForward, 2);
  AddConv(schemas, "depthwise_conv2d", ConvKind::kForward, 2);
  AddConv(schemas, "conv3d", ConvKind::kForward, 3);
  constexpr char kTransposed2d[] = "(x:Input, filter, @output_size)";
  AddConv(schemas, "conv2d_transpose", ConvKind::kTransposed, 2, kTransposed2d);
  AddConv(schemas, "depthwise_conv2d_transpose", ConvKind::kTransposed, 2, kTransposed2d);
  AddConv(schemas, "conv3d_transpose", ConvKind::kTransposed, 3, "(x:Input, filter)");
  AddPool(schemas, Pool("pool2d", 2).Batch({batch::Rows({"X"})}).Pir("(x, kernel_size:@ksize)"),
          "Out", 2);
  AddPool(schemas, Pool("pool3d", 3).Batch({batch::Rows({"X"})}).Pir("{kernel_size=ksize}"), "Out",
          3);
  AddNormPool(schemas);
  AddPool(schemas,
          IndexedPool("max_pool2d_with_index", 2)
              .Batch({batch::Rows({"X"})})
              .Pir("-> out, mask {kernel_size=ksize}"),
          "Mask", 2);
  AddPool(schemas,
          IndexedPool("max_pool3d_with_index", 3)
              .Batch({batch::Rows({"X"})})
              .Pir("-> out, mask {kernel_size=ksize}"),
          "Mask", 3);
}

}  // namespace weft
