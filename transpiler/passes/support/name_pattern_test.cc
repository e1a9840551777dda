#include "transpiler/passes/support/name_pattern.h"

#include "base/testing/test.h"

namespace weft::testing {
namespace {

TEST(NamePattern, MatchesTheWholeText) {
  const struct {
    const char *pattern, *text;
    bool matches;
  } cases[] = {
      {"fc_0.w_0", "fc_0.w_0", true},
      {"fc_0", "fc_0.w_0", false},
      {"w_0", "fc_0.w_0", false},
      {"", "", true},
      {"", "w", false},
      {"*", "", true},
      {"*", "w", true},
      {"fc_*", "fc_0.w_0", true},
      {"fc_*", "emb", false},
      {"*.b_0", "fc_0.b_0", true},
      {"*.b_0", "fc_0.b_01", false},
      {"fc*w", "fc_0.w", true},
      {"f*.*_0", "fc_0.w_0", true},
      {"f*c*", "fb", false},
      {"ab*ba", "aba", false},  // what two parts match is not the same
      {"a*b*b", "ab", false},   // nor in the middle
      {"a*b*c", "abbc", true},
      {"*b*", "abc", true},
      {"a.c", "abc", false},
  };
  for (const auto& [pattern, text, matches] : cases) {
    EXPECT_EQ(MatchesPattern(pattern, text), matches) << pattern << " of " << text;
  }
}

}  // namespace
}  // namespace weft::testing
