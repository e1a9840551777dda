// Append-only storage for byte strings that never move.
#ifndef WEFT_PROTO_BYTE_ARENA_H_
#define WEFT_PROTO_BYTE_ARENA_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// Bytes stay where they are until the last copy of the arena is gone. A copy shares what is there
// and allocates its own chunks from then on, so neither sees what the other adds.
class ByteArena {
 public:
  ByteArena() = default;
  ByteArena(const ByteArena& other) : chunks_(other.chunks_) {}
  ByteArena& operator=(const ByteArena& other) {
    if (this == &other) return *this;
    chunks_ = other.chunks_;
    next_ = nullptr;
    left_ = 0;
    return *this;
  }
  ByteArena(ByteArena&&) = default;
  ByteArena& operator=(ByteArena&&) = default;

  // `size` bytes, uninitialized.
  char* Allocate(size_t size);
  absl::string_view Copy(absl::string_view bytes);

  // Keeps the bytes of `other` alive too, and empties it.
  void Absorb(ByteArena* other);

 private:
  std::vector<std::shared_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace weft

#endif  // WEFT_PROTO_BYTE_ARENA_H_
