#include "ops/broadcast.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

absl::Status Mismatch(const Dims& x, const Dims& y, int64_t axis) {
  return absl::InvalidArgumentError(absl::StrCat("input Y: shape ", DimsToString(y),
                                                 " does not fit shape ", DimsToString(x),
                                                 " of X at axis ", axis));
}

}  // namespace

absl::StatusOr<Broadcast> AlignShapes(const Dims& x, const Dims& y, int64_t axis) {
  const bool x_is_long = x.size() >= y.size();
  const Dims& wide = x_is_long ? x : y;
  Dims narrow = x_is_long ? y : x;
  const int64_t rank = wide.size(), rank_difference = rank - static_cast<int64_t>(narrow.size());
  const int64_t at = axis == -1 ? rank_difference : axis;
  if (at < 0 || (rank_difference == 0 && at != 0)) return Mismatch(x, y, axis);
  while (at + static_cast<int64_t>(narrow.size()) > rank && !narrow.empty() && narrow.back() == 1) {
    narrow.pop_back();
  }
  if (at + static_cast<int64_t>(narrow.size()) > rank) return Mismatch(x, y, axis);

  Dims aligned(rank, 1);
  std::copy(narrow.begin(), narrow.end(), aligned.begin() + at);
  Dims out(rank);
  for (int64_t i = 0; i < rank; ++i) {
    if (wide[i] != aligned[i] && wide[i] != 1 && aligned[i] != 1) return Mismatch(x, y, axis);
    out[i] = wide[i] == 1 ? aligned[i] : wide[i];
  }
  if (x_is_long) return Broadcast{wide, std::move(aligned), std::move(out)};
  return Broadcast{std::move(aligned), wide, std::move(out)};
}

LoopNest::Loop LoopNest::TakeInnermost() {
  if (extents.empty()) return Loop();
  const Loop loop = {extents.back(), a_strides.back(), b_strides.back()};
  extents.pop_back();
  a_strides.pop_back();
  b_strides.pop_back();
  return loop;
}

LoopNest WithExtent(LoopNest nest, size_t loop, int64_t extent) {
  nest.extents[loop] = extent;
  return nest;
}

LoopNest MakeLoopNest(const Dims& dims, const Dims& a, const Dims& b) {
  LoopNest nest;  // innermost first until the end
  int64_t a_size = 1, b_size = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t extent = dims[i];
    if (extent == 1) continue;
    const int64_t a_stride = a[i] == extent ? a_size : 0;
    const int64_t b_stride = b[i] == extent ? b_size : 0;
    if (a_stride != 0) a_size *= extent;
    if (b_stride != 0) b_size *= extent;
    if (!nest.extents.empty() && a_stride == nest.a_strides.back() * nest.extents.back() &&
        b_stride == nest.b_strides.back() * nest.extents.back()) {
      nest.extents.back() *= extent;
      continue;
    }
    nest.extents.push_back(extent);
    nest.a_strides.push_back(a_stride);
    nest.b_strides.push_back(b_stride);
  }
  std::reverse(nest.extents.begin(), nest.extents.end());
  std::reverse(nest.a_strides.begin(), nest.a_strides.end());
  std::reverse(nest.b_strides.begin(), nest.b_strides.end());
  return nest;
}

void SplitLoops(const LoopNest& nest, LoopNest* kept, LoopNest* summed) {
  for (size_t i = 0; i < nest.extents.size(); ++i) {
    LoopNest& part = nest.b_strides[i] == 0 ? *summed : *kept;
    part.extents.push_back(nest.extents[i]);
    part.a_strides.push_back(nest.a_strides[i]);
    part.b_strides.push_back(nest.b_strides[i]);
  }
}

}  // namespace weft
