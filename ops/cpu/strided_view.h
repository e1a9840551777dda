// A tensor's elements in another order, some of them only or some of them several times:
// transposed, sliced, repeated.
#ifndef WEFT_OPS_CPU_STRIDED_VIEW_H_
#define WEFT_OPS_CPU_STRIDED_VIEW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/schema/tensor_type.h"

namespace weft {

// Position (i0, i1, ...) of the view, 0 <= i < extents, is element offset + Σ i strides of the
// tensor.
struct View {
  Dims extents, strides;
  int64_t offset = 0;

  int64_t size() const { return NumElements(extents); }
};

// Strides of a row-major tensor.
Dims RowMajorStrides(const Dims& dims);
// The tensor as it is.
View WholeView(const Dims& dims);

// Without dimensions of 1, neighbours merged that make one stride.
View Simplify(const View& view);

// Calls visit(place in the tensor, count, stride) for runs of elements, in the order of the view.
template <typename Visit>
void ForEachRun(const View& whole, Visit visit) {
  const View view = Simplify(whole);
  if (view.size() == 0) return;
  const size_t rank = view.extents.size();
  if (rank == 0) return visit(view.offset, int64_t{1}, int64_t{1});
  Dims at(rank - 1, 0);
  for (int64_t place = view.offset;;) {
    visit(place, view.extents[rank - 1], view.strides[rank - 1]);
    size_t d = rank - 1;
    for (; d > 0; --d) {
      place += view.strides[d - 1];
      if (++at[d - 1] < view.extents[d - 1]) break;
      place -= at[d - 1] * view.strides[d - 1];
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

// to = the elements of the view, row-major.
template <typename T>
void ReadView(const View& view, const T* tensor, T* to) {
  ForEachRun(view, [&](int64_t place, int64_t count, int64_t stride) {
    if (stride == 1) {
      to = std::copy_n(tensor + place, count, to);
    } else {
      for (int64_t i = 0; i < count; ++i) *to++ = tensor[place + i * stride];
    }
  });
}

// The elements of the view = from.
template <typename T>
void WriteView(const View& view, const T* from, T* tensor) {
  ForEachRun(view, [&](int64_t place, int64_t count, int64_t stride) {
    if (stride == 1) {
      std::copy_n(from, count, tensor + place);
      from += count;
    } else {
      for (int64_t i = 0; i < count; ++i) tensor[place + i * stride] = *from++;
    }
  });
}

// The elements of the view += from: the gradient of reading.
template <typename T>
void AddToView(const View& view, const T* from, T* tensor) {
  ForEachRun(view, [&](int64_t place, int64_t count, int64_t stride) {
    for (int64_t i = 0; i < count; ++i) tensor[place + i * stride] += *from++;
  });
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_STRIDED_VIEW_H_
