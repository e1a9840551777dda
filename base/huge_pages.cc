// Gives large blocks of operator new huge pages, in the binaries that link this, for fewer page
// faults and TLB misses. Programs of a million ops are indexed by arrays of many MiB, which
// analyses access in no order: with huge pages, reading and verifying take a tenth less processor
// time. Tensors are such blocks, too (ops/memory.cc).
//
// A block of a MiB or more for which there is no memory throws std::bad_alloc: whoever asks for so
// much says what for. The handler of std::set_new_handler is called for smaller ones alone, and may
// end the process: after them, little works, and the unwinding of some libraries is wrong
// (libstdc++ 12 destroys a std::variant whose copy has thrown).
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

// Sanitizers replace the operators themselves.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_SANITIZED
#endif
#endif
#if !defined(WEFT_SANITIZED) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constexpr size_t kHugePage = 2 << 20;
// What is not a whole huge page at the end of a block stays in small ones.
constexpr size_t kMinBytes = 2 * kHugePage;
constexpr size_t kReported = 1 << 20;

void* Allocate(size_t bytes, size_t alignment) {
  const bool is_large = bytes >= kMinBytes;
  if (is_large) alignment = std::max(alignment, kHugePage);
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  void* block = nullptr;
  if (posix_memalign(&block, alignment, bytes) != 0) return nullptr;
  // A kernel without huge pages refuses; small pages are as good, but slower.
  if (is_large) madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return block;
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  while (true) {
    void* const block = Allocate(bytes, alignment);
    if (block != nullptr) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr || bytes >= kReported) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void* operator new(size_t bytes) { return AllocateOrThrow(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { std::free(block); }

#endif
