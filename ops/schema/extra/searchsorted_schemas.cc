// Binary search in sorted rows.
#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferSearchSorted(InferContext& context) {
  const TensorType* sequence = context.Input("SortedSequence");
  const TensorType* values = context.Input("Values");
  if (sequence == nullptr || values == nullptr) return absl::OkStatus();
  if (sequence->dims.empty()) return context.InputError("SortedSequence", "at least one dimension");
  if (sequence->dims.size() > 1) {
    Dims expected = sequence->dims;
    expected.back() = -1;
    if (!DimsFit(values->dims, expected)) {
      return context.InputError("Values", absl::StrCat("dimensions ", DimsToString(expected)));
    }
  }
  const bool narrow = context.attrs().Bool("out_int32");
  context.SetOutput("Out", {narrow ? DType::kInt32 : DType::kInt64, values->dims});
  return absl::OkStatus();
}

}  // namespace

void AddSearchsortedSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("searchsorted")
                   .In("SortedSequence")
                   .In("Values")
                   .Out("Out")
                   .Attr("out_int32", false)
                   .Attr("right", false)
                   .Infer(InOrder({SameDType("SortedSequence", "Values"), InferSearchSorted})));
}

}  // namespace weft
