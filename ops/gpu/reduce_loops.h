// Reductions over dimensions of a tensor: for .cu files only.
#ifndef WEFT_OPS_GPU_REDUCE_LOOPS_H_
#define WEFT_OPS_GPU_REDUCE_LOOPS_H_

#include <algorithm>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/loops.h"
#include "ops/tensor.h"

namespace weft {

// What is reduced: load(i, at) for the elements i of a tensor that make result `at`, joined.
template <typename A, typename Load, typename Join>
struct Reduction {
  Loops kept, reduced;  // kept: a: the first element, b: the result; reduced: a: from the first one
  int64_t count;        // elements of a result
  int64_t parts;        // of a result, whose elements are reduced in parallel
  A start;
  Load load;
  Join join;

  // The elements of part `part`: [begin, end) of `count`.
  WEFT_DEVICE int64_t Begin(int64_t part) const {
    const int64_t least = count / parts, more = count % parts;  // the first ones have one more
    return part * least + (part < more ? part : more);
  }
  WEFT_DEVICE A At(int64_t first, int64_t i, int64_t at) const {
    int64_t offset, unused;
    reduced.At(i, &offset, &unused);
    return load(first + offset, at);
  }
};

// A block reduces a part. Its threads read neighbours if the innermost dimension is reduced.
template <typename A, typename Load, typename Join, typename Store>
struct ReducePart {
  Reduction<A, Load, Join> reduction;
  Store store;  // (result, part, value)
  WEFT_DEVICE void operator()(int64_t row, const gpu::Block& block) const {
    const int64_t part = row % reduction.parts;
    int64_t first, at;
    reduction.kept.At(row / reduction.parts, &first, &at);
    const int64_t begin = reduction.Begin(part), end = reduction.Begin(part + 1);
    const A value = block.Reduce(
        end - begin, reduction.start,
        [&](int64_t i) -> A { return reduction.At(first, begin + i, at); }, reduction.join);
    block.Once([&] { store(at, part, value); });
  }
};

// A thread reduces a part. Neighbouring threads read neighbours if the innermost dimension is kept.
template <typename A, typename Load, typename Join, typename Store>
struct ReducePartOfColumn {
  Reduction<A, Load, Join> reduction;
  int64_t results;
  Store store;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t part = i / results;
    int64_t first, at;
    reduction.kept.At(i % results, &first, &at);
    const int64_t end = reduction.Begin(part + 1);
    A value = reduction.start;
    for (int64_t k = reduction.Begin(part); k < end; ++k) {
      value = reduction.join(value, reduction.At(first, k, at));
    }
    store(at, part, value);
  }
};

template <typename Store>
struct StoreResult {
  Store store;
  template <typename A>
  WEFT_DEVICE void operator()(int64_t at, int64_t, const A& value) const {
    store(at, value);
  }
};

template <typename A>
struct StorePart {
  int64_t results;
  A* values;
  WEFT_DEVICE void operator()(int64_t at, int64_t part, const A& value) const {
    values[part * results + at] = value;
  }
};

template <typename A, typename Join, typename Store>
struct JoinParts {
  int64_t results, parts;
  const A* values;
  A start;
  Join join;
  Store store;
  WEFT_DEVICE void operator()(int64_t at) const {
    A value = start;
    for (int64_t part = 0; part < parts; ++part) value = join(value, values[part * results + at]);
    store(at, value);
  }
};

// store(at, value) for every result of the reduction of a tensor of `dims` along the dimensions of
// which `kept_dims` has 1, in an order that the dims alone determine. `scratch`, in the memory of
// the device, holds what parts of long reductions give; null: there are no parts. join(start, a) is
// a.
template <typename A, typename Load, typename Join, typename Store>
absl::Status ReduceTo(const KernelContext& ctx, const Dims& dims, const Dims& kept_dims, A start,
                      Load load, Join join, Tensor* scratch, Store store) {
  LoopNest kept, reduced;
  SplitLoops(MakeLoopNest(dims, dims, kept_dims), &kept, &reduced);
  const int64_t results = NumElements(kept.extents), count = NumElements(reduced.extents);
  const bool has_columns = results >= 32 && !kept.extents.empty() && kept.a_strides.back() == 1;
  // Parts that are long, and enough of them for the device.
  const int64_t least_part = has_columns ? 64 : 4096, most_parts = has_columns ? 1 << 16 : 1024;
  int64_t parts = 1;
  if (scratch != nullptr && results > 0) {
    parts = std::max<int64_t>(1, std::min(count / least_part, most_parts / results));
  }
  WEFT_ASSIGN_OR_RETURN(const Loops of_kept, Loops::Make(kept));
  WEFT_ASSIGN_OR_RETURN(const Loops of_reduced, Loops::Make(reduced));
  const Reduction<A, Load, Join> reduction{of_kept, of_reduced, count, parts, start, load, join};
  const auto reduce = [&](auto to) -> absl::Status {
    using To = decltype(to);
    if (has_columns) {
      return ForEach(ctx, results * parts,
                     ReducePartOfColumn<A, Load, Join, To>{reduction, results, to});
    }
    return ForEachRow(ctx, results * parts, count / parts,
                      ReducePart<A, Load, Join, To>{reduction, to});
  };
  if (parts == 1) return reduce(StoreResult<Store>{store});
  scratch->Resize(DType::kUint8, {results * parts * static_cast<int64_t>(sizeof(A))});
  A* const values = static_cast<A*>(scratch->raw());
  WEFT_RETURN_IF_ERROR(reduce(StorePart<A>{results, values}));
  return ForEach(ctx, results,
                 JoinParts<A, Join, Store>{results, parts, values, start, join, store});
}

// The scratch of a kernel, in the memory of `like`.
inline Tensor* ScratchLike(const Tensor& like, Tensor* scratch) {
  if (!scratch->allocated()) *scratch = Tensor(like.memory());
  return scratch;
}

// load, for an element of memory.
template <typename T>
struct LoadElement {
  const T* x;
  WEFT_DEVICE double operator()(int64_t i, int64_t) const { return static_cast<double>(x[i]); }
};

template <typename T>
struct StoreElement {
  T* to;
  WEFT_DEVICE void operator()(int64_t at, double value) const { to[at] = static_cast<T>(value); }
};

}  // namespace weft

#endif  // WEFT_OPS_GPU_REDUCE_LOOPS_H_
