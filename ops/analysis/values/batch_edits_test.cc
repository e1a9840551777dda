#include "ops/analysis/values/batch_edits.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/values/layout_guess.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

BatchFlowOptions OptionsOf(const Program& program, absl::optional<int> nranks) {
  BatchFlowOptions options;
  options.setting.feeds = *FeedLayoutsOf(program);
  options.setting.nranks = nranks;
  return options;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Computes from h [batch, 1], which has parameter w, and from a weight of each sample.
class BatchEditsTest : public ::testing::Test {
 protected:
  // The reductions, as variables and their kinds; and for the first output of each op with edited
  // inputs, the last of these edits.
  std::map<std::string, std::string> Find(const std::string& ops,
                                          absl::optional<int> nranks = absl::nullopt,
                                          const std::string& blocks = "") {
    std::string vars;
    for (const char* name : {"n", "d", "e", "f", "q", "r", "loss"}) {
      absl::StrAppend(&vars, "    var ", name, " : fp32[1]\n    var ", name, "@GRAD : fp32[1]\n");
    }
    absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
        absl::StrCat(vars,
                     "    var x : fp32[-1, 4] need_check_feed\n"
                     "    var weight : fp32[-1, 1] need_check_feed\n"
                     "    var w : fp32[4, 1] parameter persistable\n"
                     "    var h : fp32[-1, 1]\n    var p : fp32[-1, 1]\n    var k : bool[1]\n"
                     "    var scopes : step_scopes\n"
                     "    Out=[h] = mul(X=[x], Y=[w])\n",
                     ops),
        blocks));
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return {};
    const BatchEdits edits = FindLossEdits(*program, OptionsOf(*program, nranks));
    std::map<std::string, std::string> found;
    for (const auto& [var, reduction] : edits.reductions) {
      found[std::string(program->var(var).name())] = std::string(ReductionName(reduction));
    }
    for (const auto& [op, inputs] : edits.inputs) {
      for (const auto& [index, edit] : inputs) {
        found[std::string(program->name(program->op(op).output_args()[0]))] = NameOf(edit);
      }
    }
    return found;
  }

  static std::string NameOf(BatchInputEdit edit) {
    switch (edit) {
      case BatchInputEdit::kAverage:
        return "reads avg";
      case BatchInputEdit::kSum:
        return "reads sum";
      case BatchInputEdit::kGather:
        return "reads all";
      case BatchInputEdit::kDivide:
        break;
    }
    return "div";
  }

  static std::string SumOf(const std::string& in, const std::string& out) {
    return absl::StrCat("    Out=[", out, "] = reduce_sum(X=[", in,
                        "]) {reduce_all=true, dim=ints[0]}\n");
  }
  static std::string Divide(const std::string& y, const std::string& out,
                            const std::string& role = "role=forward|loss") {
    return absl::StrCat("    Out=[", out, "] = elementwise_div(X=[n], Y=[", y, "]) ", role, "\n");
  }
  // n = sum(h * weight), d = sum(weight), and gradients of n and h.
  const std::string weighted_ =
      "    Out=[p] = elementwise_mul(X=[h], Y=[weight])\n" + SumOf("p", "n") + SumOf("weight", "d");
  const std::string gradient_of_n_ =
      "    X@GRAD=[n@GRAD] = elementwise_div_grad(X=[n], Y=[d], Out=[loss], Out@GRAD=[loss@GRAD]) "
      "role=backward\n";
};

TEST_F(BatchEditsTest, MeansAndSumsNeedNone) {
  EXPECT_THAT(Find("    Out=[loss] = mean(X=[h]) role=forward|loss\n"), IsEmpty());
  EXPECT_THAT(Find("    Out=[loss] = reduce_sum(X=[h]) role=forward|loss {reduce_all=true, "
                   "dim=ints[0]}\n"),
              IsEmpty());
}

TEST_F(BatchEditsTest, TheDivisorOfAWeightedMeanIsReduced) {
  EXPECT_THAT(Find(weighted_ + Divide("d", "loss") + gradient_of_n_),
              ElementsAre(Pair("d", "avg")));
}

