// Images sampled between their elements.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// A position in an image, column and row from -1 to 1, for every element of another one.
absl::Status InferAffineGrid(InferContext& context, const TensorType& theta) {
  if (!DimsFit(theta.dims, {-1, 2, 3})) return context.InputError("Theta", "[batch, 2, 3]");
  Dims out = {theta.dims[0], -1, -1, 2};
  if (!HasAttrInput(context)) {
    WEFT_ASSIGN_OR_RETURN(const auto shape, ReadPositive(context.attrs(), "output_shape", 4));
    out[1] = shape[2];
    out[2] = shape[3];
  }
  context.SetOutput("Output", {theta.dtype, out});
  return absl::OkStatus();
}

// Before Paddle 2, it does not read Theta.
absl::Status InferAffineGridGrad(InferContext& context) {
  if (context.HasInput("Theta")) return GradOf(IfKnown("Theta", InferAffineGrid))(context);
  const TensorType* grad = context.Input("Output@GRAD");
  if (grad == nullptr) return absl::OkStatus();
  if (grad->dims.size() != 4) return context.InputError("Output@GRAD", "four dimensions");
  context.SetOutput("Theta@GRAD", {grad->dtype, {grad->dims[0], 2, 3}});
  return absl::OkStatus();
}

// Grid has a position in X, column and row, for every element of Output.
absl::Status InferGridSampler(InferContext& context, const TensorType& x, const TensorType& grid) {
  if (x.dims.size() != 4) return context.InputError("X", "four dimensions");
  if (grid.dims.size() != 4 || !DimFits(grid.dims[3], 2) || !DimFits(grid.dims[0], x.dims[0])) {
    return context.InputError("Grid", absl::StrCat("[", x.dims[0], ", height, width, 2]"));
  }
  if (x.dims[2] == 0 || x.dims[3] == 0) return context.InputError("X", "a size of 1 or more");
  context.SetOutput("Output", {x.dtype, {x.dims[0], x.dims[1], grid.dims[1], grid.dims[2]}});
  return absl::OkStatus();
}

}  // namespace

void AddGridSampleSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("affine_grid", "OutputShape{output_shape}, Theta -> Output")
                  .Attr("align_corners", true)
                  .Attr("output_shape", Ints{})
                  .Infer(IfKnown("Theta", InferAffineGrid))
                  .Batch({batch::Rows({"Theta"})})
                  .Pir("(input:Theta, @output_shape/tensor)",
                       "(input:Theta, output_grad, @output_shape/tensor)"),
              {{"Theta+"}, {"Output"}, {"Theta"}}, InferAffineGridGrad);
  AddWithGrad(schemas,
              OpSchema("grid_sampler", "Grid, X -> Output")
                  .Attr("align_corners", true)
                  .Attr("mode", "bilinear", range::OneOf({"bilinear", "nearest"}))
                  .Attr("padding_mode", "zeros", range::OneOf({"zeros", "border", "reflection"}))
                  .Infer(InOrder({SameDType("Grid", "X"), IfKnown("X", "Grid", InferGridSampler)}))
                  .Batch({batch::Rows({"X", "Grid"})})
                  .Pir("grid_sample(x, grid)"),
              {{"Grid", "X"}, {"Output"}, {"Grid", "X"}});
}

}  // namespace weft
