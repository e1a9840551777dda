#include "transpiler/passes/paddle/paddle_all_gather.h"

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
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPass[] = "paddle-all-gather";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Paddle's defect: one update per rank, without a role.
TEST(PaddleAllGather, EveryRanksGradientUpdatesInTurn) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-all-gather", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize vars=[w, w@GRAD] {beta1=0.75}
  )",
                R"(
    var w_0 : fp32[2, 2] stop_gradient
    var w_1 : fp32[2, 2] stop_gradient
    var w_allgather : fp32[4, 2] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
    Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    Out=[w_0, w_1] = split(X=[w_allgather]) {num=2}
    Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_0], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
    Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_1], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  )",
                options);
}

TEST(PaddleAllGather, RingsAndPairsAreDealtOutWalkingBackwards) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-all-gather{nrings=2}", R"(
    Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD]
    Out=[w1@GRAD], Bias=[b1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD, b1, b1@GRAD]
  )",
                R"(
    var b1_allgather : fp32[4, 2] stop_gradient
    var w1_allgather : fp32[4, 2] stop_gradient
    var w2_allgather : fp32[4, 2] stop_gradient
    Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD]
    Out=[w2@GRAD] = c_sync_calc_stream(X=[w2@GRAD]) role=backward
    Out=[w2_allgather] = c_allgather(X=[w2@GRAD]) role=backward {nranks=2}
    Bias=[b1@GRAD], Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD, b1, b1@GRAD]
    Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
    Out=[b1_allgather] = c_allgather(X=[b1@GRAD]) role=backward {nranks=2, ring_id=1}
    Out=[w1_allgather] = c_allgather(X=[w1@GRAD]) role=backward {nranks=2}
  )",
                options);
}

// Paddle's defect: other optimizers than adam go on with the gradient of their own rank.
TEST(PaddleAllGather, OtherOptimizersStay) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-all-gather", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var w_allgather : fp32[4, 2] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
    Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                options);
}

PassContext Paddle() { return ContextWithDevices({"127.0.0.1:6170"}, {{0, 1}}); }

void AddGradient(ProgramBuilder* p, const std::string& w, const std::vector<int64_t>& dims = {3}) {
  p->Param(w, dims).Var(w + "@GRAD", dims);
  p->Op("mul_grad", {}, {{"Y@GRAD", {w + "@GRAD"}}}, kRoleBackward).Pairs({w, w + "@GRAD"});
}

void AddAdam(ProgramBuilder* p, const std::string& w, const std::string& type = "adam") {
  p->Op(type,
        {{"Param", {w}},
         {"Grad", {w + "@GRAD"}},
         {"LearningRate", {"lr"}},
         {"Moment1", {"m1"}},
         {"Moment2", {"m2"}},
         {"Beta1Pow", {"p1"}},
         {"Beta2Pow", {"p2"}},
         {"MasterParam", {"master"}}},
        {{"ParamOut", {w}},
         {"Moment1Out", {"m1"}},
         {"Moment2Out", {"m2"}},
         {"Beta1PowOut", {"p1"}},
         {"Beta2PowOut", {"p2"}}},
        kRoleOptimize);
  p->FloatAttr("beta1", 0.75f);
}

std::string DimsOf(const Program& program, const std::string& var) {
  const auto tensor = program.var(program.block(0).FindVar(var)).Tensor();
  std::string text;
  for (int64_t dim : tensor->dims()) absl::StrAppend(&text, dim, " ");
  return text;
}

TEST(PaddleAllGather, UpdatesKeepPlainAttributesAndLoseTheirRole) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  AddAdam(&p, "w");
  p.last_op().add_attrs()->set_name("multi_precision");
  p.last_op().mutable_attrs()->rbegin()->set_type(pb::BOOLEAN);
  p.last_op().mutable_attrs()->rbegin()->set_b(true);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  const Op adam = program.op(program.block(0).ops().back());
  EXPECT_EQ(adam.FindAttr("beta1")->f(), 0.75f);
  EXPECT_EQ(adam.FindAttr("min_row_size_to_use_multithread")->l(), 1000);
  EXPECT_FALSE(adam.FindAttr("multi_precision")->b());
  EXPECT_EQ(adam.role(), kRoleForward);
  EXPECT_FALSE(adam.has_role_vars());
}

