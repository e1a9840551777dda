#include "transpiler/passes/paddle/paddle_multi_thread_fuse.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPass[] = "paddle-multi-thread-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

TEST(PaddleMultiThreadFuse, GradientsAreSummedBeforeTheFirstOptimizeOp) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[d@GRAD] = mul_grad(X=[x], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    Out=[c] = clip(X=[a@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[a] = sgd(Param=[a], Grad=[c], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[d@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[d]) role=backward vars=[d, d@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[a]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD, b@GRAD, d@GRAD] = coalesce_tensor(Input=[a@GRAD, b@GRAD, d@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[c] = clip(X=[a@GRAD]) role=optimize {max=1.0, min=-1.0}
    ParamOut=[a] = sgd(Grad=[c], LearningRate=[lr], Param=[a]) role=optimize
  )",
                options);
}

TEST(PaddleMultiThreadFuse, SegmentsEndWhereTheElementTypeChangesAndFollowInReverseOrder) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    var c : fp16[2, 2] parameter persistable
    var b : fp16[2, 2] parameter persistable
    Out=[d@GRAD] = g(X=[x]) role=backward vars=[d, d@GRAD]
    Out=[c@GRAD] = g(X=[x]) role=backward vars=[c, c@GRAD]
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = g(X=[x]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    var FusedOutput_b@GRAD_0 : fp16[] stop_gradient
    var FusedOutput_d@GRAD_0 : fp32[] stop_gradient
    Out=[d@GRAD] = g(X=[x]) role=backward vars=[d, d@GRAD]
    Out=[c@GRAD] = g(X=[x]) role=backward vars=[c, c@GRAD]
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = g(X=[x]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_d@GRAD_0], Output=[d@GRAD] = coalesce_tensor(Input=[d@GRAD]) role=backward {copy_data=true, dtype=5}
    FusedOutput=[FusedOutput_b@GRAD_0], Output=[b@GRAD, c@GRAD] = coalesce_tensor(Input=[b@GRAD, c@GRAD]) role=backward {copy_data=true, dtype=4}
    FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_d@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_d@GRAD_0]) role=backward
    Out=[FusedOutput_d@GRAD_0] = c_allreduce_sum(X=[FusedOutput_d@GRAD_0]) role=backward
    Out=[FusedOutput_b@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_b@GRAD_0]) role=backward
    Out=[FusedOutput_b@GRAD_0] = c_allreduce_sum(X=[FusedOutput_b@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  )",
                options);
}

TEST(PaddleMultiThreadFuse, NamesOfBuffersThatAreTakenAreSkipped) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    var FusedOutput_a@GRAD_0 : fp32[1]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_a@GRAD_1 : fp32[] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[a]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_a@GRAD_1], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_a@GRAD_1] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_1]) role=backward
    Out=[FusedOutput_a@GRAD_1] = c_allreduce_sum(X=[FusedOutput_a@GRAD_1]) role=backward
    Out=[FusedOutput_a@GRAD_1] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_1]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  )",
                options);
}

PassContext Paddle() { return ContextWithDevices({"127.0.0.1:6170"}, {{0, 1}}); }

void AddGradient(ProgramBuilder* p, const std::string& w,
                 pb::VarType::Type dtype = pb::VarType::FP32) {
  p->Param(w).Var(w + "@GRAD", {2, 2}, dtype);
  p->Op("mul_grad", {}, {{"Y@GRAD", {w + "@GRAD"}}}, kRoleBackward).Pairs({w, w + "@GRAD"});
}

void AddClipAndSgd(ProgramBuilder* p) {
  p->Op("clip", {}, {{"Out", {"c"}}}, kRoleOptimize);
  p->Op("sgd", {}, {{"ParamOut", {"a"}}}, kRoleOptimize);
}

TEST(PaddleMultiThreadFuse, SegmentsHave128GradientsAtMost) {
  ProgramBuilder p;
  for (int i = 128; i >= 0; --i) AddGradient(&p, absl::StrCat("w", i));
  p.Op("sgd", {}, {{"ParamOut", {"w0"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_EQ(OpTexts(program)[129],
            "coalesce_tensor(w128@GRAD -> FusedOutput_w128@GRAD_0, w128@GRAD)");
  EXPECT_EQ(program.op(program.block(0).ops()[130]).Input("Input").size(), 128);
}

// Paddle's defect: with gradient merge, the optimizer is in a sub-block, and nothing is reduced.
TEST(PaddleMultiThreadFuse, WithoutAnOptimizeOpNothingChanges) {
  ProgramBuilder p;
  AddGradient(&p, "a");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_THAT(OpTexts(program), ElementsAre("mul_grad( -> a@GRAD)"));
}

TEST(PaddleMultiThreadFuse, GradientsOfDistributedParametersAreLeftOut) {
  ProgramBuilder p;
  AddGradient(&p, "b");
  AddGradient(&p, "a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  PassContext context = Paddle();
  context.distributed_params = {"a"};
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  EXPECT_EQ(OpTexts(program)[2], "coalesce_tensor(b@GRAD -> FusedOutput_b@GRAD_0, b@GRAD)");
}

TEST(PaddleMultiThreadFuse, NoGradientsAreRefused) {
  ProgramBuilder p;
  p.Param("a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(PaddleMultiThreadFuse, GradientWithoutAnElementTypeIsRefused) {
  ProgramBuilder p;
  AddGradient(&p, "a");
  p.Param("b").Var("b@GRAD");
  p.last_var().mutable_type()->Clear();
  p.last_var().mutable_type()->set_type(pb::VarType::RAW);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"b@GRAD"}}}, kRoleBackward).Pairs({"b", "b@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(
      RunPasses(kPass, Paddle(), &program),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("op 1 (mul_grad): variable b@GRAD: expected a tensor with an element type")));
}

TEST(PaddleMultiThreadFuse, ReducedGradientsAreRefused) {
  ProgramBuilder p;
  AddGradient(&p, "a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleMultiThreadFuse, NotesNameTheBuffer) {
  ProgramBuilder p;
  AddGradient(&p, "a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  std::vector<Remark> remarks;
  PassContext context = Paddle();
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  ASSERT_EQ(remarks.size(), 1);
  EXPECT_THAT(remarks[0].details, ElementsAre(std::make_pair("ring", "0"),
                                              std::make_pair("buffer", "FusedOutput_a@GRAD_0")));
}

}  // namespace
}  // namespace weft
