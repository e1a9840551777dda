// Connectionist temporal classification.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// WarpCTCGrad is like Logits. Programs of Paddle declare it without dims, so that nothing is said
// of it here.
absl::Status InferWarpCtc(InferContext& context) {
  const TensorType* logits = context.Input("Logits");
  const TensorType* label = context.Input("Label");
  // Otherwise their LoD splits the sequences.
  const bool is_padded = context.HasInput("LogitsLength") && context.HasInput("LabelLength");
  if (logits == nullptr || !is_padded) return absl::OkStatus();
  if (logits->dims.size() != 3) return context.InputError("Logits", "[time, batch, classes]");
  const int64_t batch = logits->dims[1], classes = logits->dims[2];
  if (label != nullptr && !DimsFit(label->dims, {batch, -1})) {
    return context.InputError("Label", absl::StrCat("[", batch, ", length]"));
  }
  const int64_t blank = context.attrs().Int("blank");
  if (blank < 0 || (classes != -1 && blank >= classes)) {
    return context.AttrError("blank", absl::StrCat("a class of ", classes), absl::StrCat(blank));
  }
  context.SetOutput("Loss", {logits->dtype, {batch, 1}});
  return absl::OkStatus();
}

}  // namespace

void AddCtcSchemas(OpSchemaTable* schemas) {
  OpSchema ctc = OpSchema("warpctc")
                     .In("Label")
                     .In("LabelLength", OpSchema::kOptional)
                     .In("Logits")
                     .In("LogitsLength", OpSchema::kOptional)
                     .Out("Loss")
                     .Out("WarpCTCGrad", OpSchema::kOptional | OpSchema::kLooseType)
                     .Attr("blank", 0)
                     .Attr("norm_by_times", false)
                     .Infer(InferWarpCtc);
  schemas->Add(GradSchema(ctc, "warpctc_grad",
                          {{"Logits", "LogitsLength", "WarpCTCGrad"}, {"Loss"}, {"Logits"}},
                          GradsLikeInputs()));
  schemas->Add(std::move(ctc));
}

}  // namespace weft
