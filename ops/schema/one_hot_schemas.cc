// Indices as one-hot vectors.
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferOneHot(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr || HasAttrInput(context)) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type",
                             absl::StrCat(attrs.Int("dtype")));
  }
  if (attrs.Int("depth") < 1 || attrs.Int("depth") > kMaxElements) {
    return context.AttrError("depth", "1 or more", absl::StrCat(attrs.Int("depth")));
  }
  TensorType out = {*dtype, x->dims};
  out.dims.push_back(attrs.Int("depth"));
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddOneHotSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("one_hot_v2")
                   .In("X")
                   .AttrIn("depth_tensor", {"depth"})
                   .Out("Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1)
                   .Attr("dtype", static_cast<int>(DType::kFloat32))
                   .Infer(InferOneHot));
}

}  // namespace weft
