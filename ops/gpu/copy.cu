// Copies of a tensor, with the same or another element type, or under other dims.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/formulas/cast.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

absl::Status CopyElements(const KernelContext& ctx, const Tensor& from, Tensor* to) {
  return Copy(ctx, from.raw(), from.bytes(), to->raw());
}

// Out = X, of any element type. memcpy stays in the memory of the device: of a program on one
// device, all variables lie there.
absl::StatusOr<Kernel> Assign(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  if (!x) return absl::InvalidArgumentError("input X: missing");
  return op.InPlace().View(out, x).Make(RawElements{x}, [=](const KernelContext& ctx, auto) {
    return CopyElements(ctx, x(ctx), &out(ctx));
  });
}

// Out = X in another memory, of which one is the device's and one the host's.
absl::StatusOr<Kernel> CopyBetweenMemories(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto) {
    return CopyElements(ctx, x(ctx), &out(ctx));
  });
}

// The same of SelectedRows, whose indices are on the host in either memory.
absl::StatusOr<Kernel> CopyRowsBetweenMemories(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& from = x(ctx);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", from));
    Tensor* const to = &out(ctx);
    to->ResizeRows(from.dtype(), from.TallDims(), from.dim(0));
    std::copy(from.rows().begin(), from.rows().end(), to->mutable_rows().begin());
    return CopyElements(ctx, from, to);
  });
}

// Out = X; inference determines its dims.
absl::StatusOr<Kernel> Reshaped(OpKernel op, const char* from, const char* to) {
  op.Ignore({"X", "Out", "XShape"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.View(out, x).Make(RawElements{x}, [=](const KernelContext& ctx, auto) {
    return CopyElements(ctx, x(ctx), &out(ctx));
  });
}

template <typename From, typename To>
struct CastElement {
  const From* from;
  To* to;
  WEFT_DEVICE void operator()(int64_t i) const { to[i] = formulas::Cast<To>()(from[i]); }
};

// Out = X, converted element by element.
absl::StatusOr<Kernel> Cast(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(x)).Make([=](const KernelContext& ctx) {
    return ForAnyType("input X", x(ctx), [&](auto from_tag) {
      return ForAnyType("output Out", out(ctx), [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        return ForEach(ctx, x(ctx).size(),
                       CastElement<From, To>{x.data<From>(ctx), out.data<To>(ctx)});
      });
    });
  });
}

}  // namespace

void AddGpuCopyKernels(KernelTable* table) {
  table->Add("cast", Cast);
  for (const char* type : {"assign", "memcpy", "share_data"}) table->Add(type, Assign);
  for (const char* type : {"memcpy_d2h", "memcpy_h2d"}) {
    table->Add(type, CopyBetweenMemories);
    table->AddForRows(type, CopyRowsBetweenMemories);
  }
  for (const char* type : {"flatten", "flatten2", "flatten_contiguous_range", "reshape", "reshape2",
                           "squeeze", "squeeze2", "unsqueeze", "unsqueeze2"}) {
    table->Add(
        type, [](const KernelSpec& spec) { return Reshaped(spec, "X", "Out"); },
        [](const KernelSpec& spec) { return Reshaped(spec, "Out@GRAD", "X@GRAD"); });
  }
}

}  // namespace weft
