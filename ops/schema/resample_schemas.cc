// Images padded, cut into windows, and looked up between their elements.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// paddings: before and after, for the last dimension of space first.
absl::Status InferPad3d(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr || HasAttrInput(context)) return absl::OkStatus();
  if (x->dims.size() != 5) return context.InputError("X", "five dimensions");
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  if (paddings.size() != 6) {
    return context.AttrError("paddings", "six numbers", DimsToString(paddings));
  }
  const std::string& mode = attrs.String("mode");
  if (mode != "constant" && mode != "reflect" && mode != "replicate" && mode != "circular") {
    return context.AttrError("mode", "constant, reflect, replicate or circular", mode);
  }
  const std::string& format = attrs.String("data_format");
  if (format != "NCDHW" && format != "NDHWC") {
    return context.AttrError("data_format", "NCDHW or NDHWC", format);
  }
  const size_t first = format == "NDHWC" ? 1 : 2;
  TensorType out = *x;
  for (size_t s = 0; s < 3; ++s) {
    const int64_t before = paddings[4 - 2 * s], after = paddings[5 - 2 * s];
    int64_t& dim = out.dims[first + s];
    if (dim == -1) continue;
    const bool repeats = mode != "constant" && (before > 0 || after > 0);
    const bool reflects = mode == "reflect" && (before >= dim || after >= dim);
    if (before > kMaxElements || after > kMaxElements || dim + before + after < 0 ||
        (repeats && dim == 0) || reflects) {
      return context.AttrError("paddings", absl::StrCat("paddings of ", DimsToString(x->dims)),
                               DimsToString(paddings));
    }
    dim += before + after;
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// The dims of an image's columns: the elements under a window, for as many positions as it has.
// `source` is what the image comes from, for errors.
absl::StatusOr<Dims> UnfoldedDims(const InferContext& context, const char* source,
                                  const Dims& image) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const auto sizes, ReadPositive(attrs, "kernel_sizes", 2));
  WEFT_ASSIGN_OR_RETURN(const auto strides, ReadPositive(attrs, "strides", 2));
  WEFT_ASSIGN_OR_RETURN(const auto dilations, ReadPositive(attrs, "dilations", 2));
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  if (paddings.size() != 4 || !std::all_of(paddings.begin(), paddings.end(), [](int64_t padding) {
        return padding >= 0 && padding <= kMaxElements;
      })) {
    return context.AttrError("paddings", "four numbers that are not negative",
                             DimsToString(paddings));
  }
  int64_t positions = 1, elements = image[1];
  for (size_t s = 0; s < 2; ++s) {
    const Window window = {sizes[s], strides[s], dilations[s], paddings[s], paddings[2 + s]};
    const absl::optional<int64_t> count = NumPositions(image[2 + s], window, Rounding::kDown);
    if (!count.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": expected a size that the window fits in, found ", DimsToString(image)));
    }
    positions = MulDim(positions, *count);
    elements = MulDim(elements, sizes[s]);
  }
  return Dims{image[0], elements, positions};
}

absl::Status InferUnfold(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 4) return context.InputError("X", "four dimensions");
  WEFT_ASSIGN_OR_RETURN(const Dims columns, UnfoldedDims(context, "input X", x->dims));
  context.SetOutput("Y", {x->dtype, columns});
  return absl::OkStatus();
}

// X, with as many elements under a window in a column as Unfold gives, is added up to an image.
absl::Status InferFold(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 3) return context.InputError("X", "three dimensions");
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const auto out, ReadPositive(attrs, "output_sizes", 2));
  WEFT_ASSIGN_OR_RETURN(const auto sizes, ReadPositive(attrs, "kernel_sizes", 2));
  const int64_t window = MulDim(sizes[0], sizes[1]);
  if (x->dims[1] != -1 && x->dims[1] % window != 0) {
    return context.InputError("X", absl::StrCat("columns of a multiple of ", window));
  }
  const Dims image = {x->dims[0], x->dims[1] == -1 ? -1 : x->dims[1] / window, out[0], out[1]};
  WEFT_ASSIGN_OR_RETURN(const Dims columns, UnfoldedDims(context, "output_sizes", image));
  if (!DimFits(columns[2], x->dims[2])) {
    return context.InputError("X", absl::StrCat(columns[2], " positions of the window"));
  }
  context.SetOutput("Y", {x->dtype, image});
  return absl::OkStatus();
}

