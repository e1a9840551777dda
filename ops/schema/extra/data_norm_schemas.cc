// Normalization by running sums.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The moments of the columns come from summaries of earlier batches: size, sum and sum of squares.
// A positive slot_dim is the number of columns that belong together. The first of them counts their
// samples: if it is 0, they have no values.
absl::Status InferDataNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (context.attrs().Bool("sync_stats")) return context.AttrError("sync_stats", "false", "true");
  if (context.attrs().Bool("enable_scale_and_shift") &&
      (!context.HasInput("scale_w") || !context.HasInput("bias"))) {
    return absl::InvalidArgumentError("inputs scale_w and bias: missing");
  }
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 2) return context.InputError("X", "two dimensions");
  const int64_t columns = x->dims[1], slot = context.attrs().Int("slot_dim");
  if (slot > 0 && columns != -1 && columns % slot != 0) {
    return context.AttrError("slot_dim", absl::StrCat("a divisor of ", columns),
                             absl::StrCat(slot));
  }
  WEFT_RETURN_IF_ERROR(CheckVectors(
      context, {"BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias", "Means", "Scales"},
      columns));
  context.SetOutput("Y", *x);
  context.SetOutput("Means", {x->dtype, {columns}});
  context.SetOutput("Scales", {x->dtype, {columns}});
  return absl::OkStatus();
}

// The gradients of the summaries are what the batch adds to them.
absl::Status InferDataNormSummaries(InferContext& context, const TensorType& means) {
  for (const char* slot : {"BatchSize@GRAD", "BatchSum@GRAD", "BatchSquareSum@GRAD"}) {
    context.SetOutput(slot, means);
  }
  return absl::OkStatus();
}

OpSchema WithDataNormAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("data_layout", "NCHW")
      .Attr("enable_scale_and_shift", false)
      .Attr("epsilon", 1e-4f)
      .Attr("slot_dim", -1)
      .Attr("summary_decay_rate", 0.9999999f)
      .Attr("sync_stats", false);
}

}  // namespace

void AddDataNormSchemas(OpSchemaTable* schemas) {
  schemas->Add(WithDataNormAttrs(
      OpSchema("data_norm",
               "BatchSize, BatchSquareSum, BatchSum, X, bias?, scale_w? -> Means~, Scales~, Y")
          .Infer(InferDataNorm)
          .Batch(batch::Unrelated(batch::kWholeResult))));
  schemas->Add(WithDataNormAttrs(
      OpSchema("data_norm_grad",
               "Means, Scales, X, Y@GRAD, bias?, scale_w? -> BatchSize?!, "
               "BatchSize@GRAD?, BatchSquareSum?!, BatchSquareSum@GRAD?, "
               "BatchSum?!, BatchSum@GRAD?, X@GRAD?, bias@GRAD?, scale_w@GRAD?")
          .Infer(InOrder({GradOf(InferDataNorm), IfKnown("Means", InferDataNormSummaries)}))
          .Algebra(Algebra::kNone)));
}

}  // namespace weft
