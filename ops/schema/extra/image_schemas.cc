// Channels, regions and frames of images.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// --- The largest of each group of channels ------------------------------------------------------

absl::Status InferMaxout(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", x.dims.size()));
  const int64_t groups = context.attrs().Int("groups");
  if (groups < 1 || (x.dims[axis] != -1 && x.dims[axis] % groups != 0)) {
    return context.AttrError("groups", absl::StrCat("a divisor of ", x.dims[axis]),
                             absl::StrCat(groups));
  }
  TensorType out = x;
  if (out.dims[axis] != -1) out.dims[axis] /= groups;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// --- The inverse of max pooling -----------------------------------------------------------------

// Each element of X at the index in its channel that Indices holds.
absl::Status InferUnpool(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 4) return context.InputError("X", "four dimensions");
  const std::string& format = context.attrs().String("data_format");
  if (format != "NCHW") return context.AttrError("data_format", "NCHW", format);
  WEFT_ASSIGN_OR_RETURN(const auto size, ReadPositive(context.attrs(), "output_size", 2));
  context.SetOutput("Out", {x.dtype, {x.dims[0], x.dims[1], size[0], size[1]}});
  return absl::OkStatus();
}

// --- Channels of video frames moved in time -----------------------------------------------------

OpSchema::InferFn Frames(const char* slot) {
  const auto check = [=](InferContext& context, const TensorType& x) -> absl::Status {
    if (x.dims.size() != 4) return context.InputError(slot, "four dimensions");
    const int64_t frames = context.attrs().Int("seg_num");
    if (frames < 1 || (x.dims[0] != -1 && x.dims[0] % frames != 0)) {
      return context.InputError(slot, absl::StrCat("rows in groups of ", frames, " frames"));
    }
    return absl::OkStatus();
  };
  return InOrder({IfKnown(slot, check), OutputsLike(slot)});
}

// --- Features of regions of images --------------------------------------------------------------

absl::Status InferRegions(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  WEFT_RETURN_IF_ERROR(CheckImage(context, "X"));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "ROIs", {-1, 4}));
  const TensorType* x = context.Input("X");
  const TensorType* rois = context.Input("ROIs");
  if (x == nullptr || rois == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckDims(context, "RoisNum", {x->dims[0]}));
  const Dims out = {rois->dims[0], x->dims[1], attrs.Int("pooled_height"),
                    attrs.Int("pooled_width")};
  context.SetOutput("Out", {x->dtype, out});
  context.SetOutput("Argmax", {DType::kInt64, out});
  return absl::OkStatus();
}

// RoisNum replaces the LoD of ROIs.
OpSchema Regions(const char* type, const char* outputs) {
  return OpSchema(type, "ROIs, RoisNum+, X")
      .Out(outputs)
      .Attr("pooled_height", 1, range::AtLeast(1))
      .Attr("pooled_width", 1, range::AtLeast(1))
      .Attr("spatial_scale", 1.0f)
      .Infer(InOrder({SameDType("X", "ROIs"), InferRegions}));
}

}  // namespace

void AddImageSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("maxout", "X -> Out")
                  .Attr("axis", 1)
                  .RequiredAttr("groups", 1)
                  .Infer(IfKnown("X", InferMaxout))
                  .Batch({batch::Rows({"X"})})
                  .Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("unpool", "Indices, X -> Out")
                  .Attr("data_format", "NCHW")
                  .RequiredAttr("ksize", Ints{})
                  .Attr("output_size", Ints{})
                  .Attr("paddings", Ints{})
                  .Attr("strides", Ints{})
                  .Attr("unpooling_type", "max")
                  .Infer(InOrder({SameDims("Indices", "X"), IfKnown("X", InferUnpool)}))
                  .Batch({batch::Planes({"X", "Indices"})})
                  .Pir("(x, indices, @output_size) {padding=paddings}"),
              {{"Indices", "Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("temporal_shift", "X -> Out")
                  .Attr("data_format", "NCHW")
                  .RequiredAttr("seg_num", 1)
                  .Attr("shift_ratio", 0.25f, range::Between(0, 0.5))
                  .Infer(Frames("X"))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              {{}, {"Out"}, {"X"}}, Frames("Out@GRAD"));
  AddWithGrad(schemas,
              Regions("roi_align", "Out")
                  .Attr("aligned", false)
                  .Attr("sampling_ratio", -1)
                  .Batch(batch::Unrelated(batch::kNotNeeded))
                  .Pir("(x, boxes:ROIs, boxes_num:RoisNum?)"),
              {{"ROIs", "RoisNum+", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              Regions("roi_pool", "Argmax~, Out")
                  .Batch(batch::Unrelated(batch::kNotNeeded))
                  .Pir("(x, boxes:ROIs, boxes_num:RoisNum?) -> out, arg_max"),
              {{"Argmax", "ROIs", "RoisNum+", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
