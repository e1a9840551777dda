#include "executor/plan/startup_parts.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

// Variables of 400 bytes.
constexpr char kVars[] = R"(
    var a : fp32[100] parameter persistable
    var b : fp32[100] parameter persistable
    var c : fp32[100] parameter persistable
    var t : fp32[100]
)";

std::string Fill(const std::string& var) {
  return absl::StrCat("    Out=[", var, "] = fill_constant() {shape=longs[100], dtype=5}\n");
}

std::string Copy(const std::string& from, const std::string& to) {
  return absl::StrCat("    Out=[", to, "] = assign(X=[", from, "])\n");
}

std::vector<StartupPart> Split(const std::string& ops, int64_t bytes,
                               const std::string& vars = kVars) {
  absl::StatusOr<std::vector<StartupPart>> parts =
      SplitStartup(testing::BlockProgram(vars + ops), bytes);
  WEFT_EXPECT_OK(parts);
  return parts.ok() ? *std::move(parts) : std::vector<StartupPart>();
}

TEST(SplitStartupTest, PartsEndWhereTheyHaveMadeEnough) {
  const std::vector<StartupPart> parts = Split(Fill("a") + Fill("b") + Fill("c"), 600);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_THAT(OpTexts(parts[0].program),
              ElementsAre("fill_constant( -> a)", "fill_constant( -> b)"));
  EXPECT_THAT(parts[0].done, ElementsAre("a", "b"));
  EXPECT_THAT(OpTexts(parts[1].program), ElementsAre("fill_constant( -> c)"));
  EXPECT_THAT(parts[1].done, ElementsAre("c"));
  EXPECT_EQ(Split(Fill("a") + Fill("b") + Fill("c"), 10'000).size(), 1u);
}

TEST(SplitStartupTest, AVariableIsDoneBehindItsLastOp) {
  const std::vector<StartupPart> parts = Split(Fill("a") + Fill("b") + Copy("a", "c"), 400);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(parts[0].done, IsEmpty());
  EXPECT_THAT(parts[1].done, ElementsAre("b"));
  EXPECT_THAT(parts[2].done, ElementsAre("a", "c"));
}

TEST(SplitStartupTest, VariablesOfAStepStayInOnePart) {
  const std::vector<StartupPart> parts =
      Split(Fill("a") + Fill("t") + Fill("b") + Copy("t", "c") + Fill("a"), 400);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(OpTexts(parts[1].program),
              ElementsAre("fill_constant( -> t)", "fill_constant( -> b)", "assign(t -> c)"));
  EXPECT_THAT(parts[2].done, ElementsAre("a"));
}

TEST(SplitStartupTest, SomeProgramsAreOnePart) {
  const std::string two = Fill("a") + Fill("b");
  EXPECT_EQ(Split(two, 400).size(), 2u);
  EXPECT_EQ(Split(two + "    FusedOutput=[t], Output=[a, b] = coalesce_tensor(Input=[a, b])\n", 400)
                .size(),
            1u);
  EXPECT_EQ(Split(two + Copy("rows", "rows"), 400,
                  absl::StrCat(kVars, "    var rows : selected_rows<fp32[-1, 1]> persistable\n"))
                .size(),
            1u);
  const Program branch = testing::BlockProgram(
      absl::StrCat(kVars, "    var yes : bool[1] persistable\n    var scope : step_scopes\n", two,
                   "    Scope=[scope], Out=[a] = conditional_block(Cond=[yes], Input=[]) "
                   "{sub_block=block(1), is_scalar_condition=true}\n"),
      absl::StrCat("  block 1 parent=0 {\n", Fill("a"), "  }\n"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<StartupPart> parts, SplitStartup(branch, 400));
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_THAT(parts[0].done, ElementsAre("a", "b", "yes"));
}

}  // namespace
}  // namespace weft::testing
