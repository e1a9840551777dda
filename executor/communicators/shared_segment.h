// Memory that processes of one host share, and tensors in it.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_SHARED_SEGMENT_H_
#define WEFT_EXECUTOR_COMMUNICATORS_SHARED_SEGMENT_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/memory.h"

namespace weft {

// A range of memory, zero at first, which takes pages as they are touched. It is a file without a
// name (memfd_create), so nothing is left of it when the last process that maps it has ended,
// however it ended. The limit of /dev/shm does not hold for it.
class SharedSegment {
 public:
  // `name` is for /proc/PID/maps. Errors: ResourceExhausted.
  static absl::StatusOr<std::shared_ptr<SharedSegment>> Create(const std::string& name,
                                                               size_t bytes);

  // Maps the segment of another process, or of this one, which must not have called CloseFile.
  // Checks that it is the one that `address` names. FailedPrecondition: it cannot be reached;
  // ResourceExhausted: it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<SharedSegment>> Open(absl::string_view address);

  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  // For Open: process number, file and identity, without spaces at the ends or line breaks.
  const std::string& address() const { return address_; }
  // After it, the segment cannot be opened any more.
  void CloseFile();

  // 4096-byte aligned.
  void* data() const;
  size_t bytes() const;

 private:
  SharedSegment() = default;
  absl::Status Map(size_t bytes);

  int file_ = -1;
  std::string address_;
  char* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// A size for segments of tensors, one of each process: the memory of the machine twice, so that
// gaps between tensors do no harm, or less if not all segments would fit into the address space.
size_t TensorSegmentBytes(int num_processes);

// Host memory in a segment. Throws std::bad_alloc where the segment has no room, or the machine no
// memory. Blocks keep the segment alive, but not the Memory. Thread-safe.
std::unique_ptr<Memory> NewSegmentMemory(std::shared_ptr<SharedSegment> segment);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_SHARED_SEGMENT_H_
