// Defects of Paddle's MultiThread, and that the weft dialect does not have them. Numbers of defects
// as in docs/paddle_dialect.md.
#include <string>

#include "base/testing/test.h"
#include "tests/goldens/paddle_defects_model.h"

namespace weft::testing {
namespace {

// Two trainers of one device each; rewritten in either dialect.
TranspileOptions AllGather(Dialect dialect) {
  TranspileOptions options = Paddle("multi_thread");
  options.mode_flags["trans_mode"] = "all_gather";
  options.cluster.devices = {{0}};
  options.dialect = dialect;
  return options;
}

pb::VarType::Type ElementTypeOf(const Program& program, const std::string& name) {
  const Var var = program.var(program.block(0).FindVar(name));
  return var.ToProto().type().lod_tensor().tensor().data_type();
}

// No. 7.
TEST(PaddleDefects, GradientIsDividedByTrainersButSummedOverDevices) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  TranspileOptions options = Paddle("multi_thread");
  options.cluster.endpoints = {"a:1"};
  options.cluster.devices = {{0, 1}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, options));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, options));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

// No. 8.
TEST(PaddleDefects, TrainersHaveNineDevicesUnlessTheyAreGiven) {
  ProgramBuilder p = PairedModel();
  AddAdam(&p);
  TranspileOptions options = AllGather(Dialect::kPaddle);
  options.cluster.devices.reset();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), options));
  EXPECT_EQ(IntOf(FirstOp(paddle.main, "c_allgather"), "nranks"), 18);
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(p.Build(), options));
  EXPECT_EQ(IntOf(FirstOp(weft.main, "c_allgather"), "nranks"), 2);
}

// No. 9. Of the loss's gradient each rank has a half: gradients are 0.5 and 1.
TEST(PaddleDefects, GatheredUpdatesAdvanceBetaPowersOncePerRank) {
  ProgramBuilder p = PairedModel();
  AddAdam(&p);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle,
                            Train(p, AllGather(Dialect::kPaddle), 1, BetaPowers()));
  EXPECT_NEAR(paddle.state.at("b1"), 0.9 * 0.9 * 0.9, 1e-6);
  EXPECT_NEAR(paddle.state.at("m1"), 0.9 * (0.1 * 0.5) + 0.1 * 1, 1e-6);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft,
                            Train(p, AllGather(Dialect::kWeft), 1, BetaPowers()));
  EXPECT_NEAR(weft.state.at("b1"), 0.9 * 0.9, 1e-6);
  EXPECT_NEAR(weft.state.at("m1"), 0.1 * 1.5, 1e-6);
}

// No. 10.
TEST(PaddleDefects, GatheredUpdatesLoseRolePairsAndAttributes) {
  ProgramBuilder p = PairedModel();
  AddAdam(&p);
  p.BoolAttr("use_global_beta_pow", true).BoolAttr("multi_precision", true);
  const auto fill = [](pb::OpDesc::Var* slot, const char* name) {
    slot->set_parameter(name);
    slot->add_arguments("w_master");
  };
  fill(p.last_op().add_inputs(), "MasterParam");
  fill(p.last_op().add_outputs(), "MasterParamOut");
  p.Param("w_master", {1, 1});
  const Program program = p.Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(program, AllGather(Dialect::kPaddle)));
  const Op update = FirstOp(paddle.main, "adam");
  EXPECT_EQ(update.role(), kRoleForward);
  EXPECT_FALSE(update.has_role_vars());
  EXPECT_TRUE(update.Input("MasterParam").empty());
  EXPECT_FALSE(update.FindAttr("use_global_beta_pow")->b());
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(program, AllGather(Dialect::kWeft)));
  EXPECT_EQ(FirstOp(weft.main, "adam").bytes(), FirstOp(program, "adam").bytes());
}

// No. 11. Here the paddle dialect says why; Paddle looks for an attribute that lamb does not have.
TEST(PaddleDefects, UpdatesByLambCannotTakeGatheredGradients) {
  ProgramBuilder p = PairedModel();
  AddAdam(&p);
  p.last_op().set_type("lamb");
  p.FloatAttr("weight_decay", 0);
  EXPECT_THAT(Rewrite(p.Build(), AllGather(Dialect::kPaddle)), IsFailedPrecondition("(lamb)"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome gathered,
                            Train(p, AllGather(Dialect::kWeft), 1, BetaPowers()));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome reduced,
                            Train(p, Weft("grad_allreduce"), 1, BetaPowers()));
  EXPECT_NE(gathered.w[0], 0);
  EXPECT_EQ(gathered.w, reduced.w);
}

