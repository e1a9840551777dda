// How far long work has come, for who watches a terminal.
#ifndef WEFT_TOOLS_PROGRESS_LINE_H_
#define WEFT_TOOLS_PROGRESS_LINE_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// One line that is written over and over, ten times a second at most. Nothing is written where the
// stream is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* stream);
  // As on a terminal, or not.
  ProgressLine(std::FILE* stream, bool is_terminal) : stream_(stream), is_shown_(is_terminal) {}
  ~ProgressLine() { Clear(); }

  // Whether the line would be written now: making it is work.
  bool IsDue() const;
  void Show(absl::string_view line);
  // Takes the line away, so that other output can come.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool is_shown_;
  bool is_there_ = false;
  std::chrono::steady_clock::time_point next_;
};

// "[=====>              ]  25% step 25/100  loss 0.1234  4567 samples/s". `samples_per_s` of 0 is
// left out.
std::string FormatProgress(int64_t done, int64_t all, absl::string_view what, double samples_per_s);

}  // namespace weft

#endif  // WEFT_TOOLS_PROGRESS_LINE_H_
