#include "executor/rewrites/updates_from_zero.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/rewrites/merge_updates.h"
#include "executor/rewrites/rewrites_testing.h"

namespace weft::testing {
namespace {

std::vector<std::string> OpsOf(const std::string& block,
                               const std::vector<std::string>& results = {"r", "m1", "b1"}) {
  return OpTypes(ExpectSameResults(block, results, StartUpdatesFromZero, /*tolerance=*/0));
}

// More than two blocks of an update.
constexpr char kVariables[] = R"(
    var lr : fp32[1]
    var g, d : fp32[2500]
    var h : HALF[2500]
    var r : fp32[2500]
    var m1, m2 : fp32[2500] persistable
    var b1, b2 : fp32[1] persistable
)";
constexpr char kZeros[] = "Out=[d] = fill_constant() {shape=longs[2500], dtype=5, value=0.0}\n";
constexpr char kAdam[] =
    "Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[d] = "
    "adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[g], LearningRate=[lr], Moment1=[m1], Moment2=[m2], "
    "Param=[d])\n";
constexpr char kRounded[] = "Out=[h] = cast(X=[d]) {in_dtype=5, out_dtype=TYPE}\n";
constexpr char kResult[] = "Out=[r] = scale(X=[d]) {scale=2.0}\n";
constexpr char kHalfResult[] = "Out=[r] = cast(X=[h]) {in_dtype=TYPE, out_dtype=5}\n";

std::string Block(const std::vector<std::string>& ops, const std::string& half = "fp16") {
  std::string text = kVariables;
  for (const std::string& op : ops) text += op;
  return absl::StrReplaceAll(text, {{"HALF", half}, {"TYPE", half == "fp16" ? "4" : "22"}});
}

TEST(UpdatesFromZeroTest, TheUpdateFillsItsParameter) {
  EXPECT_THAT(OpsOf(Block({kZeros, kAdam, kResult})), ElementsAre("adam", "scale"));
  EXPECT_THAT(OpsOf(Block({kZeros, "ParamOut=[d] = sgd(Grad=[g], LearningRate=[lr], Param=[d])\n",
                           kResult}),
                    {"r"}),
              ElementsAre("sgd", "scale"));
  EXPECT_THAT(OpsOf(Block({kZeros,
                           "ParamOut=[d], VelocityOut=[m1] = momentum(Grad=[g], LearningRate=[lr], "
                           "Param=[d], Velocity=[m1]) {mu=0.9, use_nesterov=true}\n",
                           kResult}),
                    {"r", "m1"}),
              ElementsAre("momentum", "scale"));
}

TEST(UpdatesFromZeroTest, TheUpdateRoundsWhatItMakes) {
  for (const char* half : {"fp16", "bf16"}) {
    EXPECT_THAT(OpsOf(Block({kZeros, kAdam, kRounded, kHalfResult}, half)),
                ElementsAre("adam", "cast"));
    // The gradient is in half precision, too.
    const std::string halves = absl::StrReplaceAll(kAdam, {{"Grad=[g]", "Grad=[g_half]"}});
    const std::string narrow =
        "var g_half : HALF[2500]\nOut=[g_half] = cast(X=[g]) {in_dtype=5, "
        "out_dtype=TYPE}\n";
    EXPECT_THAT(OpsOf(Block({narrow, kZeros, halves, kRounded, kHalfResult}, half)),
                ElementsAre("cast", "adam", "cast"));
    EXPECT_THAT(OpsOf(Block({narrow, kZeros, halves, kResult}, half)),
                ElementsAre("cast", "adam", "scale"));
  }
}

TEST(UpdatesFromZeroTest, ASkippedUpdateMakesZeros) {
  for (const char* skips : {"1.0", "0.0"}) {
    const std::string skip = absl::StrCat(
        "var skips : bool[1]\nOut=[skips] = fill_constant() {shape=longs[1], dtype=0, value=",
        skips, "}\n");
    const std::string adam =
        absl::StrReplaceAll(kAdam, {{"Param=[d])", "Param=[d], SkipUpdate=[skips])"}});
    EXPECT_THAT(OpsOf(Block({skip, kZeros, adam, kRounded, kHalfResult})),
                ElementsAre("fill_constant", "adam", "cast"));
    EXPECT_THAT(OpsOf(Block({skip, kZeros, adam, kResult})),
                ElementsAre("fill_constant", "adam", "scale"));
  }
}

TEST(UpdatesFromZeroTest, AGradientWhoseTypeComesInTheStepIsTaken) {
  const std::string branch =
      "var due : bool[1]\nvar scope : step_scopes\nvar branched : fp32[2500]\n"
      "Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n"
      "Out=[branched], Scope=[scope] = conditional_block(Cond=[due], Input=[g]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  const std::string adam = absl::StrReplaceAll(kAdam, {{"Grad=[g]", "Grad=[branched]"}});
  const std::string block = "block 1:\nOut=[branched] = scale(X=[g]) {scale=3.0}\n";
  EXPECT_THAT(OpsOf(Block({branch, kZeros, adam, kRounded, kHalfResult, block})),
              ElementsAre("fill_constant", "scale", "adam", "cast"));
}

// Updates of one kind run as one op; those that start from zeros, apart from others.
void StartAndMerge(const std::vector<int>& accessed, Plan* plan) {
  StartUpdatesFromZero(accessed, plan);
  MergeUpdates(plan);
}

constexpr char kSgd[] = "ParamOut=[d] = sgd(Grad=[g], LearningRate=[lr], Param=[d])\n";

TEST(UpdatesFromZeroTest, OtherParametersKeepTheirValues) {
  const std::string other =
      "var w : fp32[2500] persistable\nParamOut=[w] = sgd(Grad=[g], LearningRate=[lr], "
      "Param=[w])\n";
  for (const auto& ops : std::vector<std::vector<std::string>>{{kZeros, kSgd, other, kResult},
                                                               {other, kZeros, kSgd, kResult}}) {
    const Plan plan = ExpectSameResults(Block(ops), {"r", "w"}, StartAndMerge, /*tolerance=*/0);
    EXPECT_THAT(OpTypes(plan), ElementsAre("sgd", "sgd", "scale"));
  }
}

TEST(UpdatesFromZeroTest, SeveralRunAsOne) {
  const std::string second =
      absl::StrReplaceAll(absl::StrCat("var d2 : fp32[2500]\n", kZeros, kSgd), {{"[d]", "[d2]"}});
  const std::string sum = "Out=[r] = elementwise_add(X=[d], Y=[d2])\n";
  EXPECT_THAT(OpTypes(ExpectSameResults(Block({kZeros, kSgd, second, sum}), {"r"}, StartAndMerge,
                                        /*tolerance=*/0)),
              ElementsAre("sgd", "elementwise_add"));
  // Their types come in the step.
  const std::string branch =
      "var due : bool[1]\nvar scope : step_scopes\nvar branched : fp32[2500]\n"
      "Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n"
      "Out=[branched], Scope=[scope] = conditional_block(Cond=[due], Input=[g]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  const std::string block = "block 1:\nOut=[branched] = scale(X=[g]) {scale=3.0}\n";
  const auto branched = [](absl::string_view ops) {
    return absl::StrReplaceAll(ops, {{"Grad=[g]", "Grad=[branched]"}});
  };
  EXPECT_THAT(OpTypes(ExpectSameResults(
                  Block({branch, kZeros, branched(kSgd), branched(second), sum, block}), {"r"},
                  StartAndMerge, /*tolerance=*/0)),
              ElementsAre("fill_constant", "scale", "sgd", "elementwise_add"));
}

// The op widens it, and its kernel would not.
TEST(UpdatesFromZeroTest, ARateInHalfPrecisionIsTaken) {
  const std::string rate =
      "var lr_half : HALF[1]\nOut=[lr_half] = cast(X=[lr]) {in_dtype=5, out_dtype=TYPE}\n";
  const std::string sgd = absl::StrReplaceAll(kSgd, {{"[lr]", "[lr_half]"}});
  EXPECT_THAT(OpsOf(Block({rate, kZeros, sgd, kResult}), {"r"}),
              ElementsAre("cast", "fill_constant", "sgd", "scale"));
}

TEST(UpdatesFromZeroTest, WhatOthersReadIsNotRounded) {
  const std::string both = "var s : fp32[2500]\nOut=[s] = scale(X=[d]) {scale=2.0}\n";
  EXPECT_THAT(OpsOf(Block({kZeros, kAdam, kRounded, kHalfResult, both}), {"r", "s"}),
              ElementsAre("adam", "cast", "cast", "scale"));
}

TEST(UpdatesFromZeroTest, OthersStay) {
  const auto stays = [](const std::vector<std::string>& ops,
                        const std::vector<std::string>& results) {
    const std::vector<std::string> types = OpsOf(Block(ops), results);
    return types.size() == ops.size();
  };
  const std::string one = absl::StrReplaceAll(kZeros, {{"value=0.0", "value=1.0"}});
  EXPECT_TRUE(stays({one, kAdam, kResult}, {"r"}));
  // Somebody else reads the zeros, or writes the parameter once more, or reads it after the step.
  const std::string before = "var s : fp32[2500]\nOut=[s] = scale(X=[d]) {scale=2.0, bias=1.0}\n";
  EXPECT_TRUE(stays({kZeros, before, kAdam, kResult}, {"r", "s"}));
  EXPECT_TRUE(stays({kZeros, kAdam, "Out=[d] = scale(X=[d]) {scale=3.0}\n", kResult}, {"r"}));
  EXPECT_TRUE(stays({kZeros, kAdam, kResult}, {"r", "d"}));
  // The gradient is the parameter.
  EXPECT_TRUE(
      stays({kZeros, absl::StrReplaceAll(kAdam, {{"Grad=[g]", "Grad=[d]"}}), kResult}, {"r"}));
  // It needs norms of the parameter.
  const std::string lamb = absl::StrReplaceAll(
      kAdam, {{"adam(", "lamb("}, {"Param=[d])", "Param=[d]) {weight_decay=0.1}"}});
  EXPECT_TRUE(stays({kZeros, lamb, kResult}, {"r"}));
}

}  // namespace
}  // namespace weft::testing
