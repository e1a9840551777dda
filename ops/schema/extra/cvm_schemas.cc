// Counts of shows and clicks.
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
  AddWithGrad(schemas,
              OpSchema("cvm", "CVM, X -> Y")
                  .Attr("use_cvm", true)
                  .Infer(InOrder({SameDType("X", "CVM"), IfKnown("X", InferCvm)})),
              {{"CVM", "X"}, {"Y"}, {"X"}});
}

}  // namespace weft
