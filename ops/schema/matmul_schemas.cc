// Products of matrices.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The first column dimension; those before it are rows.
absl::StatusOr<size_t> ColumnsBegin(const InferContext& context, const char* attr,
                                    const TensorType& type) {
  const int64_t n = context.attrs().Int(attr);
  if (n < 1 || n >= static_cast<int64_t>(type.dims.size())) {
    return context.AttrError(attr, absl::StrCat("1 to ", type.dims.size(), " - 1 dimensions"),
                             absl::StrCat(n));
  }
  return static_cast<size_t>(n);
}

// X as a matrix times Y as a matrix.
absl::StatusOr<Dims> MulDims(const InferContext& context, const TensorType& x,
                             const TensorType& y) {
  WEFT_ASSIGN_OR_RETURN(const size_t x_columns, ColumnsBegin(context, "x_num_col_dims", x));
  WEFT_ASSIGN_OR_RETURN(const size_t y_columns, ColumnsBegin(context, "y_num_col_dims", y));
  const int64_t inner = Product(absl::MakeSpan(x.dims).subspan(x_columns));
  if (!DimFits(inner, Product(absl::MakeSpan(y.dims).first(y_columns)))) {
    return context.InputError("Y", absl::StrCat(inner, " rows, as many as X has columns"));
  }
  Dims out(x.dims.begin(), x.dims.begin() + x_columns);
  out.insert(out.end(), y.dims.begin() + y_columns, y.dims.end());
  return out;
}

// The batch dimensions, rows and columns of an operand. A vector is one row on the left and one
// column on the right, whatever the transposition.
struct Matrix {
  Dims batch;
  int64_t rows = 1;
  int64_t columns = 1;
  bool is_vector = false;
};

Matrix AsMatrix(const Dims& dims, bool transposed, bool is_left) {
  Matrix m;
  m.is_vector = dims.size() == 1;
  if (m.is_vector) {
    (is_left ? m.columns : m.rows) = dims[0];
    return m;
  }
  m.batch.assign(dims.begin(), dims.end() - 2);
  m.rows = dims[dims.size() - 2];
  m.columns = dims[dims.size() - 1];
  if (transposed) std::swap(m.rows, m.columns);
  return m;
}

// Matrix products over broadcast batch dimensions. The result lacks the dimension that a vector
// lacks.
absl::StatusOr<Dims> MatMulDims(const InferContext& context, const TensorType& x,
                                const TensorType& y, bool trans_x, bool trans_y) {
  if (x.dims.empty()) return context.InputError("X", "at least one dimension");
  if (y.dims.empty()) return context.InputError("Y", "at least one dimension");
  const Matrix a = AsMatrix(x.dims, trans_x, /*is_left=*/true);
  const Matrix b = AsMatrix(y.dims, trans_y, /*is_left=*/false);
  if (!DimFits(a.columns, b.rows)) {
    return context.InputError("Y", absl::StrCat(a.columns, " rows, as many as X has columns"));
  }
  const absl::optional<Dims> batch = BroadcastDims(a.batch, b.batch);
  if (!batch.has_value()) {
    return context.InputError(
        "Y", absl::StrCat("batch dimensions that broadcast with ", DimsToString(a.batch), " of X"));
  }
  Dims out = *batch;
  if (!a.is_vector) out.push_back(a.rows);
  if (!b.is_vector) out.push_back(b.columns);
  return out;
}

absl::StatusOr<Dims> MatMulV2Dims(const InferContext& context, const TensorType& x,
                                  const TensorType& y) {
  const OpAttrs& attrs = context.attrs();
  return MatMulDims(context, x, y, attrs.Bool("trans_x"), attrs.Bool("trans_y"));
}

// The product of two vectors has one dimension.
absl::StatusOr<Dims> MatMulV1Dims(const InferContext& context, const TensorType& x,
                                  const TensorType& y) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(
      Dims dims, MatMulDims(context, x, y, attrs.Bool("transpose_X"), attrs.Bool("transpose_Y")));
  if (dims.empty()) dims.push_back(1);
  return dims;
}

