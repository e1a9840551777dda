// Threads of a rank, on which its kernels compute.
#ifndef WEFT_OPS_THREADS_H_
#define WEFT_OPS_THREADS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace weft {

// How many threads kernels may use that this thread calls. 1 at first.
int KernelThreads();
void SetKernelThreads(int threads);

// Loops shorter than this are not divided: waking a thread takes longer than they do.
inline constexpr int64_t kMinParallelSize = 1 << 15;

// Calls run(begin, end) for parts of [0, n), on the threads that kernels may use; returns when all
// have returned. `run` must not throw. Parts begin at multiples of `multiple`. Loops within a part
// are not divided again.
void ForEachPart(int64_t n, int64_t multiple,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> run);

// The same for n rows, columns or planes that have `size` elements in all: run(0, n) if those are
// few.
inline void ForEachPartIfLong(int64_t size, int64_t n, int64_t multiple,
                              absl::FunctionRef<void(int64_t begin, int64_t end)> run) {
  if (size >= kMinParallelSize && KernelThreads() > 1) return ForEachPart(n, multiple, run);
  run(0, n);
}

// Parts that begin at multiples of 64: loops over them have vectors of the same elements as one
// loop over all, so results are the same for any number of threads.
inline void ForEachPart(int64_t n, absl::FunctionRef<void(int64_t begin, int64_t end)> run) {
  ForEachPart(n, 64, run);
}

}  // namespace weft

#endif  // WEFT_OPS_THREADS_H_
