#include "transpiler/passes/paddle/paddle_single_process_fuse.h"

#include <string>
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

using ::testing::HasSubstr;
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPass[] = "paddle-single-process-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's; one more backward op.
constexpr char kBackward[] = R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Out=[w2@GRAD], Bias=[b2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[x@GRAD] = g0(X=[x]) role=backward
    ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
  )";

// Paddle's defect: the coalesce_tensor has role forward.
TEST(PaddleSingleProcessFuse, AllGradientsAreSummedAfterTheLastOne) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-single-process-fuse", kBackward, R"(
    var fused_output : fp32[1] stop_gradient
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    FusedOutput=[fused_output], Output=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD] = coalesce_tensor(Input=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD]) {copy_data=true, dtype=5}
    Out=[fused_output] = c_sync_calc_stream(X=[fused_output]) role=backward
    Out=[fused_output] = c_allreduce_sum(X=[fused_output]) role=backward
    Out=[fused_output] = c_sync_comm_stream(X=[fused_output]) role=backward
    Out=[x@GRAD] = g0(X=[x]) role=backward
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
  )",
                options);
}

TEST(PaddleSingleProcessFuse, Fuse2SumsTheGradientsThemselves) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-single-process-fuse{fuse=2}", kBackward, R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
    Out=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD] = c_allreduce_xsum(X=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD]) role=backward
    Out=[w1@GRAD] = c_sync_comm_stream(X=[w1@GRAD]) role=backward
    Out=[x@GRAD] = g0(X=[x]) role=backward
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
  )",
                options);
}

TEST(PaddleSingleProcessFuse, GradientsOfDistributedParametersAreLeftOut) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  options.distributed_params = {"w1", "w2"};
  ExpectRewrite("paddle-single-process-fuse", kBackward, R"(
    var fused_output : fp32[1] stop_gradient
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    FusedOutput=[fused_output], Output=[b2@GRAD, w3@GRAD] = coalesce_tensor(Input=[b2@GRAD, w3@GRAD]) {copy_data=true, dtype=5}
    Out=[fused_output] = c_sync_calc_stream(X=[fused_output]) role=backward
    Out=[fused_output] = c_allreduce_sum(X=[fused_output]) role=backward
    Out=[fused_output] = c_sync_comm_stream(X=[fused_output]) role=backward
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[x@GRAD] = g0(X=[x]) role=backward
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
  )",
                options);
}

PassContext Paddle() { return ContextWithDevices({"127.0.0.1:6170"}, {{0, 1}}); }

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's; one more backward op.
Program Backward() {
  ProgramBuilder p;
  p.Param("w1").Param("w2").Param("b2").Param("w3");
  p.Op("g3", {}, {{"W@GRAD", {"w3@GRAD"}}}, kRoleBackward).Pairs({"w3", "w3@GRAD"});
  p.Op("g2", {}, {{"W@GRAD", {"w2@GRAD"}}, {"B@GRAD", {"b2@GRAD"}}}, kRoleBackward);
  p.Pairs({"w2", "w2@GRAD", "b2", "b2@GRAD"});
  p.Op("g1", {}, {{"W@GRAD", {"w1@GRAD"}}}, kRoleBackward).Pairs({"w1", "w1@GRAD"});
  p.Op("g0", {}, {{"X@GRAD", {"x@GRAD"}}}, kRoleBackward);
  p.Op("sgd", {}, {{"ParamOut", {"w1"}}}, kRoleOptimize);
  return p.Build();
}

TEST(PaddleSingleProcessFuse, WithoutReplicatedParametersNothingChanges) {
  Program program = Backward();
  PassContext context = Paddle();
  context.distributed_params = {"w1", "w2", "b2", "w3"};
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  EXPECT_EQ(OpTexts(program).size(), 5);
}

TEST(PaddleSingleProcessFuse, ExistingBufferIsRefused) {
  ProgramBuilder p;
  p.Param("w").Var("fused_output");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("variable fused_output already exists")));
}

TEST(PaddleSingleProcessFuse, ReducedGradientsAreRefused) {
  for (const char* fuse : {"1", "2"}) {
    Program program = Backward();
    const std::string pass = std::string(kPass) + "{fuse=" + fuse + "}";
    WEFT_ASSERT_OK(RunPasses(pass, Paddle(), &program));
    EXPECT_THAT(RunPasses(pass, Paddle(), &program),
                StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
  }
}

TEST(PaddleSingleProcessFuse, NotesNameTheGradients) {
  Program program = Backward();
  std::vector<Remark> remarks;
  PassContext context = Paddle();
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  ASSERT_EQ(remarks.size(), 4);
  EXPECT_EQ(remarks[0].subject, "w1@GRAD");
  EXPECT_EQ(remarks[0].what, "reduced");
}

}  // namespace
}  // namespace weft
