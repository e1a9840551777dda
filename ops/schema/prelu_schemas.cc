// ReLU with a trained slope.
#include <string>

#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// One slope for all elements, for each channel, or for each element of a sample.
absl::Status InferPrelu(InferContext& context, const TensorType& x) {
  const std::string& mode = context.attrs().String("mode");
  const std::string& format = context.attrs().String("data_format");
  WEFT_RETURN_IF_ERROR(CheckOneOf(context, "mode", {"all", "channel", "element"}));
  const size_t rank = x.dims.size();
  int64_t slopes = 1;
  if (mode == "channel") {
    if (rank < 2) return context.InputError("X", "channels");
    slopes = x.dims[format.back() == 'C' ? rank - 1 : 1];
  } else if (mode == "element") {
    if (rank < 1) return context.InputError("X", "samples");
    slopes = Product(absl::MakeConstSpan(x.dims).subspan(1));
  }
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Alpha", slopes));
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

}  // namespace

void AddPreluSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("prelu", "Alpha, X -> Out")
                  .Attr("data_format", "NCHW")
                  .Attr("mode", "all")
                  .Infer(InOrder({SameDType("Alpha", "X"), IfKnown("X", InferPrelu)}))
                  .Batch({batch::Rows({"X"})})
                  .Pir("(x, alpha)"),
              {{"Alpha", "X"}, {"Out"}, {"Alpha", "X"}});
}

}  // namespace weft
