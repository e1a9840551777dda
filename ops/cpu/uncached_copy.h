// Copies to memory past the caches.
#ifndef WEFT_OPS_CPU_UNCACHED_COPY_H_
#define WEFT_OPS_CPU_UNCACHED_COPY_H_

#include <cstdint>

namespace weft {

// Arrays from this size on leave the caches before somebody reads what was written.
inline constexpr int64_t kUncachedBytes = int64_t{16} << 20;

// Copies n elements. A processor that writes a line reads it from memory first, unless the line
// bypasses the caches. `to` has the alignment of a cache line, else this is std::memcpy. Other
// threads see the copy as they see what memcpy writes.
void UncachedCopy(const float* from, float* to, int64_t n);

}  // namespace weft

#endif  // WEFT_OPS_CPU_UNCACHED_COPY_H_