TEST(PaddleAllGather, NineDevicesUnlessGiven) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, ContextWithDevices({"a:1", "b:1"}, absl::nullopt), &program));
  EXPECT_EQ(program.op(program.block(0).ops()[2]).FindAttr("nranks")->i(), 18);
}

// Paddle's defect: what is gathered for it is never written, and yet it updates.
TEST(PaddleAllGather, DistributedParameterIsUpdatedWithoutAGradient) {
  ProgramBuilder p;
  AddGradient(&p, "w", {3, 5});
  AddAdam(&p, "w");
  Program program = p.Build();
  PassContext context = Paddle();
  context.distributed_params = {"w"};
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  EXPECT_EQ(OpTexts(program)[2], "split(w_allgather -> w_0, w_1)");
  EXPECT_EQ(DimsOf(program, "w_allgather"), "2 3 5 ");
  EXPECT_EQ(DimsOf(program, "w_0"), "1 3 5 ");
}

TEST(PaddleAllGather, ScalarGradientsAreGatheredIntoAVector) {
  ProgramBuilder p;
  AddGradient(&p, "w", {});
  AddAdam(&p, "w");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_EQ(DimsOf(program, "w_allgather"), "2 ");
  EXPECT_EQ(DimsOf(program, "w_0"), "1 ");
}

TEST(PaddleAllGather, LambIsRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  AddAdam(&p, "w", "lamb");
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("op 1 (lamb): lamb cannot update with gathered")));
}

TEST(PaddleAllGather, OneRankIsRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, ContextWithDevices({"a:1"}, {{0}}), &program),
              StatusIs(kInvalid, HasSubstr("from 2 ranks or more, found 1")));
  EXPECT_THAT(RunPasses(kPass, ContextWithRanks(0), &program),
              StatusIs(kInvalid, HasSubstr("the number of trainers is unknown")));
}

TEST(PaddleAllGather, ParameterWithTwoPairsIsRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kInvalid, HasSubstr("parameter w already has another gradient")));
}

TEST(PaddleAllGather, AdamWithoutAGatheredGradientIsRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  p.Param("v");
  AddAdam(&p, "v");
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kInvalid, HasSubstr("op 1 (adam) updates v, for which no gradient")));
}

TEST(PaddleAllGather, AdamOfOldProgramsWhosePowersAreUpdatedElsewhereIsRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  AddAdam(&p, "w");
  p.last_op().mutable_outputs()->RemoveLast();
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kInvalid, HasSubstr("op 1 (adam) output Beta2PowOut: expected a variable")));
}

TEST(PaddleAllGather, TooManyRowsAreRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w", {INT64_MAX / 2 + 1});
  Program program = p.Build();
  EXPECT_THAT(
      RunPasses(kPass, Paddle(), &program),
      StatusIs(kInvalid, HasSubstr("op 0 (mul_grad): variable w@GRAD: too many rows for 2 ranks")));
}

TEST(PaddleAllGather, NoGradientsAreRefused) {
  Program program = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(PaddleAllGather, GatheredGradientsAreRefused) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  AddAdam(&p, "w");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleAllGather, NotesNameRingAndPlace) {
  ProgramBuilder p;
  AddGradient(&p, "w");
  Program program = p.Build();
  std::vector<Remark> remarks;
  PassContext context = Paddle();
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  ASSERT_EQ(remarks.size(), 1);
  EXPECT_EQ(remarks[0].what, "gathered");
  EXPECT_THAT(remarks[0].details,
              ElementsAre(std::make_pair("ring", "0"), std::make_pair("after", "op 0 (mul_grad)")));
}

}  // namespace
}  // namespace weft
