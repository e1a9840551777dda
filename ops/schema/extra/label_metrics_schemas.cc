// Metrics of sequences of labels, which are padded: each has a length. Sequences of level-of-detail
// offsets have none, and no types here.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// A row of labels for each sequence.
absl::Status CheckPadded(const InferContext& context, const char* slot, const char* length,
                         const TensorType& labels) {
  if (labels.dims.size() < 2 || !DimFits(Product(absl::MakeConstSpan(labels.dims).subspan(2)), 1)) {
    return context.InputError(slot, absl::StrCat("[sequences, steps], with an input ", length));
  }
  if (!IsIndex(labels.dtype)) return context.InputError(slot, "int32 or int64");
  return CheckElements(context, length, labels.dims[0]);
}

absl::Status InferChunkEval(InferContext& context) {
  const TensorType* inference = context.Input("Inference");
  if (inference != nullptr && context.HasInput("SeqLength")) {
    WEFT_RETURN_IF_ERROR(CheckPadded(context, "Inference", "SeqLength", *inference));
    WEFT_RETURN_IF_ERROR(CheckDims(context, "Label", inference->dims));
  }
  for (const char* slot : {"Precision", "Recall", "F1-Score"}) {
    context.SetOutput(slot, {DType::kFloat32, {1}});
  }
  for (const char* slot : {"NumInferChunks", "NumLabelChunks", "NumCorrectChunks"}) {
    context.SetOutput(slot, {DType::kInt64, {1}});
  }
  return absl::OkStatus();
}

absl::Status InferEditDistance(InferContext& context, const TensorType& hyps) {
  if (!context.HasInput("HypsLength") || !context.HasInput("RefsLength")) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckPadded(context, "Hyps", "HypsLength", hyps));
  if (const TensorType* refs = context.Input("Refs")) {
    WEFT_RETURN_IF_ERROR(CheckPadded(context, "Refs", "RefsLength", *refs));
    WEFT_RETURN_IF_ERROR(CheckElements(context, "RefsLength", hyps.dims[0]));
  }
  context.SetOutput("Out", {DType::kFloat32, {hyps.dims[0], 1}});
  context.SetOutput("SequenceNum", {DType::kInt64, {1}});
  return absl::OkStatus();
}

absl::Status InferCtcAlign(InferContext& context, const TensorType& input) {
  if (!context.HasInput("InputLength")) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckPadded(context, "Input", "InputLength", input));
  context.SetOutput("Output", {input.dtype, {input.dims[0], input.dims[1]}});
  context.SetOutput("OutputLength", {input.dtype, {input.dims[0], 1}});
  return absl::OkStatus();
}

// SequenceNum stays unrelated: each rank counts its own sequences.
void EditDistance(BatchContext& context) {
  batch::Rows({"Hyps", "Refs", "HypsLength", "RefsLength"})(context);
  context.Set("SequenceNum", BatchRelation::Unrelated());
}

}  // namespace

void AddLabelMetricsSchemas(OpSchemaTable* schemas) {
  SlotSchema f1;  // its name is not one that text of slots can have
  f1.name = "F1-Score";
  schemas->Add(OpSchema("chunk_eval")
                   .In("Inference, Label, SeqLength?")
                   .Out(f1)
                   .Out("NumCorrectChunks, NumInferChunks, NumLabelChunks, Precision, Recall")
                   .Attr("chunk_scheme", "IOB", range::OneOf({"IOB", "IOE", "IOBES", "plain"}))
                   .Attr("excluded_chunk_types", Ints{})
                   .RequiredAttr("num_chunk_types", 1, range::AtLeast(0))
                   .Infer(InferChunkEval)
                   .Batch(batch::Unrelated(batch::kWholeResult)));
  schemas->Add(
      OpSchema("edit_distance", "Hyps, HypsLength?, Refs, RefsLength? -> Out~, SequenceNum~")
          .Attr("normalized", false)
          .Infer(IfKnown("Hyps", InferEditDistance))
          .Batch({EditDistance}));
  schemas->Add(OpSchema("ctc_align", "Input, InputLength? -> Output~, OutputLength?~")
                   .Attr("blank", 0)
                   .Attr("merge_repeated", true)
                   .Attr("padding_value", 0)
                   .Infer(IfKnown("Input", InferCtcAlign))
                   .Batch({batch::Rows({"Input", "InputLength"})}));
}

}  // namespace weft
