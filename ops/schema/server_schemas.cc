// Parameter servers: what workers ask of them, and what they do.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/server_ops.h"

namespace weft {
namespace {

// Attributes shape and dtype are those of the parameter.
absl::Status InferServedParameter(InferContext& context, absl::string_view slot,
                                  TensorType::Kind kind) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  context.SetOutput(slot, {dtype, Dims(shape.begin(), shape.end()), kind});
  return absl::OkStatus();
}

absl::Status InferServedPull(InferContext& context) {
  return InferServedParameter(context, "Out", TensorType::Kind::kDense);
}

absl::Status InferServedReceive(InferContext& context) {
  return InferServedParameter(context, "Grad",
                              context.attrs().Bool("is_sparse") ? TensorType::Kind::kSelectedRows
                                                                : TensorType::Kind::kDense);
}

absl::Status CheckServedTable(InferContext& context) {
  const size_t num_dims = context.attrs().Ints("shape").size();
  if (num_dims == 2) return absl::OkStatus();
  return context.AttrError("shape", "rows and columns", absl::StrCat(num_dims, " dimensions"));
}

// A row of the table for every id.
absl::StatusOr<TensorType> RowsOfServedTable(const InferContext& context, const TensorType& ids) {
  if (!IsIndex(ids.dtype)) return context.InputError("Ids", "int64 or int32 row numbers");
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  TensorType rows = {dtype, ids.dims};
  if (context.attrs().String(kTableOpAttr) == kLookupOfColumns) {
    if (rows.dims.empty() || !DimFits(rows.dims.back(), 1)) {
      return context.InputError("Ids", "a last dimension of 1");
    }
    rows.dims.pop_back();
  }
  rows.dims.push_back(context.attrs().Ints("shape")[1]);
  return rows;
}

absl::Status InferServedLookup(InferContext& context, const TensorType& ids) {
  WEFT_ASSIGN_OR_RETURN(const TensorType rows, RowsOfServedTable(context, ids));
  context.SetOutput("Out", rows);
  return absl::OkStatus();
}

absl::Status CheckServedOutGrad(InferContext& context, const TensorType& ids,
                                const TensorType& grad) {
  WEFT_ASSIGN_OR_RETURN(const TensorType rows, RowsOfServedTable(context, ids));
  if (grad.dtype == rows.dtype && DimsFit(grad.dims, rows.dims)) return absl::OkStatus();
  return context.InputError("Out@GRAD", absl::StrCat(ToString(rows), " as Out"));
}

absl::Status InferServedLookupGrad(InferContext& context) {
  return InferServedParameter(context, "W@GRAD", TensorType::Kind::kSelectedRows);
}

// An op on one parameter.
OpSchema OnServedParameter(ServerOp op, absl::string_view slots) {
  OpSchema schema =
      OpSchema(std::string(ServerOpType(op)), slots).RequiredAttr(std::string(kServerKeyAttr), 0);
  if (!Communicates(op)) return schema;
  return std::move(schema).With(Trait::kSideEffect).Batch(batch::Unrelated(batch::kOfOthers));
}

OpSchema OfServedType(OpSchema schema) {
  return std::move(schema).Attr("dtype", kFp32).RequiredAttr("shape", Longs{});
}

OpSchema OnServedTable(OpSchema schema) {
  return OfServedType(std::move(schema))
      .Attr("padding_idx", int64_t{-1})
      .RequiredAttr(std::string(kTableOpAttr), std::string(kLookupOfIds))
      .Attr("zeros_out_of_range", false);
}

}  // namespace

void AddServerSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema(std::string(ServerOpType(ServerOp::kPrefetch)))
                   .RequiredAttr("keys", Ints{})
                   .With(Trait::kSideEffect));
  schemas->Add(OfServedType(OnServedParameter(ServerOp::kPull, "-> Out")).Infer(InferServedPull));
  schemas->Add(OnServedTable(OnServedParameter(ServerOp::kLookup, "Ids -> Out"))
                   .Attr(std::string(kPrefetchAttr), false)
                   .Infer(InOrder({CheckServedTable, IfKnown("Ids", InferServedLookup)})));
  schemas->Add(OnServedTable(OnServedParameter(ServerOp::kLookupGrad, "Ids, Out@GRAD -> W@GRAD"))
                   .Infer(InOrder({CheckServedTable, IfKnown("Ids", "Out@GRAD", CheckServedOutGrad),
                                   InferServedLookupGrad})));
  schemas->Add(OnServedParameter(ServerOp::kPush, "Grad, LearningRate?, Others*?"));
  // Grad: the mean over the workers, or the sum. Without is_async, of the gradients of all workers
  // in a step; with it, the next gradient of any of them.
  schemas->Add(
      OfServedType(OnServedParameter(ServerOp::kReceive, "-> Grad, LearningRate~?, Others*~?"))
          .Attr("averages", true)
          .Attr("is_async", false)
          .Attr("is_sparse", false)
          .Infer(InferServedReceive));
  // by_rows: each server has a part of the rows. staleness, with is_async: how many steps the
  // slowest worker may be behind the one that is answered.
  schemas->Add(OnServedParameter(ServerOp::kServe, "X")
                   .Attr("by_rows", false)
                   .Attr("is_async", false)
                   .Attr("staleness", 0));
}

}  // namespace weft
