#include "ops/cpu/uncached_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft {

void UncachedCopy(const float* from, float* to, int64_t n) {
  int64_t i = 0;
#if defined(__SSE2__)
  constexpr int64_t kLine = 16, kLanes = 4;  // elements
  if (reinterpret_cast<uintptr_t>(to) % (kLine * sizeof(float)) == 0) {
    for (; i + kLine <= n; i += kLine) {
      for (int64_t k = i; k < i + kLine; k += kLanes) _mm_stream_ps(to + k, _mm_loadu_ps(from + k));
    }
    _mm_sfence();  // such stores are not ordered by themselves
  }
#endif
  if (i < n) std::memcpy(to + i, from + i, (n - i) * sizeof(float));
}

}  // namespace weft
