#include "ops/cpu/maxima_gradient.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/threads.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// `n` neighbouring numbers, in a vector of several even if they are one: choosing among vectors
// needs no branch.
template <int n>
struct Lanes {
  static constexpr int kSize = n == 1 ? 4 : n;
  using Floats [[gnu::vector_size(kSize * sizeof(float))]] = float;
  using Ints [[gnu::vector_size(kSize * sizeof(int32_t))]] = int32_t;

  static void Load(const float* from, Floats* v) {
    if constexpr (n == 1) {
      *v = Floats{*from};
    } else {
      std::memcpy(v, from, sizeof(*v));
    }
  }
  static void Store(const Floats& v, float* to) { std::memcpy(to, &v, n * sizeof(float)); }
};

}  // namespace

void DisjointWindows::AddWindow(bool is_cut) {
  ends_.push_back(static_cast<int64_t>(elements_.size()));
  next_place_ = is_cut ? 1 : 0;
}

bool DisjointWindows::AddElement(int64_t element) {
  if (is_in_window_[element]) return false;
  is_in_window_[element] = true;
  elements_.push_back({element * channels_, next_place_++});
  ends_.back() = static_cast<int64_t>(elements_.size());
  return true;
}

template <int lanes>
inline void DisjointWindows::GradientOfWindow(const Element* begin, const Element* end,
                                              const float* values, const float* dout, float* to) {
  using Floats = typename Lanes<lanes>::Floats;
  using Ints = typename Lanes<lanes>::Ints;
  Floats largest = Floats{} + std::numeric_limits<float>::lowest();
  Ints place = {};
  for (const Element* e = begin; e != end; ++e) {
    Floats value;
    Lanes<lanes>::Load(values + e->offset, &value);
    const Ints is_larger = value > largest;
    largest = is_larger ? value : largest;
    place = is_larger ? Ints{} + e->place : place;
  }
  Floats gradient;
  Lanes<lanes>::Load(dout, &gradient);
  gradient += Floats{};  // -0 becomes 0, as where gradients are added up
  for (const Element* e = begin; e != end; ++e) {
    Lanes<lanes>::Store(place == e->place ? gradient : Floats{}, to + e->offset);
  }
}

void DisjointWindows::GradientOfImage(const float* values, const float* douts, float* to) const {
  const bool covers_image = elements_.size() == is_in_window_.size();
  if (!covers_image) std::fill_n(to, image_size(), 0.0F);
  const Element* begin = elements_.data();
  for (const int64_t end_of_window : ends_) {
    const Element* const end = elements_.data() + end_of_window;
    int64_t c = 0;
    for (; c + 8 <= channels_; c += 8) {
      GradientOfWindow<8>(begin, end, values + c, douts + c, to + c);
    }
    if ((channels_ & 4) != 0) {
      GradientOfWindow<4>(begin, end, values + c, douts + c, to + c);
      c += 4;
    }
    if ((channels_ & 2) != 0) {
      GradientOfWindow<2>(begin, end, values + c, douts + c, to + c);
      c += 2;
    }
    if ((channels_ & 1) != 0) GradientOfWindow<1>(begin, end, values + c, douts + c, to + c);
    begin = end;
    douts += channels_;
  }
}

void DisjointWindows::Gradient(int64_t images, const float* values, const float* douts,
                               float* to) const {
  const int64_t size = image_size();
  const int64_t out_size = static_cast<int64_t>(ends_.size()) * channels_;
  ForEachPartIfLong(images * size, images, 1, [=](int64_t begin, int64_t end) {
    Vectorized([=] {
      for (int64_t i = begin; i < end; ++i) {
        GradientOfImage(values + i * size, douts + i * out_size, to + i * size);
      }
    });
  });
}

}  // namespace weft
