#include "proto/feed_layout.h"

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft {

std::string ToString(const FeedLayout& layout) {
  return layout.axis.has_value() ? absl::StrCat("axis:", *layout.axis) : "whole";
}

absl::StatusOr<FeedLayout> ParseFeedLayout(absl::string_view text) {
  if (text == "whole") return FeedLayout::Whole();
  FeedLayout layout;
  int axis = 0;
  if (!absl::ConsumePrefix(&text, "axis:") || !absl::SimpleAtoi(text, &axis) || axis < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("feed layout: expected whole or axis:N, found ", text));
  }
  layout.axis = axis;
  return layout;
}

absl::StatusOr<FeedLayouts> ParseFeedLayouts(absl::string_view text) {
  FeedLayouts layouts;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    // The last '=': names of variables may hold others.
    const size_t equals = entry.rfind('=');
    const absl::StatusOr<FeedLayout> layout =
        ParseFeedLayout(equals == absl::string_view::npos ? "" : entry.substr(equals + 1));
    if (!layout.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("feed layout: expected VARIABLE=whole or VARIABLE=axis:N, found ", entry));
    }
    const std::string name(entry.substr(0, equals));
    if (!layouts.emplace(name, *layout).second) {
      return absl::InvalidArgumentError(absl::StrCat("feed layout: ", name, " is named twice"));
    }
  }
  return layouts;
}

}  // namespace weft