// The sum, because the function of it is not homogeneous; then the quotient is a sum, too, or a
// mean if the number of ranks is known.
TEST_F(BatchEditsTest, AFunctionOfTheDivisorNeedsTheSum) {
  const std::string one =
      "    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "    Out=[f] = elementwise_max(X=[d], Y=[e])\n";
  const std::string loss = weighted_ + one + Divide("f", "loss") + gradient_of_n_;
  EXPECT_THAT(Find(loss), ElementsAre(Pair("d", "sum")));
  EXPECT_THAT(Find(loss, 2), ElementsAre(Pair("d", "sum"), Pair("loss", "div")));
}

// A penalty on weights, e, is divided by a number of samples: all ranks' number, not its mean.
TEST_F(BatchEditsTest, APenaltyIsDividedByASum) {
  const std::string penalty =
      SumOf("w", "e") + "    Out=[q] = elementwise_div(X=[e], Y=[d]) role=forward\n";
  const std::string add = "    Out=[loss] = elementwise_add(X=[r], Y=[q]) role=forward|loss\n";
  const std::string weighted =
      weighted_ + Divide("d", "r", "role=forward") + penalty + add +
      absl::StrReplaceAll(gradient_of_n_, {{"loss", "r"}}) +
      "    X@GRAD=[r@GRAD] = elementwise_add_grad(X=[r], Y=[q], Out@GRAD=[loss@GRAD]) "
      "role=backward\n";
  EXPECT_THAT(Find(weighted), ElementsAre(Pair("d", "sum"), Pair("r", "sum")));
  EXPECT_THAT(Find(weighted, 2), ElementsAre(Pair("d", "sum"), Pair("r", "div")));
  const std::string mean = SumOf("weight", "d") + "    Out=[r] = mean(X=[h])\n" + penalty + add;
  EXPECT_THAT(Find(mean), ElementsAre(Pair("d", "sum")));
}

// Samples that are divided and then summed are a sum, whatever divides it.
TEST_F(BatchEditsTest, WhatIsAddedToASumStaysOne) {
  const std::string loss =
      SumOf("weight", "d") +
      "    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "    Out=[f] = elementwise_max(X=[d], Y=[e])\n"
      "    Out=[p] = elementwise_div(X=[h], Y=[f])\n" +
      SumOf("p", "q") + SumOf("h", "n") + Divide("f", "r", "role=forward") +
      "    Out=[loss] = elementwise_add(X=[q], Y=[r]) role=forward|loss\n"
      "    X@GRAD=[q@GRAD], Y@GRAD=[r@GRAD] = elementwise_add_grad(X=[q], Y=[r], "
      "Out@GRAD=[loss@GRAD]) role=backward\n";
  EXPECT_THAT(Find(loss), ElementsAre(Pair("d", "sum")));
  EXPECT_THAT(Find(loss, 2), ElementsAre(Pair("d", "sum")));
}

TEST_F(BatchEditsTest, WhatIsAddedToAMeanMustBeOne) {
  const std::string loss =
      weighted_ +
      "    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "    Out=[f] = elementwise_max(X=[d], Y=[e])\n" +
      Divide("f", "q", "role=forward") + "    Out=[r] = squared_l2_norm(X=[w])\n" +
      "    Out=[loss] = elementwise_add(X=[q], Y=[r]) role=forward|loss\n" +
      "    X@GRAD=[n@GRAD] = elementwise_div_grad(X=[n], Y=[f], Out=[q], Out@GRAD=[q@GRAD]) "
      "role=backward\n"
      "    X@GRAD=[q@GRAD] = elementwise_add_grad(X=[q], Y=[r], Out@GRAD=[loss@GRAD]) "
      "role=backward\n";
  EXPECT_THAT(Find(loss, 2), ElementsAre(Pair("d", "sum"), Pair("q", "div")));
  // Unknown ranks: nothing is divided by their number.
  EXPECT_THAT(Find(loss), ElementsAre(Pair("d", "sum"), Pair("q", "sum")));
}

TEST_F(BatchEditsTest, AMeanWithAGradientIsAveraged) {
  EXPECT_THAT(Find("    Out=[n] = mean(X=[h])\n"
                   "    Out=[loss] = sqrt(X=[n]) role=forward|loss\n"
                   "    X@GRAD=[n@GRAD] = sqrt_grad(Out=[loss], Out@GRAD=[loss@GRAD]) "
                   "role=backward\n"),
              ElementsAre(Pair("n", "avg")));
}

