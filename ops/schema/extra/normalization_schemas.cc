// Norms, and normalization by norms, by neighboring channels and by running sums.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Rows scaled to the length 1 ----------------------------------------------------------------

absl::Status InferNorm(InferContext& context, const TensorType& x) {
  if (x.dims.empty()) return context.InputError("X", "at least one dimension");
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisFromAttr(context, "axis", x.dims));
  TensorType norm = x;
  norm.dims[axis] = 1;
  context.SetOutput("Norm", norm);
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

// --- Local response normalization ---------------------------------------------------------------

// Normalizes by the squares of neighboring channels, which MidOut holds.
absl::Status CheckLrn(InferContext& context) {
  const int64_t n = context.attrs().Int("n");
  if (n < 1 || n % 2 == 0) return context.AttrError("n", "an odd number", absl::StrCat(n));
  const TensorType* x = context.Input("X");
  if (x == nullptr || x->dims.size() == 4) return absl::OkStatus();
  return context.InputError("X", "four dimensions");
}

// --- Slices scaled down to a norm ---------------------------------------------------------------

absl::Status CheckRenorm(InferContext& context, const TensorType& x) {
  if (x.dims.size() < 2) return context.InputError("X", "at least two dimensions");
  return AxisFromAttr(context, "axis", x.dims).status();
}

// --- Weights divided by their largest singular value --------------------------------------------

// Weight is a matrix with rows along `dim`; U has a number for each row, V one for each column.
absl::Status InferSpectralNorm(InferContext& context, const TensorType& weight) {
  const int64_t rank = static_cast<int64_t>(weight.dims.size());
  const int64_t dim = context.attrs().Int("dim");
  if (dim < 0 || dim >= rank) {
    return context.AttrError("dim", absl::StrCat("a dimension of ", rank), absl::StrCat(dim));
  }
  Dims columns = weight.dims;
  columns.erase(columns.begin() + dim);
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"U"}, weight.dims[dim]));
  WEFT_RETURN_IF_ERROR(CheckVectors(context, {"V"}, Product(columns)));
  context.SetOutput("Out", weight);
  return absl::OkStatus();
}

// --- Normalization by running sums --------------------------------------------------------------

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

// By statistics that are parameters. Their gradients are in row_sums.h.
void NormalizeRows(BatchContext& c) {
  if (!c.OthersAreReplicated({"X"})) return;
  c.Set("Y", c.In("X") == BatchRelation::Sharded(0) || c.In("X").IsReplicated()
                 ? c.In("X")
                 : BatchRelation::Unrelated());
  c.Set("Means", BatchRelation::Replicated());
  c.Set("Scales", BatchRelation::Replicated());
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

// --- The p-norm of a difference -----------------------------------------------------------------

absl::Status InferDist(InferContext& context, const TensorType& x, const TensorType& y) {
  if (!BroadcastDims(x.dims, y.dims).has_value()) {
    return context.InputError(
        "Y", absl::StrCat("dimensions that broadcast with ", DimsToString(x.dims)));
  }
  context.SetOutput("Out", {x.dtype, {}});
  return absl::OkStatus();
}

}  // namespace

void AddNormalizationSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("norm", "X -> Norm~, Out")
                  .RequiredAttr("axis", 0)
                  .Attr("epsilon", 1e-10f)
                  .Infer(IfKnown("X", InferNorm))
                  .Batch({batch::Along("X", "axis")})
                  .Pir("-> out, norm"),
              {{"Norm", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("lrn", "X -> MidOut, Out")
                  .Attr("alpha", 1e-4f)
                  .Attr("beta", 0.75f)
                  .Attr("data_format", "NCHW", range::OneOf({"NCHW", "NHWC", "AnyLayout"}))
                  .Attr("k", 2.0f)
                  .Attr("n", 5)
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder({CheckLrn, Like("X", {"MidOut", "Out"})}))
                  .Batch({batch::Rows({"X"})}),
              {{"MidOut", "Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("renorm", "X -> Out")
                  .RequiredAttr("axis", 0)
                  .RequiredAttr("max_norm", 0.0f)
                  .RequiredAttr("p", 0.0f)
                  .Infer(InOrder({IfKnown("X", CheckRenorm), Like("X", {"Out"})}))
                  .Batch({batch::SlicesAlong("axis")})
                  .Pir(),
              {{"X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("spectral_norm", "U, V, Weight -> Out")
                  .Attr("dim", 0)
                  .Attr("eps", 1e-12f)
                  .Attr("power_iters", 1, range::AtLeast(0))
                  .Infer(IfKnown("Weight", InferSpectralNorm))
                  .Batch(batch::Unrelated(batch::kOfParameters))
                  .Pir("(weight, u, v)"),
              {{"U", "V", "Weight"}, {"Out"}, {"Weight"}});
  schemas->Add(WithDataNormAttrs(
      OpSchema("data_norm",
               "BatchSize, BatchSquareSum, BatchSum, X, bias?, scale_w? -> Means~, Scales~, Y")
          .Infer(InferDataNorm)
          .Batch({NormalizeRows})));
  schemas->Add(WithDataNormAttrs(
      OpSchema("data_norm_grad",
               "Means, Scales, X, Y@GRAD, bias?, scale_w? -> BatchSize?!, "
               "BatchSize@GRAD?, BatchSquareSum?!, BatchSquareSum@GRAD?, "
               "BatchSum?!, BatchSum@GRAD?, X@GRAD?, bias@GRAD?, scale_w@GRAD?")
          .Infer(InOrder({GradOf(InferDataNorm), IfKnown("Means", InferDataNormSummaries)}))));
  AddWithGrad(schemas,
              OpSchema("dist", "X, Y -> Out")
                  .Attr("p", 2.0f)
                  .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferDist)}))
                  .Batch(batch::Unrelated(batch::kWholeResult))
                  .Pir(),
              {{"Out", "X", "Y"}, {"Out"}, {"X", "Y"}});
}

}  // namespace weft
