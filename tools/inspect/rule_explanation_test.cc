#include "tools/inspect/rule_explanation.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/findings/rule.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ExplainRule, ShowsMeaningFixExampleAndMessage) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string page, ExplainRule("W312"));
  EXPECT_THAT(page, StartsWith("W312 error: gradient summed over the ranks, but never divided\n"
                               "layer 3: communication\n\nThe update is too large"));
  EXPECT_THAT(page, HasSubstr("\n\nFix: Divide the gradient of the loss"));
  EXPECT_THAT(page, HasSubstr("\n\nAn example, for 2 ranks:\n\n    program {\n"));
  EXPECT_THAT(page, HasSubstr("\nThe verifier says:\n\n    error: W312: op 3 (sgd)"));
}

TEST(ExplainRule, NamesTheProgramsOfRanks) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string page, ExplainRule("W501"));
  EXPECT_THAT(page, HasSubstr("\n\nRank 0:\n\n    program"));
  EXPECT_THAT(page, HasSubstr("\n\nRank 1:\n\n    program"));
}

TEST(ExplainRule, KnowsAllRules) {
  for (const Rule& rule : Rules()) EXPECT_THAT(ExplainRule(rule.id), testing::IsOk()) << rule.id;
}

TEST(ExplainRule, UnknownRuleIsAnError) {
  EXPECT_THAT(ExplainRule("W999"), ::weft::testing::IsNotFound("found W999"));
}

}  // namespace
}  // namespace weft
