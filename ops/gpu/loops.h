// Positions in tensors, by nested loops of the device.
#ifndef WEFT_OPS_GPU_LOOPS_H_
#define WEFT_OPS_GPU_LOOPS_H_

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/broadcast.h"
#include "ops/gpu/block.h"

namespace weft {

// The offsets of two operands at a position: a LoopNest on the device.
struct Loops {
  static constexpr int kMaxRank = 8;

  int rank = 0;
  bool is_small = true;  // positions fit 32 bits, whose division is several times as fast
  int64_t extents[kMaxRank], a[kMaxRank], b[kMaxRank];

  static absl::StatusOr<Loops> Make(const LoopNest& nest) {
    Loops loops;
    loops.rank = static_cast<int>(nest.extents.size());
    if (loops.rank > kMaxRank) {
      return absl::UnimplementedError(absl::StrCat("no kernel for operands that alternate ",
                                                   loops.rank, " times, more than ", kMaxRank));
    }
    for (int d = 0; d < loops.rank; ++d) {
      loops.extents[d] = nest.extents[d];
      loops.a[d] = nest.a_strides[d];
      loops.b[d] = nest.b_strides[d];
    }
    loops.is_small = NumElements(nest.extents) <= std::numeric_limits<int32_t>::max();
    return loops;
  }

  WEFT_DEVICE void At(int64_t i, int64_t* in_a, int64_t* in_b) const {
    is_small ? Find(static_cast<uint32_t>(i), in_a, in_b)
             : Find(static_cast<uint64_t>(i), in_a, in_b);
  }

 private:
  template <typename I>
  WEFT_DEVICE void Find(I i, int64_t* in_a, int64_t* in_b) const {
    *in_a = *in_b = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const I extent = static_cast<I>(extents[d]);
      const auto at = static_cast<int64_t>(i % extent);
      i /= extent;
      *in_a += at * a[d];
      *in_b += at * b[d];
    }
  }
};

}  // namespace weft

#endif  // WEFT_OPS_GPU_LOOPS_H_
