// Search and counting: histograms, binary search, distinct elements.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/order.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = how often each integer from 0 on occurs in X, or the sums of its Weights.
absl::StatusOr<Kernel> BinCount(OpKernel op) {
  const In x = op.in("X"), weights = op.in("Weights");
  const Out out = op.out("Out");
  const int64_t least = op.attrs().Int("minlength");
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* numbers = x.data<T>(ctx);
    const int64_t size = x(ctx).size();
    int64_t bins = least;
    for (int64_t i = 0; i < size; ++i) {
      if (numbers[i] < 0 || numbers[i] >= kMaxElements) {
        return absl::InvalidArgumentError(absl::StrCat("input X: ", numbers[i], " at position ", i,
                                                       " is not in [0, ", kMaxElements, ")"));
      }
      bins = std::max<int64_t>(bins, int64_t{numbers[i]} + 1);
    }
    const Tensor* weight = weights.get(ctx);
    const auto count = [&](DType dtype, auto sum, auto weight_of) {
      out(ctx).Resize(dtype, {bins});
      auto* to = out.data<decltype(sum)>(ctx);
      std::fill_n(to, bins, sum);
      for (int64_t i = 0; i < size; ++i) to[numbers[i]] += weight_of(i);
      return absl::OkStatus();
    };
    if (weight == nullptr) return count(DType::kInt64, int64_t{0}, [](int64_t) { return 1; });
    return ForNumberType("input Weights", *weight, [&](auto tag) {
      using W = typename decltype(tag)::type;
      using Sum = std::conditional_t<std::is_same_v<W, float>, float, double>;
      const W* ws = weight->data<W>();
      return count(DTypeOf<Sum>::value, Sum(0), [=](int64_t i) { return static_cast<Sum>(ws[i]); });
    });
  });
}

// Out = the insertion index of each of Values in its row of SortedSequence, before equal elements
// or, with `right`, after them. Paddle's CPU kernel puts -inf at the end.
absl::StatusOr<Kernel> SearchSorted(OpKernel op) {
  const In sequence = op.in("SortedSequence"), values = op.in("Values");
  const Out out = op.out("Out");
  const bool right = op.attrs().Bool("right"), quirks = op.spec().paddle_cpu_quirks;
  return op.Make(FloatsAndInts(values), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T *row = sequence.data<T>(ctx), *vs = values.data<T>(ctx);
    const Dims& dims = sequence(ctx).dims();
    const int64_t length = dims.back();
    const bool one_row = dims.size() == 1;
    const int64_t per_row = one_row || values(ctx).rank() == 0 ? 0 : values(ctx).dims().back();
    return ForElementType<int64_t, int32_t>("output Out", out(ctx), [&](auto tag) {
      using Place = typename decltype(tag)::type;
      for (int64_t i = 0; i < values(ctx).size(); ++i) {
        const T* begin = one_row ? row : row + i / per_row * length;
        const T* place = right ? std::upper_bound(begin, begin + length, vs[i], Less<T>)
                               : std::lower_bound(begin, begin + length, vs[i], Less<T>);
        const bool at_end = quirks && std::isinf(static_cast<double>(vs[i]));
        out.data<Place>(ctx)[i] = static_cast<Place>(at_end ? length : place - begin);
      }
      return absl::OkStatus();
    });
  });
}

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

// Numbers the groups by their first elements.
void SortByFirst(std::vector<int64_t>* firsts, std::vector<int64_t>* sizes,
                 std::vector<int64_t>* group) {
  std::vector<int64_t> order(firsts->size()), place(firsts->size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return (*firsts)[a] < (*firsts)[b]; });
  const std::vector<int64_t> old_firsts = *firsts, old_sizes = *sizes;
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int64_t>(i);
    (*firsts)[i] = old_firsts[order[i]];
    (*sizes)[i] = old_sizes[order[i]];
  }
  for (int64_t& number : *group) number = place[number];
}

// Out = the distinct elements of X, or layers along an axis, in ascending order, or, not is_sorted,
// as unique of Paddle 1, in that of their first occurrences; Indices = the first occurrence of
// each, Counts = how often it occurs, Index = the index in Out of each element of X.
absl::StatusOr<Kernel> Unique(OpKernel op) {
  const In x = op.in("X");
  const bool counts_all = !op.attrs().Has("is_sorted");  // unique_with_counts
  const bool is_sorted = !counts_all && op.attrs().Bool("is_sorted");
  const auto optional = [&](const char* attr, const char* slot) {
    return is_sorted && !op.attrs().Bool(attr) ? Out() : op.out(slot);
  };
  const Out out = op.out("Out"), first = counts_all ? Out() : optional("return_index", "Indices");
  const Out index = optional("return_inverse", "Index"),
            counts = counts_all ? op.out("Count") : optional("return_counts", "Counts");
  const std::vector<int64_t> axes = is_sorted ? op.attrs().Ints("axis") : std::vector<int64_t>();
  op.Supports(FloatsAndInts(x));
  const int64_t dtype = op.attrs().Int("dtype");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    Layers layers{1, x(ctx).size(), 1};
    Dims dims = {x(ctx).size()};
    int axis = 0;
    if (!axes.empty()) {
      dims = x(ctx).dims();
      WEFT_ASSIGN_OR_RETURN(axis, CheckedAxis(axes[0], dims));
      layers = {CountBefore(dims, axis), dims[axis], CountAfter(dims, axis)};
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
    if (!is_sorted) SortByFirst(&firsts, &sizes, &group);
    dims[axis] = static_cast<int64_t>(firsts.size());
    out(ctx).Resize(x(ctx).dtype(), dims);
    T* to = out.data<T>(ctx);
    for (int64_t o = 0; o < layers.outer; ++o) {
      for (int64_t i : firsts) {
        to = std::copy_n(xs + (o * layers.count + i) * layers.inner, layers.inner, to);
      }
    }
    const auto write = [&](Tensor* tensor, const std::vector<int64_t>& values) {
      if (tensor == nullptr) return absl::OkStatus();
      tensor->Resize(*DTypeFromProto(static_cast<int>(dtype)),
                     {static_cast<int64_t>(values.size())});
      return ForElementType<int64_t, int32_t>("places", *tensor, [&](auto tag) {
        std::copy(values.begin(), values.end(), tensor->data<typename decltype(tag)::type>());
        return absl::OkStatus();
      });
    };
    WEFT_RETURN_IF_ERROR(write(first.get(ctx), firsts));
    WEFT_RETURN_IF_ERROR(write(index.get(ctx), group));
    return write(counts.get(ctx), sizes);
  });
}

}  // namespace

void AddSearchKernels(KernelTable* table) {
  table->Add("bincount", BinCount);
  table->Add("searchsorted", SearchSorted);
  table->Add("unique", Unique);
  table->Add("unique_with_counts", Unique);
}

}  // namespace weft
