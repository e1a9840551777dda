// How the batch of a step is given to the ranks, variable by variable.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_FEED_LAYOUT_H_
#define WEFT_OPS_ANALYSIS_TRAINING_FEED_LAYOUT_H_

#include <map>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/program.h"

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

// Reads "pos=whole,ids=axis:1". InvalidArgument for other text, or for a variable named twice.
absl::StatusOr<FeedLayouts> ParseFeedLayouts(absl::string_view text);

// The data variables of a program: those of the root block that are marked (Var::need_check_feed),
// and those of any block that ops of feeds and readers write (HandsOutData). If none is marked, and
// no op feeds, also the tensors of the root block that an op of any block reads before any op
// writes them. O(arguments).
absl::flat_hash_set<VarId> FindData(const Program& program);

// Of these, those of the root block that ops read as they are fed: no other op writes them, in any
// block. And the copies of these between memories (CopiesFrom) that nothing else writes.
// O(arguments).
absl::flat_hash_set<VarId> FindUnchangedData(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_FEED_LAYOUT_H_
