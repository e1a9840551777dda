// Products, sums, reductions, and scaling.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- mul -----------------------------------------------------------------------------------------

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

// --- matmul_v2 -----------------------------------------------------------------------------------

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
absl::StatusOr<absl::optional<Dims>> MatMulDims(const InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (x == nullptr || y == nullptr) return absl::optional<Dims>();
  if (x->dims.empty()) return context.InputError("X", "at least one dimension");
  if (y->dims.empty()) return context.InputError("Y", "at least one dimension");
  const Matrix a = AsMatrix(x->dims, context.attrs().Bool("trans_x"), /*is_left=*/true);
  const Matrix b = AsMatrix(y->dims, context.attrs().Bool("trans_y"), /*is_left=*/false);
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

// --- Both products -------------------------------------------------------------------------------

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

OpSchema::InferFn InferProductGrad(ProductDims* product_dims) {
  const auto check = [product_dims](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<Dims> dims, product_dims(context));
    const TensorType* grad = context.Input("Out@GRAD");
    if (!dims.has_value() || grad == nullptr || DimsFit(grad->dims, *dims)) {
      return absl::OkStatus();
    }
    return context.InputError("Out@GRAD",
                              absl::StrCat("dimensions ", DimsToString(*dims), " of X times Y"));
  };
  return InOrder({SameDType("X", "Y"), check, GradsLikeInputs()});
}

void AddProducts(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("mul")
                   .In("X")
                   .In("Y")
                   .Out("Out")
                   .Attr("x_num_col_dims", 1)
                   .Attr("y_num_col_dims", 1)
                   .With(Trait::kRowSplittable)
                   .Infer(InferProduct(MulDims)));
  schemas->Add(OpSchema("mul_grad")
                   .In("Out@GRAD")
                   .In("X")
                   .In("Y")
                   .Out("X@GRAD", OpSchema::kOptional)
                   .Out("Y@GRAD", OpSchema::kOptional)
                   .Attr("x_num_col_dims", 1)
                   .Attr("y_num_col_dims", 1)
                   .Infer(InferProductGrad(MulDims)));
  schemas->Add(OpSchema("matmul_v2")
                   .In("X")
                   .In("Y")
                   .Out("Out")
                   .Attr("trans_x", false)
                   .Attr("trans_y", false)
                   .Infer(InferProduct(MatMulDims)));
  schemas->Add(OpSchema("matmul_v2_grad")
                   .In("Out@GRAD")
                   .In("X")
                   .In("Y")
                   .Out("X@GRAD", OpSchema::kOptional)
                   .Out("Y@GRAD", OpSchema::kOptional)
                   .Attr("trans_x", false)
                   .Attr("trans_y", false)
                   .Infer(InferProductGrad(MatMulDims)));
}

// --- Reductions ----------------------------------------------------------------------------------

// The dimensions of x without (or with size 1 for) those that are reduced: the listed ones, or all
// of them where none is listed.
absl::StatusOr<Dims> ReducedDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> axes = context.attrs().Ints("dim");
  const bool keep_dim = context.attrs().Bool("keep_dim");
  std::vector<bool> reduced(x.size(), context.attrs().Bool("reduce_all") || axes.empty());
  for (int64_t axis : axes) {
    // A scalar is reduced over "dimension 0" by default.
    if (x.empty() && (axis == 0 || axis == -1)) continue;
    WEFT_ASSIGN_OR_RETURN(const int resolved, ResolveAxis(context, "dim", axis, x.size()));
    reduced[resolved] = true;
  }
  Dims dims;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!reduced[i]) dims.push_back(x[i]);
    if (reduced[i] && keep_dim) dims.push_back(1);
  }
  return dims;
}

// `sums`: whole numbers are added up in int64.
absl::Status InferReduction(InferContext& context, bool sums) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  TensorType out;
  WEFT_ASSIGN_OR_RETURN(out.dims, ReducedDims(context, x->dims));
  const absl::optional<DType> wanted =
      DTypeFromProto(static_cast<int>(context.attrs().Int("out_dtype")));
  const bool widens = sums && (x->dtype == DType::kBool || x->dtype == DType::kInt32);
  out.dtype = wanted.value_or(widens ? DType::kInt64 : x->dtype);
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status CheckReductionGrad(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* grad = context.Input("Out@GRAD");
  if (x == nullptr || grad == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(context, x->dims));
  // Before version 2.5 Paddle gave a full reduction the dimensions [1].
  if (DimsFit(grad->dims, reduced) || (reduced.empty() && NumElements(grad->dims) == 1)) {
    return absl::OkStatus();
  }
  return context.InputError("Out@GRAD",
                            absl::StrCat("dimensions ", DimsToString(reduced), " of X reduced"));
}

