// Channels of video frames moved in time.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

OpSchema::InferFn Frames(const char* slot) {
  const auto check = [=](InferContext& context, const TensorType& x) -> absl::Status {
    if (x.dims.size() != 4) return context.InputError(slot, "four dimensions");
    const int64_t frames = context.attrs().Int("seg_num");
    if (frames < 1 || (x.dims[0] != -1 && x.dims[0] % frames != 0)) {
      return context.InputError(slot, absl::StrCat("rows in groups of ", frames, " frames"));
    }
    const double ratio = context.attrs().Float("shift_ratio");
    if (ratio >= 0 && ratio <= 0.5) return absl::OkStatus();
    return context.AttrError("shift_ratio", "0 to 0.5", absl::StrCat(ratio));
  };
  return InOrder({IfKnown(slot, check), OutputsLike(slot)});
}

}  // namespace

void AddTemporalShiftSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("temporal_shift", "X -> Out")
                  .Attr("data_format", "NCHW")
                  .RequiredAttr("seg_num", 1)
                  .Attr("shift_ratio", 0.25f)
                  .Infer(Frames("X"))
                  .Batch({batch::Rows({"X"}), Powers::kFirst})
                  .Pir(),
              {{}, {"Out"}, {"X"}}, Frames("Out@GRAD"));
}

}  // namespace weft
