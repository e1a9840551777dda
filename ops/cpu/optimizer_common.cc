#include "ops/cpu/optimizer_common.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/cpu/kernel_util.h"

namespace weft {
namespace {

absl::Status CheckLikeParam(absl::string_view slot, const Tensor& tensor, const Tensor& param) {
  WEFT_RETURN_IF_ERROR(CheckDType(slot, tensor, param.dtype()));
  return CheckSize(slot, tensor, param.size());
}

}  // namespace

absl::StatusOr<OptimizerState> OptimizerState::Make(const KernelSpec& spec,
                                                    const std::string& slot) {
  OptimizerState state;
  WEFT_ASSIGN_OR_RETURN(state.in, RequiredInput(spec, slot));
  WEFT_ASSIGN_OR_RETURN(state.out, RequiredOutput(spec, absl::StrCat(slot, "Out")));
  return state;
}

absl::Status OptimizerState::CheckLike(const KernelContext& ctx, absl::string_view slot,
                                       const Tensor& param) const {
  return CheckLikeParam(slot, *ctx.in(in), param);
}

void OptimizerState::Copy(const KernelContext& ctx) const {
  const Tensor& from = *ctx.in(in);
  Tensor* to = ctx.out(out);
  if (to == &from) return;
  to->Resize(from.dtype(), from.dims());
  std::memcpy(to->raw(), from.raw(), from.bytes());
}

absl::StatusOr<OptimizerCommon> OptimizerCommon::Make(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"MasterParam"}));
  OptimizerCommon common;
  WEFT_ASSIGN_OR_RETURN(common.param, OptimizerState::Make(spec, "Param"));
  WEFT_ASSIGN_OR_RETURN(common.grad, RequiredInput(spec, "Grad"));
  WEFT_ASSIGN_OR_RETURN(common.learning_rate, RequiredInput(spec, "LearningRate"));
  return common;
}

absl::StatusOr<double> OptimizerCommon::LearningRate(const KernelContext& ctx) const {
  return ScalarValue("LearningRate", *ctx.in(learning_rate));
}

absl::Status OptimizerCommon::CheckGrad(const KernelContext& ctx) const {
  return CheckLikeParam("Grad", *ctx.in(grad), *ctx.in(param.in));
}

}  // namespace weft
