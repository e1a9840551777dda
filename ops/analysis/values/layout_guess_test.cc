#include "ops/analysis/values/layout_guess.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(LayoutGuess, GuessesFromDeclarations) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var x : fp32[-1, 4] need_check_feed\n    var rate : fp32[1] need_check_feed\n"
      "    var classes : fp32[10] need_check_feed\n    var w : fp32[4] persistable\n",
      ""));
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::StatusOr<FeedLayouts> layouts = FeedLayoutsOf(*program);
  ASSERT_TRUE(layouts.ok());
  EXPECT_EQ(
      *layouts,
      (FeedLayouts{{"x", {0}}, {"rate", FeedLayout::Whole()}, {"classes", FeedLayout::Whole()}}));
  const absl::StatusOr<FeedLayouts> given = ParseFeedLayouts("x=axis:1,classes=axis:0");
  ASSERT_TRUE(given.ok()) << given.status();
  const absl::StatusOr<FeedLayouts> merged = FeedLayoutsOf(*program, *given);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->at("x"), FeedLayout{1});
  EXPECT_EQ(merged->at("classes"), FeedLayout{0});
  EXPECT_THAT(FeedLayoutsOf(*program, {{"x", {2}}}).status().message(),
              HasSubstr("x has dimensions [-1, 4], expected an axis below 2, found 2"));
  EXPECT_THAT(FeedLayoutsOf(*program, {{"w", {0}}}).status().message(),
              HasSubstr("w is no data variable of the program, which has: x, rate, classes"));
}

TEST(LayoutGuess, DataIsWhatFeedOpsWriteOrWhatIsOnlyRead) {
  const auto layouts = [](const std::string& ops) {
    return *FeedLayoutsOf(*ParseProgramText(
        testing::BlockText("    var batch : feed_minibatch persistable\n    var x : fp32[-1, 4]\n"
                           "    var w : fp32[4, 4] persistable\n    var y : fp32[-1, 4]\n" +
                               ops,
                           "")));
  };
  EXPECT_EQ(layouts("    Out=[x] = feed(X=[batch]) {col=0}\n    Out=[y] = mul(X=[x], Y=[w])\n"),
            (FeedLayouts{{"x", {0}}}));
  EXPECT_EQ(layouts("    Out=[y] = mul(X=[x], Y=[w])\n    Out=[y] = relu(X=[y])\n"),
            (FeedLayouts{{"x", {0}}}));
}

TEST(LayoutGuess, TimeMajorDataIsSplitAlongTheBatch) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var x : fp32[6, -1, 4] need_check_feed\n    var y : fp32[-1, 1] need_check_feed\n"
      "    var positions : int64[1, -1] need_check_feed\n"
      "    var mask : fp32[6, -1, -1] need_check_feed\n",
      ""));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program), (FeedLayouts{{"x", {1}},
                                                   {"y", {0}},
                                                   {"positions", FeedLayout::Whole()},
                                                   {"mask", FeedLayout::Whole()}}));
}

TEST(LayoutGuess, FixedBatchesAreSplit) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var x : fp32[32, 4] need_check_feed\n    var rate : fp32[1] need_check_feed\n", ""));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program), (FeedLayouts{{"x", {0}}, {"rate", FeedLayout::Whole()}}));
}

// A recurrent layer that reads `input`, and a loss from its outputs and labels.
FeedLayouts LayoutsOfSequences(const std::string& ops, const std::string& input) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(absl::StrCat(
      "    var x : fp32[-1, -1, 4] need_check_feed\n"
      "    var label : int64[-1, -1, 1] need_check_feed\n"
      "    var state : fp32[1, -1, 2] need_check_feed\n"
      "    var other : fp32[-1, -1] need_check_feed\n"
      "    var w : fp32[8] persistable\n    var t : fp32[-1, -1, 4]\n    var h : fp32[-1, -1, 2]\n"
      "    var softmax : fp32[-1, -1, 2]\n    var l : fp32[-1, -1, 1]\n    var loss : fp32[]\n",
      ops, "    Out=[h] = rnn(Input=[", input,
      "], PreState=[state], WeightList=[w]) {mode=\"RNN_RELU\", is_test=true, input_size=4, "
      "hidden_size=2}\n"
      "    Loss=[l], Softmax=[softmax] = softmax_with_cross_entropy(Logits=[h], Label=[label]) "
      "{axis=-1}\n"
      "    Out=[loss] = mean(X=[l]) role=forward|loss\n")));
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *FeedLayoutsOf(*program) : FeedLayouts();
}

