// Memory of tensors: the host's, or that of a device.
#ifndef WEFT_OPS_MEMORY_H_
#define WEFT_OPS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// A loop that reads and writes several large arrays is up to four times as slow if the arrays lie
// such that equal indices fall into the same lines of a cache (docs/performance.md). Arrays from
// kSkewedBytes on are therefore shifted by kSkew against each other.
inline constexpr size_t kSkewedBytes = 32768;
inline constexpr size_t kSkew = 320;

class Memory {
 public:
  virtual ~Memory() = default;

  // Whether the host can read and write it.
  virtual bool IsHost() const = 0;

  // 64-byte aligned, for at least one byte. Throws std::bad_alloc.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;

  // Copies bytes from the host to this memory, to the host, and within this memory. The first two,
  // and Copy without a stream, return when the copy is done. Copy enqueues on `stream`, the native
  // handle of a stream of the device (executor/streams/stream.h).
  virtual absl::Status CopyFromHost(const void* from, size_t bytes, void* to) = 0;
  virtual absl::Status CopyToHost(const void* from, size_t bytes, void* to) = 0;
  virtual absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) = 0;

  // Of memory that the host cannot access: converts elements within it, of which those of one type
  // have half precision and those of the other are fp32, and enqueues that on `stream`. Rounds as
  // ConvertFloats (ops/kernel_util.h) does.
  virtual absl::Status ConvertHalves(DType from_type, const void* from, DType to_type, void* to,
                                     int64_t count, void* stream);
};

// The host's. Never freed.
Memory* HostMemory();

}  // namespace weft

#endif  // WEFT_OPS_MEMORY_H_
