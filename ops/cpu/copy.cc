// Copies of a tensor, with the same or another element type, or under other dims.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/float16.h"
#include "ops/formulas/cast.h"
#include "ops/half_arrays.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

void CopyBytes(const Tensor& from, Tensor* to) {
  if (from.bytes() > 0 && to->raw() != from.raw()) std::memcpy(to->raw(), from.raw(), from.bytes());
}

// Out = X, of any element type: assign, memcpy (which copies to another device elsewhere) and
// share_data.
absl::StatusOr<Kernel> Assign(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  if (!x) return absl::InvalidArgumentError("input X: missing");
  return op.InPlace().View(out, x).Pointwise().Make(
      RawElements{x}, [=](const KernelContext& ctx, auto) { CopyBytes(x(ctx), &out(ctx)); });
}

// Out is X: the op only comes after what writes Dep.
absl::StatusOr<Kernel> Depend(OpKernel op) {
  op.Ignore({"Dep"});
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().View(out, x).Make(
      RawElements{x}, [=](const KernelContext& ctx, auto) { CopyBytes(x(ctx), &out(ctx)); });
}

// X@GRAD = Out@GRAD.
absl::StatusOr<Kernel> AssignGrad(OpKernel op) {
  op.Ignore({"X", "Out"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.InPlace().View(dx, dout).Pointwise().Make(
      RawElements{dout}, [=](const KernelContext& ctx, auto) { CopyBytes(dout(ctx), &dx(ctx)); });
}

// Out = X in another memory, which is why Out is never X itself. Both memories are those of the
// host (executor/streams/sim_device.h).
absl::StatusOr<Kernel> CopyBetweenMemories(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x},
                 [=](const KernelContext& ctx, auto) { CopyBytes(x(ctx), &out(ctx)); });
}

// The same of SelectedRows: rows with their indices.
absl::StatusOr<Kernel> CopyRowsBetweenMemories(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& from = x(ctx);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", from));
    Tensor* const to = &out(ctx);
    to->ResizeRows(from.dtype(), from.TallDims(), from.dim(0));
    std::copy(from.rows().begin(), from.rows().end(), to->mutable_rows().begin());
    CopyBytes(from, to);
    return absl::OkStatus();
  });
}

// Like Paddle's CPU kernel: fp16 by truncation, and infinite beyond the largest number.
template <typename To>
struct CastLikePaddle {
  template <typename From>
  To operator()(From value) const {
    if constexpr (std::is_same_v<To, Float16> && std::is_arithmetic_v<From>) {
      const double x = static_cast<double>(value), magnitude = std::fabs(x);
      if (std::isnan(x) || magnitude > 65504) return Float16(x * HUGE_VAL);
      const int exponent = magnitude == 0 ? -24 : std::ilogb(magnitude);
      const int unit = exponent < -14 ? -24 : exponent - 10;
      return Float16(std::ldexp(std::trunc(std::ldexp(x, -unit)), unit));
    } else {
      return formulas::Cast<To>()(value);
    }
  }
};

// Out = X, converted element by element.
template <template <typename To> class Formula>
absl::StatusOr<Kernel> MakeCast(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion()
      .Pointwise()
      .Supports(AllTypes(x))
      .Make([=](const KernelContext& ctx) {
        return ForAnyType("input X", x(ctx), [&](auto from_tag) {
          return ForAnyType("output Out", out(ctx), [&](auto to_tag) {
            using From = typename decltype(from_tag)::type;
            using To = typename decltype(to_tag)::type;
            const From* from = x.data<From>(ctx);
            To* to = out.data<To>(ctx);
            const int64_t size = x(ctx).size();
            if constexpr (kConvertsArrays<From, To> &&
                          std::is_same_v<Formula<To>, formulas::Cast<To>>) {
              ConvertArray(from, to, size);
            } else {
              for (int64_t i = 0; i < size; ++i) to[i] = Formula<To>()(from[i]);
            }
            return absl::OkStatus();
          });
        });
      });
}

// The same of rows of floating-point numbers.
absl::StatusOr<Kernel> CastRows(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const DType dtype = static_cast<DType>(op.attrs().Int("out_dtype"));
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& from = x(ctx);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", from));
    Tensor* const to = &out(ctx);
    if (to == &from) {
      return absl::UnimplementedError("output Out: no kernel that works in place of an input");
    }
    to->ResizeRows(dtype, from.TallDims(), from.dim(0));
    std::copy(from.rows().begin(), from.rows().end(), to->mutable_rows().begin());
    return ConvertFloats("input X", from, "output Out", to);
  });
}

absl::StatusOr<Kernel> Cast(const KernelSpec& spec) {
  return spec.paddle_cpu_quirks ? MakeCast<CastLikePaddle>(spec) : MakeCast<formulas::Cast>(spec);
}

// Out = X; inference determines its dims.
absl::StatusOr<Kernel> Reshaped(OpKernel op, const char* from, const char* to) {
  op.Ignore({"X", "Out", "XShape"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.View(out, x).Make(
      RawElements{x}, [=](const KernelContext& ctx, auto) { CopyBytes(x(ctx), &out(ctx)); });
}

}  // namespace

void AddCopyKernels(KernelTable* table) {
  table->Add("assign", Assign);
  table->Add("cast", Cast);
  table->AddForRows("cast", CastRows);
  table->Add("memcpy", Assign);
  for (const char* type : {"memcpy_d2h", "memcpy_h2d"}) {
    table->Add(type, CopyBetweenMemories);
    table->AddForRows(type, CopyRowsBetweenMemories);
  }
  table->Add("depend", Depend);
  table->Add("rnn_memory_helper", Assign, AssignGrad);
  table->Add("share_data", Assign);
  for (const char* type : {"flatten", "flatten2", "flatten_contiguous_range", "reshape", "reshape2",
                           "squeeze", "squeeze2", "unsqueeze", "unsqueeze2"}) {
    table->Add(
        type, [](const KernelSpec& spec) { return Reshaped(spec, "X", "Out"); },
        [](const KernelSpec& spec) { return Reshaped(spec, "Out@GRAD", "X@GRAD"); });
  }
}

}  // namespace weft
