// ReLU with a trained slope.
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// One slope for all elements, for each channel, or for each element of a sample.
absl::Status InferPrelu(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* alpha = context.Input("Alpha");
  if (x == nullptr) return absl::OkStatus();
  const std::string& mode = context.attrs().String("mode");
  const std::string& format = context.attrs().String("data_format");
  const size_t rank = x->dims.size();
  int64_t slopes = 1;
  if (mode == "channel") {
    if (rank < 2) return context.InputError("X", "channels");
    slopes = x->dims[format.back() == 'C' ? rank - 1 : 1];
  } else if (mode == "element") {
    if (rank < 1) return context.InputError("X", "samples");
    slopes = Product(absl::MakeConstSpan(x->dims).subspan(1));
  } else if (mode != "all") {
    return context.AttrError("mode", "all, channel or element", mode);
  }
  if (alpha != nullptr && !DimFits(Product(alpha->dims), slopes)) {
    return context.InputError("Alpha", absl::StrCat(slopes, " elements"));
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

}  // namespace

void AddPreluSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("prelu")
                  .In("Alpha")
                  .In("X")
                  .Out("Out")
                  .Attr("data_format", "NCHW")
                  .Attr("mode", "all")
                  .Infer(InOrder({SameDType("Alpha", "X"), InferPrelu})),
              {{"Alpha", "X"}, {"Out"}, {"Alpha", "X"}});
}

}  // namespace weft
