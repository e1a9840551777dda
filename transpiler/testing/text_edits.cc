#include "transpiler/testing/text_edits.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft::testing {
namespace {

struct Line {
  char margin;  // '-', '+', or ' '
  absl::string_view text;

  bool IsVar() const { return absl::StartsWith(text, "var "); }
  // Of "var a, b : fp32[2]" or "var a, b".
  std::vector<std::string> VarNames() const {
    const std::vector<absl::string_view> parts = absl::StrSplit(text, " : ");
    return absl::StrSplit(absl::StripPrefix(parts[0], "var "), ", ");
  }
};

// Without indentation and empty lines.
std::vector<Line> Lines(absl::string_view text) {
  std::vector<Line> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (absl::ConsumePrefix(&line, "- ")) {
      lines.push_back({'-', line});
    } else if (absl::ConsumePrefix(&line, "+ ")) {
      lines.push_back({'+', line});
    } else {
      lines.push_back({' ', line});
    }
  }
  return lines;
}

std::string Without(char margin, absl::string_view edits) {
  std::string text;
  for (const Line& line : Lines(edits)) {
    if (line.margin != margin) absl::StrAppend(&text, line.text, "\n");
  }
  return text;
}

}  // namespace

bool HasMargins(absl::string_view text) {
  const std::vector<Line> lines = Lines(text);
  return std::any_of(lines.begin(), lines.end(),
                     [](const Line& line) { return line.margin != ' '; });
}

std::string TextBefore(absl::string_view edits) { return Without('+', edits); }
std::string TextAfter(absl::string_view edits) { return Without('-', edits); }

std::set<std::string> ErasedVars(absl::string_view edits) {
  std::set<std::string> erased;
  const std::vector<Line> lines = Lines(edits);
  for (const Line& line : lines) {
    if (!line.IsVar() || line.margin != '-') continue;
    for (const std::string& name : line.VarNames()) erased.insert(name);
  }
  for (const Line& line : lines) {
    if (!line.IsVar() || line.margin != '+') continue;
    for (const std::string& name : line.VarNames()) erased.erase(name);
  }
  return erased;
}

absl::StatusOr<std::string> Edited(absl::string_view text, absl::string_view edits) {
  const std::vector<Line> kept = Lines(text);
  std::set<absl::string_view> removed_vars;  // where they stand does not matter
  for (const Line& line : Lines(edits)) {
    if (line.margin == '-' && line.IsVar()) removed_vars.insert(line.text);
  }
  std::string edited;
  size_t next = 0;
  const auto keep_next = [&] {
    const absl::string_view line = kept[next++].text;
    if (removed_vars.count(line) == 0) absl::StrAppend(&edited, line, "\n");
  };
  for (const Line& line : Lines(edits)) {
    if (line.margin == '+') {
      absl::StrAppend(&edited, line.text, "\n");
      continue;
    }
    if (line.margin == '-' && line.IsVar()) continue;
    while (next < kept.size() && kept[next].text != line.text) keep_next();
    if (next == kept.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected this line after the lines before it: ", line.text));
    }
    if (line.margin == ' ') {
      keep_next();
    } else {
      ++next;
    }
  }
  while (next < kept.size()) keep_next();
  return edited;
}

std::string LineDiff(absl::string_view before, absl::string_view after) {
  const std::vector<absl::string_view> a = absl::StrSplit(before, '\n');
  const std::vector<absl::string_view> b = absl::StrSplit(after, '\n');
  if (a == b) return "";
  // longest[i][j]: the length of the longest common subsequence of a from i and b from j.
  std::vector<std::vector<size_t>> longest(a.size() + 1, std::vector<size_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      longest[i][j] =
          a[i] == b[j] ? longest[i + 1][j + 1] + 1 : std::max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  std::string diff;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      absl::StrAppend(&diff, "  ", a[i], "\n");
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && longest[i + 1][j] >= longest[i][j + 1])) {
      absl::StrAppend(&diff, "- ", a[i++], "\n");
    } else {
      absl::StrAppend(&diff, "+ ", b[j++], "\n");
    }
  }
  return diff;
}

}  // namespace weft::testing
