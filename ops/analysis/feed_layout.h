// How the batch of a step is given to the ranks, variable by variable.
#ifndef WEFT_OPS_ANALYSIS_FEED_LAYOUT_H_
#define WEFT_OPS_ANALYSIS_FEED_LAYOUT_H_

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

// The data variables of a program: those marked (Var::need_check_feed), and those that feed ops
// write; without any of these, the tensors of the root block that an op reads before any op writes
// them. O(arguments).
absl::flat_hash_set<VarId> FindData(const Program& program);

// The layouts of the data variables of a program (FindData): those of `given`, and for
// the others a guess from their declarations. Dimension 0 is the batch if its size is unknown, or
// if all data variables have fixed sizes, and several elements there. Else it is the only dimension
// of unknown size, if one before it is larger than 1 (time-major data). Any other variable (a
// learning rate, weights of classes) is whole. InvalidArgument if `given` names a variable that is
// no data variable, or an axis that it does not have.
absl::StatusOr<FeedLayouts> FeedLayoutsOf(const Program& program, const FeedLayouts& given = {});

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_FEED_LAYOUT_H_
