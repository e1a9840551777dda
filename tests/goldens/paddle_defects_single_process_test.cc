// Defects of Paddle's SingleProcessMultiThread, and that the weft dialect does not have them.
// Numbers of defects as in docs/paddle_dialect.md.

#include "base/testing/test.h"
#include "tests/goldens/paddle_defects_model.h"

namespace weft::testing {
namespace {

constexpr char kMode[] = "single_process_multi_thread";

// No. 14, 16.
TEST(PaddleDefects, OneFp32BufferOfForwardRoleTakesAllGradients) {
  const Program program = TwoGradients(pb::VarType::FP64).Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(program, Paddle(kMode)));
  const Op one = FirstOp(paddle.main, "coalesce_tensor");
  EXPECT_EQ(IntOf(one, "dtype"), pb::VarType::FP32);
  EXPECT_EQ(one.role(), kRoleForward);
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(program, Weft(kMode)));
  const Op own = FirstOp(weft.main, "coalesce_tensor");
  EXPECT_EQ(IntOf(own, "dtype"), pb::VarType::FP64);
  EXPECT_EQ(own.role(), kRoleBackward);
}

// No. 16.
TEST(PaddleDefects, BufferHasAFixedName) {
  ProgramBuilder p = TwoGradients();
  p.Var("fused_output").Var("fused_gradient_0");
  EXPECT_THAT(Rewrite(p.Build(), Paddle(kMode)),
              IsFailedPrecondition("fused_output already exists"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(p.Build(), Weft(kMode)));
  EXPECT_THAT(OpTexts(weft.main),
              Contains("c_allreduce_sum@0(fused_gradient_1 -> fused_gradient_1)"));
}

// No. 16.
TEST(PaddleDefects, GradientsTravelOnlyWhenTheLastIsComplete) {
  const Program program = TwoGradients().Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(program, Paddle(kMode)));
  EXPECT_GT(Position(paddle.main, "c_allreduce_sum"), Position(paddle.main, "mul_grad"));
  TranspileOptions options = Weft(kMode);
  options.mode_flags["buckets"] = "count{count=1}";
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(program, options));
  EXPECT_LT(Position(weft.main, "c_allreduce_sum"), Position(weft.main, "mul_grad"));
}

// No. 16.
TEST(PaddleDefects, HostsBeginWithDifferentParameters) {
  const Program main = TwoGradients().Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(main, StartupOfTwo(), Paddle(kMode)));
  EXPECT_THAT(OpTexts(paddle.startup), Each(Not(StartsWith("c_broadcast"))));
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(main, StartupOfTwo(), Weft(kMode)));
  EXPECT_THAT(OpTexts(weft.startup), Contains("c_broadcast@0(w -> w)"));
  EXPECT_THAT(OpTexts(weft.startup), Contains("c_broadcast@0(b -> b)"));
}

// No. 17. Here the paddle dialect writes what only a fork of Paddle can run.
TEST(PaddleDefects, SumOfSeveralGradientsIsAnOpThatPaddleDoesNotHave) {
  TranspileOptions options = Paddle(kMode);
  options.mode_flags["fuse"] = "2";
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(TwoGradients().Build(), options));
  EXPECT_THAT(OpTexts(paddle.main), Contains(StartsWith("c_allreduce_xsum")));
  options.dialect = Dialect::kWeft;
  EXPECT_THAT(Rewrite(TwoGradients().Build(), options), IsInvalidArgument("paddle dialect only"));
}

// No. 18.
TEST(PaddleDefects, TrainersOnOneHostCountAsOne) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  TranspileOptions options = Paddle(kMode);
  options.cluster.endpoints = {"a:1", "a:2"};
  options.cluster.devices = {{0}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, options));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));  // not divided
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, options));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

// No. 26. Two losses: w is updated before the only sum, which stands after the last gradient.
TEST(PaddleDefects, GradientOfAFirstLossIsSummedAfterItsUse) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  AddLoss(&p, "v", "v@GRAD");
  p.Pairs({"v", "v@GRAD"});
  AddSgd(&p, "v", "v@GRAD");
  TranspileOptions options = Paddle(kMode);
  options.cluster.devices = {{0}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, options));
  EXPECT_THAT(paddle.w, ElementsAre(-0.5, -1));  // each rank by itself
  EXPECT_EQ(paddle.state.at("v"), -1.5);
  EXPECT_THAT(paddle.warnings, Contains(HasSubstr("w@GRAD is reduced after its use: op ")));
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, options));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
  EXPECT_EQ(weft.state.at("v"), -1.5);
}

}  // namespace
}  // namespace weft::testing
