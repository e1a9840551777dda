// Counts of shows and clicks.
#include <utility>

#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// CVM has two counts for each row of X. Y is like X; without use_cvm it has two columns fewer.
absl::Status InferCvm(InferContext& context, const TensorType& x) {
  const TensorType* counts = context.Input("CVM");
  if (x.dims.size() != 2 || (x.dims[1] != -1 && x.dims[1] < 2)) {
    return context.InputError("X", "a matrix of two columns or more");
  }
  if (counts != nullptr && !DimsFit(counts->dims, Dims{x.dims[0], 2})) {
    return context.InputError("CVM", "two columns, and as many rows as X has");
  }
  const bool keeps_counts = context.attrs().Bool("use_cvm");
  const int64_t columns = keeps_counts || x.dims[1] == -1 ? x.dims[1] : x.dims[1] - 2;
  context.SetOutput("Y", {x.dtype, {x.dims[0], columns}});
  return absl::OkStatus();
}

}  // namespace

void AddCvmSchemas(OpSchemaTable* schemas) {
  OpSchema cvm = OpSchema("cvm", "CVM, X -> Y")
                     .Attr("use_cvm", true)
                     .Infer(InOrder({SameDType("X", "CVM"), IfKnown("X", InferCvm)}))
                     .Batch({batch::Rows({"X", "CVM"})});
  // The gradients of the counts come from the samples, not from the loss.
  schemas->Add(GradSchema(cvm, "cvm_grad", {{"CVM", "X"}, {"Y"}, {"X"}}, GradOf(cvm.infer()))
                   .Algebra(Algebra::kNone));
  schemas->Add(std::move(cvm));
}

}  // namespace weft
