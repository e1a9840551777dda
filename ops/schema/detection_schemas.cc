// Detection of objects: features of regions, convolutions with moving windows, YOLO.
#include <initializer_list>
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

constexpr int kOptional = OpSchema::kOptional;

absl::Status CheckImage(const InferContext& context, const char* slot) {
  const TensorType* x = context.Input(slot);
  if (x == nullptr || x->dims.size() == 4) return absl::OkStatus();
  return context.InputError(slot, "four dimensions (batch, channels, height, width)");
}

absl::Status CheckDims(const InferContext& context, const char* slot, const Dims& dims) {
  const TensorType* type = context.Input(slot);
  if (type == nullptr || DimsFit(type->dims, dims)) return absl::OkStatus();
  return context.InputError(slot, absl::StrCat("dimensions ", DimsToString(dims)));
}

absl::Status CheckPositive(const InferContext& context, std::initializer_list<const char*> attrs) {
  for (const char* name : attrs) {
    const int64_t value = context.attrs().Int(name);
    if (value < 1 || value > kMaxElements) {
      return context.AttrError(name, "a positive number", absl::StrCat(value));
    }
  }
  return absl::OkStatus();
}

// --- Regions -------------------------------------------------------------------------------------

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

// RoisNum stands for the LoD that ROIs has without it.
OpSchema RegionsSchema(std::string type) {
  return OpSchema(std::move(type))
      .In("ROIs")
      .In("RoisNum")
      .In("X")
      .Attr("pooled_height", 1)
      .Attr("pooled_width", 1)
      .Attr("spatial_scale", 1.0f)
      .Infer(InOrder({SameDType("X", "ROIs"), InferRegions}));
}

void AddRegions(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      RegionsSchema("roi_align").Out("Out").Attr("aligned", false).Attr("sampling_ratio", -1),
      {{"ROIs", "RoisNum", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas, RegionsSchema("roi_pool").Out("Argmax").Out("Out"),
              {{"Argmax", "ROIs", "RoisNum", "X"}, {"Out"}, {"X"}});
}

// --- Deformable convolution ----------------------------------------------------------------------

// Offset has a movement down and across, and Mask a weight, for each element of the window in each
// group of channels.
absl::Status InferDeformableConv(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckPositive(context, {"groups", "deformable_groups"}));
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

void AddDeformableConv(OpSchemaTable* schemas) {
  for (const bool has_mask : {true, false}) {
    OpSchema op =
        OpSchema(has_mask ? "deformable_conv" : "deformable_conv_v1").In("Filter").In("Input");
    if (has_mask) std::move(op).In("Mask");
    std::move(op)
        .In("Offset")
        .Out("Output")
        .Attr("deformable_groups", 1)
        .Attr("dilations", Ints{1, 1})
        .Attr("groups", 1)
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

// --- YOLO ----------------------------------------------------------------------------------------

absl::Status CheckAnchors(const InferContext& context) {
  const std::vector<int64_t> anchors = context.attrs().Ints("anchors");
  if (anchors.empty() || anchors.size() % 2 != 0) {
    return context.AttrError("anchors", "pairs of width and height", DimsToString(anchors));
  }
  for (int64_t size : anchors) {
    if (size < 1) return context.AttrError("anchors", "positive sizes", DimsToString(anchors));
  }
  return CheckPositive(context, {"class_num", "downsample_ratio"});
}

// Programs of Paddle declare GTMatchMask with another element type than it has, so that nothing is
// said of it here.
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

void AddYolo(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("yolov3_loss")
          .In("GTBox")
          .In("GTLabel")
          .In("GTScore", kOptional)
          .In("X")
          .Out("GTMatchMask")
          .Out("Loss")
          .Out("ObjectnessMask")
          .RequiredAttr("anchor_mask", Ints{})
          .RequiredAttr("anchors", Ints{})
          .RequiredAttr("class_num", 1)
          .Attr("downsample_ratio", 32)
          .Attr("ignore_thresh", 0.7f)
          .Attr("scale_x_y", 1.0f)
          .Attr("use_label_smooth", true)
          .Infer(InOrder({SameDType("X", "GTBox"), SameDType("X", "GTScore"), InferYoloLoss})),
      {{"GTBox", "GTLabel", "GTMatchMask", "GTScore", "ObjectnessMask", "X"},
       {"Loss"},
       {"GTBox", "GTLabel", "GTScore", "X"}});
  schemas->Add(OpSchema("yolo_box")
                   .In("ImgSize")
                   .In("X")
                   .Out("Boxes")
                   .Out("Scores")
                   .RequiredAttr("anchors", Ints{})
                   .RequiredAttr("class_num", 1)
                   .Attr("clip_bbox", true)
                   .Attr("conf_thresh", 0.01f)
                   .Attr("downsample_ratio", 32)
                   .Attr("iou_aware", false)
                   .Attr("iou_aware_factor", 0.5f)
                   .Attr("scale_x_y", 1.0f)
                   .With(Trait::kRowSplittable)
                   .Infer(InferYoloBox));
}

}  // namespace

void AddDetectionSchemas(OpSchemaTable* schemas) {
  AddRegions(schemas);
  AddDeformableConv(schemas);
  AddYolo(schemas);
}

}  // namespace weft
