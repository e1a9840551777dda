// Puts a prefix before every line of a stream that comes in pieces.
#ifndef WEFT_TOOLS_JOB_LINE_PREFIXER_H_
#define WEFT_TOOLS_JOB_LINE_PREFIXER_H_

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

class LinePrefixer {
 public:
  // A longer line is cut into several.
  static constexpr size_t kMaxLine = size_t{16} << 20;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that the piece completes to `out`, and keeps the rest.
  void Add(absl::string_view piece, std::string* out) {
    for (size_t end = piece.find('\n'); end != absl::string_view::npos; end = piece.find('\n')) {
      absl::StrAppend(out, prefix_, line_, piece.substr(0, end + 1));
      line_.clear();
      piece.remove_prefix(end + 1);
    }
    absl::StrAppend(&line_, piece);
    if (line_.size() > kMaxLine) Finish(out);
  }

  // Appends the line that the stream has left unfinished, if there is one, and a newline.
  void Finish(std::string* out) {
    if (!line_.empty()) absl::StrAppend(out, prefix_, line_, "\n");
    line_.clear();
  }

 private:
  std::string prefix_;
  std::string line_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_LINE_PREFIXER_H_
