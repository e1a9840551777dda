// Windows of an image as columns of a matrix, and back.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// The dims of an image's columns: the elements under a window, by its positions. Errors name
// `source`, which gives the image.
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

absl::Status InferUnfold(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 4) return context.InputError("X", "four dimensions");
  WEFT_ASSIGN_OR_RETURN(const Dims columns, UnfoldedDims(context, "input X", x.dims));
  context.SetOutput("Y", {x.dtype, columns});
  return absl::OkStatus();
}

// Adds the columns of X, which have the form that unfold gives them, up to an image.
absl::Status InferFold(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 3) return context.InputError("X", "three dimensions");
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const auto out, ReadPositive(attrs, "output_sizes", 2));
  WEFT_ASSIGN_OR_RETURN(const auto sizes, ReadPositive(attrs, "kernel_sizes", 2));
  const int64_t window = MulDim(sizes[0], sizes[1]);
  if (x.dims[1] != -1 && x.dims[1] % window != 0) {
    return context.InputError("X", absl::StrCat("columns of a multiple of ", window));
  }
  const Dims image = {x.dims[0], x.dims[1] == -1 ? -1 : x.dims[1] / window, out[0], out[1]};
  WEFT_ASSIGN_OR_RETURN(const Dims columns, UnfoldedDims(context, "output_sizes", image));
  if (!DimFits(columns[2], x.dims[2])) {
    return context.InputError("X", absl::StrCat(columns[2], " positions of the window"));
  }
  context.SetOutput("Y", {x.dtype, image});
  return absl::OkStatus();
}

}  // namespace

void AddUnfoldSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("unfold", "X -> Y")
                  .RequiredAttr("dilations", Ints{})
                  .RequiredAttr("kernel_sizes", Ints{})
                  .RequiredAttr("paddings", Ints{})
                  .RequiredAttr("strides", Ints{})
                  .Infer(IfKnown("X", InferUnfold))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              {{"X"}, {"Y"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("fold", "X -> Y")
                  .RequiredAttr("dilations", Ints{})
                  .RequiredAttr("kernel_sizes", Ints{})
                  .RequiredAttr("output_sizes", Ints{})
                  .RequiredAttr("paddings", Ints{})
                  .RequiredAttr("strides", Ints{})
                  .Infer(IfKnown("X", InferFold))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              {{"X"}, {"Y"}, {"X"}});
}

}  // namespace weft