// No. 12.
TEST(PaddleDefects, GatheredGradientsAreNotUsedByOptimizersOtherThanAdam) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, AllGather(Dialect::kPaddle)));
  EXPECT_THAT(paddle.w, ElementsAre(-0.5, -1));  // each rank by itself
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, AllGather(Dialect::kWeft)));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

// No. 13. Gradients are clipped to 0.
TEST(PaddleDefects, GatheredGradientsAreNotClipped) {
  ProgramBuilder p = PairedModel();
  p.Op("clip", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleOptimize);
  p.FloatAttr("min", 0).FloatAttr("max", 0).Pairs({"w", "w@GRAD"});
  AddAdam(&p);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle,
                            Train(p, AllGather(Dialect::kPaddle), 1, BetaPowers()));
  EXPECT_LT(paddle.w[0], -1);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft,
                            Train(p, AllGather(Dialect::kWeft), 1, BetaPowers()));
  EXPECT_THAT(weft.w, ElementsAre(0, 0));
}

// No. 14.
TEST(PaddleDefects, GatheredGradientsAreAlwaysFp32) {
  const Program program = TwoGradients(pb::VarType::FP64).Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(program, AllGather(Dialect::kPaddle)));
  EXPECT_EQ(ElementTypeOf(paddle.main, "w_allgather"), pb::VarType::FP32);
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(program, AllGather(Dialect::kWeft)));
  EXPECT_EQ(ElementTypeOf(weft.main, "w@GRAD@GATHERED"), pb::VarType::FP64);
  EXPECT_EQ(ElementTypeOf(weft.main, "gathered_part_0"), pb::VarType::FP64);
}

// No. 15.
TEST(PaddleDefects, DistributedParameterIsUpdatedFromAnUnwrittenVariable) {
  ProgramBuilder p = PairedModel();
  AddAdam(&p);
  AddLoss(&p, "v", "v@GRAD");
  p.Pairs({"v", "v@GRAD"});
  AddSgd(&p, "v", "v@GRAD");
  TranspileOptions options = AllGather(Dialect::kPaddle);
  options.distributed_params = {"w"};
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), options));
  EXPECT_THAT(OpTexts(paddle.main), Contains("split(w_allgather -> w_0, w_1)"));
  EXPECT_THAT(OpTexts(paddle.main), Each(Not(HasSubstr("-> w_allgather"))));
  // Each rank updates its part by its own gradient.
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, options, 1, BetaPowers()));
  EXPECT_NEAR(weft.state.at("m1"), 0.1 * 0.5, 1e-6);
}

// No. 19.
TEST(PaddleDefects, NothingIsSummedBeforeBackwardHasEnded) {
  const Program program = TwoGradients().Build();
  TranspileOptions options = Paddle("multi_thread");
  options.mode_flags["nrings"] = "2";
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(program, options));
  EXPECT_GT(Position(paddle.main, "c_allreduce_sum"), Position(paddle.main, "mul_grad"));
  EXPECT_THAT(OpTexts(paddle.main), Contains(StartsWith("c_allreduce_sum")).Times(1));
  EXPECT_THAT(OpTexts(paddle.main), Each(Not(HasSubstr("@1("))));
  // The last bucket is complete when backward ends, but earlier ones travel meanwhile, on all
  // rings.
  options.dialect = Dialect::kWeft;
  options.mode_flags["buckets"] = "count{count=1}";
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(program, options));
  EXPECT_LT(Position(weft.main, "c_allreduce_sum@0"), Position(weft.main, "mul_grad"));
  EXPECT_THAT(OpTexts(weft.main), Contains(StartsWith("c_allreduce_sum@1")));
}

// No. 26. Two losses: the second is computed after the first one's update.
TEST(PaddleDefects, GradientOfASecondLossIsSummedBeforeItIsComputed) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  AddLoss(&p, "v", "v@GRAD");
  p.Pairs({"v", "v@GRAD"});
  AddSgd(&p, "v", "v@GRAD");
  constexpr char kMade[] = "mul_grad(x, v, y_v@GRAD -> v@GRAD)";
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle("multi_thread")));
  EXPECT_LT(Position(paddle.main, "coalesce_tensor(v@GRAD, w@GRAD"), Position(paddle.main, kMade));
  EXPECT_THAT(paddle.warnings, Contains(HasSubstr("v@GRAD is reduced before it is complete")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(p.Build(), Weft("multi_thread")));
  EXPECT_LT(Position(weft.main, kMade), Position(weft.main, "c_allreduce_sum@0(v@GRAD -> v@GRAD)"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome trained, Train(p, Weft("multi_thread")));
  EXPECT_THAT(trained.w, ElementsAre(-1.5, -1.5));
  EXPECT_EQ(trained.state.at("v"), -1.5);
}

}  // namespace
}  // namespace weft::testing
