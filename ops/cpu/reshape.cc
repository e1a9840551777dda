// The same elements under other dimensions.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/computed_attrs.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

absl::Status DoesNotFit(const std::vector<int64_t>& shape, const Dims& x) {
  return absl::InvalidArgumentError(absl::StrCat("attribute shape: ", DimsToString(shape),
                                                 " does not fit shape ", DimsToString(x),
                                                 " of input X"));
}

// 0 copies the dimension of X at the same place, -1 (at most one) takes what is left.
absl::StatusOr<Dims> ReshapedDims(const std::vector<int64_t>& shape, const Dims& x) {
  Dims dims;
  int rest = -1;  // where the -1 is
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < -1 || (shape[i] == -1 && rest >= 0) || (shape[i] == 0 && i >= x.size())) {
      return DoesNotFit(shape, x);
    }
    if (shape[i] == -1) rest = static_cast<int>(i);
    dims.push_back(shape[i] == -1 ? 1 : shape[i] == 0 ? x[i] : shape[i]);
  }
  const int64_t size = NumElements(x), others = NumElements(dims);
  if (rest >= 0) dims[rest] = others == 0 ? 0 : size / others;
  if (NumElements(dims) != size) return DoesNotFit(shape, x);
  return dims;
}

// Copies the elements, or only gives them other dims where both are one variable.
void CopyAs(const Dims& dims, const Tensor& from, Tensor* to) {
  if (to == &from) return to->Reshape(dims);
  to->Resize(from.dtype(), dims);
  std::memcpy(to->raw(), from.raw(), from.bytes());
}

// Out = X of attribute shape. XShape has no elements; it keeps the dims of X, behind a 0, for the
// gradient.
absl::StatusOr<Kernel> Reshape(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"Shape", "ShapeTensor"}));
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const int xshape_index = spec.Output("XShape");
  const std::vector<int64_t> shape = spec.attrs.Ints("shape");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    WEFT_ASSIGN_OR_RETURN(const Dims dims, ReshapedDims(shape, x.dims()));
    if (Tensor* xshape = ctx.out(xshape_index)) {
      Dims kept = x.dims();
      kept.insert(kept.begin(), 0);
      xshape->Resize(x.dtype(), kept);
    }
    CopyAs(dims, x, ctx.out(out_index));
    return absl::OkStatus();
  });
}

// X@GRAD = Out@GRAD with the dims that XShape keeps.
absl::StatusOr<Kernel> ReshapeGrad(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int xshape_index, RequiredInput(spec, "XShape"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& xshape = *ctx.in(xshape_index);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dx = ctx.out(dx_index);
    if (dx == nullptr) return absl::OkStatus();
    if (xshape.rank() == 0) {
      return absl::InvalidArgumentError("input XShape: expected at least one dimension, found []");
    }
    const Dims dims(xshape.dims().begin() + 1, xshape.dims().end());
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout, NumElements(dims)));
    CopyAs(dims, dout, dx);
    return absl::OkStatus();
  });
}

}  // namespace

void AddReshapeKernels(KernelTable* table) {
  table->Add("reshape2", WithComputedAttrs({{{"shape"}, "Shape", "ShapeTensor"}}, Reshape));
  table->Add("reshape2_grad", ReshapeGrad);
}

}  // namespace weft
