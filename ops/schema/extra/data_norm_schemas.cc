// Normalization by running sums.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional, kLooseType = OpSchema::kLooseType;

// Moments of columns come from summaries of the batches before: their size, sum and sum of squares.
// Where slot_dim is positive, that many columns belong together, and the first one counts what they
// were made of: if that is 0 they have no values.
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
absl::Status InferDataNormSummaries(InferContext& context) {
  const TensorType* means = context.Input("Means");
  if (means == nullptr) return absl::OkStatus();
  for (const char* slot : {"BatchSize@GRAD", "BatchSum@GRAD", "BatchSquareSum@GRAD"}) {
    context.SetOutput(slot, *means);
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
  schemas->Add(WithDataNormAttrs(OpSchema("data_norm")
                                     .In("BatchSize")
                                     .In("BatchSquareSum")
                                     .In("BatchSum")
                                     .In("X")
                                     .In("bias", kOptional)
                                     .In("scale_w", kOptional)
                                     .Out("Means", kLooseType)
                                     .Out("Scales", kLooseType)
                                     .Out("Y")
                                     .Infer(InferDataNorm)));
  schemas->Add(
      WithDataNormAttrs(OpSchema("data_norm_grad")
                            .In("Means")
                            .In("Scales")
                            .In("X")
                            .In("Y@GRAD")
                            .In("bias", kOptional)
                            .In("scale_w", kOptional)
                            .Out("BatchSize", kOptional | OpSchema::kUnwritten)
                            .Out("BatchSize@GRAD", kOptional)
                            .Out("BatchSquareSum", kOptional | OpSchema::kUnwritten)
                            .Out("BatchSquareSum@GRAD", kOptional)
                            .Out("BatchSum", kOptional | OpSchema::kUnwritten)
                            .Out("BatchSum@GRAD", kOptional)
                            .Out("X@GRAD", kOptional)
                            .Out("bias@GRAD", kOptional)
                            .Out("scale_w@GRAD", kOptional)
                            .Infer(InOrder({GradOf(InferDataNorm), InferDataNormSummaries}))));
}

}  // namespace weft
