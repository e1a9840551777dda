// Features of regions of images.
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferRegions(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  WEFT_RETURN_IF_ERROR(CheckPositive(context, {"pooled_height", "pooled_width"}));
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
      .Attr("pooled_height", 1)
      .Attr("pooled_width", 1)
      .Attr("spatial_scale", 1.0f)
      .Infer(InOrder({SameDType("X", "ROIs"), InferRegions}));
}

}  // namespace

void AddRoiPoolingSchemas(OpSchemaTable* schemas) {
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
