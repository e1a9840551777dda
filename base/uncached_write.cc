#include "base/uncached_write.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace weft {
namespace {

// Offset, size and memory of an uncached write must be multiples of this.
constexpr size_t kAlignment = 4096;
constexpr size_t kBufferBytes = 8 << 20;

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<char, Free>;

Buffer NewBuffer() {
  return Buffer(static_cast<char*>(std::aligned_alloc(kAlignment, kBufferBytes)));
}

void UseCache(int fd, bool use) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, use ? flags & ~O_DIRECT : flags | O_DIRECT);
}
bool UsesCache(int fd) { return (fcntl(fd, F_GETFL) & O_DIRECT) == 0; }

absl::Status WriteAt(int fd, const char* data, size_t size, off_t offset) {
  while (size > 0) {
    const ssize_t n = pwrite(fd, data, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && !UsesCache(fd)) {
      // The file system requires another alignment.
      UseCache(fd, true);
      continue;
    }
    if (n < 0) return absl::ErrnoToStatus(errno, "cannot write");
    data += n;
    size -= n;
    offset += n;
  }
  return absl::OkStatus();
}

// Fills one buffer while a thread writes the other.
class UncachedWriter {
 public:
  explicit UncachedWriter(int fd) : fd_(fd) {}

  bool HasMemory() const { return filling_ != nullptr && being_written_ != nullptr; }

  absl::Status Append(absl::string_view bytes) {
    while (!bytes.empty()) {
      const size_t n = std::min(bytes.size(), kBufferBytes - filled_);
      std::memcpy(filling_.get() + filled_, bytes.data(), n);
      filled_ += n;
      bytes.remove_prefix(n);
      if (filled_ == kBufferBytes) WEFT_RETURN_IF_ERROR(StartWriting());
    }
    return absl::OkStatus();
  }

  // Writes the rest; bytes after the last multiple of the alignment go through the cache.
  absl::Status Finish() {
    WEFT_RETURN_IF_ERROR(WaitForWriting());
    const size_t aligned = filled_ / kAlignment * kAlignment;
    WEFT_RETURN_IF_ERROR(WriteAt(fd_, filling_.get(), aligned, offset_));
    UseCache(fd_, true);
    WEFT_RETURN_IF_ERROR(
        WriteAt(fd_, filling_.get() + aligned, filled_ - aligned, offset_ + aligned));
    offset_ += filled_;
    if (lseek(fd_, offset_, SEEK_SET) < 0) return absl::ErrnoToStatus(errno, "cannot write");
    return absl::OkStatus();
  }

 private:
  absl::Status StartWriting() {
    WEFT_RETURN_IF_ERROR(WaitForWriting());
    std::swap(filling_, being_written_);
    const char* data = being_written_.get();
    const off_t offset = offset_;
    // If no thread can be started, WaitForWriting writes.
    writing_ = std::async(std::launch::async | std::launch::deferred, [fd = fd_, data, offset] {
      return WriteAt(fd, data, kBufferBytes, offset);
    });
    offset_ += kBufferBytes;
    filled_ = 0;
    return absl::OkStatus();
  }

  absl::Status WaitForWriting() { return writing_.valid() ? writing_.get() : absl::OkStatus(); }

  const int fd_;
  Buffer filling_ = NewBuffer(), being_written_ = NewBuffer();
  size_t filled_ = 0;
  off_t offset_ = 0;
  std::future<absl::Status>
      writing_;  // last: its destructor waits, so the buffers outlive the thread
};

}  // namespace

absl::Status WriteUncached(int fd, absl::Span<const absl::string_view> pieces) {
  UncachedWriter writer(fd);
  if (!writer.HasMemory()) return absl::ResourceExhaustedError("cannot write: out of memory");
  UseCache(fd, false);
  for (absl::string_view piece : pieces) WEFT_RETURN_IF_ERROR(writer.Append(piece));
  return writer.Finish();
}

}  // namespace weft
