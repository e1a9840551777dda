#include "tools/inspect/program_plan.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// c, b and a are complete after 1, 2 and 3 s.
constexpr char kThree[] = R"(
  var a@GRAD : fp32[10]
  var b@GRAD : fp32[10]
  var c@GRAD : fp32[10]
  Y@GRAD=[c@GRAD] = mul_grad(Y=[c], Out@GRAD=[g]) role=backward vars=[c, c@GRAD]
  Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
  Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
  ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
)";

StepTimes Times() {
  StepTimes times;
  times.op_seconds = {1, 1, 1, 5};
  times.collective = *CollectiveTime::AlphaBeta(0.5, 80);
  return times;
}

ProgramPlan PlanOf(const std::string& policy, int nrings = 1) {
  auto plan = PlanProgram(CompactProgram(kThree), *BucketPolicy::Parse(policy), Times(), nrings);
  WEFT_EXPECT_OK(plan.status());
  return *std::move(plan);
}

TEST(ProgramPlan, SchedulesBucketsWhenTheirLastGradientIsReady) {
  const ProgramPlan plan = PlanOf("count{count=2}");
  ASSERT_EQ(plan.buckets.size(), 2);
  EXPECT_THAT(plan.buckets[0].gradients, ElementsAre("c@GRAD", "b@GRAD"));
  EXPECT_EQ(plan.buckets[0].bytes, 80);
  EXPECT_EQ(plan.buckets[0].ready, 2);
  EXPECT_EQ(plan.buckets[0].run.end, 3.5);
  EXPECT_EQ(plan.buckets[1].run.end, 4.5);
  // The update does not cover what it waits for.
  EXPECT_EQ(plan.backward_end, 3);
  EXPECT_EQ(plan.exposed, 1.5);
  EXPECT_EQ(plan.least_exposed, 1);
  EXPECT_EQ(plan.lower_bound, 1);
}

TEST(ProgramPlan, OptimalIsWhatItSays) {
  const ProgramPlan plan = PlanOf("optimal");
  EXPECT_EQ(plan.exposed, 1);
  EXPECT_EQ(plan.buckets.size(), 3);
}

TEST(ProgramPlan, BucketsTakeRingsInTurn) {
  const ProgramPlan plan = PlanOf("none", 2);
  EXPECT_EQ(plan.buckets[1].ring, 1);
  EXPECT_EQ(plan.buckets[2].ring, 0);
}

TEST(ProgramPlan, GradientsOfGroupsAreApartAndTakeRingsOfTheirOwn) {
  ParamAttrsByName params;
  params["b"].group = RankGroup{"g", {0, 1}};
  WEFT_ASSERT_OK(ResolveGroups(Cluster(), &params));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const ProgramPlan plan,
      PlanProgram(CompactProgram(kThree), *BucketPolicy::Parse("bytes"), Times(), 2, params));
  ASSERT_EQ(plan.buckets.size(), 2);
  EXPECT_THAT(plan.buckets[0].gradients, ElementsAre("b@GRAD"));
  EXPECT_EQ(plan.buckets[0].ring, 2);
  EXPECT_THAT(plan.buckets[1].gradients, ElementsAre("c@GRAD", "a@GRAD"));
  EXPECT_EQ(plan.buckets[1].ring, 0);
  EXPECT_EQ(*WhyApart(plan, "b@GRAD", "c@GRAD"), "reduced over ranks 0, 1 and over all ranks");
  EXPECT_LE(plan.lower_bound, plan.exposed);
}

TEST(ProgramPlan, SaysWhyGradientsAreApart) {
  const ProgramPlan plan = PlanOf("count{count=2}");
  EXPECT_EQ(*WhyApart(plan, "c@GRAD", "b@GRAD"), "they share a bucket");
  EXPECT_EQ(*WhyApart(plan, "a@GRAD", "c@GRAD"),
            "bucket 0: full: 2 gradients; bucket 1: no gradient of its kind is left");
  EXPECT_THAT(WhyApart(plan, "a@GRAD", "x"), IsNotFound("does not reduce a gradient x"));
  const std::string mixed = R"(
    var a@GRAD : fp16[10]
    var b@GRAD : fp32[10]
    var c@GRAD : fp32[-1]
    Y@GRAD=[c@GRAD] = mul_grad(Y=[c], Out@GRAD=[g]) role=backward vars=[c, c@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
  )";
  StepTimes times;
  times.op_seconds = {1, 1, 1};
  const auto of_mixed = PlanProgram(CompactProgram(mixed), *BucketPolicy::Parse("bytes"), times, 1);
  WEFT_ASSERT_OK(of_mixed.status());
  EXPECT_EQ(*WhyApart(*of_mixed, "a@GRAD", "b@GRAD"), "element types fp16 and fp32");
  EXPECT_EQ(*WhyApart(*of_mixed, "a@GRAD", "c@GRAD"), "c@GRAD: its shape is unknown: [-1]");
}

TEST(ProgramPlan, PictureShowsEveryBucketAndEscapesNames) {
  ProgramPlan plan = PlanOf("none");
  plan.buckets[0].gradients[0] = "<&>";
  const std::string svg = PlanSvg(plan);
  EXPECT_THAT(svg, HasSubstr("bucket 2: 40 bytes, ready 3000.000 ms"));
  EXPECT_THAT(svg, HasSubstr("&lt;&amp;&gt;"));
  EXPECT_THAT(svg, HasSubstr("exposed: 1000.000 ms"));
}

}  // namespace
}  // namespace weft::testing
