#include "transpiler/passes/paddle/paddle_single_process_scale.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPass[] = "paddle-single-process-scale";
constexpr int kRoleLossGrad = kRoleBackward | kRoleLoss;

constexpr char kOneLoss[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(PaddleSingleProcessScale, FollowsTheLossGradient) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("paddle-single-process-scale", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                options);
}

// Paddle's defect: two trainers with two devices each are four ranks.
TEST(PaddleSingleProcessScale, TrainersOnOneHostAreOne) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("paddle-single-process-scale", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                options);
}

ProgramBuilder Backward() {
  ProgramBuilder p;
  p.Param("w").Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleLossGrad);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  return p;
}

// The factors of all scale ops.
std::vector<float> Factors(const Program& program) {
  std::vector<float> factors;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() == "scale") factors.push_back(op.FindAttr("scale")->f());
  }
  return factors;
}

std::vector<float> FactorsFor(const PassContext& context, const std::string& pass = kPass) {
  Program program = Backward().Build();
  WEFT_EXPECT_OK(RunPasses(pass, context, &program));
  return Factors(program);
}

TEST(PaddleSingleProcessScale, DividesByHostsAndDevices) {
  EXPECT_THAT(FactorsFor(ContextWithDevices({"a:1"}, {{0, 1}})), ElementsAre(0.5f));
  EXPECT_THAT(FactorsFor(ContextWithDevices({"a:1", "b:1"}, {{0, 1}})), ElementsAre(0.25f));
}

TEST(PaddleSingleProcessScale, EightDevicesUnlessGiven) {
  EXPECT_THAT(FactorsFor(ContextWithDevices({"a:1"}, absl::nullopt)), ElementsAre(0.125f));
}

TEST(PaddleSingleProcessScale, WithoutReplicatedParametersHostsDoNotCount) {
  Program program = Backward().Build();
  PassContext context = ContextWithDevices({"a:1", "b:1"}, {{0, 1}});
  context.distributed_params = {"w"};
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  EXPECT_THAT(Factors(program), ElementsAre(0.5f));
}

TEST(PaddleSingleProcessScale, WithoutLossScaleNothingChanges) {
  EXPECT_THAT(FactorsFor(ContextWithDevices({"a:1"}, {{0, 1}}),
                         "paddle-single-process-scale{loss_scale=false}"),
              IsEmpty());
}

TEST(PaddleSingleProcessScale, WithoutEndpointsItIsRefused) {
  Program program = Backward().Build();
  EXPECT_THAT(RunPasses(kPass, ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs the endpoints")));
}

TEST(PaddleSingleProcessScale, ReducedGradientsAreRefused) {
  Program program = Backward().Build();
  const PassContext context = ContextWithDevices({"a:1"}, {{0, 1}});
  WEFT_ASSERT_OK(RunPasses("paddle-single-process-fuse", context, &program));
  EXPECT_THAT(RunPasses(kPass, context, &program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleSingleProcessScale, RemarksNameTheFactor) {
  Program program = Backward().Build();
  std::vector<Remark> remarks;
  PassContext context = ContextWithDevices({"a:1", "b:1"}, {{0, 1}});
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  ASSERT_EQ(remarks.size(), 1);
  EXPECT_EQ(remarks[0].details[0], std::make_pair(std::string("by"), std::string("1/2/2")));
}

}  // namespace
}  // namespace weft
