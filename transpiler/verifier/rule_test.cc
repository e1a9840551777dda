// The table of rules, their texts in transpiler/verifier/rules, and the ids that the code reports.
#include "transpiler/verifier/findings/rule.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/rules/rule_text.h"
#include "transpiler/verifier/testing/found.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Without(const std::set<std::string>& ids,
                                 const std::set<std::string>& removed) {
  std::vector<std::string> rest;
  std::set_difference(ids.begin(), ids.end(), removed.begin(), removed.end(),
                      std::back_inserter(rest));
  return rest;
}

std::set<std::string> RuleIds() {
  std::set<std::string> ids;
  for (const Rule& rule : Rules()) ids.insert(rule.id);
  return ids;
}

TEST(RuleTable, IsSortedAndNumberedByLayer) {
  EXPECT_TRUE(std::is_sorted(Rules().begin(), Rules().end(), [](const Rule& a, const Rule& b) {
    return std::string(a.id) < std::string(b.id);
  }));
  EXPECT_THAT(RuleIds(), SizeIs(Rules().size()));
  std::set<Layer> layers;
  for (const Rule& rule : Rules()) {
    EXPECT_THAT(rule.id, MatchesRegex("W[1-7][0-9][0-9]"));
    EXPECT_EQ(rule.id[1] - '0', static_cast<int>(rule.layer)) << rule.id;
    EXPECT_EQ(&FindRule(rule.id), &rule);
    layers.insert(rule.layer);
  }
  EXPECT_EQ(layers, AllLayers());
}

TEST(RuleTable, UnknownRuleDies) {
  EXPECT_DEATH(FindRule("W999"), "no rule W999");
  EXPECT_DEATH(FindRule("W000"), "no rule W000");
}

// A new rule needs three things: a line of the table in rule.cc, a report, a text.
TEST(RuleTable, HasWhatTheCodeReports) {
  std::set<std::string> reported;
  const std::regex id("\"(W[0-9]{3})\"");
  for (const auto& file : std::filesystem::recursive_directory_iterator("transpiler/verifier")) {
    const std::string name = file.path().filename();
    if (!absl::EndsWith(name, ".cc") || absl::EndsWith(name, "_test.cc") || name == "rule.cc") {
      continue;
    }
    std::ifstream source(file.path());
    const std::string text{std::istreambuf_iterator<char>(source), {}};
    for (std::sregex_iterator it(text.begin(), text.end(), id), end; it != end; ++it) {
      reported.insert((*it)[1]);
    }
  }
  EXPECT_THAT(Without(reported, RuleIds()), IsEmpty())
      << "reported, but without a row in transpiler/verifier/findings/rule.cc";
  EXPECT_THAT(Without(RuleIds(), reported), IsEmpty())
      << "in transpiler/verifier/findings/rule.cc, but no check in transpiler/verifier reports it";
}

TEST(RuleTexts, AreOneForEachRule) {
  std::set<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator("transpiler/verifier/rules")) {
    files.insert(file.path().stem());
    EXPECT_EQ(file.path().extension(), ".prog");
  }
  EXPECT_THAT(Without(files, RuleIds()), IsEmpty())
      << "a text in transpiler/verifier/rules, but no row in transpiler/verifier/findings/rule.cc";
  EXPECT_THAT(Without(RuleIds(), files), IsEmpty())
      << "in transpiler/verifier/findings/rule.cc, but without a text "
         "transpiler/verifier/rules/ID.prog";
}

TEST(RuleTexts, SayWhatIsWrongAndWhatToDo) {
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(rule.id);
    WEFT_ASSERT_OK_AND_ASSIGN(const RuleText text, RuleTextOf(rule.id));
    EXPECT_EQ(text.heading,
              absl::StrCat(rule.id, " ", SeverityName(rule.severity), ": ", rule.title));
    EXPECT_THAT(rule.title, Not(EndsWith(".")));
    EXPECT_THAT(text.why, EndsWith("."));
    EXPECT_THAT(text.fix, EndsWith("."));
    // Layer 6 compares with an original; programs of ranks differ for layer 5.
    EXPECT_EQ(!text.original.empty(), rule.layer == Layer::kEquivalence);
    if (text.ranks_differ()) {
      EXPECT_EQ(rule.layer, Layer::kAcrossRanks);
    }
  }
}

// "W101 error".
std::vector<std::string> RulesOf(const Findings& findings) {
  std::vector<std::string> rules;
  for (const Finding& finding : findings.all()) {
    rules.push_back(absl::StrCat(finding.rule, " ", SeverityName(finding.severity)));
  }
  return rules;
}

std::string RuleAndSeverity(const Rule& rule) {
  return absl::StrCat(rule.id, " ", SeverityName(rule.severity));
}

TEST(RuleExamples, BreakTheirRule) {
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(rule.id);
    WEFT_ASSERT_OK_AND_ASSIGN(const RuleText text, RuleTextOf(rule.id));
    WEFT_ASSERT_OK_AND_ASSIGN(const Findings findings, VerifyExample(text));
    EXPECT_THAT(RulesOf(findings), Contains(RuleAndSeverity(rule)));
    // Nothing is wrong but the difference between the ranks.
    if (text.ranks_differ()) {
      EXPECT_THAT(findings.all(), SizeIs(1));
    }
    for (const Finding& finding : findings.all()) {
      EXPECT_EQ(finding.layer, FindRule(finding.rule).layer);
    }
  }
}

TEST(RuleExamples, BreakNoOtherRuleThatOneProgramShows) {
  for (const Rule& rule : Rules()) {
    if (rule.layer != Layer::kStructure && rule.layer != Layer::kTypes &&
        rule.layer != Layer::kRaces) {
      continue;
    }
    SCOPED_TRACE(rule.id);
    WEFT_ASSERT_OK_AND_ASSIGN(const RuleText text, RuleTextOf(rule.id));
    const Program program = testing::ProgramOf(text.main);
    VerifyOptions options;
    options.layers = {Layer::kStructure, rule.layer};
    options.setting.ordered_by_data = text.is_ordered_by_data;
    if (rule.layer == Layer::kRaces) options.layers = {Layer::kRaces};
    ConstProgramPair programs = {&program, nullptr};
    absl::optional<Program> startup;
    if (!text.startup.empty())
      programs.startup = &startup.emplace(testing::ProgramOf(text.startup));
    EXPECT_THAT(RulesOf(Verify({programs}, options)), ElementsAre(RuleAndSeverity(rule)));
  }
}

// It takes both ranks: nothing is wrong with a program that all of them run.
TEST(RuleExamples, OfDifferentRanksAreRightForAllRanks) {
  for (const Rule& rule : Rules()) {
    WEFT_ASSERT_OK_AND_ASSIGN(const RuleText text, RuleTextOf(rule.id));
    if (!text.ranks_differ()) continue;
    SCOPED_TRACE(rule.id);
    RuleText rank0 = text, rank1 = text;
    if (!text.rank1.empty()) rank1.main = text.rank1;
    if (!text.rank1_startup.empty()) rank1.startup = text.rank1_startup;
    for (RuleText* one : {&rank0, &rank1}) {
      one->rank1.clear();
      one->rank1_startup.clear();
      WEFT_ASSERT_OK_AND_ASSIGN(const Findings findings, VerifyExample(*one));
      EXPECT_THAT(RulesOf(findings), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace weft
