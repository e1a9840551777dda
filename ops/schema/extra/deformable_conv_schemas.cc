// Convolution whose window has learned offsets.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// For each element of the window in each group of channels, Offset has a movement down and across,
// and Mask a weight.
absl::Status InferDeformableConv(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(std::vector<Window> windows, ReadWindows(context.attrs(), 2));
  WEFT_RETURN_IF_ERROR(CheckImage(context, "Input"));
  WEFT_RETURN_IF_ERROR(CheckImage(context, "Filter"));
  const TensorType* input = context.Input("Input");
  const TensorType* filter = context.Input("Filter");
  if (input == nullptr || filter == nullptr) return absl::OkStatus();
  const int64_t groups = context.attrs().Int("groups");
  const int64_t deformable = context.attrs().Int("deformable_groups");
  const int64_t channels = input->dims[1];
  if (channels != -1 && (channels % groups != 0 || channels % deformable != 0)) {
    return context.InputError(
        "Input", absl::StrCat("channels a multiple of ", groups, " groups and ", deformable,
                              " deformable groups"));
  }
  if (!DimFits(MulDim(filter->dims[1], groups), channels) ||
      (filter->dims[0] != -1 && filter->dims[0] % groups != 0)) {
    return context.InputError("Filter",
                              absl::StrCat("for ", channels, " channels in ", groups, " groups"));
  }
  Dims out = {input->dims[0], filter->dims[0], -1, -1};
  for (size_t i = 0; i < 2; ++i) {
    windows[i].size = filter->dims[2 + i];
    const auto positions = NumPositions(input->dims[2 + i], windows[i], Rounding::kDown);
    if (!positions.has_value()) {
      return context.InputError("Input",
                                "an image that, padded, is at least as large as the window");
    }
    out[2 + i] = *positions;
  }
  const int64_t elements = MulDim(MulDim(filter->dims[2], filter->dims[3]), deformable);
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Offset", {out[0], MulDim(2, elements), out[2], out[3]}));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Mask", {out[0], elements, out[2], out[3]}));
  context.SetOutput("Output", {input->dtype, out});
  return absl::OkStatus();
}

}  // namespace

void AddDeformableConvSchemas(OpSchemaTable* schemas) {
  for (const bool has_mask : {true, false}) {
    OpSchema op = has_mask ? OpSchema("deformable_conv", "Filter, Input, Mask, Offset -> Output")
                                 .Batch({batch::Rows({"Input", "Offset", "Mask"})})
                                 .Pir("(x:Input, offset, filter, mask)")
                           : OpSchema("deformable_conv_v1", "Filter, Input, Offset -> Output")
                                 .Batch({batch::Rows({"Input", "Offset"})});
    std::move(op)
        .Attr("deformable_groups", 1, range::AtLeast(1))
        .Attr("dilations", Ints{1, 1})
        .Attr("groups", 1, range::AtLeast(1))
        .Attr("im2col_step", 64)
        .Attr("paddings", Ints{0, 0})
        .Attr("strides", Ints{1, 1})
        .With(Trait::kRowSplittable)
        .Infer(InOrder({SameDType("Input", "Filter"), SameDType("Input", "Offset"),
                        SameDType("Input", "Mask"), InferDeformableConv}));
    std::vector<std::string> inputs = {"Filter", "Input", "Offset"};
    if (has_mask) inputs.insert(inputs.begin() + 2, "Mask");
    AddWithGrad(schemas, std::move(op), {inputs, {"Output"}, inputs});
  }
}

}  // namespace weft
