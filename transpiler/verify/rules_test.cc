// The table of all rules, and what the verifier says of their examples.
#include "transpiler/verify/rules.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_text.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Rules, AreNumberedByLayerAndSorted) {
  std::string before;
  for (const Rule& rule : Rules()) {
    EXPECT_THAT(rule.id, MatchesRegex("W[1-6][0-9][0-9]"));
    EXPECT_LT(before, rule.id);
    before = rule.id;
  }
  for (Layer layer : AllLayers()) {
    const std::string start = absl::StrCat("W", static_cast<int>(layer));
    EXPECT_THAT(Rules(),
                Contains(::testing::ResultOf(
                    [&](const Rule& rule) { return absl::StartsWith(rule.id, start); }, true)))
        << LayerName(layer);
  }
}

TEST(Rules, SayWhatIsWrongAndWhy) {
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(rule.id);
    EXPECT_STRNE(rule.title, "");
    EXPECT_THAT(rule.title, Not(EndsWith(".")));
    EXPECT_THAT(rule.why, EndsWith("."));
    EXPECT_EQ(&FindRule(rule.id), &rule);
    // An original is there to be compared with an example, by layer 6.
    if (rule.original != nullptr) {
      EXPECT_EQ(rule.id[1], '6');
      EXPECT_NE(rule.example, nullptr);
    }
  }
}

TEST(Rules, EveryExampleBreaksItsRule) {
  for (const Rule& rule : Rules()) {
    if (rule.example == nullptr) continue;
    SCOPED_TRACE(rule.id);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(rule.example));
    absl::optional<Program> original, startup, original_startup;
    VerifyOptions options;
    options.nranks = 2;
    if (rule.original != nullptr) {
      WEFT_ASSERT_OK_AND_ASSIGN(original, ParseProgramText(rule.original));
      options.original.main = &*original;
    }
    if (rule.original_startup != nullptr) {
      WEFT_ASSERT_OK_AND_ASSIGN(original_startup, ParseProgramText(rule.original_startup));
      options.original.startup = &*original_startup;
    }
    RankPrograms programs{&program, nullptr};
    if (rule.startup != nullptr) {
      WEFT_ASSERT_OK_AND_ASSIGN(startup, ParseProgramText(rule.startup));
      programs.startup = &*startup;
    }
    std::vector<std::string> found;
    const Findings findings = Verify({programs}, options);
    for (const Finding& finding : findings.all()) {
      found.push_back(absl::StrCat(finding.rule, " ", SeverityName(finding.severity)));
    }
    EXPECT_THAT(found, Contains(absl::StrCat(rule.id, " ", SeverityName(rule.severity))));
  }
}

}  // namespace
}  // namespace weft
