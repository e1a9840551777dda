// Where tensors keep their elements: on the host, or on a device.
#ifndef WEFT_OPS_MEMORY_H_
#define WEFT_OPS_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"

namespace weft {

class Memory {
 public:
  virtual ~Memory() = default;

  // Whether the host can read and write it.
  virtual bool IsHost() const = 0;

  // 64-byte aligned, for at least one byte. Throws std::bad_alloc.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;

  // Copies bytes to this memory from the host, to the host, and within this memory. The last one in
  // order with other work on `stream`, the native handle of a stream of the device
  // (executor/stream.h); null, and the others: at once, returning when it is done.
  virtual absl::Status CopyFromHost(const void* from, size_t bytes, void* to) = 0;
  virtual absl::Status CopyToHost(const void* from, size_t bytes, void* to) = 0;
  virtual absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) = 0;
};

// The host's. Never freed.
Memory* HostMemory();

}  // namespace weft

#endif  // WEFT_OPS_MEMORY_H_
