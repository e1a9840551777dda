// The distinct elements, or slices, of a tensor.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/order.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The layers of a tensor along an axis, as the memory ranges of each.
struct Layers {
  int64_t outer, count, inner;

  template <typename T>
  int Compare(const T* xs, int64_t i, int64_t j) const {
    for (int64_t o = 0; o < outer; ++o) {
      const T *a = xs + (o * count + i) * inner, *b = xs + (o * count + j) * inner;
      for (int64_t k = 0; k < inner; ++k) {
        if (Less(a[k], b[k])) return -1;
        if (Less(b[k], a[k])) return 1;
      }
    }
    return 0;
  }
};

// Out = the distinct elements of X, or layers along an axis, in ascending order; Indices = the
// first occurrence of each, Counts = how often it occurs, Index = the index in Out of each element
// of X.
absl::StatusOr<Kernel> Unique(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), first = op.out("Indices"), index = op.out("Index");
  const Out counts = op.out("Counts");
  const std::vector<int64_t> axes = spec.attrs.Ints("axis");
  op.Supports(FloatsAndInts(x));
  if (!spec.attrs.Bool("is_sorted")) {
    return absl::UnimplementedError("attribute is_sorted: no kernel for elements in any order");
  }
  const bool wants_first = spec.attrs.Bool("return_index");
  const bool wants_index = spec.attrs.Bool("return_inverse");
  const bool wants_counts = spec.attrs.Bool("return_counts");
  const int64_t dtype = spec.attrs.Int("dtype");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    Layers layers{1, x(ctx).size(), 1};
    Dims dims = {x(ctx).size()};
    int axis = 0;
    if (!axes.empty()) {
      dims = x(ctx).dims();
      WEFT_ASSIGN_OR_RETURN(axis, CheckedAxis(axes[0], dims));
      const auto all = absl::MakeConstSpan(dims);
      layers = {NumElements(all.first(axis)), dims[axis], NumElements(all.subspan(axis + 1))};
    }
    std::vector<int64_t> order(layers.count), group(layers.count), firsts, sizes;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t i, int64_t j) { return layers.Compare(xs, i, j) < 0; });
    for (int64_t i : order) {
      if (firsts.empty() || layers.Compare(xs, firsts.back(), i) != 0) {
        firsts.push_back(i);
        sizes.push_back(0);
      }
      ++sizes.back();
      group[i] = static_cast<int64_t>(firsts.size()) - 1;
    }
    dims[axis] = static_cast<int64_t>(firsts.size());
    out(ctx).Resize(x(ctx).dtype(), dims);
    T* to = out.data<T>(ctx);
    for (int64_t o = 0; o < layers.outer; ++o) {
      for (int64_t i : firsts) {
        to = std::copy_n(xs + (o * layers.count + i) * layers.inner, layers.inner, to);
      }
    }
    const auto write = [&](bool wanted, Tensor* tensor, const std::vector<int64_t>& values) {
      if (!wanted || tensor == nullptr) return absl::OkStatus();
      tensor->Resize(*DTypeFromProto(static_cast<int>(dtype)),
                     {static_cast<int64_t>(values.size())});
      return ForElementType<int64_t, int32_t>("places", *tensor, [&](auto tag) {
        std::copy(values.begin(), values.end(), tensor->data<typename decltype(tag)::type>());
        return absl::OkStatus();
      });
    };
    WEFT_RETURN_IF_ERROR(write(wants_first, first.get(ctx), firsts));
    WEFT_RETURN_IF_ERROR(write(wants_index, index.get(ctx), group));
    return write(wants_counts, counts.get(ctx), sizes);
  });
}

}  // namespace

void AddUniqueKernels(KernelTable* table) { table->Add("unique", Unique); }

}  // namespace weft