// Each element of X at the place in its channel that Indices names.
absl::Status InferUnpool(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 4) return context.InputError("X", "four dimensions");
  const std::string& format = context.attrs().String("data_format");
  if (format != "NCHW") return context.AttrError("data_format", "NCHW", format);
  WEFT_ASSIGN_OR_RETURN(const auto size, ReadPositive(context.attrs(), "output_size", 2));
  context.SetOutput("Out", {x->dtype, {x->dims[0], x->dims[1], size[0], size[1]}});
  return absl::OkStatus();
}

// A place in an image, column and row from -1 to 1, for every element of another one.
absl::Status InferAffineGrid(InferContext& context) {
  const TensorType* theta = context.Input("Theta");
  if (theta == nullptr) return absl::OkStatus();
  if (!DimsFit(theta->dims, {-1, 2, 3})) return context.InputError("Theta", "[batch, 2, 3]");
  Dims out = {theta->dims[0], -1, -1, 2};
  if (!HasAttrInput(context)) {
    WEFT_ASSIGN_OR_RETURN(const auto shape, ReadPositive(context.attrs(), "output_shape", 4));
    out[1] = shape[2];
    out[2] = shape[3];
  }
  context.SetOutput("Output", {theta->dtype, out});
  return absl::OkStatus();
}

// Out is X of another size in space, which has `space` dimensions: that of out_d, out_h and out_w,
// the last of them, or multiples of X's.
OpSchema::InferFn Interpolated(std::vector<size_t> spaces) {
  return [spaces = std::move(spaces)](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input("X");
    if (x == nullptr) return absl::OkStatus();
    const size_t space = x->dims.size() - 2;
    if (x->dims.size() < 3 || std::find(spaces.begin(), spaces.end(), space) == spaces.end()) {
      return context.InputError("X", absl::StrCat(spaces.front() + 2, " dimensions"));
    }
    const OpAttrs& attrs = context.attrs();
    static constexpr const char* kLayouts[][2] = {
        {"NCW", "NWC"}, {"NCHW", "NHWC"}, {"NCDHW", "NDHWC"}};
    const auto& layouts = kLayouts[space - 1];
    const std::string& layout = attrs.String("data_layout");
    // Paddle writes NCHW for NCW, too.
    const bool is_default = layout == "NCHW";
    if (layout != layouts[0] && layout != layouts[1] && !is_default) {
      return context.AttrError("data_layout", absl::StrCat(layouts[0], " or ", layouts[1]), layout);
    }
    const std::vector<double> scale = attrs.Floats("scale");
    if (scale.size() > 1 && scale.size() != space) {
      return context.AttrError("scale", absl::StrCat("one number or ", space),
                               absl::StrCat(scale.size()));
    }
    const bool is_computed = HasAttrInput(context);
    const size_t first = layout == layouts[1] ? 1 : 2;
    TensorType out = *x;
    for (size_t s = 0; s < space; ++s) {
      int64_t& dim = out.dims[first + s];
      static constexpr const char* kSizes[] = {"out_d", "out_h", "out_w"};
      const char* const attr = kSizes[3 - space + s];
      const double factor = scale.empty() ? 0 : scale[scale.size() == 1 ? 0 : s];
      if (is_computed) {
        dim = -1;
      } else if (dim != -1 && dim < 1) {
        return context.InputError("X", "a size of 1 or more");
      } else if (factor > 0) {
        if (dim == -1) continue;
        const double size = static_cast<double>(dim) * factor;
        if (!(size >= 1 && size < static_cast<double>(kMaxElements))) {
          return context.AttrError("scale", "a size of 1 or more", absl::StrCat(factor));
        }
        dim = static_cast<int64_t>(size);
      } else if (attrs.Int(attr) < 1) {
        return context.AttrError(attr, "1 or more", absl::StrCat(attrs.Int(attr)));
      } else {
        dim = attrs.Int(attr);
      }
    }
    context.SetOutput("Out", out);
    return absl::OkStatus();
  };
}