// And so is its gradient.
TEST_F(BatchEditsTest, ASumWithAGradientIsSummed) {
  EXPECT_THAT(Find(SumOf("h", "n") + "    Out=[loss] = sqrt(X=[n]) role=forward|loss\n" +
                   "    X@GRAD=[n@GRAD] = sqrt_grad(Out=[loss], Out@GRAD=[loss@GRAD]) "
                   "role=backward\n"),
              ElementsAre(Pair("n", "sum")));
}

// Ranks go on with their own samples, and each would have its own gradient of the mean.
TEST_F(BatchEditsTest, AMeanThatSamplesReadIsLeftAlone) {
  EXPECT_THAT(Find("    Out=[n] = mean(X=[h])\n"
                   "    Out=[p] = elementwise_mul(X=[h], Y=[n])\n"
                   "    Out=[loss] = mean(X=[p]) role=forward|loss\n"
                   "    Y@GRAD=[n@GRAD] = elementwise_mul_grad(X=[h], Y=[n], Out@GRAD=[q@GRAD]) "
                   "role=backward\n"),
              IsEmpty());
}

// Also where another reader is the same on all ranks; the gradients of a sum are summed.
TEST_F(BatchEditsTest, SamplesReadASumAndNoMean) {
  const std::string product =
      "    Out=[p] = elementwise_mul(X=[h], Y=[n]) {axis=-1}\n    Out=[q] = mean(X=[p])\n";
  const std::string of_product =
      "    X@GRAD=[p@GRAD] = mean_grad(X=[p], Out@GRAD=[q@GRAD]) role=backward\n"
      "    Y@GRAD=[N] = elementwise_mul_grad(X=[h], Y=[n], Out@GRAD=[p@GRAD]) role=backward "
      "{axis=-1}\n";
  const std::string root = "    Out=[e] = sqrt(X=[n])\n";
  const std::string both =
      product + root +
      "    Out=[loss] = elementwise_add(X=[q], Y=[e]) role=forward|loss\n"
      "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, "
      "value=1.0}\n"
      "    X@GRAD=[q@GRAD], Y@GRAD=[e@GRAD] = elementwise_add_grad(X=[q], Y=[e], "
      "Out@GRAD=[loss@GRAD]) role=backward\n" +
      absl::StrReplaceAll(of_product, {{"[N]", "[d@GRAD]"}}) +
      "    X@GRAD=[f@GRAD] = sqrt_grad(Out=[e], Out@GRAD=[e@GRAD]) role=backward\n"
      "    Out=[n@GRAD] = sum(X=[d@GRAD, f@GRAD]) role=backward\n";
  EXPECT_THAT(Find("    Out=[n] = mean(X=[h])\n" + both), IsEmpty());
  EXPECT_THAT(Find(SumOf("h", "n") + both), ElementsAre(Pair("n", "sum")));
  EXPECT_THAT(Find(SumOf("h", "n") +
                   absl::StrReplaceAll(product, {{"mean(X=[p])", "mean(X=[p]) role=loss"}}) +
                   absl::StrReplaceAll(of_product, {{"[N]", "[n@GRAD]"}})),
              ElementsAre(Pair("n", "sum")));
  // Ranks that add the mean to their own have the gradient of the whole.
  EXPECT_THAT(Find("    Out=[n] = mean(X=[h])\n    Out=[p] = sqrt(X=[h])\n    Out=[q] = "
                   "mean(X=[p])\n" +
                   root +
                   "    Out=[r] = elementwise_add(X=[q], Y=[n])\n"
                   "    Out=[loss] = elementwise_add(X=[r], Y=[e]) role=forward|loss\n"
                   "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], "
                   "dtype=5, value=1.0}\n"
                   "    X@GRAD=[r@GRAD], Y@GRAD=[e@GRAD] = elementwise_add_grad(X=[r], Y=[e], "
                   "Out@GRAD=[loss@GRAD]) role=backward\n"
                   "    Y@GRAD=[d@GRAD] = elementwise_add_grad(X=[q], Y=[n], Out@GRAD=[r@GRAD]) "
                   "role=backward\n"
                   "    X@GRAD=[f@GRAD] = sqrt_grad(Out=[e], Out@GRAD=[e@GRAD]) role=backward\n"
                   "    Out=[n@GRAD] = sum(X=[d@GRAD, f@GRAD]) role=backward\n"),
              ElementsAre(Pair("n", "avg")));
}

