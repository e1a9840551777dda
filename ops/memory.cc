#include "ops/memory.h"

#include <cstring>
#include <new>

namespace weft {
namespace {

constexpr std::align_val_t kAlignment{64};

class Host : public Memory {
 public:
  bool IsHost() const override { return true; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    return std::shared_ptr<void>(::operator new(bytes, kAlignment),
                                 [](void* p) { ::operator delete(p, kAlignment); });
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

Memory* HostMemory() {
  static Memory* const host = new Host;
  return host;
}

}  // namespace weft
