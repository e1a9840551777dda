#include "ops/analysis/values/rank_divergence.h"

#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

// Parameter w with gradient g, which is the same on all ranks; data x and its sum s are not.
class RankDivergenceTest : public ::testing::Test {
 protected:
  // "op 3 (sgd): lr", or "op 3 (sgd): if due".
  std::string CauseOf(const std::string& ops, const std::string& blocks = "") {
    absl::StatusOr<Program> program =
        ParseProgramText(testing::BlockText("    var x : fp32[1] need_check_feed\n"
                                            "    var w : fp32[1] parameter persistable\n"
                                            "    var g : fp32[1] persistable\n"
                                            "    var m : fp32[1] persistable\n"
                                            "    var lr : fp32[1] persistable\n"
                                            "    var s : fp32[1]\n"
                                            "    var due : bool[1]\n"
                                            "    var always : bool[1] persistable\n"
                                            "    var scope : step_scopes\n"
                                            "    Out=[s] = relu(X=[x])\n" +
                                                ops,
                                            blocks));
    if (!program.ok()) return program.status().ToString();
    RankValuesOptions options;
    options.setting.nranks = 2;
    const RankValues values = RankValues::Of(*program, options);
    const VarId w = program->block(0).FindVar("w");
    EXPECT_FALSE(values.AtEnd(w).IsEqualOnRanks());
    const RankDivergence::Cause cause = RankDivergence(*program, values).Of(w);
    if (!cause.op.valid()) return "none";
    std::string text = program->op(cause.op).DebugName() + ":";
    if (cause.is_condition) text += " if";
    if (cause.variable.valid()) text += " " + std::string(program->name(cause.variable));
    return text;
  }
};

TEST_F(RankDivergenceTest, RankLocalLearningRate) {
  EXPECT_EQ(CauseOf("    Out=[lr] = scale(X=[s]) {scale=0.1}\n"
                    "    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr])\n"),
            "op 2 (sgd): lr");
}

TEST_F(RankDivergenceTest, RankLocalCondition) {
  EXPECT_EQ(CauseOf("    Out=[due] = greater_than(X=[x], Y=[s])\n"
                    "    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) "
                    "{sub_block=block(1), is_scalar_condition=true}\n",
                    "  block 1 parent=0 {\n"
                    "    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr])\n  }\n"),
            "op 2 (conditional_block): if due");
}

TEST_F(RankDivergenceTest, ConditionAroundTheBlockAround) {
  EXPECT_EQ(CauseOf("    Out=[due] = greater_than(X=[x], Y=[s])\n"
                    "    Scope=[scope] = conditional_block(Cond=[due]) "
                    "{sub_block=block(1), is_scalar_condition=true}\n",
                    "  block 1 parent=0 {\n"
                    "    Scope=[scope] = conditional_block(Cond=[always]) "
                    "{sub_block=block(2), is_scalar_condition=true}\n  }\n"
                    "  block 2 parent=1 {\n"
                    "    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr])\n  }\n"),
            "op 2 (conditional_block): if due");
}

TEST_F(RankDivergenceTest, InABranchThatAllRanksTakeTheOpInsideIsTheReason) {
  EXPECT_EQ(CauseOf("    Scope=[scope] = conditional_block(Cond=[always]) "
                    "{sub_block=block(1), is_scalar_condition=true}\n",
                    "  block 1 parent=0 {\n"
                    "    Out=[w] = elementwise_add(X=[w], Y=[s])\n  }\n"),
            "block 1, op 0 (elementwise_add): s");
}

TEST_F(RankDivergenceTest, StateOfAnOptimizerIsAReasonOnlyWhereNothingElseIs) {
  const std::string momentum =
      "    ParamOut=[w], VelocityOut=[m] = momentum(Param=[w], Grad=[g], Velocity=[m], "
      "LearningRate=[lr]) {mu=0.9}\n";
  EXPECT_EQ(CauseOf("    Out=[m] = elementwise_add(X=[m], Y=[s])\n" + momentum),
            "op 2 (momentum): m");
  EXPECT_EQ(CauseOf("    Out=[m] = elementwise_add(X=[m], Y=[s])\n"
                    "    Out=[lr] = assign(X=[s])\n" +
                    momentum),
            "op 3 (momentum): lr");
}

TEST_F(RankDivergenceTest, DrawIsItsOwnReason) {
  EXPECT_EQ(CauseOf("    Out=[w] = uniform_random() {shape=longs[1], dtype=5}\n"),
            "op 1 (uniform_random):");
}

}  // namespace
}  // namespace weft
