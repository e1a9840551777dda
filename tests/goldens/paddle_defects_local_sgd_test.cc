// Defects of Paddle's LocalSGD, and that the weft dialect does not have them. Numbers of defects as
// in docs/paddle_dialect.md.
#include <string>
#include <utility>

#include "base/testing/test.h"
#include "tests/goldens/paddle_defects_model.h"

namespace weft::testing {
namespace {

// For a part of a program, whose gradients come from nowhere: it is not verified.
TranspileOptions WeftPart(const std::string& mode) {
  TranspileOptions options = Weft(mode);
  options.verification = Verification::kNever;
  return options;
}

// No. 1. The last parameter of a loop is used where there may have been none. Here both dialects
// say what is missing.
TEST(PaddleDefects, ProgramWithoutUpdatesIsNotExpected) {
  for (const TranspileOptions& options : {Paddle("local_sgd"), Weft("local_sgd")}) {
    EXPECT_THAT(Rewrite(PairedModel().Build(), options), IsFailedPrecondition("updates a"));
  }
}

// No. 22.
TEST(PaddleDefects, ParametersAreAveragedInEveryStep) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("local_sgd")));
  EXPECT_THAT(paddle.w, ElementsAre(-1.5, -1.5));

  TranspileOptions every_second = Weft("local_sgd");
  every_second.mode_flags["k_steps"] = "2";
  WEFT_ASSERT_OK_AND_ASSIGN(Outcome weft, Train(p, every_second));
  EXPECT_THAT(weft.w, ElementsAre(-1, -2));
  WEFT_ASSERT_OK_AND_ASSIGN(weft, Train(p, every_second, 2));
  EXPECT_THAT(weft.w, ElementsAre(-3, -3));
}

// No. 22. The next update writes w from w_master, which is each rank's own.
TEST(PaddleDefects, MasterWeightsOverwriteTheMean) {
  ProgramBuilder p;
  p.Param("w", {2, 2}).Param("w_master", {2, 2});
  p.Op("sgd",
       {{"Param", {"w"}},
        {"Grad", {"w@GRAD"}},
        {"LearningRate", {"lr"}},
        {"MasterParam", {"w_master"}}},
       {{"ParamOut", {"w"}}, {"MasterParamOut", {"w_master"}}}, kRoleOptimize);
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle("local_sgd")));
  EXPECT_THAT(OpTexts(paddle.main), Contains("c_allreduce_sum@0(w -> w)"));
  EXPECT_THAT(OpTexts(paddle.main), Each(Not(HasSubstr("c_allreduce_sum@0(w_master"))));
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(p.Build(), WeftPart("local_sgd")));
  EXPECT_THAT(OpTexts(weft.main), Contains("c_allreduce_sum@0(w_master -> w_master)"));
  EXPECT_THAT(OpTexts(weft.main), Contains("cast(w_master -> w)"));
}

// No. 22.
TEST(PaddleDefects, NothingButParametersCanBeAveraged) {
  ProgramBuilder p = PairedModel();
  AddAdam(&p);
  for (const auto& [flag, value] : {std::pair{"statistics", "true"}, {"state", "average"}}) {
    TranspileOptions paddle = Paddle("local_sgd"), weft = Weft("local_sgd");
    paddle.mode_flags[flag] = weft.mode_flags[flag] = value;
    EXPECT_THAT(Rewrite(p.Build(), paddle), IsInvalidArgument("does not read"));
    WEFT_EXPECT_OK(Rewrite(p.Build(), weft));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("local_sgd"), 1, BetaPowers()));
  EXPECT_NEAR(paddle.state.at("m1"), 0.1, 1e-6);  // rank 0's own
  TranspileOptions average = Weft("local_sgd");
  average.mode_flags["state"] = "average";
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, average, 1, BetaPowers()));
  EXPECT_NEAR(weft.state.at("m1"), 0.15, 1e-6);
}

// No. 23. What is averaged is the difference to a copy of every parameter, and each is subtracted
// twice.
TEST(PaddleDefects, AveragingKeepsACopyOfEveryParameter) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle("local_sgd")));
  EXPECT_THAT(OpTexts(paddle.main), Contains("elementwise_sub(w@SNAPSHOT, w -> w)").Times(2));
  EXPECT_THAT(OpTexts(paddle.main), Contains("assign(w -> w@SNAPSHOT)"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(p.Build(), Weft("local_sgd")));
  EXPECT_EQ(weft.main.block(0).vars().size(), p.Build().block(0).vars().size());
  EXPECT_THAT(OpTexts(weft.main), Each(Not(HasSubstr("elementwise_sub"))));
  // The mean is the same.
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome of_paddle, Train(p, Paddle("local_sgd"), 3));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome of_weft, Train(p, Weft("local_sgd"), 3));
  EXPECT_THAT(of_paddle.w, ElementsAre(-4.5, -4.5));
  EXPECT_THAT(of_weft.w, ElementsAre(-4.5, -4.5));
}

// No. 24.
TEST(PaddleDefects, UpdateWithoutALearningRateIsNotSeen) {
  ProgramBuilder p;
  p.Param("w").Param("v");
  AddSgd(&p, "w", "w@GRAD");
  for (const char* state : {"v_grad", "v_update"}) {
    p.Var(state);
    p.last_var().set_persistable(true);
  }
  p.Op("adadelta",
       {{"Param", {"v"}},
        {"Grad", {"v@GRAD"}},
        {"AvgSquaredGrad", {"v_grad"}},
        {"AvgSquaredUpdate", {"v_update"}}},
       {{"ParamOut", {"v"}},
        {"AvgSquaredGradOut", {"v_grad"}},
        {"AvgSquaredUpdateOut", {"v_update"}}},
       kRoleOptimize);
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle("local_sgd")));
  EXPECT_THAT(OpTexts(paddle.main), Contains("c_allreduce_sum@0(w -> w)"));
  EXPECT_THAT(OpTexts(paddle.main), Each(Not(HasSubstr("c_allreduce_sum@0(v"))));
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(p.Build(), WeftPart("local_sgd")));
  EXPECT_THAT(OpTexts(weft.main), Contains("coalesce_tensor(w, v -> local_sgd_buffer_0, w, v)"));
}

}  // namespace
}  // namespace weft::testing
