// Embeddings.
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckTable(const InferContext& context) {
  const TensorType* w = context.Input("W");
  if (w != nullptr && w->dims.size() != 2) {
    return context.InputError("W", "a table: rows and columns");
  }
  if (w != nullptr && (w->dims[0] == 0 || w->dims[1] == 0)) {
    return context.InputError("W", "a table of at least 1 row and 1 column");
  }
  const TensorType* ids = context.Input("Ids");
  if (ids != nullptr && !IsIndex(ids->dtype)) {
    return context.InputError("Ids", "int64 or int32 row numbers");
  }
  return absl::OkStatus();
}

// A row of the table for every id.
absl::StatusOr<absl::optional<TensorType>> LookedUpRows(const InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckTable(context));
  const TensorType* w = context.Input("W");
  const TensorType* ids = context.Input("Ids");
  if (w == nullptr || ids == nullptr) return absl::optional<TensorType>();
  TensorType rows = {w->dtype, ids->dims};
  // Unlike lookup_table_v2, lookup_table has ids with a last dimension of 1.
  if (context.schema().type() == "lookup_table" || context.schema().type() == "lookup_table_grad") {
    if (rows.dims.empty() || !DimFits(rows.dims.back(), 1)) {
      return context.InputError("Ids", "a last dimension of 1");
    }
    rows.dims.pop_back();
  }
  rows.dims.push_back(w->dims[1]);
  return absl::optional<TensorType>(rows);
}

absl::Status InferLookup(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> rows, LookedUpRows(context));
  if (rows.has_value()) context.SetOutput("Out", *rows);
  return absl::OkStatus();
}

// The gradient of the table: dense, or row-sparse with the rows that were looked up.
absl::Status InferLookupGrad(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> rows, LookedUpRows(context));
  const TensorType* grad = context.Input("Out@GRAD");
  if (rows.has_value() && grad != nullptr &&
      (grad->dtype != rows->dtype || !DimsFit(grad->dims, rows->dims))) {
    return context.InputError("Out@GRAD", absl::StrCat(ToString(*rows), " as Out"));
  }
  const TensorType* w = context.Input("W");
  if (w == nullptr) return absl::OkStatus();
  const bool is_sparse = context.attrs().Has("is_sparse") && context.attrs().Bool("is_sparse");
  context.SetOutput(
      "W@GRAD",
      {w->dtype, w->dims, is_sparse ? TensorType::Kind::kSelectedRows : TensorType::Kind::kDense});
  return absl::OkStatus();
}

}  // namespace

void AddLookupTableSchemas(OpSchemaTable* schemas) {
  const GradSlots grad = {{"Ids", "W"}, {"Out"}, {"W"}, /*optional=*/false};
  // Paddle does not have zeros_out_of_range: an id that is no row of the table gives zeros, and its
  // gradient is dropped, as MindSpore's EmbeddingLookup on the CPU has it. Else it is an error.
  const auto lookup = [](const char* type) {
    return OpSchema(type, "Ids, W -> Out")
        .Attr("is_distributed", false)
        .Attr("is_sparse", false)
        .Attr("padding_idx", int64_t{-1})
        .Attr("zeros_out_of_range", false)
        .With(Trait::kRowSplittable)
        .Infer(InferLookup)
        .Batch({batch::Lookup("Ids"), Powers::kTable});
  };
  AddWithGrad(schemas, lookup("lookup_table"), grad, InferLookupGrad);
  // The gradient of a sparse one is dense in PIR.
  AddWithGrad(schemas, lookup("lookup_table_v2").Pir("embedding(x:Ids, weight:W) {sparse=}"), grad,
              InferLookupGrad);
  // A part of a table that is cut by rows: the ids from start_index on.
  AddWithGrad(schemas,
              OpSchema("c_embedding", "Ids, W -> Out")
                  .Attr("start_index", int64_t{0}, range::AtLeast(0))
                  .Attr("vocab_size", int64_t{-1})
                  .Infer(InferLookup)
                  .Batch(batch::Unrelated(batch::kNotNeeded)),
              {{"Ids", "W"}, {"Out"}, {"W"}}, InferLookupGrad);
}

}  // namespace weft
