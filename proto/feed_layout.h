// How the batch of a step is given to the ranks, variable by variable.
#ifndef WEFT_PROTO_FEED_LAYOUT_H_
#define WEFT_PROTO_FEED_LAYOUT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

struct FeedLayout {
  // Rank r of n gets part r of n equal parts along this axis. None: every rank gets the whole.
  absl::optional<int> axis = 0;

  static FeedLayout Whole() { return {absl::nullopt}; }
  friend bool operator==(const FeedLayout& a, const FeedLayout& b) { return a.axis == b.axis; }
};

using FeedLayouts = std::map<std::string, FeedLayout>;  // by variable

// "whole" or "axis:1".
std::string ToString(const FeedLayout& layout);

// The inverse: reads "whole" or "axis:1". InvalidArgument for other text.
absl::StatusOr<FeedLayout> ParseFeedLayout(absl::string_view text);

// Reads "pos=whole,ids=axis:1". InvalidArgument for other text, or for a variable named twice.
absl::StatusOr<FeedLayouts> ParseFeedLayouts(absl::string_view text);

}  // namespace weft

#endif  // WEFT_PROTO_FEED_LAYOUT_H_
