#include "transpiler/passes/averaging/averaging_plan.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr char kMain[] = R"(
  var half : fp16[2] parameter persistable
  var target, mean : fp32[2] parameter persistable
  MeanOut=[mean] = batch_norm(X=[x], Mean=[mean])
  ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[g], Velocity=[v], LearningRate=[lr]) role=optimize {mu=0.9}
  ParamOut=[half], MasterParamOut=[master] = sgd(Param=[half], Grad=[h], LearningRate=[lr], MasterParam=[master]) role=optimize
  Out=[target] = assign(X=[w]) role=optimize
)";

// "fp32: w master; cast master -> half".
std::vector<std::string> Planned(const AveragingChoices& choices, const PassContext& context = {}) {
  Program main = CompactProgram(kMain);
  Program startup =
      CompactProgram("Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}");
  const auto plan = PlanAveraging({&main, &startup}, context, choices);
  if (!plan.ok()) return {plan.status().ToString()};
  std::vector<std::string> texts;
  for (const FusedTensors& tensors : plan->averaged) {
    texts.push_back(
        absl::StrCat(DTypeName(tensors.dtype), ": ", absl::StrJoin(tensors.names, " ")));
  }
  for (const AveragingPlan::Cast& cast : plan->casts) {
    texts.push_back(absl::StrCat("cast ", cast.master, " ", DTypeName(cast.master_type), " -> ",
                                 cast.param, " ", DTypeName(cast.param_type)));
  }
  for (const AveragingPlan::Reset& reset : plan->resets) {
    texts.push_back(absl::StrCat("reset ", reset.state, " by ", reset.op.type()));
  }
  return texts;
}

TEST(AveragingPlan, EveryUpdatedParameterOnceMasterWeightsInsteadOfTheirCasts) {
  EXPECT_THAT(Planned({}), ElementsAre("fp32: w master target", "cast master fp32 -> half fp16"));
}

TEST(AveragingPlan, StatesAndStatisticsAreAChoice) {
  EXPECT_THAT(Planned({OptimizerState::kAverage, true}),
              ElementsAre("fp32: w v master target mean", "cast master fp32 -> half fp16"));
  EXPECT_THAT(Planned({OptimizerState::kReset, false}),
              ElementsAre("fp32: w master target", "cast master fp32 -> half fp16",
                          "reset v by fill_constant"));
}

TEST(AveragingPlan, DistributedParametersAreLeftOut) {
  PassContext context;
  context.setting.distributed_params = {"w", "target"};
  EXPECT_THAT(Planned({}, context), ElementsAre("fp32: master", "cast master fp32 -> half fp16"));
}

// "a b | d": the tensors of each fragment.
std::string Fragments(std::vector<int64_t> sizes, int fragments) {
  AveragingPlan plan;
  plan.averaged.emplace_back();
  for (size_t i = 0; i < sizes.size(); ++i) {
    plan.averaged[0].names.push_back(std::string(1, static_cast<char>('a' + i)));
    plan.averaged[0].dims.push_back({sizes[i]});
  }
  const auto parts = CutIntoFragments(plan, fragments);
  if (!parts.ok()) return parts.status().ToString();
  std::vector<std::string> texts;
  for (const AveragingPlan& part : *parts) {
    texts.push_back(absl::StrJoin(part.averaged.at(0).names, " "));
  }
  return absl::StrJoin(texts, " | ");
}

TEST(AveragingPlan, FragmentsHaveAboutEqualBytesAndNoneIsEmpty) {
  EXPECT_EQ(Fragments({1, 1}, 2), "a | b");
  EXPECT_EQ(Fragments({1, 1, 1, 1, 1, 1}, 3), "a b | c d | e f");
  EXPECT_EQ(Fragments({4, 1, 1, 2}, 2), "a | b c d");
  EXPECT_EQ(Fragments({1, 1, 100}, 3), "a | b | c");
  EXPECT_EQ(Fragments({100, 1, 1}, 3), "a | b | c");
  EXPECT_EQ(Fragments({0, 0}, 2), "a | b");
}

TEST(AveragingPlan, UnknownShapeIsRefused) {
  Program main = CompactProgram(R"(
    var w : fp32[-1] parameter persistable
    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr]) role=optimize
  )");
  EXPECT_THAT(PlanAveraging({&main, nullptr}, PassContext(), {}).status(),
              StatusIs(kRefused, HasSubstr("variable w: expected a dense floating-point tensor of "
                                           "a known shape, found fp32[-1]")));
}

}  // namespace
}  // namespace weft::testing
