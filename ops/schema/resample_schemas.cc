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
  if (x == nullptr || context.HasInput("Paddings")) return absl::OkStatus();
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

// Y has the elements under a window in a column, and as many columns as the window has positions.
absl::Status InferUnfold(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 4) return context.InputError("X", "four dimensions");
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
  int64_t positions = 1, elements = x->dims[1];
  for (size_t s = 0; s < 2; ++s) {
    const Window window = {sizes[s], strides[s], dilations[s], paddings[s], paddings[2 + s]};
    const absl::optional<int64_t> count = NumPositions(x->dims[2 + s], window, Rounding::kDown);
    if (!count.has_value()) return context.InputError("X", "a size that the window fits in");
    positions = MulDim(positions, *count);
    elements = MulDim(elements, sizes[s]);
  }
  context.SetOutput("Y", {x->dtype, {x->dims[0], elements, positions}});
  return absl::OkStatus();
}

// Out is X of another height and width: those of out_h and out_w, or multiples of X's.
absl::Status InferInterpolate(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 4) return context.InputError("X", "four dimensions");
  const OpAttrs& attrs = context.attrs();
  const std::string& layout = attrs.String("data_layout");
  if (layout != "NCHW" && layout != "NHWC") {
    return context.AttrError("data_layout", "NCHW or NHWC", layout);
  }
  const std::vector<double> scale = attrs.Floats("scale");
  if (scale.size() > 2) {
    return context.AttrError("scale", "at most two numbers", absl::StrCat(scale.size()));
  }
  const bool is_computed =
      context.HasInput("OutSize") || context.HasInput("SizeTensor") || context.HasInput("Scale");
  const size_t first = layout == "NHWC" ? 1 : 2;
  TensorType out = *x;
  for (size_t s = 0; s < 2; ++s) {
    int64_t& dim = out.dims[first + s];
    const char* const attr = s == 0 ? "out_h" : "out_w";
    const double factor = scale.empty() ? 0 : scale[scale.size() == 2 ? s : 0];
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
  for (const std::string method : {"bilinear", "nearest"}) {
    AddWithGrad(schemas,
                OpSchema(method + "_interp_v2")
                    .AttrIn("OutSize", {"out_h", "out_w"})
                    .AttrIn("Scale", {"scale"})
                    .AttrIn("SizeTensor", {"out_h", "out_w"}, OpSchema::kDuplicable)
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
                    .Infer(InferInterpolate),
                {{"X"}, {"Out"}, {"X"}});
  }
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
