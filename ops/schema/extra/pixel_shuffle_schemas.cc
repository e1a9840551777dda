// Channels and pixels rearranged.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Channels become r x r neighbours.
OpSchema::InferFn PixelShuffle(const char* factor, const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t r = context.attrs().Int(factor);
    const bool last = context.attrs().String("data_format") == "NHWC";
    TensorType out = *x;
    int64_t& channels = out.dims[last ? 3 : 1];
    if (r < 1 || (channels != -1 && channels % MulDim(r, r) != 0)) {
      return context.InputError(x_slot, absl::StrCat("a multiple of ", r, " x ", r, " channels"));
    }
    if (channels != -1) channels /= r * r;
    for (size_t d : {last ? 1 : 2, last ? 2 : 3}) out.dims[d] = MulDim(x->dims[d], r);
    context.SetOutput(out_slot, out);
    return absl::OkStatus();
  };
}

// r x r neighbours become channels.
OpSchema::InferFn PixelUnshuffle(const char* factor, const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t r = context.attrs().Int(factor);
    const bool last = context.attrs().String("data_format") == "NHWC";
    TensorType out = *x;
    out.dims[last ? 3 : 1] = MulDim(out.dims[last ? 3 : 1], MulDim(r, r));
    for (size_t d : {last ? 1 : 2, last ? 2 : 3}) {
      if (r < 1 || (out.dims[d] != -1 && out.dims[d] % r != 0)) {
        return context.InputError(x_slot, absl::StrCat("a multiple of ", r, " rows and columns"));
      }
      if (out.dims[d] != -1) out.dims[d] /= r;
    }
    context.SetOutput(out_slot, out);
    return absl::OkStatus();
  };
}

OpSchema::InferFn ChannelGroups(const char* attr, const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t group = context.attrs().Int(attr);
    const bool last =
        context.attrs().Has("data_format") && context.attrs().String("data_format") == "NHWC";
    const int64_t channels = x->dims[last ? 3 : 1];
    if (group < 1 || (channels != -1 && channels % group != 0)) {
      return context.InputError(x_slot, absl::StrCat("a multiple of ", group, " channels"));
    }
    context.SetOutput(out_slot, *x);
    return absl::OkStatus();
  };
}

}  // namespace

void AddPixelShuffleSchemas(OpSchemaTable* schemas) {
  OpSchema shuffle = OpSchema("pixel_shuffle")
                         .In("X")
                         .Out("Out")
                         .Attr("data_format", "NCHW")
                         .Attr("upscale_factor", 1)
                         .Infer(PixelShuffle("upscale_factor", "X", "Out"));
  schemas->Add(GradSchema(shuffle, "pixel_shuffle_grad", {{}, {"Out"}, {"X"}},
                          PixelUnshuffle("upscale_factor", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(shuffle));
  OpSchema channels = OpSchema("shuffle_channel")
                          .In("X")
                          .Out("Out")
                          .Attr("group", 1)
                          .Infer(ChannelGroups("group", "X", "Out"));
  schemas->Add(GradSchema(channels, "shuffle_channel_grad", {{}, {"Out"}, {"X"}},
                          ChannelGroups("group", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(channels));
  OpSchema unshuffle = OpSchema("pixel_unshuffle")
                           .In("X")
                           .Out("Out")
                           .Attr("data_format", "NCHW")
                           .Attr("downscale_factor", 1)
                           .Infer(PixelUnshuffle("downscale_factor", "X", "Out"));
  schemas->Add(GradSchema(unshuffle, "pixel_unshuffle_grad", {{}, {"Out"}, {"X"}},
                          PixelShuffle("downscale_factor", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(unshuffle));
  OpSchema mixed = OpSchema("channel_shuffle")
                       .In("X")
                       .Out("Out")
                       .Attr("data_format", "NCHW")
                       .Attr("groups", 1)
                       .Infer(ChannelGroups("groups", "X", "Out"));
  schemas->Add(GradSchema(mixed, "channel_shuffle_grad", {{}, {"Out"}, {"X"}},
                          ChannelGroups("groups", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(mixed));
}

}  // namespace weft