TEST(LayoutGuess, ARecurrentLayerShowsWhichDimensionIsTime) {
  EXPECT_EQ(LayoutsOfSequences("    Out=[t] = relu(X=[x])\n", "t"),
            (FeedLayouts{{"x", {1}}, {"label", {1}}, {"state", {1}}, {"other", {0}}}));
}

// An LSTM has two, so that neither alone helps.
TEST(LayoutGuess, FirstStatesOfALayerAreTurnedTogether) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var x : fp32[-1, -1, 4] need_check_feed\n    var h0 : fp32[1, -1, 2] need_check_feed\n"
      "    var c0 : fp32[1, -1, 2] need_check_feed\n    var w : fp32[8] persistable\n"
      "    var h : fp32[-1, -1, 2]\n    var loss : fp32[]\n"
      "    Out=[h] = rnn(Input=[x], PreState=[h0, c0], WeightList=[w]) {mode=\"LSTM\", "
      "is_test=true, input_size=4, hidden_size=2}\n"
      "    Out=[loss] = mean(X=[h]) role=forward|loss\n"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program), (FeedLayouts{{"x", {1}}, {"h0", {1}}, {"c0", {1}}}));
}

TEST(LayoutGuess, StatesThatGoWithSamplesAreSplitAsThey) {
  const auto layouts = [](const std::string& ops) {
    return *FeedLayoutsOf(*ParseProgramText(testing::BlockText(absl::StrCat(
        "    var x : fp32[-1, 4] need_check_feed\n    var h0 : fp32[1, -1, 4] need_check_feed\n"
        "    var h : fp32[-1, 4]\n    var xs : fp32[0]\n    var y : fp32[-1, 4]\n"
        "    var loss : fp32[]\n    Out=[h], XShape=[xs] = squeeze2(X=[h0]) {axes=ints[0]}\n",
        ops, "    Out=[loss] = mean(X=[y]) role=forward|loss\n"))));
  };
  EXPECT_EQ(layouts("    Out=[y] = elementwise_add(X=[x], Y=[h]) {axis=-1}\n"),
            (FeedLayouts{{"x", {0}}, {"h0", {1}}}));
  EXPECT_EQ(layouts("    Out=[y] = relu(X=[x])\n"),
            (FeedLayouts{{"x", {0}}, {"h0", FeedLayout::Whole()}}));
}

TEST(LayoutGuess, DataOfAnyRankCounts) {
  const auto program = [](const char* name, const char* type) {
    return *ParseProgramText(testing::BlockText(absl::StrCat(
        "    var ", name, " : ", type, " need_check_feed\n    var y : fp32[-1, 4]\n")));
  };
  const Program first = program("x", "fp32[-1, 4]"), second = program("rate", "fp32[1]");
  EXPECT_EQ(*FeedLayoutsOf({&first, &second}),
            (FeedLayouts{{"x", {0}}, {"rate", FeedLayout::Whole()}}));
  EXPECT_EQ(FeedLayoutsOf({&first, &second}, {{"rate", {0}}})->at("rate"), FeedLayout{0});
  EXPECT_THAT(FeedLayoutsOf({&first, &second}, {{"z", {0}}}).status().message(),
              HasSubstr("z is no data variable of the program"));
}