absl::Status CheckBatches(InferContext& context) {
  for (const char* slot : {"X", "Y"}) {
    const TensorType* type = context.Input(slot);
    if (type != nullptr && type->dims.size() != 3) {
      return context.InputError(slot, "three dimensions (batch, rows, columns)");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Dims> BmmDims(const InferContext& context, const TensorType& x,
                             const TensorType& y) {
  if (!DimFits(x.dims[0], y.dims[0])) {
    return context.InputError("Y", absl::StrCat("a batch of ", x.dims[0], " as X has"));
  }
  return MatMulDims(context, x, y, false, false);
}

using ProductDims = absl::StatusOr<Dims>(const InferContext&, const TensorType& x,
                                         const TensorType& y);

OpSchema::InferFn InferProduct(ProductDims* product_dims) {
  const auto infer = [product_dims](InferContext& context, const TensorType& x,
                                    const TensorType& y) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Dims dims, product_dims(context, x, y));
    context.SetOutput("Out", {x.dtype, dims});
    return absl::OkStatus();
  };
  return InOrder({SameDType("X", "Y"), IfKnown("X", "Y", infer)});
}

// Of operands in half precision, too.
absl::Status ForceFp32(InferContext& context) {
  const TensorType* const out = context.Output("Out");
  if (out == nullptr || !context.attrs().Bool("force_fp32_output")) return absl::OkStatus();
  context.SetOutput("Out", {DType::kFloat32, out->dims});
  return absl::OkStatus();
}

absl::Status InferMv(InferContext& context, const TensorType& x, const TensorType& vec) {
  if (x.dims.size() != 2) return context.InputError("X", "two dimensions");
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Vec", {x.dims[1]}));
  context.SetOutput("Out", {x.dtype, {x.dims[0]}});
  return absl::OkStatus();
}

// Sums over the last dimension.
absl::StatusOr<Dims> DotDims(const InferContext& context, const Dims& x) {
  if (x.empty()) return context.InputError("X", "at least one dimension");
  return Dims(x.begin(), x.end() - 1);
}

// Input + X Y.
absl::Status InferAddmm(InferContext& context, const TensorType& x, const TensorType& y) {
  const TensorType* input = context.Input("Input");
  if (input == nullptr) return absl::OkStatus();
  if (x.dims.size() != 2) return context.InputError("X", "two dimensions");
  if (y.dims.size() != 2 || !DimFits(x.dims[1], y.dims[0])) {
    return context.InputError("Y", absl::StrCat("a matrix of ", x.dims[1], " rows"));
  }
  const Dims out = {x.dims[0], y.dims[1]};
  if (!Repeats(input->dims, out)) {
    return context.InputError("Input", absl::StrCat("a shape to repeat to ", DimsToString(out)));
  }
  context.SetOutput("Out", {x.dtype, out});
  return absl::OkStatus();
}

}  // namespace

void AddMatmulSchemas(OpSchemaTable* schemas) {
  const GradSlots xy_grad = {{"X", "Y"}, {"Out"}, {"X", "Y"}};
  AddWithGrad(schemas,
              OpSchema("mul", "X, Y -> Out")
                  .Attr("x_num_col_dims", 1)
                  .Attr("y_num_col_dims", 1)
                  .With(Trait::kRowSplittable)
                  .Infer(InferProduct(MulDims))
                  .Batch({batch::Mul, Powers::kProduct})
                  .Work(WorkKind::kProduct),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("matmul", "X, Y -> Out")
                  .Attr("alpha", 1.0f)
                  .Attr("transpose_X", false)
                  .Attr("transpose_Y", false)
                  .Infer(InferProduct(MatMulV1Dims))
                  .Batch({batch::MatMul("transpose_X", "transpose_Y"), Powers::kProduct})
                  .Work(WorkKind::kProduct),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("matmul_v2", "X, Y -> Out")
                  .AttrSincePaddle3("force_fp32_output", false)
                  .Attr("trans_x", false)
                  .Attr("trans_y", false)
                  .Infer(InOrder({InferProduct(MatMulV2Dims), ForceFp32}))
                  .Batch({batch::MatMul("trans_x", "trans_y"), Powers::kProduct})
                  .Work(WorkKind::kProduct)
                  .Pir("matmul {transpose_x=trans_x, transpose_y=trans_y}"),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("bmm", "X, Y -> Out")
                  .Infer(InOrder({SameDType("X", "Y"), CheckBatches, InferProduct(BmmDims)}))
                  .Batch({batch::MatMul(nullptr, nullptr), Powers::kProduct})
                  .Work(WorkKind::kProduct)
                  .Pir(),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("dot", "X, Y -> Out")
                  .Infer(InOrder({SameType("X", "Y"), OutDims(DotDims)}))
                  .Batch({batch::Dot, Powers::kProduct})
                  .Pir(),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("mv", "Vec, X -> Out")
                  .Infer(IfKnown("X", "Vec", InferMv))
                  .Batch({batch::MatVec, Powers::kProduct})
                  .Work(WorkKind::kProduct)
                  .Pir("(x, vec)"),
              {{"X", "Vec"}, {"Out"}, {"X", "Vec"}});
  AddWithGrad(schemas,
              OpSchema("addmm", "Input, X, Y -> Out")
                  .Attr("Alpha", 1.0f)
                  .Attr("Beta", 1.0f)
                  .Infer(IfKnown("X", "Y", InferAddmm))
                  .Batch({batch::AddMatMul})
                  .Pir("{beta=Beta, alpha=Alpha}"),
              {{"Input", "X", "Y"}, {"Out"}, {"Input", "X", "Y"}});
}

}  // namespace weft
