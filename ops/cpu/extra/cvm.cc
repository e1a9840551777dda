// Features of a recommender whose first two columns count shows and clicks.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr int64_t kCounts = 2;

// With use_cvm Y = X but for log(shows + 1) and log(clicks + 1) - log(shows + 1) in place of the
// counts; otherwise Y has no columns for them.
absl::StatusOr<Kernel> Cvm(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"CVM"});
  const In x = op.in("X");
  const Out y = op.out("Y");
  const bool keeps_counts = spec.attrs.Bool("use_cvm");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = x(ctx).dim(1), left_out = keeps_counts ? 0 : kCounts;
    const T* from = x.data<T>(ctx);
    T* to = y.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).dim(0); ++i, from += width, to += width - left_out) {
      std::copy(from + left_out, from + width, to);
      if (!keeps_counts) continue;
      to[0] = std::log(from[0] + 1);
      to[1] = std::log(from[1] + 1) - to[0];
    }
  });
}

// As the op defines it, the gradients of the counts are those of this step: CVM.
absl::StatusOr<Kernel> CvmGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In counts = op.in("CVM"), dy = op.in("Y@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t left_out = spec.attrs.Bool("use_cvm") ? 0 : kCounts;
  return op.Make(Floats(dy), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = dx(ctx).dim(1);
    const T *from = dy.data<T>(ctx), *count = counts.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    for (int64_t i = 0; i < dx(ctx).dim(0); ++i, from += width - left_out, to += width) {
      std::copy(from, from + width - left_out, to + left_out);
      std::copy_n(count + i * kCounts, kCounts, to);
    }
  });
}

}  // namespace

void AddCvmKernels(KernelTable* table) {
  table->Add("cvm", Cvm);
  table->Add("cvm_grad", CvmGrad);
}

}  // namespace weft
