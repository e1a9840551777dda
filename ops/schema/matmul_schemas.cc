// Products of matrices.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Where X and Y are split into rows and columns: dimensions before it are rows.
absl::StatusOr<size_t> ColumnsBegin(const InferContext& context, const char* attr,
                                    const TensorType& type) {
  const int64_t n = context.attrs().Int(attr);
  if (n < 1 || n >= static_cast<int64_t>(type.dims.size())) {
    return context.AttrError(attr, absl::StrCat("1 to ", type.dims.size(), " - 1 dimensions"),
                             absl::StrCat(n));
  }
  return static_cast<size_t>(n);
}

// X as a matrix times Y as a matrix. The dimensions of the product; none where a type is not known.
absl::StatusOr<absl::optional<Dims>> MulDims(const InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (x == nullptr || y == nullptr) return absl::optional<Dims>();
  WEFT_ASSIGN_OR_RETURN(const size_t x_columns, ColumnsBegin(context, "x_num_col_dims", *x));
  WEFT_ASSIGN_OR_RETURN(const size_t y_columns, ColumnsBegin(context, "y_num_col_dims", *y));
  const int64_t inner = Product(absl::MakeSpan(x->dims).subspan(x_columns));
  if (!DimFits(inner, Product(absl::MakeSpan(y->dims).first(y_columns)))) {
    return context.InputError("Y", absl::StrCat(inner, " rows, as many as X has columns"));
  }
  Dims out(x->dims.begin(), x->dims.begin() + x_columns);
  out.insert(out.end(), y->dims.begin() + y_columns, y->dims.end());
  return absl::optional<Dims>(out);
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

// Matrix products over broadcast batch dimensions; the dimension that a vector stands in for is
// left out of the result.
absl::StatusOr<absl::optional<Dims>> MatMulDims(const InferContext& context, bool trans_x,
                                                bool trans_y) {
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (x == nullptr || y == nullptr) return absl::optional<Dims>();
  if (x->dims.empty()) return context.InputError("X", "at least one dimension");
  if (y->dims.empty()) return context.InputError("Y", "at least one dimension");
  const Matrix a = AsMatrix(x->dims, trans_x, /*is_left=*/true);
  const Matrix b = AsMatrix(y->dims, trans_y, /*is_left=*/false);
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
  return absl::optional<Dims>(out);
}

absl::StatusOr<absl::optional<Dims>> MatMulV2Dims(const InferContext& context) {
  return MatMulDims(context, context.attrs().Bool("trans_x"), context.attrs().Bool("trans_y"));
}

// The product of two vectors has one dimension.
absl::StatusOr<absl::optional<Dims>> MatMulV1Dims(const InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(absl::optional<Dims> dims,
                        MatMulDims(context, context.attrs().Bool("transpose_X"),
                                   context.attrs().Bool("transpose_Y")));
  if (dims.has_value() && dims->empty()) dims->push_back(1);
  return dims;
}

absl::StatusOr<absl::optional<Dims>> BmmDims(const InferContext& context) {
  for (const char* slot : {"X", "Y"}) {
    const TensorType* type = context.Input(slot);
    if (type != nullptr && type->dims.size() != 3) {
      return context.InputError(slot, "three dimensions (batch, rows, columns)");
    }
  }
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (x != nullptr && y != nullptr && !DimFits(x->dims[0], y->dims[0])) {
    return context.InputError("Y", absl::StrCat("a batch of ", x->dims[0], " as X has"));
  }
  return MatMulDims(context, false, false);
}

using ProductDims = absl::StatusOr<absl::optional<Dims>>(const InferContext&);

OpSchema::InferFn InferProduct(ProductDims* product_dims) {
  return InOrder({SameDType("X", "Y"), [product_dims](InferContext& context) -> absl::Status {
                    WEFT_ASSIGN_OR_RETURN(const absl::optional<Dims> dims, product_dims(context));
                    if (dims.has_value()) {
                      context.SetOutput("Out", {context.Input("X")->dtype, *dims});
                    }
                    return absl::OkStatus();
                  }});
}

absl::Status InferMv(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* vec = context.Input("Vec");
  if (x == nullptr || vec == nullptr) return absl::OkStatus();
  if (x->dims.size() != 2) return context.InputError("X", "two dimensions");
  if (!DimsFit(vec->dims, {x->dims[1]})) {
    return context.InputError("Vec", absl::StrCat("dimensions [", x->dims[1], "]"));
  }
  context.SetOutput("Out", {x->dtype, {x->dims[0]}});
  return absl::OkStatus();
}

// The last dimension is summed over.
absl::Status InferDot(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.empty()) return context.InputError("X", "at least one dimension");
  context.SetOutput("Out", {x->dtype, Dims(x->dims.begin(), x->dims.end() - 1)});
  return absl::OkStatus();
}