OpSchema Reduction(const char* type) {
  return OpSchema(type)
      .In("X")
      .Out("Out")
      .Attr("dim", Ints{0})
      .Attr("in_dtype", -1)
      .Attr("keep_dim", false)
      .Attr("out_dtype", -1)
      .Attr("reduce_all", false)
      .With(Trait::kLinear);
}

OpSchema ReductionGrad(const char* type) {
  return OpSchema(type)
      .In("Out@GRAD")
      .In("X")
      .Out("X@GRAD")
      .Attr("dim", Ints{0})
      .Attr("in_dtype", -1)
      .Attr("keep_dim", false)
      .Attr("out_dtype", -1)
      .Attr("reduce_all", false)
      .Infer(InOrder({CheckReductionGrad, GradsLikeInputs()}));
}

absl::Status InferMean(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x != nullptr) context.SetOutput("Out", {x->dtype, {}});
  return absl::OkStatus();
}

absl::Status InferSquaredNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x != nullptr) context.SetOutput("Out", {x->dtype, {1}});
  return absl::OkStatus();
}

void AddReductions(OpSchemaTable* schemas) {
  schemas->Add(Reduction("reduce_mean").Infer([](InferContext& context) {
    return InferReduction(context, /*sums=*/false);
  }));
  schemas->Add(Reduction("reduce_sum").Infer([](InferContext& context) {
    return InferReduction(context, /*sums=*/true);
  }));
  schemas->Add(ReductionGrad("reduce_mean_grad"));
  schemas->Add(ReductionGrad("reduce_sum_grad"));
  schemas->Add(OpSchema("mean").In("X").Out("Out").With(Trait::kLinear).Infer(InferMean));
  schemas->Add(OpSchema("mean_grad").In("Out@GRAD").In("X").Out("X@GRAD").Infer(GradsLikeInputs()));
  schemas->Add(OpSchema("squared_l2_norm").In("X").Out("Out").Infer(InferSquaredNorm));
}

// --- Sums and scaling ----------------------------------------------------------------------------

// All of one shape. Rows of tensors (SelectedRows) may be among them; the sum of nothing else is
// rows again.
absl::Status InferSum(InferContext& context) {
  const TensorType* first = context.Input("X");
  if (first == nullptr) return absl::OkStatus();
  TensorType out = *first;
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    if (x->dtype != out.dtype || !DimsFit(x->dims, out.dims)) {
      return context.InputError("X", i, absl::StrCat(ToString(out), " as the others"));
    }
    for (size_t d = 0; d < out.dims.size(); ++d) out.dims[d] = std::max(out.dims[d], x->dims[d]);
    if (x->layout == TensorType::Layout::kDense) out.layout = TensorType::Layout::kDense;
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferCast(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const int64_t number = context.attrs().Int("out_dtype");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (!dtype.has_value()) {
    return context.AttrError("out_dtype", "the number of an element type", absl::StrCat(number));
  }
  context.SetOutput("Out", {*dtype, x->dims, x->layout});
  return absl::OkStatus();
}

void AddSumsAndScaling(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("sum")
                   .In("X", OpSchema::kDuplicable)
                   .Out("Out")
                   .With(Trait::kElementwise)
                   .With(Trait::kLinear)
                   .With(Trait::kRowSplittable)
                   .Infer(InferSum));
  // use_mkldnn is a back-end switch; it is here because Paddle writes it on every scale op that its
  // transpilers insert.
  schemas->Add(OpSchema("scale")
                   .In("ScaleTensor", OpSchema::kOptional)
                   .In("X")
                   .Out("Out")
                   .Attr("use_mkldnn", false)
                   .Attr("bias", 0.0f)
                   .Attr("bias_after_scale", true)
                   .Attr("scale", 1.0f)
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("increment")
                   .In("X")
                   .Out("Out")
                   .Attr("step", 1.0f)
                   .With(Trait::kElementwise)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("clip")
                   .In("Max", OpSchema::kOptional)
                   .In("Min", OpSchema::kOptional)
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("max", 0.0f)
                   .RequiredAttr("min", 0.0f)
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("clip_by_norm")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("max_norm", 0.0f)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("cast")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("in_dtype", static_cast<int>(DType::kFloat32))
                   .RequiredAttr("out_dtype", static_cast<int>(DType::kFloat32))
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(InferCast));
}

}  // namespace

void AddMathSchemas(OpSchemaTable* schemas) {
  AddProducts(schemas);
  AddReductions(schemas);
  AddSumsAndScaling(schemas);
}

}  // namespace weft
