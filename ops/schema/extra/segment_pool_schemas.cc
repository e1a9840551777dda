// Reductions of segments of rows.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Out has a row for each segment number. Only means use SummedIds.
absl::Status InferSegmentPool(InferContext& context) {
  const TensorType* ids = context.Input("SegmentIds");
  const TensorType* x = context.Input("X");
  if (x != nullptr && x->dims.empty()) return context.InputError("X", "a row for each number");
  if (ids != nullptr && (!IsIndex(ids->dtype) || ids->dims.size() != 1 ||
                         (x != nullptr && !DimFits(ids->dims[0], x->dims[0])))) {
    return context.InputError("SegmentIds", "an int64 or int32 number for each row of X");
  }
  if (x == nullptr) return absl::OkStatus();
  TensorType out = *x;
  out.dims[0] = -1;
  context.SetOutput("Out", out);
  if (context.attrs().String("pooltype") == "MEAN") {
    context.SetOutput("SummedIds", {x->dtype, {-1, 1}});
  }
  return absl::OkStatus();
}

}  // namespace

void AddSegmentPoolSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("segment_pool", "SegmentIds, X -> Out, SummedIds?~")
                  .Attr("pooltype", "SUM")
                  .Infer(InferSegmentPool)
                  .Batch(batch::Unrelated(batch::kNotNeeded))
                  .Pir("(x, segment_ids) -> out, summed_ids?"),
              {{"Out", "SegmentIds", "SummedIds", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
