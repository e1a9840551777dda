#include "ops/memory.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

namespace weft {
namespace {

constexpr std::align_val_t kAlignment{64};

// How far into its block of memory an allocation begins. The system returns large blocks at the
// same place in a page, one multiple of a page from the next. See kSkewedBytes.
size_t NextSkew(size_t bytes) {
  static std::atomic<uint32_t> num_allocations{0};
  if (bytes < kSkewedBytes) return 0;
  constexpr uint32_t kSkews = 12;
  return num_allocations.fetch_add(1, std::memory_order_relaxed) % kSkews * kSkew;
}

class Host : public Memory {
 public:
  bool IsHost() const override { return true; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    const size_t skew = NextSkew(bytes);
    char* const block = static_cast<char*>(::operator new(bytes + skew, kAlignment));
    return std::shared_ptr<void>(block + skew,
                                 [block](void*) { ::operator delete(block, kAlignment); });
  }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return CopyFromHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* /*stream*/) override {
    return CopyFromHost(from, bytes, to);
  }
};

}  // namespace

absl::Status Memory::ConvertHalves(DType /*from_type*/, const void* /*from*/, DType /*to_type*/,
                                   void* /*to*/, int64_t /*count*/, void* /*stream*/) {
  return absl::UnimplementedError("memory that does not convert half precision");
}

Memory* HostMemory() {
  static Memory* const host = new Host;
  return host;
}

}  // namespace weft
