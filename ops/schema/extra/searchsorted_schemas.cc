// Binary search in sorted rows.
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferSearchSorted(InferContext& context, const TensorType& sequence,
                               const TensorType& values) {
  if (sequence.dims.empty()) return context.InputError("SortedSequence", "at least one dimension");
  if (sequence.dims.size() > 1) {
    Dims expected = sequence.dims;
    expected.back() = -1;
    WEFT_RETURN_IF_ERROR(CheckDims(context, "Values", expected));
  }
  const bool narrow = context.attrs().Bool("out_int32");
  context.SetOutput("Out", {narrow ? DType::kInt32 : DType::kInt64, values.dims});
  return absl::OkStatus();
}

}  // namespace

void AddSearchsortedSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("searchsorted", "SortedSequence, Values -> Out")
                   .Attr("out_int32", false)
                   .Attr("right", false)
                   .Infer(InOrder({SameDType("SortedSequence", "Values"),
                                   IfKnown("SortedSequence", "Values", InferSearchSorted)}))
                   .Batch({batch::Lookup("Values")})
                   .Pir());
}

}  // namespace weft
