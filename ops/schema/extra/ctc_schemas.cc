// Connectionist temporal classification.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

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

void AddCtcSchemas(OpSchemaTable* schemas) {
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
