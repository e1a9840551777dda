// Images read between their elements.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

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

void AddGridSampleSchemas(OpSchemaTable* schemas) {
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
