// Overlapping parts of a signal.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Along the last axis, frames are columns; along the first, rows.
absl::StatusOr<Dims> FramedDims(const InferContext& context, const Dims& x) {
  WEFT_RETURN_IF_ERROR(CheckPositive(context, {"frame_length", "hop_length"}));
  const int64_t axis = context.attrs().Int("axis");
  if (axis != 0 && axis != -1) return context.AttrError("axis", "0 or -1", absl::StrCat(axis));
  if (x.empty()) return context.InputError("X", "at least one dimension");
  const int64_t length = context.attrs().Int("frame_length");
  const int64_t size = axis == 0 ? x.front() : x.back();
  if (size != -1 && size < length) {
    return context.InputError("X", absl::StrCat("at least ", length, " elements along the axis"));
  }
  const int64_t count = size == -1 ? -1 : 1 + (size - length) / context.attrs().Int("hop_length");
  Dims dims = x;
  if (axis == 0) {
    dims.front() = length;
    dims.insert(dims.begin(), count);
  } else {
    dims.back() = length;
    dims.push_back(count);
  }
  return dims;
}

}  // namespace

void AddFrameSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("frame", "X -> Out")
                  .Attr("axis", -1)
                  .RequiredAttr("frame_length", 0)
                  .RequiredAttr("hop_length", 0)
                  .Infer(OutDims(FramedDims))
                  .Batch({batch::Frame, Powers::kFirst})
                  .Pir(),
              GradOfX());
}

}  // namespace weft
