#include "ops/threads.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

thread_local int kernel_threads = 1;

}  // namespace

int KernelThreads() { return kernel_threads; }

void SetKernelThreads(int threads) { kernel_threads = threads; }

void ForEachPart(int64_t n, int64_t multiple,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> run) {
  const int64_t parts = kernel_threads;
  const int64_t size = ((n + parts - 1) / parts + multiple - 1) / multiple * multiple;
  if (size >= n) {
    if (n > 0) run(0, n);
    return;
  }
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = std::min(n, part * size), end = std::min(n, begin + size);
    const int threads = std::exchange(kernel_threads, 1);
    if (begin < end) run(begin, end);
    kernel_threads = threads;
  }
}

}  // namespace weft
