// Losses and boxes of YOLO v3.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckAnchors(const InferContext& context) {
  const std::vector<int64_t> anchors = context.attrs().Ints("anchors");
  if (anchors.empty() || anchors.size() % 2 != 0) {
    return context.AttrError("anchors", "pairs of width and height", DimsToString(anchors));
  }
  return absl::OkStatus();
}

// GTMatchMask stays unset: Paddle's programs declare it with another element type than it has.
absl::Status InferYoloLoss(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckAnchors(context));
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> mask = attrs.Ints("anchor_mask");
  const auto anchors = static_cast<int64_t>(attrs.Ints("anchors").size() / 2);
  for (int64_t anchor : mask) {
    if (anchor < 0 || anchor >= anchors) {
      return context.AttrError("anchor_mask", absl::StrCat("numbers of ", anchors, " anchors"),
                               DimsToString(mask));
    }
  }
  WEFT_RETURN_IF_ERROR(CheckImage(context, "X"));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const auto masks = static_cast<int64_t>(mask.size());
  WEFT_RETURN_IF_ERROR(
      CheckDims(context, "X", {-1, MulDim(masks, 5 + attrs.Int("class_num")), -1, -1}));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "GTBox", {x->dims[0], -1, 4}));
  const TensorType* boxes = context.Input("GTBox");
  const Dims of_boxes = {x->dims[0], boxes == nullptr ? -1 : boxes->dims[1]};
  WEFT_RETURN_IF_ERROR(CheckDims(context, "GTLabel", of_boxes));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "GTScore", of_boxes));
  context.SetOutput("Loss", {x->dtype, {x->dims[0]}});
  context.SetOutput("ObjectnessMask", {x->dtype, {x->dims[0], masks, x->dims[2], x->dims[3]}});
  return absl::OkStatus();
}

absl::Status InferYoloBox(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckAnchors(context));
  WEFT_RETURN_IF_ERROR(CheckImage(context, "X"));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  const auto anchors = static_cast<int64_t>(attrs.Ints("anchors").size() / 2);
  const int64_t classes = attrs.Int("class_num");
  const int64_t entries = classes + (attrs.Bool("iou_aware") ? 6 : 5);
  WEFT_RETURN_IF_ERROR(CheckDims(context, "X", {-1, MulDim(anchors, entries), -1, -1}));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "ImgSize", {x->dims[0], 2}));
  const int64_t boxes = MulDim(MulDim(x->dims[2], x->dims[3]), anchors);
  context.SetOutput("Boxes", {x->dtype, {x->dims[0], boxes, 4}});
  context.SetOutput("Scores", {x->dtype, {x->dims[0], boxes, classes}});
  return absl::OkStatus();
}

}  // namespace

void AddYoloSchemas(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("yolov3_loss", "GTBox, GTLabel, GTScore?, X -> GTMatchMask~, Loss, ObjectnessMask~")
          .RequiredAttr("anchor_mask", Ints{})
          .RequiredAttr("anchors", Ints{}, range::AtLeast(1))
          .RequiredAttr("class_num", 1, range::AtLeast(1))
          .Attr("downsample_ratio", 32, range::AtLeast(1))
          .Attr("ignore_thresh", 0.7f)
          .Attr("scale_x_y", 1.0f)
          .Attr("use_label_smooth", true)
          .Infer(InOrder({SameDType("X", "GTBox"), SameDType("X", "GTScore"), InferYoloLoss}))
          .Batch({batch::Rows({"X", "GTBox", "GTLabel", "GTScore"})}),
      {{"GTBox", "GTLabel", "GTMatchMask", "GTScore", "ObjectnessMask", "X"},
       {"Loss"},
       {"GTBox", "GTLabel", "GTScore", "X"}});
  schemas->Add(OpSchema("yolo_box", "ImgSize, X -> Boxes, Scores")
                   .RequiredAttr("anchors", Ints{}, range::AtLeast(1))
                   .RequiredAttr("class_num", 1, range::AtLeast(1))
                   .Attr("clip_bbox", true)
                   .Attr("conf_thresh", 0.01f)
                   .Attr("downsample_ratio", 32, range::AtLeast(1))
                   .Attr("iou_aware", false)
                   .Attr("iou_aware_factor", 0.5f)
                   .Attr("scale_x_y", 1.0f)
                   .With(Trait::kRowSplittable)
                   .Infer(InferYoloBox)
                   .Batch({batch::Rows({"X", "ImgSize"})}));
}

}  // namespace weft
