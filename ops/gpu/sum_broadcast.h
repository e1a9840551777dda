// Sums over the dimensions that broadcast an operand: for .cu files only.
#ifndef WEFT_OPS_GPU_SUM_BROADCAST_H_
#define WEFT_OPS_GPU_SUM_BROADCAST_H_

#include <cstdint>

#include "ops/gpu/reduce_loops.h"

namespace weft {

template <typename T>
struct ElementAt {
  const T* x;
  WEFT_DEVICE T operator()(int64_t i) const { return x[i]; }
};

template <typename From>
struct LoadFrom {
  From from;
  WEFT_DEVICE double operator()(int64_t i, int64_t) const { return from(i); }
};

// to = from(position), summed over the dimensions that broadcast an operand of `aligned` dims.
template <typename T, typename From>
absl::Status SumBroadcastTo(const KernelContext& ctx, const From& from, const Dims& dims,
                            const Dims& aligned, Tensor* scratch, T* to) {
  return ReduceTo(ctx, dims, aligned, 0.0, LoadFrom<From>{from}, gpu::Plus(), scratch,
                  StoreElement<T>{to});
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_SUM_BROADCAST_H_
