// Channels and pixels rearranged.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

struct Image {
  int64_t factor;
  size_t channels, rows, columns;  // dimensions
};

absl::StatusOr<Image> ReadImage(const InferContext& context, const char* slot, const TensorType& x,
                                const char* factor) {
  if (x.dims.size() != 4) return context.InputError(slot, "four dimensions");
  const OpAttrs& attrs = context.attrs();
  const bool last = attrs.Has("data_format") && attrs.String("data_format") == "NHWC";
  return Image{attrs.Int(factor), last ? 3u : 1u, last ? 1u : 2u, last ? 2u : 3u};
}

// Channels become r x r neighbours.
OpSchema::InferFn PixelShuffle(const char* factor, const char* x_slot, const char* out_slot) {
  return IfKnown(x_slot, [=](InferContext& context, const TensorType& x) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Image image, ReadImage(context, x_slot, x, factor));
    const int64_t r = image.factor;
    TensorType out = x;
    int64_t& channels = out.dims[image.channels];
    if (r < 1 || (channels != -1 && channels % MulDim(r, r) != 0)) {
      return context.InputError(x_slot, absl::StrCat("a multiple of ", r, " x ", r, " channels"));
    }
    if (channels != -1) channels /= r * r;
    for (size_t d : {image.rows, image.columns}) out.dims[d] = MulDim(x.dims[d], r);
    context.SetOutput(out_slot, out);
    return absl::OkStatus();
  });
}

// r x r neighbours become channels.
OpSchema::InferFn PixelUnshuffle(const char* factor, const char* x_slot, const char* out_slot) {
  return IfKnown(x_slot, [=](InferContext& context, const TensorType& x) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Image image, ReadImage(context, x_slot, x, factor));
    const int64_t r = image.factor;
    TensorType out = x;
    out.dims[image.channels] = MulDim(x.dims[image.channels], MulDim(r, r));
    for (size_t d : {image.rows, image.columns}) {
      if (r < 1 || (out.dims[d] != -1 && out.dims[d] % r != 0)) {
        return context.InputError(x_slot, absl::StrCat("a multiple of ", r, " rows and columns"));
      }
      if (out.dims[d] != -1) out.dims[d] /= r;
    }
    context.SetOutput(out_slot, out);
    return absl::OkStatus();
  });
}

// Only the order of the channels changes.
OpSchema::InferFn ChannelGroups(const char* factor, const char* x_slot) {
  const auto check = [=](InferContext& context, const TensorType& x) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Image image, ReadImage(context, x_slot, x, factor));
    const int64_t channels = x.dims[image.channels];
    if (image.factor < 1 || (channels != -1 && channels % image.factor != 0)) {
      return context.InputError(x_slot, absl::StrCat("a multiple of ", image.factor, " channels"));
    }
    return absl::OkStatus();
  };
  return InOrder({IfKnown(x_slot, check), OutputsLike(x_slot)});
}

}  // namespace

void AddPixelShuffleSchemas(OpSchemaTable* schemas) {
  const GradSlots grad = {{}, {"Out"}, {"X"}};
  AddWithGrad(schemas,
              OpSchema("pixel_shuffle", "X -> Out")
                  .Attr("data_format", "NCHW")
                  .Attr("upscale_factor", 1)
                  .Infer(PixelShuffle("upscale_factor", "X", "Out"))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              grad, PixelUnshuffle("upscale_factor", "Out@GRAD", "X@GRAD"));
  AddWithGrad(schemas,
              OpSchema("pixel_unshuffle", "X -> Out")
                  .Attr("data_format", "NCHW")
                  .Attr("downscale_factor", 1)
                  .Infer(PixelUnshuffle("downscale_factor", "X", "Out"))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              grad, PixelShuffle("downscale_factor", "Out@GRAD", "X@GRAD"));
  AddWithGrad(schemas,
              OpSchema("shuffle_channel", "X -> Out")
                  .Attr("group", 1)
                  .Infer(ChannelGroups("group", "X"))
                  .Batch({batch::Rows({"X"}), Powers::kFirst}),
              grad, ChannelGroups("group", "Out@GRAD"));
  AddWithGrad(schemas,
              OpSchema("channel_shuffle", "X -> Out")
                  .Attr("data_format", "NCHW")
                  .Attr("groups", 1)
                  .Infer(ChannelGroups("groups", "X"))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              grad, ChannelGroups("groups", "Out@GRAD"));
}

}  // namespace weft
