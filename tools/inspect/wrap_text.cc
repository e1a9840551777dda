#include "tools/inspect/wrap_text.h"

#include "absl/strings/str_split.h"

namespace weft {

std::string WrapText(absl::string_view paragraph, size_t width, size_t indent) {
  std::string wrapped;
  size_t column = 0;
  for (absl::string_view word : absl::StrSplit(paragraph, ' ')) {
    if (!wrapped.empty() && column + 1 + word.size() > width) {
      wrapped += '\n';
      wrapped.append(indent, ' ');
      column = indent;
    } else if (!wrapped.empty()) {
      wrapped += ' ';
      ++column;
    }
    column += word.size();
    wrapped.append(word.data(), word.size());
  }
  return wrapped;
}

}  // namespace weft
