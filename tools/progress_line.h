// Progress of long work, on a terminal.
#ifndef WEFT_TOOLS_PROGRESS_LINE_H_
#define WEFT_TOOLS_PROGRESS_LINE_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// One line that is overwritten at most ten times a second. Writes nothing if the stream is not a
// terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* stream);
  // Behaves as on a terminal, or not.
  ProgressLine(std::FILE* stream, bool is_terminal) : stream_(stream), is_shown_(is_terminal) {}
  ~ProgressLine() { Clear(); }

  // Whether Show would write now: building the line takes time.
  bool IsDue() const;
  void Show(absl::string_view line);
  // Erases the line before other output.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool is_shown_;
  bool is_there_ = false;
  std::chrono::steady_clock::time_point next_;
};

// "[=====>              ]  25% step 25/100  loss 0.1234  4567 samples/s". A `samples_per_s` of 0 is
// left out.
std::string FormatProgress(int64_t done, int64_t all, absl::string_view what, double samples_per_s);

}  // namespace weft

#endif  // WEFT_TOOLS_PROGRESS_LINE_H_
