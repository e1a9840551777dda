#include "proto/byte_arena.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr size_t kChunkBytes = 256 << 10;

}  // namespace

char* ByteArena::Allocate(size_t size) {
  if (size > left_) {
    const size_t chunk = std::max(size, kChunkBytes);
    // Not make_shared<char[]>: it would touch (zero) every page.
    chunks_.emplace_back(new char[chunk]);
    next_ = chunks_.back().get();
    left_ = chunk;
  }
  char* result = next_;
  next_ += size;
  left_ -= size;
  return result;
}

absl::string_view ByteArena::Copy(absl::string_view bytes) {
  char* copy = Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  return absl::string_view(copy, bytes.size());
}

void ByteArena::Absorb(ByteArena* other) {
  chunks_.insert(chunks_.end(), other->chunks_.begin(), other->chunks_.end());
  *other = ByteArena();
}

}  // namespace weft
