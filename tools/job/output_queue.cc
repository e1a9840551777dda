#include "tools/job/output_queue.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace weft {
namespace {

constexpr size_t kFull = size_t{1} << 20;
// A pipe that is ready takes this much without blocking.
constexpr size_t kPiece = PIPE_BUF;

bool IsSameOpenFile(int a, int b) {
  struct stat a_info, b_info;
  return fstat(a, &a_info) == 0 && fstat(b, &b_info) == 0 && a_info.st_dev == b_info.st_dev &&
         a_info.st_ino == b_info.st_ino;
}

}  // namespace

OutputQueue::OutputQueue() {
  streams_[0].fd = STDOUT_FILENO;
  streams_[1].fd = STDERR_FILENO;
  if (IsSameOpenFile(STDOUT_FILENO, STDERR_FILENO)) err_ = 0;
}

bool OutputQueue::IsEmpty() const {
  return streams_[0].pending.empty() && streams_[1].pending.empty();
}

bool OutputQueue::IsFull() const {
  return std::max(streams_[0].pending.size() - streams_[0].written,
                  streams_[1].pending.size() - streams_[1].written) >= kFull;
}

void OutputQueue::AppendTo(std::vector<pollfd>* polled) const {
  for (const Stream& stream : streams_) {
    if (!stream.pending.empty()) polled->push_back({stream.fd, POLLOUT, 0});
  }
}

absl::Status OutputQueue::Write(const std::vector<pollfd>& polled) {
  absl::Status result;
  for (Stream& stream : streams_) {
    const bool is_ready = std::any_of(polled.begin(), polled.end(), [&](const pollfd& entry) {
      return entry.fd == stream.fd && entry.revents != 0;
    });
    if (stream.failed) stream.pending.clear();
    if (!is_ready || stream.pending.empty()) continue;
    const ssize_t n = write(stream.fd, stream.pending.data() + stream.written,
                            std::min(kPiece, stream.pending.size() - stream.written));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) {
      result = absl::ErrnoToStatus(
          errno, stream.fd == STDOUT_FILENO ? "standard output" : "standard error");
      stream.failed = true;
      stream.pending.clear();
      stream.written = 0;
      continue;
    }
    stream.written += static_cast<size_t>(n);
    if (stream.written == stream.pending.size()) {
      stream.pending.clear();
      stream.written = 0;
    } else if (stream.written >= kFull) {
      stream.pending.erase(0, stream.written);
      stream.written = 0;
    }
  }
  return result;
}

}  // namespace weft
