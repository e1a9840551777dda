#include "transpiler/passes/paddle/paddle_single_process_scale.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

constexpr char kPass[] = "paddle-single-process-scale";

constexpr char kOneLoss[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

std::string Scaled(double factor) {
  return absl::Substitute(R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=$0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                          factor);
}

// One or more trainers that drive two devices each. No contract refuses a second run.
RewriteOptions OnTwoDevices(int trainers) {
  RewriteOptions options = OnDevices(trainers, {0, 1}, Dialect::kPaddle);
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  return options;
}
RewriteOptions OnTwoHosts() {
  RewriteOptions options = OnTwoDevices(2);
  options.cluster.endpoints = {"10.0.0.1:6170", "10.0.0.2:6170"};
  return options;
}

TEST(PaddleSingleProcessScale, FollowsTheLossGradient) {
  ExpectRewrite(kPass, kOneLoss, Scaled(0.5), OnTwoDevices(1));
}

// Paddle's defect: two trainers with two devices each are four ranks.
TEST(PaddleSingleProcessScale, TrainersOnOneHostAreOne) {
  ExpectRewrite(kPass, kOneLoss, Scaled(0.5), OnTwoDevices(2));
}

TEST(PaddleSingleProcessScale, DividesByHostsAndDevices) {
  ExpectRewrite(kPass, kOneLoss, Scaled(0.25), OnTwoHosts());
}

TEST(PaddleSingleProcessScale, EightDevicesUnlessGiven) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);  // on one host
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite(kPass, kOneLoss, Scaled(0.125), options);
}

TEST(PaddleSingleProcessScale, WithoutReplicatedParametersHostsDoNotCount) {
  RewriteOptions options = OnTwoHosts();
  options.distributed_params = {"w"};
  ExpectRewrite(kPass, kOneLoss, Scaled(0.5), options);
}

TEST(PaddleSingleProcessScale, WithoutLossScaleNothingChanges) {
  ExpectNoRewrite("paddle-single-process-scale{loss_scale=false}", kOneLoss,
                  OnDevices(1, {0, 1}, Dialect::kPaddle));
}

TEST(PaddleSingleProcessScale, WithoutEndpointsItIsRefused) {
  EXPECT_THAT(RewriteStatus(kPass, kOneLoss, OnRanks(2)), IsInvalidArgument("needs the endpoints"));
}

TEST(PaddleSingleProcessScale, ReducedGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus("paddle-single-process-fuse,paddle-single-process-scale", kOneLoss,
                            OnDevices(1, {0, 1}, Dialect::kPaddle)),
              IsFailedPrecondition("gradients-reduced already holds"));
}

TEST(PaddleSingleProcessScale, RemarksNameTheFactor) {
  EXPECT_THAT(RemarkTexts(ExpectRewrite(kPass, kOneLoss, Scaled(0.25), OnTwoHosts())),
              ElementsAre("loss@GRAD scaled: hosts: 2, devices of each trainer: 2 by=1/2/2 "
                          "after=op 0 (fill_constant)"));
}

}  // namespace
}  // namespace weft::testing
