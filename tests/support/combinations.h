// Which features combine: the table that the tests run and docs/modes.md prints.
#ifndef WEFT_TESTS_SUPPORT_COMBINATIONS_H_
#define WEFT_TESTS_SUPPORT_COMBINATIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::testing {

// Of a program, or of the passes that rewrite it.
enum class Feature {
  kAccumulation,
  kClipByValue,
  kClipByGlobalNorm,
  kAmp,
  kRows,
  kSetOptimizer,
  kBuckets,
  kHalf,
  kTopK,
  kThreshold,
  kGather,
  kShares,
  kLowRank,
  kLocalSgd,
  kGroups,
  kOuter,
  kPartial,
  kBroadcast,
  kPlacement,
  kServers,
};

struct FeatureText {
  Feature feature;
  absl::string_view name;  // in the table
  absl::string_view what;  // Markdown
};

// In the order of the enumerators.
const std::vector<FeatureText>& Features();

// What the table says about a pair.
enum class Verdict {
  kYes,
  kWhole,        // it combines, and has no effect
  kPerRank,      // it combines, but ranks do not compute what one device computes
  kOwnScale,     // the same, where gradients overflow
  kOneExchange,  // from here on refused
  kNeedsFp32,
  kNeedsDense,
  kNeedsReduction,
  kNeedsEveryStep,
  kNeedsMerged,
  kNeedsWhole,
};

inline bool IsRefused(Verdict verdict) { return verdict >= Verdict::kOneExchange; }

// Dies where the table lacks the pair. In either order.
Verdict VerdictOf(Feature a, Feature b);

// Section `combinations` of docs/modes.md.
std::string CombinationsText();

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_COMBINATIONS_H_