TEST(LayoutGuess, UnmarkedDataMayBeReadInBlocks) {
  const absl::StatusOr<Program> program = ParseProgramText(
      testing::BlockText("    var x : fp32[-1, 4]\n    var y : fp32[-1, 4]\n    var due : bool[1]\n"
                         "    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n"
                         "    Out=[y] = conditional_block(Cond=[due]) {sub_block=block(1)}\n",
                         "  block 1 parent=0 {\n    Out=[y] = relu(X=[x])\n  }\n"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program), (FeedLayouts{{"x", {0}}}));
}

// What trains the layers before it does not come before it.
TEST(LayoutGuess, DataThatGoesIntoTheLossAloneKeepsItsLayout) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var x : fp32[-1, -1, 5] need_check_feed\n    var label : int32[-1, -1] need_check_feed\n"
      "    var x_length : int64[-1] need_check_feed\n"
      "    var label_length : int64[-1] need_check_feed\n"
      "    var w : fp32[5, 5] parameter persistable\n    var rate : fp32[1] persistable\n"
      "    var h : fp32[-1, -1, 5]\n    var l : fp32[-1, 1]\n    var made : fp32[-1, -1, 5]\n"
      "    var loss : fp32[]\n    var loss@GRAD : fp32[]\n    var l@GRAD : fp32[-1, 1]\n"
      "    var h@GRAD : fp32[-1, -1, 5]\n    var w@GRAD : fp32[5, 5]\n"
      "    Out=[h] = matmul_v2(X=[x], Y=[w])\n"
      "    Loss=[l], WarpCTCGrad=[made] = warpctc(Logits=[h], Label=[label], "
      "LogitsLength=[x_length], LabelLength=[label_length])\n"
      "    Out=[loss] = mean(X=[l]) role=forward|loss\n"
      "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}\n"
      "    X@GRAD=[l@GRAD] = mean_grad(X=[l], Out@GRAD=[loss@GRAD]) role=backward\n"
      "    Logits@GRAD=[h@GRAD] = warpctc_grad(Logits=[h], WarpCTCGrad=[made], "
      "LogitsLength=[x_length], Loss@GRAD=[l@GRAD]) role=backward\n"
      "    Y@GRAD=[w@GRAD] = matmul_v2_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward\n"
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate]) role=optimize\n"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program),
            (FeedLayouts{{"x", {1}}, {"label", {0}}, {"x_length", {0}}, {"label_length", {0}}}));
}

// The layer does not get the data as it is fed.
TEST(LayoutGuess, ATransposeMakesTimeTheFirstDimension) {
  EXPECT_EQ(
      LayoutsOfSequences("    Out=[t] = transpose2(X=[x]) {axis=ints[1, 0, 2]}\n", "t").at("x"),
      FeedLayout{0});
}

TEST(LayoutGuess, DataOfReadersAndOfInnerBlocksCounts) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var reader : reader persistable\n    var batch : feed_minibatch persistable\n"
      "    var x : fp32[-1, 4]\n    var y : fp32[-1, 4]\n    var due : bool[1]\n"
      "    Out=[x] = read(Reader=[reader])\n"
      "    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n"
      "    Out=[y] = conditional_block(Cond=[due]) {sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    var rate : fp32[1]\n    Out=[y] = feed(X=[batch]) {col=0}\n"
      "    Out=[rate] = feed(X=[batch]) {col=1}\n  }\n"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program),
            (FeedLayouts{{"x", {0}}, {"y", {0}}, {"rate", FeedLayout::Whole()}}));
}

// A fused buffer takes the sizes of gradients that no op has written yet.
TEST(LayoutGuess, WhatABufferIsMadeOfIsNoData) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
      "    var x : fp32[-1, 4]\n    var y : fp32[-1, 4]\n    var g : fp32[4]\n"
      "    var buffer : fp32[64]\n"
      "    FusedOutput=[buffer], Output=[g] = coalesce_tensor(Input=[g]) {dtype=5}\n"
      "    Out=[y] = relu(X=[x])\n",
      ""));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*FeedLayoutsOf(*program), (FeedLayouts{{"x", {0}}}));
}

}  // namespace
}  // namespace weft