// Grid has a place in X, column and row, for every element of Output.
absl::Status InferGridSampler(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* grid = context.Input("Grid");
  if (x == nullptr || grid == nullptr) return absl::OkStatus();
  if (x->dims.size() != 4) return context.InputError("X", "four dimensions");
  if (grid->dims.size() != 4 || !DimFits(grid->dims[3], 2) || !DimFits(grid->dims[0], x->dims[0])) {
    return context.InputError("Grid", absl::StrCat("[", x->dims[0], ", height, width, 2]"));
  }
  if (x->dims[2] == 0 || x->dims[3] == 0) return context.InputError("X", "a size of 1 or more");
  const std::string& mode = context.attrs().String("mode");
  if (mode != "bilinear" && mode != "nearest") {
    return context.AttrError("mode", "bilinear or nearest", mode);
  }
  const std::string& padding = context.attrs().String("padding_mode");
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    return context.AttrError("padding_mode", "zeros, border or reflection", padding);
  }
  context.SetOutput("Output", {x->dtype, {x->dims[0], x->dims[1], grid->dims[1], grid->dims[2]}});
  return absl::OkStatus();
}

}  // namespace

void AddResampleSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("pad3d")
                  .AttrIn("Paddings", {"paddings"})
                  .In("X")
                  .Out("Out")
                  .Attr("data_format", "NCDHW")
                  .Attr("mode", "constant")
                  .Attr("paddings", Ints{})
                  .Attr("value", 0.0f)
                  .Infer(InferPad3d),
              {{"X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("unfold")
                  .In("X")
                  .Out("Y")
                  .RequiredAttr("dilations", Ints{})
                  .RequiredAttr("kernel_sizes", Ints{})
                  .RequiredAttr("paddings", Ints{})
                  .RequiredAttr("strides", Ints{})
                  .Infer(InferUnfold),
              {{"X"}, {"Y"}, {"X"}});
  const std::pair<std::string, std::vector<size_t>> methods[] = {{"bicubic", {2}},
                                                                 {"bilinear", {2}},
                                                                 {"linear", {1}},
                                                                 {"nearest", {2, 3}},
                                                                 {"trilinear", {3}}};
  for (const auto& [method, spaces] : methods) {
    AddWithGrad(schemas,
                OpSchema(method + "_interp_v2")
                    .AttrIn("OutSize", {"out_d", "out_h", "out_w"})
                    .AttrIn("Scale", {"scale"})
                    .AttrIn("SizeTensor", {"out_d", "out_h", "out_w"}, OpSchema::kDuplicable)
                    .In("X")
                    .Out("Out")
                    .Attr("align_corners", true)
                    .Attr("align_mode", 1)
                    .Attr("data_layout", "NCHW")
                    .Attr("interp_method", method)
                    .Attr("out_d", 0)
                    .Attr("out_h", 0)
                    .Attr("out_w", 0)
                    .Attr("scale", std::vector<float>{})
                    .Infer(Interpolated(spaces)),
                {{"X"}, {"Out"}, {"X"}});
  }
  AddWithGrad(schemas,
              OpSchema("fold")
                  .In("X")
                  .Out("Y")
                  .RequiredAttr("dilations", Ints{})
                  .RequiredAttr("kernel_sizes", Ints{})
                  .RequiredAttr("output_sizes", Ints{})
                  .RequiredAttr("paddings", Ints{})
                  .RequiredAttr("strides", Ints{})
                  .Infer(InferFold),
              {{"X"}, {"Y"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("unpool")
                  .In("Indices")
                  .In("X")
                  .Out("Out")
                  .Attr("data_format", "NCHW")
                  .RequiredAttr("ksize", Ints{})
                  .Attr("output_size", Ints{})
                  .Attr("paddings", Ints{})
                  .Attr("strides", Ints{})
                  .Attr("unpooling_type", "max")
                  .Infer(InOrder({SameDims("Indices", "X"), InferUnpool})),
              {{"Indices", "Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("affine_grid")
                  .AttrIn("OutputShape", {"output_shape"})
                  .In("Theta")
                  .Out("Output")
                  .Attr("align_corners", true)
                  .Attr("output_shape", Ints{})
                  .Infer(InferAffineGrid),
              {{"Theta"}, {"Output"}, {"Theta"}});
  AddWithGrad(schemas,
              OpSchema("grid_sampler")
                  .In("Grid")
                  .In("X")
                  .Out("Output")
                  .Attr("align_corners", true)
                  .Attr("mode", "bilinear")
                  .Attr("padding_mode", "zeros")
                  .Infer(InOrder({SameDType("Grid", "X"), InferGridSampler})),
              {{"Grid", "X"}, {"Output"}, {"Grid", "X"}});
}

}  // namespace weft
