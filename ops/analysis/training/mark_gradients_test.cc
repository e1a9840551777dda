#include "ops/analysis/training/mark_gradients.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/training/gradients.h"
#include "ops/analysis/training/losses.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kVars[] = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var y : fp32[-1, 1]
    var z : fp32[-1, 1]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var y@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[4, 1]
    var part : fp32[4, 1]
    var g : fp32[4, 1]
    var g@GRAD : fp32[4, 1]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = mean(X=[y])
)";
constexpr char kBackward[] = R"(
    Out=[loss@GRAD] = fill_any_like(X=[loss]) role=backward {value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)";
constexpr char kUpdate[] =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";

// "w@GRAD of w by 4" for each pair, "loss y" for each loss; nothing if nothing is marked.
std::vector<std::string> Marked(const std::string& ops) {
  Program program = testing::BlockProgram(absl::StrCat(kVars, ops));
  const absl::StatusOr<bool> marks = MarkGradients(&program);
  EXPECT_TRUE(marks.ok()) << marks.status();
  std::vector<std::string> texts;
  if (!marks.ok() || !*marks) return texts;
  const absl::StatusOr<std::vector<GradientPair>> pairs = FindGradientPairs(program);
  EXPECT_TRUE(pairs.ok()) << pairs.status();
  for (const GradientPair& pair : *pairs) {
    texts.push_back(absl::StrCat(program.name(pair.grad), " of ", program.name(pair.param), " by ",
                                 program.op(pair.op).position()));
  }
  for (Symbol loss : FindLosses(program)) {
    texts.push_back(absl::StrCat("loss ", program.name(loss)));
  }
  return texts;
}

TEST(MarkGradients, GradientsAndLossesAreFoundByData) {
  EXPECT_THAT(Marked(absl::StrCat(kBackward, kUpdate)),
              ElementsAre("w@GRAD of w by 4", "loss loss"));
  // Under any name, and used by other ops before the update.
  const std::string renamed = absl::StrReplaceAll(kBackward, {{"[w@GRAD]", "[part]"}});
  EXPECT_THAT(
      Marked(absl::StrCat(renamed, "    Out=[w@GRAD] = scale(X=[part]) {scale=0.5}\n", kUpdate)),
      ElementsAre("part of w by 4", "loss loss"));
}

TEST(MarkGradients, ASumOfGradientsIsTheGradient) {
  const std::string twice =
      absl::StrCat(absl::StrReplaceAll(kBackward, {{"[w@GRAD]", "[part]"}}),
                   "    Y@GRAD=[g] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n"
                   "    Out=[w@GRAD] = sum(X=[part, g]) role=backward\n");
  EXPECT_THAT(Marked(twice + kUpdate), ElementsAre("w@GRAD of w by 6", "loss loss"));
}

TEST(MarkGradients, WhatAnotherLossFollowsFromIsNone) {
  // A penalty on the gradient g of the mean.
  const std::string penalty = absl::StrCat(
      absl::StrReplaceAll(kBackward, {{"[w@GRAD]", "[part]"}}),
      "    Out=[z] = mul(X=[x], Y=[part])\n    Out=[g] = mean(X=[z])\n"
      "    Out=[g@GRAD] = fill_any_like(X=[g]) role=backward {value=1.0}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[g@GRAD]) role=backward\n");
  EXPECT_THAT(Marked(penalty + kUpdate), ElementsAre("w@GRAD of w by 8", "loss g"));
}

TEST(MarkGradients, MarkedProgramsAndThoseWithoutUpdatesStay) {
  EXPECT_THAT(Marked(kBackward), IsEmpty());
  EXPECT_THAT(Marked(absl::StrCat(absl::StrReplaceAll(kBackward, {{"role=backward {value",
                                                                   "role=backward|loss "
                                                                   "{value"}}),
                                  kUpdate)),
              IsEmpty());
}

}  // namespace
}  // namespace weft
