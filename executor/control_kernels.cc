#include "executor/control_kernels.h"

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::Status Copy(const Tensor& x, Tensor* out) {
  if (&x == out) return absl::OkStatus();
  out->Resize(x.dtype(), x.dims());
  if (x.bytes() > 0) std::memcpy(out->raw(), x.raw(), x.bytes());
  return absl::OkStatus();
}

// The element of `mask`, which must be in [0, count).
absl::StatusOr<int> Selected(const Tensor* mask, int count) {
  if (mask == nullptr || !mask->allocated()) {
    return absl::FailedPreconditionError("input Mask: holds nothing when it is read");
  }
  const bool is_bool = mask->dtype() == DType::kBool;
  if (mask->size() != 1 || !(is_bool || mask->dtype() == DType::kInt32)) {
    return absl::InvalidArgumentError(absl::StrCat("input Mask: expected one int32 or bool, found ",
                                                   DTypeName(mask->dtype()),
                                                   DimsToString(mask->dims())));
  }
  const int selected = is_bool ? static_cast<int>(*mask->data<bool>()) : *mask->data<int32_t>();
  if (selected >= 0 && selected < count) return selected;
  return absl::InvalidArgumentError(
      absl::StrCat("input Mask: ", selected, " is not in [0, ", count, ")"));
}

// The one slot of `slots` with this name; none has count 0.
KernelSpec::Slot SlotOf(const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
                        absl::string_view name) {
  const auto it = slots.find(name);
  return it == slots.end() ? KernelSpec::Slot() : it->second;
}

absl::StatusOr<Kernel> SelectInput(const KernelSpec& spec) {
  const int mask = spec.Input("Mask"), out = spec.Output("Out");
  const KernelSpec::Slot xs = SlotOf(spec.inputs, "X");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int selected, Selected(ctx.in(mask), xs.count));
    const Tensor* x = ctx.in(xs.first + selected);
    if (x == nullptr || !x->allocated()) {
      return absl::FailedPreconditionError(
          absl::StrCat("input X: variable ", selected, " holds nothing when it is read"));
    }
    return ctx.out(out) == nullptr ? absl::OkStatus() : Copy(*x, ctx.out(out));
  });
}

absl::StatusOr<Kernel> SelectOutput(const KernelSpec& spec) {
  const int mask = spec.Input("Mask"), x_index = spec.Input("X");
  const KernelSpec::Slot outs = SlotOf(spec.outputs, "Out");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int selected, Selected(ctx.in(mask), outs.count));
    const Tensor* x = ctx.in(x_index);
    if (x == nullptr || !x->allocated()) {
      return absl::FailedPreconditionError("input X: holds nothing when it is read");
    }
    Tensor* out = ctx.out(outs.first + selected);
    return out == nullptr ? absl::OkStatus() : Copy(*x, out);
  });
}

}  // namespace

const KernelFactory* FindSelectKernel(absl::string_view op_type) {
  static const KernelFactory& select_input = *new KernelFactory(SelectInput);
  static const KernelFactory& select_output = *new KernelFactory(SelectOutput);
  if (op_type == "select_input") return &select_input;
  if (op_type == "select_output") return &select_output;
  return nullptr;
}

const KernelFactory& CopyKernel() {
  static const KernelFactory& factory = *new KernelFactory([](const KernelSpec&) {
    return Kernel([](const KernelContext& ctx) { return Copy(*ctx.in(0), ctx.out(0)); });
  });
  return factory;
}

const KernelFactory& ZerosKernel() {
  static const KernelFactory& factory = *new KernelFactory([](const KernelSpec&) {
    return Kernel([](const KernelContext& ctx) {
      const Tensor& x = *ctx.in(0);
      Tensor* out = ctx.out(0);
      out->Resize(x.dtype(), x.dims());
      if (x.bytes() > 0) std::memset(out->raw(), 0, x.bytes());  // zero in every element type
      return absl::OkStatus();
    });
  });
  return factory;
}

}  // namespace weft
