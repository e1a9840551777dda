// What updates read and write: for .cu files only.
#ifndef WEFT_OPS_GPU_UPDATE_STATE_H_
#define WEFT_OPS_GPU_UPDATE_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {

enum class Half { kNo, kFloat16, kBFloat16 };

inline Half HalfOf(DType dtype) {
  return dtype == DType::kFloat16    ? Half::kFloat16
         : dtype == DType::kBFloat16 ? Half::kBFloat16
                                     : Half::kNo;
}

// An element of a gradient: of type T, or of half precision.
template <typename T>
WEFT_DEVICE T ReadElement(const void* from, Half half, int64_t i) {
  if (half == Half::kFloat16) {
    return static_cast<T>(static_cast<float>(static_cast<const Float16*>(from)[i]));
  }
  if (half == Half::kBFloat16) {
    return static_cast<T>(static_cast<float>(static_cast<const BFloat16*>(from)[i]));
  }
  return static_cast<const T*>(from)[i];
}

// The same of a parameter with a master weight, rounded.
template <typename T>
WEFT_DEVICE void WriteElement(T value, void* to, Half half, int64_t i) {
  if (half == Half::kFloat16) {
    static_cast<Float16*>(to)[i] = static_cast<Float16>(static_cast<float>(value));
  } else if (half == Half::kBFloat16) {
    static_cast<BFloat16*>(to)[i] = static_cast<BFloat16>(static_cast<float>(value));
  } else {
    static_cast<T*>(to)[i] = value;
  }
}

// Tensors that are both input and output, mostly in place.
struct State {
  std::string slot;
  In in;
  Out out;
};

inline absl::StatusOr<State> MakeState(OpKernel& op, const char* slot) {
  State state;
  state.slot = slot;
  if (op.spec().schema->FindInput(slot) == nullptr) return state;
  state.in = op.in(slot);
  if (!state.in) return state;
  for (const SlotSchema& output : op.spec().schema->outputs()) {
    if (output.in_place_of == slot) state.out = op.out(output.name);
  }
  // Another op may advance a power of beta.
  const bool is_read_only = !state.out && absl::StrContains(state.slot, "Pow");
  if (!is_read_only && state.out.count() != state.in.count()) {
    return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected variables that the ",
                                                   "op also writes, as many as it reads"));
  }
  op.InPlace(state.out, state.in);
  return state;
}

// The outputs that are other variables than the inputs become copies of them.
inline absl::Status CopyToOutputs(const KernelContext& ctx, const State& state) {
  for (int i = 0; i < state.out.count(); ++i) {
    Tensor* const to = state.out.get(ctx, i);
    if (to == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", state.slot, ": expected a variable that the op also writes"));
    }
    const Tensor& from = state.in(ctx, i);
    if (to == &from) continue;
    to->Resize(from.dtype(), from.dims());
    WEFT_RETURN_IF_ERROR(Copy(ctx, from.raw(), from.bytes(), to->raw()));
  }
  return absl::OkStatus();
}

// A parameter, or its master weight, and its gradient.
template <typename T>
struct Updated {
  T* param;
  const void* grad;
  void* rounded;  // the parameter of a master weight, or null
  Half grad_half, rounded_half;

  WEFT_DEVICE T Gradient(int64_t i) const { return ReadElement<T>(grad, grad_half, i); }
  WEFT_DEVICE void Round(T value, int64_t i) const {
    if (rounded != nullptr) WriteElement(value, rounded, rounded_half, i);
  }
};

// Variable i, after CopyToOutputs.
template <typename T>
absl::StatusOr<Updated<T>> UpdatedOf(const KernelContext& ctx, const State& param,
                                     const State& master, const In& grad, int i) {
  Tensor& tensor = (master.in ? master : param).out(ctx, i);
  const Tensor& gradient = grad(ctx, i);
  WEFT_RETURN_IF_ERROR(CheckSize("Param", param.in(ctx, i), tensor.size()));
  WEFT_RETURN_IF_ERROR(CheckSize("Grad", gradient, tensor.size()));
  Updated<T> updated{tensor.data<T>(), gradient.raw(), nullptr, HalfOf(gradient.dtype()),
                     Half::kNo};
  if (updated.grad_half == Half::kNo) {
    WEFT_RETURN_IF_ERROR(CheckDType("Grad", gradient, tensor.dtype()));
  }
  if (!master.in) return updated;
  updated.rounded = param.out(ctx, i).raw();
  updated.rounded_half = HalfOf(param.out(ctx, i).dtype());
  if (updated.rounded_half == Half::kNo) {
    WEFT_RETURN_IF_ERROR(CheckDType("Param", param.out(ctx, i), tensor.dtype()));
  }
  return updated;
}

// `run`(ctx, T()) with the type of the parameter, or of its master weight.
template <typename Run>
absl::StatusOr<Kernel> MakeUpdate(OpKernel& op, const State& param, const State& master, Run run) {
  if (!master.in) return op.Make(Floats(param.in), run);
  return op.WithoutHalfConversion()
      .Supports(ElementTypesOf<Float16, BFloat16, float, double>())
      .Make([=](const KernelContext& ctx) {
        return ForFloatType("input MasterParam", master.in(ctx),
                            [&](auto tag) { return run(ctx, typename decltype(tag)::type()); });
      });
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_UPDATE_STATE_H_
