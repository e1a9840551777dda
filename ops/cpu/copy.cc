// Copies of a tensor, with the same or another element type.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X, of any element type: assign, memcpy (to another device, of which the CPU has one) and
// share_data.
absl::StatusOr<Kernel> Assign(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  if (!x) return absl::InvalidArgumentError("input X: missing");
  return op.InPlace().Make(RawElements{x}, [=](const KernelContext& ctx, auto) {
    if (out(ctx).raw() != x(ctx).raw() && x(ctx).bytes() > 0) {
      std::memcpy(out(ctx).raw(), x(ctx).raw(), x(ctx).bytes());
    }
  });
}

// Like static_cast.
struct Exactly {
  template <typename To, typename From>
  static To Convert(From value) {
    if constexpr (std::is_class_v<From>) {
      return static_cast<To>(float{value});  // half precision
    } else {
      return static_cast<To>(value);
    }
  }
};

// Like Paddle's CPU kernel: fp16 by truncation, and infinite beyond the largest number.
struct LikePaddle {
  template <typename To, typename From>
  static To Convert(From value) {
    if constexpr (std::is_same_v<To, Float16> && std::is_arithmetic_v<From>) {
      const double x = static_cast<double>(value), magnitude = std::fabs(x);
      if (std::isnan(x) || magnitude > 65504) return Float16(x * HUGE_VAL);
      const int exponent = magnitude == 0 ? -24 : std::ilogb(magnitude);
      const int unit = exponent < -14 ? -24 : exponent - 10;
      return Float16(std::ldexp(std::trunc(std::ldexp(x, -unit)), unit));
    } else {
      return Exactly::Convert<To>(value);
    }
  }
};

template <typename Run>
absl::Status ForAnyType(absl::string_view slot, const Tensor& tensor, Run run) {
  return ForElementType<float, double, int32_t, int64_t, int8_t, uint8_t, int16_t, bool, Float16,
                        BFloat16>(slot, tensor, run);
}

// Out = X, converted element by element.
template <typename How>
absl::StatusOr<Kernel> MakeCast(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(x)).Make([=](const KernelContext& ctx) {
    return ForAnyType("input X", x(ctx), [&](auto from_tag) {
      return ForAnyType("output Out", out(ctx), [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        const From* from = x.data<From>(ctx);
        To* to = out.data<To>(ctx);
        const int64_t size = x(ctx).size();
        for (int64_t i = 0; i < size; ++i) to[i] = How::template Convert<To>(from[i]);
        return absl::OkStatus();
      });
    });
  });
}

absl::StatusOr<Kernel> Cast(const KernelSpec& spec) {
  return spec.paddle_cpu_quirks ? MakeCast<LikePaddle>(spec) : MakeCast<Exactly>(spec);
}

}  // namespace

void AddCopyKernels(KernelTable* table) {
  table->Add("assign", Assign);
  table->Add("cast", Cast);
  table->Add("memcpy", Assign);
  table->Add("share_data", Assign);
}

}  // namespace weft
