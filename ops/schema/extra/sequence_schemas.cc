// Signals and sequences in time: frames, convolution, connectionist temporal classification.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Convolution along time that looks ahead ----------------------------------------------------

// X is [batch, time, features]; before version 2.5 also [time of all sequences, features], with
// level-of-detail offsets. Filter has a row for the present time step and for each one ahead.
absl::Status CheckRowConv(InferContext& context, const TensorType& x) {
  const TensorType* filter = context.Input("Filter");
  const bool has_offsets = x.dims.size() == 2 && IsBefore(context.attrs().version(), kPaddle2_5);
  if (x.dims.size() != 3 && !has_offsets) return context.InputError("X", "[batch, time, features]");
  if (filter != nullptr && !DimsFit(filter->dims, {-1, x.dims.back()})) {
    return context.InputError("Filter", absl::StrCat("rows of ", x.dims.back(), " features"));
  }
  return absl::OkStatus();
}

// --- Overlapping parts of a signal --------------------------------------------------------------

// Along the last axis, frames are columns; along the first, rows.
absl::StatusOr<Dims> FramedDims(const InferContext& context, const Dims& x) {
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

// --- Connectionist temporal classification ------------------------------------------------------

// WarpCTCGrad is like Logits. It stays unset: Paddle's programs declare it without dims.
absl::Status InferWarpCtc(InferContext& context, const TensorType& logits) {
  const TensorType* label = context.Input("Label");
  // Without lengths, the LoD of the inputs splits the sequences.
  if (!context.HasInput("LogitsLength") || !context.HasInput("LabelLength")) {
    return absl::OkStatus();
  }
  if (logits.dims.size() != 3) return context.InputError("Logits", "[time, batch, classes]");
  const int64_t batch = logits.dims[1], classes = logits.dims[2];
  if (label != nullptr && !DimsFit(label->dims, {batch, -1})) {
    return context.InputError("Label", absl::StrCat("[", batch, ", length]"));
  }
  const int64_t blank = context.attrs().Int("blank");
  if (blank < 0 || (classes != -1 && blank >= classes)) {
    return context.AttrError("blank", absl::StrCat("a class of ", classes), absl::StrCat(blank));
  }
  context.SetOutput("Loss", {logits.dtype, {batch, 1}});
  return absl::OkStatus();
}

}  // namespace

void AddSequenceSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("row_conv", "Filter, X -> Out")
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder(
                      {SameDType("X", "Filter"), IfKnown("X", CheckRowConv), Like("X", {"Out"})}))
                  .Batch({batch::Rows({"X"}), Powers::kProduct}),
              {{"Filter", "X"}, {"Out"}, {"Filter", "X"}});
  AddWithGrad(schemas,
              OpSchema("frame", "X -> Out")
                  .Attr("axis", -1)
                  .RequiredAttr("frame_length", 0, range::AtLeast(1))
                  .RequiredAttr("hop_length", 0, range::AtLeast(1))
                  .Infer(OutDims(FramedDims))
                  .Batch({batch::Frame, Powers::kFirst})
                  .Pir(),
              GradOfX());
  AddWithGrad(
      schemas,
      OpSchema("warpctc", "Label, LabelLength?, Logits, LogitsLength? -> Loss, WarpCTCGrad?~")
          .Attr("blank", 0)
          .Attr("norm_by_times", false)
          .Infer(IfKnown("Logits", InferWarpCtc))
          .Batch({batch::Ctc, Powers::kNone, "Logits"})
          .Pir("(logits, label, logits_length, labels_length:LabelLength) -> loss, warpctcgrad"),
      {{"Logits", "LogitsLength", "WarpCTCGrad"}, {"Loss"}, {"Logits"}}, GradsLikeInputs());
}

}  // namespace weft
