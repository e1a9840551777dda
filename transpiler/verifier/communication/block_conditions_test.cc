#include "transpiler/verifier/communication/block_conditions.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kReduce[] = "    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0}\n";
constexpr char kScale[] = "    Out=[w] = scale(X=[w]) {scale=0.5}\n";

// Of a program with an op that runs block 1.
std::vector<std::string> Check(const std::string& op, const std::string& block) {
  const Program program = ProgramOf(absl::StrCat(
      "    var x : fp32[1] need_check_feed\n    var step, limit : fp32[1] persistable\n"
      "    var due : bool[1]\n"
      "    var w : fp32[1] parameter persistable\n    var scope : step_scopes\n",
      op, "    block 1:\n", block));
  RankValuesOptions options;
  options.setting.nranks = 2;
  Findings findings;
  CheckConditions(program, RankValues::Of(program, options), ProgramRef(), &findings);
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

TEST(BranchConditions, RanksMayNotDisagreeWhereABlockHasOtherOpsThatCommunicate) {
  for (const char* op : {"    Y=[w] = sync_batch_norm(X=[w])\n", "    barrier(X=[w]) {ring_id=0}\n",
                         "    send_v2(X=[w]) {ring_id=0, peer=1}\n"}) {
    EXPECT_THAT(Check(If("step"), op), IsEmpty()) << op;
    EXPECT_THAT(Check(If("x"), op), ElementsAre(StartsWith("error: W503: "))) << op;
  }
  EXPECT_THAT(Check(If("x"), "    Y=[w] = sync_batch_norm(X=[w]) {use_global_stats=true}\n"),
              IsEmpty());
}

TEST(BranchConditions, RanksMayNotDisagreeWhereABlockHasCollectives) {
  EXPECT_THAT(Check(If("x"), kReduce),
              ElementsAre("error: W503: op 1 (conditional_block): its block has collectives, but "
                          "its condition due is rank-local: ranks on which it holds wait forever "
                          "for the others"));
  EXPECT_THAT(Check(If("x"), kScale), IsEmpty());
}

TEST(BranchConditions, LoopsWithCollectivesAreReported) {
  const std::string loop = "    Out=[w] = while(Condition=[due], X=[w]) {sub_block=block(1)}\n";
  EXPECT_THAT(Check(loop, kReduce),
              ElementsAre("warning: W504: op 0 (while): its block has collectives, and how often "
                          "it runs is unknown: it cannot be shown that it runs equally often on "
                          "all ranks"));
  EXPECT_THAT(Check(loop, kScale), IsEmpty());
}

constexpr absl::string_view kStartup = R"(
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    c_comm_init_all() {ring_id=0, nranks=2}
)";

TEST(ConditionEquality, ConditionsAreComputedAlikeOnAllRanks) {
  const Program program = ProgramOf(kEveryOtherStep), startup = ProgramOf(kStartup);
  EXPECT_THAT(Errors({{&program, &startup}, {&program, &startup}}), IsEmpty());
}

TEST(ConditionEquality, ConditionsMayNotDependOnAnotherNumber) {
  const Program one = ProgramOf(kEveryOtherStep);
  const Program other = ProgramOf(kEveryOtherStep, {{"dtype=3, value=2.0", "dtype=3, value=3.0"}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(AllOf(StartsWith("error: W506: rank 1: op 5 (conditional_block): "),
                                HasSubstr("condition due is computed from fill_constant"))));
}

// In the first step the ranks agree.
TEST(ConditionEquality, ConditionsMayNotDependOnWhatAStepMakesDifferent) {
  const Program one = ProgramOf(kEveryOtherStep);
  const Program other = ProgramOf(kEveryOtherStep, {{"{step=1.0}", "{step=2.0}"}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(HasSubstr("condition due depends on step, which a step sets to another "
                                    "value on rank 1 than on rank 0")));
}

TEST(ConditionEquality, ConditionsMayNotBeginDifferently) {
  const Program program = ProgramOf(kEveryOtherStep), startup = ProgramOf(kStartup);
  const Program other = ProgramOf(kStartup, {{"dtype=3, value=0.0", "dtype=3, value=1.0"}});
  EXPECT_THAT(Errors({{&program, &startup}, {&program, &other}}),
              ElementsAre(HasSubstr("condition due depends on step, which the startup program "
                                    "sets to another value on rank 1 than on rank 0")));
}

constexpr char kRun1[] = "    Out=[w] = while(X=[w]) {sub_block=block(1)}\n";
constexpr char kNested[] =
    "    block 1:\n    Out=[w] = while(X=[w]) {sub_block=block(2)}\n"
    "    block 2 parent=1:\n    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}\n";

TEST(BlocksWithCollectivesTest, RootAlone) {
  const Program program = ProgramOf(kReduce);
  const BlocksWithCollectives blocks(program);
  EXPECT_TRUE(blocks.Has(0));
  EXPECT_FALSE(blocks.AnyInner());
  EXPECT_FALSE(blocks.RunBy(program.op(program.block(0).ops()[0])));
}

TEST(BlocksWithCollectivesTest, OuterBlocksHaveThoseOfInnerBlocks) {
  const Program program = ProgramOf(absl::StrCat(kRun1, kNested));
  const BlocksWithCollectives blocks(program);
  for (int block : {0, 1, 2}) EXPECT_TRUE(blocks.Has(block)) << block;
  EXPECT_TRUE(blocks.AnyInner());
  EXPECT_TRUE(blocks.RunBy(program.op(program.block(0).ops()[0])));
}

TEST(BlocksWithCollectivesTest, OthersHaveNone) {
  const Program program =
      ProgramOf(absl::StrCat(kRun1, "    block 1:\n    Out=[w] = relu(X=[w])\n"));
  const BlocksWithCollectives blocks(program);
  EXPECT_FALSE(blocks.Has(0));
  EXPECT_FALSE(blocks.Has(1));
  EXPECT_FALSE(blocks.AnyInner());
}

}  // namespace
}  // namespace weft::testing
