// How the allocator treats memory that a program has freed. Does nothing without glibc.
#ifndef WEFT_BASE_FREE_MEMORY_H_
#define WEFT_BASE_FREE_MEMORY_H_

#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace weft {

// Gives it back to the system, also from between what is in use: before memory is needed for
// something else. O(heap).
inline void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// For a process that grows large arrays once, instead of many temporary ones: each is given back as
// soon as it is freed, and leaves no hole in the heap.
inline void ReturnLargeArraysAtOnce() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // without this call, it grows
#endif
}

}  // namespace weft

#endif  // WEFT_BASE_FREE_MEMORY_H_
