#include "transpiler/verifier/findings/finding.h"

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::SizeIs;

Findings Reported(const char* rule, int count, ProgramRef ref = {}) {
  Findings findings;
  Reporter reporter(ref, &findings);
  for (int i = 0; i < count; ++i) reporter.Add(rule, OpId(i), "w", absl::StrCat("op ", i));
  return findings;
}

TEST(FindingsTest, ReporterFillsInWhatTheRuleSays) {
  Findings findings;
  Reporter({1, /*is_startup=*/true}, &findings).Add("W405", OpId(3), "w", "op 3 waits", OpId(2));
  ASSERT_THAT(findings.all(), SizeIs(1));
  const Finding& finding = findings.all()[0];
  EXPECT_EQ(finding.layer, Layer::kRaces);
  EXPECT_EQ(finding.severity, Severity::kNote);
  EXPECT_EQ(finding.op, OpId(3));
  EXPECT_EQ(finding.other, OpId(2));
  EXPECT_EQ(finding.variable, "w");
  EXPECT_EQ(ToString(finding), "note: W405: startup program: op 3 waits");
  EXPECT_EQ(ToString(finding, /*one_program_for_all=*/false),
            "note: W405: rank 1: startup program: op 3 waits");
  EXPECT_FALSE(findings.HasErrors());
  WEFT_EXPECT_OK(ToStatus(findings));
}

TEST(FindingsTest, ThoseAfterTheFirstOnesAreCounted) {
  const Findings findings = Reported("W303", Findings::kMaxPerRule + 10);
  EXPECT_THAT(findings.all(), SizeIs(Findings::kMaxPerRule));
  EXPECT_EQ(findings.NumOmitted("W303"), 10);
  EXPECT_EQ(findings.NumOmitted("W304"), 0);
  EXPECT_EQ(findings.NumOmittedErrors(), 10);
  EXPECT_THAT(ToStatus(findings),
              StatusIs(absl::StatusCode::kFailedPrecondition, "W303: op 0 (and 29 more)"));
}

TEST(FindingsTest, AKindIsRemovedWithItsCount) {
  Findings findings = Reported("W702", Findings::kMaxPerRule + 2);
  findings.Append(Reported("W704", 1));
  findings.Remove(FindingKind::kLossScale);
  ASSERT_THAT(findings.all(), SizeIs(1));
  EXPECT_EQ(findings.all()[0].kind, FindingKind::kDifference);
  EXPECT_EQ(findings.NumOmittedErrors(), 0);
}

// `transpile` says differences, and refuses errors.
TEST(RulesTest, NoErrorIsADifference) {
  for (const Rule& rule : Rules()) {
    EXPECT_FALSE(IsDifference(rule.kind) && rule.severity == Severity::kError) << rule.id;
  }
}

TEST(FindingsTest, RankOfAllFindingsCanChange) {
  Findings findings = Reported("W303", Findings::kMaxPerRule + 2, {1, /*is_startup=*/false});
  findings.SetRank(3);
  for (const Finding& finding : findings.all()) EXPECT_EQ(finding.program.rank, 3);
  EXPECT_EQ(findings.NumOmitted("W303"), 2);
}

TEST(FindingsTest, AppendKeepsCounts) {
  Findings findings = Reported("W303", 15);
  findings.Append(Reported("W303", Findings::kMaxPerRule + 2));
  findings.Append(Reported("W504", Findings::kMaxPerRule + 1));
  EXPECT_EQ(findings.NumOmitted("W303"), 17);
  EXPECT_EQ(findings.NumOmitted("W504"), 1);
  EXPECT_EQ(findings.NumOmittedErrors(), 17);  // W504 is a warning
}

}  // namespace
}  // namespace weft::testing
