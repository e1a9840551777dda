// Slices of a tensor that indices select: for .cu files only.
#ifndef WEFT_OPS_GPU_SELECTION_H_
#define WEFT_OPS_GPU_SELECTION_H_

#include <cstdint>

#include "ops/gpu/launch.h"

namespace weft {

// Slice j of a tensor of all slices is slice Place()(j) of another one. Its `width` elements lie in
// `width` / inner runs of `inner` elements; in the two tensors there are `count` and `slices` of
// them along the axis.
struct SliceShape {
  int64_t count, slices, width, inner;

  // Element c of slice `place` of the tensor, and of slice j of all slices.
  WEFT_DEVICE int64_t InTensor(int64_t place, int64_t c) const {
    return (c / inner * slices + place) * inner + c % inner;
  }
  WEFT_DEVICE int64_t Packed(int64_t j, int64_t c) const {
    return (c / inner * count + j) * inner + c % inner;
  }
};

// to = the slices; zeros where there is no place (-1).
template <typename T, typename Place>
struct GatherElement {
  SliceShape shape;
  Place place;
  const T* tensor;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i / (shape.count * shape.inner) * shape.inner + i % shape.inner;
    const int64_t j = i / shape.inner % shape.count, at = place(j);
    to[i] = at < 0 ? T(0) : tensor[shape.InTensor(at, c)];
  }
};

// What becomes of a slice that is selected once or several times.
enum class Write {
  kAdd,            // all are added to it, in order
  kReplaceBySum,   // their sum replaces it
  kReplaceByLast,  // the last one replaces it
};

// A block for each slice j: that of the first (for the last one: the last) j of a place writes it.
template <typename T, typename Place>
struct ScatterSlice {
  SliceShape shape;
  Place place;
  Write write;
  const T* from;
  T* tensor;
  WEFT_DEVICE void operator()(int64_t j, const gpu::Block& block) const {
    const int64_t at = place(j);
    if (at < 0) return;
    const bool by_last = write == Write::kReplaceByLast;
    const int64_t first = by_last ? j + 1 : 0, end = by_last ? shape.count : j;
    const int others = block.Reduce(
        end - first, 0, [&](int64_t i) -> int { return place(first + i) == at; }, gpu::Larger());
    if (others != 0) return;
    if (write != Write::kAdd) {
      block.ForMine(shape.width, [&](int64_t c) {
        tensor[shape.InTensor(at, c)] = by_last ? from[shape.Packed(j, c)] : T(0);
      });
    }
    if (by_last) return;
    block.ForEachMatch(
        j, shape.count, [&](int64_t i) { return place(i) == at; },
        [&](int64_t i) {
          block.ForMine(shape.width, [&](int64_t c) {
            T& to = tensor[shape.InTensor(at, c)];
            to = static_cast<T>(Wrapping(to) + Wrapping(from[shape.Packed(i, c)]));
          });
        });
  }
};

template <typename T, typename Place>
struct ClearSlice {
  SliceShape shape;
  Place place;
  T* tensor;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t at = place(i % shape.count);
    if (at >= 0) tensor[shape.InTensor(at, i / shape.count)] = T(0);
  }
};

template <typename T, typename Place>
absl::Status GatherSlices(const KernelContext& ctx, const SliceShape& shape, const Place& place,
                          const T* tensor, T* to) {
  return ForEach(ctx, shape.count * shape.width, GatherElement<T, Place>{shape, place, tensor, to});
}

template <typename T, typename Place>
absl::Status ScatterSlices(const KernelContext& ctx, const SliceShape& shape, const Place& place,
                           Write write, const T* from, T* tensor) {
  return ForEachRow(ctx, shape.width == 0 ? 0 : shape.count, gpu::kThreads,
                    ScatterSlice<T, Place>{shape, place, write, from, tensor});
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_SELECTION_H_
