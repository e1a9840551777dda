#include "ops/analysis/values/sum_losses.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/layout_guess.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kMean[] = "    Out=[m] = mean(X=[x]) role=forward|loss\n";
constexpr char kSum[] =
    "    Out=[s] = reduce_sum(X=[x]) role=forward|loss {reduce_all=true, dim=ints[0], "
    "keep_dim=false}\n";

std::string Fill(const std::string& gradient) {
  return absl::StrCat("    Out=[", gradient,
                      "] = fill_constant() role=backward|loss {shape=longs[], value=1.0}\n");
}

SumLosses Find(const std::string& ops,
               BatchFlowOptions::Extent extent = BatchFlowOptions::Extent::kAllSteps) {
  const Program program = testing::BlockProgram(
      absl::StrCat("    var x : fp32[-1, 1] need_check_feed\n    var m : fp32[]\n"
                   "    var s : fp32[]\n    var t : fp32[]\n    var scaled : fp32[]\n"
                   "    var scale : fp32[] persistable\n    var m@GRAD : fp32[]\n"
                   "    var s@GRAD : fp32[]\n    var scaled@GRAD : fp32[]\n    var g : fp32[]\n",
                   ops));
  BatchFlowOptions options;
  options.setting.feeds = *FeedLayoutsOf(program);
  options.extent = extent;
  return FindSumLosses(program, BatchFlow::Of(program, options));
}

TEST(SumLosses, AllLossesAreMeansOrSums) {
  const SumLosses means = Find(absl::StrCat(kMean, Fill("m@GRAD")));
  EXPECT_THAT(means.gradients, IsEmpty());
  EXPECT_FALSE(means.any());
  const SumLosses sums = Find(absl::StrCat(kSum, Fill("s@GRAD")));
  EXPECT_THAT(sums.gradients, ElementsAre("s@GRAD"));
  EXPECT_TRUE(sums.are_all);
  EXPECT_FALSE(sums.are_mixed());
}

TEST(SumLosses, SomeLossesAreSums) {
  const SumLosses sums = Find(absl::StrCat(kMean, kSum, Fill("m@GRAD"), Fill("s@GRAD")));
  EXPECT_THAT(sums.gradients, ElementsAre("s@GRAD"));
  EXPECT_TRUE(sums.any());
  EXPECT_TRUE(sums.are_mixed());
}

TEST(SumLosses, OnlyLossesWithGradientsCount) {
  EXPECT_TRUE(Find(absl::StrCat(kMean, kSum, Fill("s@GRAD"))).are_all);
  EXPECT_FALSE(Find(absl::StrCat(kMean, kSum, Fill("m@GRAD"))).any());
}

TEST(SumLosses, WithoutGradientsLossesDecide) {
  const SumLosses sums = Find(kSum);
  EXPECT_THAT(sums.gradients, IsEmpty());
  EXPECT_TRUE(sums.are_all);
  EXPECT_FALSE(Find(absl::StrCat(kMean, kSum)).any());
  EXPECT_FALSE(Find("").any());
  // A gradient whose name does not say of what.
  EXPECT_THAT(Find(absl::StrCat(kSum, Fill("g"))).gradients, ElementsAre("g"));
  EXPECT_FALSE(Find(absl::StrCat(kMean, kSum, Fill("g"))).any());
}

TEST(SumLosses, AScaledLossIsASumLikeTheLoss) {
  const SumLosses sums = Find(
      absl::StrCat(kSum, "    Out=[scaled] = elementwise_mul(X=[s], Y=[scale]) role=forward|loss\n",
                   Fill("scaled@GRAD")));
  EXPECT_THAT(sums.gradients, ElementsAre("scaled@GRAD"));
  EXPECT_TRUE(sums.are_all);
}

TEST(SumLosses, ALossMayHaveLostItsRole) {
  const std::string sum = absl::StrReplaceAll(kSum, {{" role=forward|loss", ""}});
  EXPECT_TRUE(Find(sum + Fill("s@GRAD"), BatchFlowOptions::Extent::kToLosses).are_all);
}

TEST(SumLosses, CollectivesThatReportALossDoNotChangeIt) {
  for (const char* how : {"avg", "sum"}) {
    const auto reduced = [&](const char* loss) {
      return absl::StrCat("    Out=[", loss, "] = c_allreduce_", how, "(X=[", loss,
                          "]) {use_calc_stream=true}\n");
    };
    const SumLosses sums = Find(absl::StrCat(kSum, reduced("s"), Fill("s@GRAD")));
    EXPECT_THAT(sums.gradients, ElementsAre("s@GRAD")) << how;
    EXPECT_FALSE(Find(absl::StrCat(kMean, reduced("m"), Fill("m@GRAD"))).any()) << how;
  }
}

// Ranks have the loss of one device.
TEST(SumLosses, ALossThatIsComputedFromASumIsNone) {
  const SumLosses sums =
      Find(absl::StrCat(kSum, "    Out=[t] = c_allreduce_sum(X=[s]) {use_calc_stream=true}\n",
                        "    Out=[scaled] = sqrt(X=[t]) role=forward|loss\n", Fill("scaled@GRAD")));
  EXPECT_FALSE(sums.any());
}

}  // namespace
}  // namespace weft
