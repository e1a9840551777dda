#include "transpiler/verify/branch_conditions.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "transpiler/verify/testing/found.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kReduce[] = "    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0}\n";
constexpr char kScale[] = "    Out=[w] = scale(X=[w]) {scale=0.5}\n";

// Of a program with an op that runs block 1.
std::vector<std::string> Check(const std::string& op, const std::string& block) {
  const Program program = testing::BlockProgram(
      absl::StrCat("    var x : fp32[1] need_check_feed\n    var step : fp32[1] persistable\n"
                   "    var limit : fp32[1] persistable\n    var due : bool[1]\n"
                   "    var w : fp32[1] parameter persistable\n    var scope : step_scopes\n",
                   op),
      absl::StrCat("  block 1 parent=0 {\n", block, "  }\n"));
  ConditionChecker checker(program, ProgramRef());
  RankValuesOptions options;
  options.nranks = 2;
  options.observer = &checker;
  RankValues::Of(program, options);
  Findings findings;
  checker.Check(&findings);
  return testing::Lines(findings);
}

// A conditional block on `variable` > limit.
std::string If(const std::string& variable) {
  return absl::StrCat("    Out=[due] = greater_than(X=[", variable,
                      "], Y=[limit])\n"
                      "    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) "
                      "{sub_block=block(1), is_scalar_condition=true}\n");
}

TEST(BranchConditions, RanksMayAgreeOnThem) { EXPECT_THAT(Check(If("step"), kReduce), IsEmpty()); }

TEST(BranchConditions, RanksMayNotDisagreeWhereABlockHasCollectives) {
  EXPECT_THAT(Check(If("x"), kReduce),
              ElementsAre("W503 error: op 1 (conditional_block): its block has collectives, but "
                          "its condition due is rank-local: ranks on which it holds wait forever "
                          "for the others"));
  EXPECT_THAT(Check(If("x"), kScale), IsEmpty());
}

TEST(BranchConditions, LoopsWithCollectivesAreReported) {
  const std::string loop = "    Out=[w] = while(Condition=[due], X=[w]) {sub_block=block(1)}\n";
  EXPECT_THAT(Check(loop, kReduce),
              ElementsAre("W504 warning: op 0 (while): its block has collectives, and how often "
                          "it runs is not known: it cannot be shown that it runs equally often on "
                          "all ranks"));
  EXPECT_THAT(Check(loop, kScale), IsEmpty());
}

}  // namespace
}  // namespace weft