// Input + X Y.
absl::Status InferAddmm(InferContext& context) {
  const TensorType* input = context.Input("Input");
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (input == nullptr || x == nullptr || y == nullptr) return absl::OkStatus();
  if (x->dims.size() != 2) return context.InputError("X", "two dimensions");
  if (y->dims.size() != 2 || !DimFits(x->dims[1], y->dims[0])) {
    return context.InputError("Y", absl::StrCat("a matrix of ", x->dims[1], " rows"));
  }
  const Dims out = {x->dims[0], y->dims[1]};
  const absl::optional<Dims> sum = BroadcastDims(out, input->dims);
  if (!sum.has_value() || input->dims.size() > 2 || !DimsFit(*sum, out)) {
    return context.InputError("Input", absl::StrCat("a shape to repeat to ", DimsToString(out)));
  }
  context.SetOutput("Out", {x->dtype, out});
  return absl::OkStatus();
}

}  // namespace

void AddMatmulSchemas(OpSchemaTable* schemas) {
  const GradSlots xy_grad = {{"X", "Y"}, {"Out"}, {"X", "Y"}};
  AddWithGrad(schemas,
              OpSchema("mul")
                  .In("X")
                  .In("Y")
                  .Out("Out")
                  .Attr("x_num_col_dims", 1)
                  .Attr("y_num_col_dims", 1)
                  .With(Trait::kRowSplittable)
                  .Infer(InferProduct(MulDims)),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("matmul")
                  .In("X")
                  .In("Y")
                  .Out("Out")
                  .Attr("alpha", 1.0f)
                  .Attr("transpose_X", false)
                  .Attr("transpose_Y", false)
                  .Infer(InferProduct(MatMulV1Dims)),
              xy_grad);
  AddWithGrad(schemas,
              OpSchema("matmul_v2")
                  .In("X")
                  .In("Y")
                  .Out("Out")
                  .Attr("trans_x", false)
                  .Attr("trans_y", false)
                  .Infer(InferProduct(MatMulV2Dims)),
              xy_grad);
  AddWithGrad(schemas, OpSchema("bmm").In("X").In("Y").Out("Out").Infer(InferProduct(BmmDims)),
              xy_grad);
  AddWithGrad(
      schemas,
      OpSchema("dot").In("X").In("Y").Out("Out").Infer(InOrder({SameType("X", "Y"), InferDot})),
      xy_grad);
  AddWithGrad(schemas, OpSchema("mv").In("Vec").In("X").Out("Out").Infer(InferMv),
              {{"X", "Vec"}, {"Out"}, {"X", "Vec"}});
  AddWithGrad(schemas,
              OpSchema("addmm")
                  .In("Input")
                  .In("X")
                  .In("Y")
                  .Out("Out")
                  .Attr("Alpha", 1.0f)
                  .Attr("Beta", 1.0f)
                  .Infer(InferAddmm),
              {{"Input", "X", "Y"}, {"Out"}, {"Input", "X", "Y"}});
}

}  // namespace weft
