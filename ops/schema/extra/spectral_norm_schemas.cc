// Weights divided by their largest singular value.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Weight is a matrix with rows along `dim`; U has a number for each row, V one for each column.
absl::Status InferSpectralNorm(InferContext& context, const TensorType& weight) {
  const int64_t rank = static_cast<int64_t>(weight.dims.size());
  const int64_t dim = context.attrs().Int("dim");
  if (dim < 0 || dim >= rank) {
    return context.AttrError("dim", absl::StrCat("a dimension of ", rank), absl::StrCat(dim));
  }
  WEFT_RETURN_IF_ERROR(CheckAtLeast(context, "power_iters", 0));
  Dims columns = weight.dims;
  columns.erase(columns.begin() + dim);
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"U"}, weight.dims[dim]));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"V"}, Product(columns)));
  context.SetOutput("Out", weight);
  return absl::OkStatus();
}

}  // namespace

void AddSpectralNormSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("spectral_norm", "U, V, Weight -> Out")
                  .Attr("dim", 0)
                  .Attr("eps", 1e-12f)
                  .Attr("power_iters", 1)
                  .Infer(IfKnown("Weight", InferSpectralNorm))
                  .Batch(batch::Unrelated(batch::kOfParameters))
                  .Pir("(weight, u, v)"),
              {{"U", "V", "Weight"}, {"Out"}, {"Weight"}});
}

}  // namespace weft
