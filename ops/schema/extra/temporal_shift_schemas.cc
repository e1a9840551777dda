// Channels of video frames moved in time.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

OpSchema::InferFn Frames(const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t frames = context.attrs().Int("seg_num");
    if (frames < 1 || (x->dims[0] != -1 && x->dims[0] % frames != 0)) {
      return context.InputError(x_slot, absl::StrCat("rows in groups of ", frames, " frames"));
    }
    const double ratio = context.attrs().Float("shift_ratio");
    if (!(ratio >= 0 && ratio <= 0.5)) {
      return context.AttrError("shift_ratio", "0 to 0.5", absl::StrCat(ratio));
    }
    context.SetOutput(out_slot, *x);
    return absl::OkStatus();
  };
}

}  // namespace

void AddTemporalShiftSchemas(OpSchemaTable* schemas) {
  OpSchema frames = OpSchema("temporal_shift")
                        .In("X")
                        .Out("Out")
                        .Attr("data_format", "NCHW")
                        .RequiredAttr("seg_num", 1)
                        .Attr("shift_ratio", 0.25f)
                        .Infer(Frames("X", "Out"));
  schemas->Add(GradSchema(frames, "temporal_shift_grad", {{}, {"Out"}, {"X"}},
                          Frames("Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(frames));
}

}  // namespace weft
