#include "tools/progress_line.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kInterval(100);
constexpr absl::string_view kEraseLine = "\r\x1b[K";

}  // namespace

ProgressLine::ProgressLine(std::FILE* stream) : ProgressLine(stream, isatty(fileno(stream)) == 1) {}

bool ProgressLine::IsDue() const { return is_shown_ && std::chrono::steady_clock::now() >= next_; }

void ProgressLine::Show(absl::string_view line) {
  if (!IsDue()) return;
  next_ = std::chrono::steady_clock::now() + kInterval;
  const std::string text = absl::StrCat(kEraseLine, line);
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
  is_there_ = true;
}

void ProgressLine::Clear() {
  if (!is_there_) return;
  std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), stream_);
  std::fflush(stream_);
  is_there_ = false;
}

std::string FormatProgress(int64_t done, int64_t all, absl::string_view what,
                           double samples_per_s) {
  constexpr int kWidth = 20;
  const double part = all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1;
  std::string bar(static_cast<size_t>(part * kWidth), '=');
  if (bar.size() < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  std::string line = absl::StrFormat("[%s] %3d%% step %d/%d  %s", bar, static_cast<int>(100 * part),
                                     done, all, what);
  if (samples_per_s > 0) absl::StrAppendFormat(&line, "  %.4g samples/s", samples_per_s);
  return line;
}

}  // namespace weft