// The gradient of a loss is no sum over the ranks: later passes divide it.
TEST_F(BatchEditsTest, ALossThatDecidesAConditionIsNotSummed) {
  EXPECT_THAT(
      Find(absl::StrReplaceAll(SumOf("h", "loss"), {{" {", " role=forward|loss {"}}) +
               "    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
               "    Out=[k] = less_than(X=[loss], Y=[e]) role=lr_sched\n"
               "    Out=[r], Scope=[scopes] = conditional_block(Cond=[k], Input=[e]) "
               "role=lr_sched {sub_block=block(1), is_scalar_condition=true}\n"
               "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], "
               "dtype=5, value=1.0}\n",
           absl::nullopt, "  block 1 parent=0 {\n    Out=[r] = scale(X=[e]) {scale=2.0}\n  }\n"),
      IsEmpty());
}

TEST_F(BatchEditsTest, ConditionsAreDecidedAlike) {
  const std::string condition =
      "    Out=[n] = mean(X=[h])\n"
      "    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "    Out=[k] = greater_than(X=[n], Y=[e])\n"
      "    Out=[r], Scope=[scopes] = conditional_block(Cond=[k], Input=[e]) "
      "{sub_block=block(1), is_scalar_condition=true}\n";
  EXPECT_THAT(Find(condition + "    Out=[loss] = mean(X=[h]) role=forward|loss\n", absl::nullopt,
                   "  block 1 parent=0 {\n    Out=[r] = scale(X=[e]) {scale=2.0}\n  }\n"),
              ElementsAre(Pair("n", "avg")));
}

// The op that compares reads a mean of its own: that of the loss, which stays as it is.
TEST_F(BatchEditsTest, ConditionsBehindTheLossAreDecidedAlike) {
  const std::string rest =
      "    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "    Out=[k] = greater_than(X=[loss], Y=[e])\n"
      "    Out=[r], Scope=[scopes] = conditional_block(Cond=[k], Input=[e]) "
      "{sub_block=block(1), is_scalar_condition=true}\n";
  const std::string block = "  block 1 parent=0 {\n    Out=[r] = scale(X=[e]) {scale=2.0}\n  }\n";
  EXPECT_THAT(Find("    Out=[loss] = mean(X=[h]) role=forward|loss\n" + rest, absl::nullopt, block),
              ElementsAre(Pair("k", "reads avg")));
  EXPECT_THAT(Find(SumOf("h", "loss") + rest, absl::nullopt, block),
              ElementsAre(Pair("k", "reads sum")));
  // Besides the edits of a loss.
  EXPECT_THAT(Find(weighted_ + Divide("d", "loss") + gradient_of_n_ + rest, absl::nullopt, block),
              ElementsAre(Pair("d", "avg"), Pair("k", "reads avg")));
  // A maximum is no mean.
  EXPECT_THAT(Find("    Out=[q] = reduce_max(X=[h]) {reduce_all=true, dim=ints[0]}\n"
                   "    Out=[loss] = mean(X=[h]) role=forward|loss\n" +
                       absl::StrReplaceAll(rest, {{"X=[loss]", "X=[q]"}}),
                   absl::nullopt, block),
              IsEmpty());
}

// What a block in a block writes, too, is not reduced in place.
TEST_F(BatchEditsTest, BlocksInBlocksWrite) {
  const auto run = [](int block) {
    return absl::StrCat("    Scope=[scopes] = conditional_block(Cond=[k]) {sub_block=block(", block,
                        "), is_scalar_condition=true}\n");
  };
  const auto edits_if_written = [&](const std::string& variable) {
    return Find(
        "    Out=[e] = mean(X=[h])\n" + run(1) + "    Out=[loss] = sqrt(X=[e]) role=forward|loss\n",
        absl::nullopt,
        "  block 1 parent=0 {\n" + run(2) + "  }\n  block 2 parent=1 {\n    Out=[" + variable +
            "] = scale(X=[e]) {scale=2.0}\n  }\n");
  };
  EXPECT_THAT(edits_if_written("f"), ElementsAre(Pair("e", "avg")));
  EXPECT_THAT(edits_if_written("e"), IsEmpty());
}

