#include "ops/cpu/optimizer_grad.h"

#include "base/status_macros.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/rows.h"

namespace weft {

absl::Status OptimizerGrad::Read(const Tensor& grad, const Tensor& param) {
  if (kind_ == Kind::kDense) {
    WEFT_RETURN_IF_ERROR(CheckDType("Grad", grad, param.dtype()));
    dense_ = &grad;
    return CheckSize("Grad", grad, param.size());
  }
  WEFT_RETURN_IF_ERROR(CheckRowsOf("Grad", grad, param.dtype(), param.dims()));
  return merger_.Merge(grad, &merged_);
}

}  // namespace weft
