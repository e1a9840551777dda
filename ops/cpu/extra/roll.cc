// Elements moved around a dimension, those beyond its end to its start.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Rotates the elements along dimensions: forwards by `shifts`, or backwards.
void Roll(const Dims& dims, const std::vector<int64_t>& axes, const std::vector<int64_t>& shifts,
          bool backwards, const std::function<void(int64_t from, int64_t to)>& move) {
  Dims shift(dims.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t axis = NormalizedAxis(axes[i], dims.size());
    const int64_t n = std::max<int64_t>(dims[axis], 1);
    shift[axis] = ((shift[axis] + (backwards ? -shifts[i] : shifts[i])) % n + n) % n;
  }
  const Dims strides = RowMajorStrides(dims);
  const int64_t size = NumElements(dims);
  for (int64_t from = 0; from < size; ++from) {
    int64_t to = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      to += (from / strides[d] % dims[d] + shift[d]) % dims[d] * strides[d];
    }
    move(from, to);
  }
}

absl::StatusOr<Kernel> RollKernel(const KernelSpec& spec, const char* from, const char* to,
                                  bool backwards) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.Make(RawElements{x}, [=, axes = spec.attrs.Ints("axis"),
                                  shifts = spec.attrs.Ints("shifts")](const KernelContext& ctx,
                                                                      auto zero) {
    using T = decltype(zero);
    const T* source = x.elements<T>(ctx);
    T* target = out.elements<T>(ctx);
    // Without axes, the tensor as one row.
    const bool is_flat = axes.empty();
    Roll(is_flat ? Dims{x(ctx).size()} : x(ctx).dims(), is_flat ? std::vector<int64_t>{0} : axes,
         shifts, backwards, [&](int64_t i, int64_t j) { target[j] = source[i]; });
  });
}

}  // namespace

void AddRollKernels(KernelTable* table) {
  table->Add("roll", [](const KernelSpec& spec) { return RollKernel(spec, "X", "Out", false); });
  table->Add("roll_grad", [](const KernelSpec& spec) {
    return RollKernel(spec, "Out@GRAD", "X@GRAD", /*backwards=*/true);
  });
}

}  // namespace weft
