#include "ops/threads.h"

#include <algorithm>

namespace weft {
namespace {

thread_local int kernel_threads = 1;

}  // namespace

int KernelThreads() { return kernel_threads; }

void SetKernelThreads(int threads) { kernel_threads = threads; }

void ForEachPart(int64_t n, absl::FunctionRef<void(int64_t begin, int64_t end)> run) {
  constexpr int64_t kMultiple = 64;
  const int64_t parts = kernel_threads;
  const int64_t size = ((n + parts - 1) / parts + kMultiple - 1) / kMultiple * kMultiple;
#pragma omp parallel for num_threads(kernel_threads) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = std::min(n, part * size), end = std::min(n, begin + size);
    if (begin < end) run(begin, end);
  }
}

}  // namespace weft
