// Copies of a tensor: as it is, and with another element type.
#include <cstring>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"

namespace weft {
namespace {

// Out = X, of any element type.
absl::StatusOr<Kernel> Assign(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    if (out == &x) return absl::OkStatus();
    out->Resize(x.dtype(), x.dims());
    std::memcpy(out->raw(), x.raw(), x.bytes());
    return absl::OkStatus();
  });
}

// Out = X converted element by element, as static_cast does.
absl::StatusOr<Kernel> Cast(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const absl::optional<DType> to_type = DTypeFromProto(spec.attrs.Int("out_dtype"));
  if (!to_type) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute out_dtype: ", spec.attrs.Int("out_dtype"), " is no element type"));
  }
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    if (out == &x) {
      if (x.dtype() == *to_type) return absl::OkStatus();
      return absl::UnimplementedError("output Out: cannot be converted in place of input X");
    }
    out->Resize(*to_type, x.dims());
    return ForArithmeticType("input X", x, [&](auto from_tag) {
      return ForArithmeticType("output Out", *out, [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        const From* from = x.data<From>();
        To* to = out->data<To>();
        for (int64_t i = 0; i < x.size(); ++i) to[i] = static_cast<To>(from[i]);
        return absl::OkStatus();
      });
    });
  });
}

}  // namespace

void AddCopyKernels(KernelTable* table) {
  table->Add("assign", Assign);
  table->Add("cast", Cast);
}

}  // namespace weft
