// Slices of a tensor that indices select: for .cu files only.
#ifndef WEFT_OPS_GPU_SELECTION_H_
#define WEFT_OPS_GPU_SELECTION_H_

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#endif
#include <algorithm>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/gpu/element_check.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"

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

// What Place may return instead of a place.
constexpr int64_t kNoPlace = -1;     // of zeros
constexpr int64_t kWrongPlace = -2;  // of an index that is out of range: the step fails

// to = the slices.
template <typename T, typename Place>
struct GatherElement {
  SliceShape shape;
  Place place;
  const T* tensor;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i / (shape.count * shape.inner) * shape.inner + i % shape.inner;
    const int64_t j = i / shape.inner % shape.count, at = place(j);
    if (at >= 0) {
      to[i] = tensor[shape.InTensor(at, c)];
    } else {
      to[i] = at == kNoPlace ? T(0) : gpu::NoValue<T>();
    }
  }
};

// What becomes of a slice that is selected once or several times.
enum class Write {
  kAdd,            // all are added to it, in order
  kReplaceBySum,   // their sum replaces it
  kReplaceByLast,  // the last one replaces it
};

// The slices by their places, and those of one place by their numbers.
struct SortedSlices {
  const int64_t* places;  // ascending; SliceShape::slices for slices without one
  const int64_t* numbers;
};

template <typename Place>
struct WritePlace {
  SliceShape shape;
  Place place;
  int64_t *places, *numbers;
  WEFT_DEVICE void operator()(int64_t j) const {
    const int64_t at = place(j);
    places[j] = at < 0 ? shape.slices : at;
    numbers[j] = j;
  }
};

// Sorts on the device. `sorted` points into `scratch`, of that memory.
template <typename Place>
absl::Status SortSlices(const KernelContext& ctx, const SliceShape& shape, const Place& place,
                        Tensor* scratch, SortedSlices* sorted) {
  const int64_t count = shape.count;
  int64_t bits = 1;  // of a place
  while (shape.slices >> bits != 0) ++bits;
  size_t bytes = 0;
#ifdef __CUDACC__
  const auto sort = [&](void* workspace, const int64_t* places, int64_t* sorted_places,
                        const int64_t* numbers, int64_t* sorted_numbers) {
    return CudaStatus(cub::DeviceRadixSort::SortPairs(workspace, bytes, places, sorted_places,
                                                      numbers, sorted_numbers, count, 0,
                                                      static_cast<int>(bits), StreamOf(ctx)),
                      "cub::DeviceRadixSort");
  };
  WEFT_RETURN_IF_ERROR(sort(nullptr, nullptr, nullptr, nullptr, nullptr));
#endif
  scratch->Resize(DType::kInt64, {4 * count + static_cast<int64_t>(bytes / sizeof(int64_t)) + 1});
  int64_t* const places = scratch->data<int64_t>();
  int64_t *const numbers = places + count, *const sorted_places = numbers + count;
  int64_t* const sorted_numbers = sorted_places + count;
  *sorted = {sorted_places, sorted_numbers};
  WEFT_RETURN_IF_ERROR(ForEach(ctx, count, WritePlace<Place>{shape, place, places, numbers}));
#ifdef __CUDACC__
  return sort(sorted_numbers + count, places, sorted_places, numbers, sorted_numbers);
#else
  std::copy(numbers, numbers + count, sorted_numbers);
  std::stable_sort(sorted_numbers, sorted_numbers + count,
                   [&](int64_t a, int64_t b) { return places[a] < places[b]; });
  for (int64_t i = 0; i < count; ++i) sorted_places[i] = places[sorted_numbers[i]];
  return absl::OkStatus();
#endif
}

// A block for each slice. Of the slices of a place, the block of the first one writes their sum,
// and that of the last one what replaces it.
template <typename T>
struct ScatterSlice {
  SliceShape shape;
  SortedSlices sorted;
  Write write;
  const T* from;
  T* tensor;
  WEFT_DEVICE void operator()(int64_t i, const gpu::Block& block) const {
    const int64_t at = sorted.places[i];
    if (at == shape.slices) return;
    if (write == Write::kReplaceByLast) {
      if (i + 1 < shape.count && sorted.places[i + 1] == at) return;
      block.ForMine(shape.width, [&](int64_t c) {
        tensor[shape.InTensor(at, c)] = from[shape.Packed(sorted.numbers[i], c)];
      });
      return;
    }
    if (i > 0 && sorted.places[i - 1] == at) return;
    block.ForMine(shape.width, [&](int64_t c) {
      T& to = tensor[shape.InTensor(at, c)];
      T value = write == Write::kAdd ? to : T(0);
      for (int64_t j = i; j < shape.count && sorted.places[j] == at; ++j) {
        value =
            static_cast<T>(Wrapping(value) + Wrapping(from[shape.Packed(sorted.numbers[j], c)]));
      }
      to = value;
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

// `scratch`: of the kernel, in the memory of the device.
template <typename T, typename Place>
absl::Status ScatterSlices(const KernelContext& ctx, const SliceShape& shape, const Place& place,
                           Write write, const T* from, T* tensor, Tensor* scratch) {
  if (shape.count == 0 || shape.width == 0) return absl::OkStatus();
  SortedSlices sorted;
  WEFT_RETURN_IF_ERROR(SortSlices(ctx, shape, place, scratch, &sorted));
  return ForEachRow(ctx, shape.count, shape.width,
                    ScatterSlice<T>{shape, sorted, write, from, tensor});
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_SELECTION_H_
