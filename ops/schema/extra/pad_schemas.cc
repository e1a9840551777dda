// Padding.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The dimensions plus, or (sign -1) minus, the paddings before and after.
absl::StatusOr<Dims> PaddedDims(const InferContext& context, const Dims& x, int sign) {
  const std::vector<int64_t> paddings = context.attrs().Ints("paddings");
  WEFT_RETURN_IF_ERROR(CheckSameLength(context, "paddings", 2 * x.size()));
  Dims dims = x;
  for (size_t d = 0; d < x.size(); ++d) {
    if (paddings[2 * d] < 0 || paddings[2 * d + 1] < 0) {
      return context.AttrError("paddings", "numbers of at least 0", DimsToString(paddings));
    }
    if (x[d] != -1) dims[d] += sign * (paddings[2 * d] + paddings[2 * d + 1]);
    if (dims[d] < -1) return context.InputError("Out@GRAD", "dimensions larger than the paddings");
  }
  return dims;
}

absl::Status InferPadGrad(InferContext& context, const TensorType& grad) {
  WEFT_ASSIGN_OR_RETURN(const Dims dims, PaddedDims(context, grad.dims, -1));
  context.SetOutput("X@GRAD", {grad.dtype, dims});
  return absl::OkStatus();
}

// paddings: before and after, for the last dimension of space first.
absl::Status InferPad3d(InferContext& context, const TensorType& x) {
  if (HasAttrInput(context)) return absl::OkStatus();
  if (x.dims.size() != 5) return context.InputError("X", "five dimensions");
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  if (paddings.size() != 6) {
    return context.AttrError("paddings", "six numbers", DimsToString(paddings));
  }
  const std::string& mode = attrs.String("mode");
  const size_t first = attrs.String("data_format") == "NDHWC" ? 1 : 2;
  TensorType out = x;
  for (size_t s = 0; s < 3; ++s) {
    const int64_t before = paddings[4 - 2 * s], after = paddings[5 - 2 * s];
    int64_t& dim = out.dims[first + s];
    if (dim == -1) continue;
    const bool repeats = mode != "constant" && (before > 0 || after > 0);
    const bool reflects = mode == "reflect" && (before >= dim || after >= dim);
    if (before > kMaxElements || after > kMaxElements || dim + before + after < 0 ||
        (repeats && dim == 0) || reflects) {
      return context.AttrError("paddings", absl::StrCat("paddings of ", DimsToString(x.dims)),
                               DimsToString(paddings));
    }
    dim += before + after;
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddPadSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("pad", "X -> Out")
                  .Attr("pad_value", 0.0f)
                  .RequiredAttr("paddings", Ints{})
                  .Infer(OutDims([](const InferContext& context, const Dims& x) {
                    return PaddedDims(context, x, 1);
                  }))
                  .Batch({batch::Pad})
                  .Pir("(x, @pad_value)", "(x:-, out_grad, @pad_value)"),
              {{}, {"Out"}, {"X"}}, IfKnown("Out@GRAD", InferPadGrad));
  AddWithGrad(
      schemas,
      OpSchema("pad3d", "Paddings{paddings}, X -> Out")
          .Attr("data_format", "NCDHW", range::OneOf({"NCDHW", "NDHWC"}))
          .Attr("mode", "constant", range::OneOf({"constant", "reflect", "replicate", "circular"}))
          .Attr("paddings", Ints{})
          .Attr("value", 0.0f)
          .Infer(IfKnown("X", InferPad3d))
          .Batch({batch::Rows({"X"})})
          .Pir("(x, @paddings) {pad_value=value}"),
      {{"X"}, {"Out"}, {"X"}});
}

}  // namespace weft
