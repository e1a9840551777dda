// Tensors made from attributes, or after the shape of another one. The host computes initializers,
// so that training starts with the same bits on every device, and what few numbers determine.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/constant.h"
#include "ops/gpu/element_check.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/on_host.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the same number everywhere; its type and shape are inferred.
absl::StatusOr<Kernel> Fill(OpKernel op, const char* like, double value) {
  op.Ignore({like});
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(In())).Make([=](const KernelContext& ctx) {
    return ForAnyType("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(ctx, out(ctx).size(), FillElement<T>{static_cast<T>(value), out.data<T>(ctx)});
    });
  });
}

// The same for the bits of a number that attributes say.
absl::StatusOr<Kernel> FillConstant(OpKernel op) {
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const Tensor element, ConstantOf(op.spec()));
  return op.WithoutHalfConversion().Supports(AllTypes(In())).Make([=](const KernelContext& ctx) {
    return ForElementSize(element.dtype(), [&](auto zero) {
      using Bits = decltype(zero);
      const Bits bits = *static_cast<const Bits*>(element.raw());
      return ForEach(ctx, out(ctx).size(), FillElement<Bits>{bits, out.elements<Bits>(ctx)});
    });
  });
}

template <typename Index, typename T>
struct OneHotElement {
  const Index* classes;
  int64_t depth;
  bool allows_others;
  gpu::ElementCheck check;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / depth, c = classes[row];
    const bool is_known = allows_others || check.IsInRange(c, 0, depth, row);
    to[i] = is_known ? static_cast<T>(i % depth == c) : gpu::NoValue<T>();
  }
};

// Out[i..., k] = 1 if X[i...] is k. With allow_out_of_range, indices outside of the classes give a
// row of zeros.
absl::StatusOr<Kernel> OneHot(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t depth = op.attrs().Int("depth");
  const bool allows_others = op.attrs().Bool("allow_out_of_range");
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) {
    using Index = decltype(zero);
    return ForArithmeticType("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(ctx, out(ctx).size(),
                     OneHotElement<Index, T>{x.data<Index>(ctx), depth, allows_others,
                                             gpu::ElementCheck(ctx, "X"), out.data<T>(ctx)});
    });
  });
}

struct WriteDims {
  int64_t dims[16];
  int32_t* to;
  WEFT_DEVICE void operator()(int64_t i) const { to[i] = static_cast<int32_t>(dims[i]); }
};

// Out = the dims of Input.
absl::StatusOr<Kernel> Shape(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion()
      .Supports(AllTypes(x))
      .Make([=](const KernelContext& ctx) -> absl::Status {
        const Dims& dims = x(ctx).dims();
        WriteDims write{{}, out.data<int32_t>(ctx)};
        if (dims.size() > std::size(write.dims)) {
          return absl::UnimplementedError(
              absl::StrCat("input Input: no kernel for shape ", DimsToString(dims)));
        }
        std::copy(dims.begin(), dims.end(), write.dims);
        return ForEach(ctx, static_cast<int64_t>(dims.size()), write);
      });
}

}  // namespace

void AddGpuCreationKernels(KernelTable* table) {
  for (const char* type : {"assign_value", "empty", "gaussian_random", "range",
                           "truncated_gaussian_random", "uniform_random"}) {
    table->Add(type, OnHost(type));
  }
  table->Add("fill_any_like",
             [](const KernelSpec& spec) { return Fill(spec, "X", spec.attrs.Float("value")); });
  table->Add("fill_constant_batch_size_like",
             [](const KernelSpec& spec) { return Fill(spec, "Input", spec.attrs.Float("value")); });
  table->Add("fill_zeros_like", [](const KernelSpec& spec) { return Fill(spec, "X", 0); });
  table->Add("fill_constant", FillConstant);
  table->Add("one_hot_v2", OneHot);
  table->Add("shape", Shape);
}

}  // namespace weft
