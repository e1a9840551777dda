// Products of vectors, matrices and tensors.
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/einsum.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Kronecker products -------------------------------------------------------------------------

// Every element of X times all of Y.
absl::Status InferKron(InferContext& context, const TensorType& x, const TensorType& y) {
  Dims a = x.dims, b = y.dims;
  while (a.size() < b.size()) a.insert(a.begin(), 1);
  while (b.size() < a.size()) b.insert(b.begin(), 1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = MulDim(a[i], b[i]);
  context.SetOutput("Out", {x.dtype, a});
  return absl::OkStatus();
}

// --- Cross products -----------------------------------------------------------------------------

// The axis has three elements. 9 stands for the first axis that has.
absl::Status CheckCross(InferContext& context, const TensorType& x) {
  const int64_t dim = context.attrs().Int("dim");
  if (dim == 9) {
    if (absl::c_none_of(x.dims, [](int64_t size) { return DimFits(size, 3); })) {
      return context.InputError("X", "a dimension of size 3");
    }
  } else {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "dim", dim, x.dims.size()));
    if (!DimFits(x.dims[axis], 3)) {
      return context.InputError("X", absl::StrCat("size 3 of dimension ", axis));
    }
  }
  return absl::OkStatus();
}

// --- Bilinear forms -----------------------------------------------------------------------------

// Out[b, k] = X[b] Weight[k] Y[b] + Bias[k].
absl::Status InferBilinear(InferContext& context, const TensorType& x, const TensorType& y) {
  const TensorType* weight = context.Input("Weight");
  if (weight == nullptr) return absl::OkStatus();
  if (x.dims.size() != 2) return context.InputError("X", "two dimensions");
  if (y.dims.size() != 2 || !DimFits(x.dims[0], y.dims[0])) {
    return context.InputError("Y", absl::StrCat("two dimensions, with ", x.dims[0], " rows"));
  }
  if (weight->dims.size() != 3 || !DimFits(weight->dims[1], x.dims[1]) ||
      !DimFits(weight->dims[2], y.dims[1])) {
    return context.InputError("Weight",
                              absl::StrCat("dimensions [-1, ", x.dims[1], ", ", y.dims[1], "]"));
  }
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Bias", {1, weight->dims[0]}));
  context.SetOutput("Out", {x.dtype, {x.dims[0], weight->dims[0]}});
  return absl::OkStatus();
}

// --- Sums of products in index notation ---------------------------------------------------------

// InnerCache keeps the operands: the gradient op reads nothing else of them. InnerCache and XShape
// stay unset: Paddle's programs declare them without dims.
absl::Status InferEinsum(InferContext& context) {
  std::vector<Dims> dims;
  for (size_t i = 0; i < context.NumInputs("Operands"); ++i) {
    const TensorType* operand = context.Input("Operands", i);
    if (operand == nullptr) return absl::OkStatus();
    if (operand->dtype != context.Input("Operands")->dtype) {
      return context.InputError("Operands", i, "one element type");
    }
    dims.push_back(operand->dims);
  }
  WEFT_ASSIGN_OR_RETURN(const Einsum einsum, ParseEinsum(context.attrs().String("equation"), dims));
  if (!dims.empty()) context.SetOutput("Out", {context.Input("Operands")->dtype, einsum.OutDims()});
  return absl::OkStatus();
}

}  // namespace

void AddProductSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("kron", "X, Y -> Out")
                  .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferKron)}))
                  .Batch({batch::Kron, Powers::kProduct})
                  .Pir(),
              {{"X", "Y"}, {"Out"}, {"X", "Y"}});
  AddWithGrad(
      schemas,
      OpSchema("cross", "X, Y -> Out")
          .Attr("dim", 9)
          .Infer(InOrder({SameType("X", "Y"), IfKnown("X", CheckCross), Like("X", {"Out"})}))
          .Batch({batch::Cross, Powers::kProduct})
          .Pir("{axis=dim}"),
      {{"X", "Y"}, {"Out"}, {"X", "Y"}});
  AddWithGrad(schemas,
              OpSchema("bilinear_tensor_product", "Bias?, Weight, X, Y -> Out")
                  .Infer(IfKnown("X", "Y", InferBilinear))
                  .Batch({batch::Rows({"X", "Y"})})
                  .Pir("bilinear(x, y, weight, bias)"),
              {{"Weight", "X", "Y"}, {"Out"}, {"Bias", "Weight", "X", "Y"}});
  schemas->Add(OpSchema("einsum", "Operands* -> InnerCache*?~, Out, XShape*?~")
                   .RequiredAttr("equation", std::string())
                   .Infer(InferEinsum)
                   .Batch({batch::Einsum, Powers::kProduct})
                   .Pir("-> out, inner_cache, xshape", "(x_shape!, inner_cache, out_grad)"));
  schemas->Add(OpSchema("einsum_grad", "InnerCache*, Out@GRAD, x_shape*? -> Operands@GRAD*?")
                   .RequiredAttr("equation", std::string())
                   .Infer([](InferContext&) { return absl::OkStatus(); }));
}

}  // namespace weft