// Nothing is edited in blocks.
TEST_F(BatchEditsTest, ConditionsInBlocksStay) {
  EXPECT_THAT(Find("    Out=[e] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
                   "    Out=[k] = greater_than(X=[e], Y=[e])\n"
                   "    Out=[r], Scope=[scopes] = conditional_block(Cond=[k], Input=[e, h]) "
                   "{sub_block=block(1), is_scalar_condition=true}\n"
                   "    Out=[loss] = mean(X=[h]) role=forward|loss\n",
                   absl::nullopt,
                   "  block 1 parent=0 {\n    var m : fp32[1]\n    var inner : bool[1]\n"
                   "    Out=[m] = mean(X=[h])\n    Out=[inner] = greater_than(X=[m], Y=[e])\n"
                   "    Out=[r], Scope=[scopes] = conditional_block(Cond=[inner], Input=[e]) "
                   "{sub_block=block(2), is_scalar_condition=true}\n  }\n"
                   "  block 2 parent=1 {\n    Out=[r] = scale(X=[e]) {scale=2.0}\n  }\n"),
              IsEmpty());
}

TEST_F(BatchEditsTest, NumbersOfSamplesAreSummed) {
  const absl::StatusOr<Program> program = ParseProgramText(
      testing::BlockText("    var x : fp32[-1, 4] need_check_feed\n    var n : int64[]\n"
                         "    var seen : int64[] persistable\n    Out=[n] = size(Input=[x])\n"
                         "    Out=[seen] = elementwise_add(X=[seen], Y=[n])\n",
                         ""));
  ASSERT_TRUE(program.ok()) << program.status();
  const BatchEdits edits = FindStateEdits(*program, OptionsOf(*program, absl::nullopt));
  ASSERT_EQ(edits.inputs.size(), 1);
  EXPECT_THAT(edits.inputs.begin()->second, ElementsAre(Pair(1, BatchInputEdit::kSum)));
}

// Batches of all ranks must not go on beside labels of one.
TEST_F(BatchEditsTest, WhatTrainsIsNotGathered) {
  const auto gathers = [](const std::string& reads_all, const std::string& trains) {
    const std::string ops =
        "    Out=[all] = cumsum(X=[x]) {axis=0}\n" + reads_all + trains +
        "    X@GRAD=[h@GRAD], Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[p@GRAD]) "
        "role=backward\n";
    const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
        absl::StrCat(
            "    var x : fp32[-1, 4] need_check_feed\n    var w : fp32[4, 1] parameter "
            "persistable\n"
            "    var all : fp32[-1, 4]\n    var part : fp32[-1, 4]\n    var h : fp32[-1, 1]\n"
            "    var p : fp32[-1, 1]\n    var m : fp32[1]\n    var h@GRAD : fp32[-1, 1]\n"
            "    var p@GRAD : fp32[-1, 1]\n    var w@GRAD : fp32[4, 1]\n"
            "    var state : fp32[1] persistable\n",
            ops),
        ""));
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return false;
    return !FindStateEdits(*program, OptionsOf(*program, 2)).empty();
  };
  const std::string state =
      "    Out=[state] = reduce_max(X=[all]) {reduce_all=true, dim=ints[0]}\n";
  EXPECT_TRUE(gathers(state, "    Out=[h] = mul(X=[x], Y=[w])\n"));
  EXPECT_FALSE(gathers(state, "    Out=[h] = mul(X=[all], Y=[w])\n"));
  // After another op, which has no gradient either.
  EXPECT_FALSE(gathers(state,
                       "    Out=[part] = scale(X=[all]) {scale=2.0}\n"
                       "    Out=[h] = mul(X=[part], Y=[w])\n"));
  // Through the state, which is a statistic.
  EXPECT_TRUE(gathers(state,
                      "    Out=[part] = elementwise_mul(X=[x], Y=[state])\n"
                      "    Out=[h] = mul(X=[part], Y=[w])\n"));
}

// A contrastive loss compares samples of different ranks; it does not keep the other from its edit.
TEST_F(BatchEditsTest, HopelessLossesDoNotMatter) {
  const std::string hopeless =
      "    Out=[q] = matmul_v2(X=[h], Y=[h]) {trans_y=true}\n"
      "    Out=[r] = mean(X=[q]) role=forward|loss\n";
  EXPECT_THAT(Find(hopeless), IsEmpty());
  EXPECT_THAT(Find(hopeless + weighted_ + Divide("d", "loss") + gradient_of_n_),
              ElementsAre(Pair("d", "avg")));
}

}  // namespace
}  // namespace weft
