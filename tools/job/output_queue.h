// Standard output and error of a program that must not wait for their readers.
#ifndef WEFT_TOOLS_JOB_OUTPUT_QUEUE_H_
#define WEFT_TOOLS_JOB_OUTPUT_QUEUE_H_

#include <poll.h>

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// Texts are written in the order in which they are added, if both lead to the same file; otherwise
// each stream for itself. SIGPIPE must be ignored.
class OutputQueue {
 public:
  OutputQueue();

  void AddOut(const std::string& text) { streams_[0].pending += text; }
  void AddErr(const std::string& text) { streams_[err_].pending += text; }

  bool IsEmpty() const;
  // More should not be added before something is written.
  bool IsFull() const;

  // Adds what to poll for.
  void AppendTo(std::vector<pollfd>* polled) const;
  // Writes to those of the streams that poll has found ready. An error names the stream, of which
  // everything is dropped from then on; it is returned once.
  absl::Status Write(const std::vector<pollfd>& polled);

 private:
  struct Stream {
    int fd;
    std::string pending;
    size_t written = 0;  // of pending
    bool failed = false;
  };

  std::array<Stream, 2> streams_;
  size_t err_ = 1;  // 0: the same file
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_OUTPUT_QUEUE_H_
