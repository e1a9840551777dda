// The inverse of max pooling.
#include <string>

#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// Each element of X at the index in its channel that Indices holds.
absl::Status InferUnpool(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 4) return context.InputError("X", "four dimensions");
  const std::string& format = context.attrs().String("data_format");
  if (format != "NCHW") return context.AttrError("data_format", "NCHW", format);
  WEFT_ASSIGN_OR_RETURN(const auto size, ReadPositive(context.attrs(), "output_size", 2));
  context.SetOutput("Out", {x.dtype, {x.dims[0], x.dims[1], size[0], size[1]}});
  return absl::OkStatus();
}

}  // namespace

void AddUnpoolSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("unpool", "Indices, X -> Out")
                  .Attr("data_format", "NCHW")
                  .RequiredAttr("ksize", Ints{})
                  .Attr("output_size", Ints{})
                  .Attr("paddings", Ints{})
                  .Attr("strides", Ints{})
                  .Attr("unpooling_type", "max")
                  .Infer(InOrder({SameDims("Indices", "X"), IfKnown("X", InferUnpool)}))
                  .Batch({batch::Planes({"X", "Indices"})})
                  .Pir("(x, indices, @output_size) {padding=paddings}"),
              {{"Indices", "Out", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
