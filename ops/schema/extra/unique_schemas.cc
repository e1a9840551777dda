// Distinct elements.
#include <vector>

#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferUnique(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const DType dtype, IndexDTypeFromAttr(context, "dtype"));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const std::vector<int64_t> axes = attrs.Ints("axis");
  TensorType out = {x->dtype, {-1}};
  int64_t layers = Product(x->dims);
  if (axes.size() > 1) return context.AttrError("axis", "one or none", DimsToString(axes));
  if (!axes.empty()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", axes[0], x->dims.size()));
    layers = x->dims[axis];
    out.dims = x->dims;
    out.dims[axis] = -1;
  }
  context.SetOutput("Out", out);
  if (attrs.Bool("return_index")) context.SetOutput("Indices", {dtype, {-1}});
  if (attrs.Bool("return_inverse")) context.SetOutput("Index", {dtype, {layers}});
  if (attrs.Bool("return_counts")) context.SetOutput("Counts", {dtype, {-1}});
  return absl::OkStatus();
}

}  // namespace

void AddUniqueSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("unique", "X -> Counts?, Index?, Indices?, Out")
                   .Attr("axis", Ints{})
                   .Attr("dtype", kInt64)
                   .Attr("is_sorted", false)
                   .Attr("return_counts", false)
                   .Attr("return_index", false)
                   .Attr("return_inverse", false)
                   .Infer(InferUnique)
                   .Batch(batch::Unrelated(batch::kWholeResult))
                   .Pir("-> out, indices, inverse:Index, counts"));
}

}  // namespace weft
