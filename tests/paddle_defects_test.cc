// What the paddle dialect writes, as Paddle's transpiler does, and what it computes: where that is
// wrong, the weft dialect gives what it should be. Numbers of defects as in docs/paddle_dialect.md.
//
// The models are small enough to be followed by hand: prediction x w, loss = its mean, so that the
// gradient of w on a rank is the mean of its rows of x.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "proto/program_builder.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::Floats;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::StatusIs;

// Forward, and backward to the gradient of w.
ProgramBuilder Model(const std::string& grad = "w@GRAD",
                     int fill_role = kRoleBackward | kRoleLoss) {
  ProgramBuilder p;
  p.Var("x", {-1, 1});
  p.last_var().set_need_check_feed(true);
  p.Param("w", {1, 1}).Param("lr", {1});
  p.Var("y", {-1, 1}).Var("loss", {}).Var("loss@GRAD", {}).Var("y@GRAD", {-1, 1});
  p.Var(grad, {1, 1});
  p.Op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  p.Op("reduce_mean", {{"X", {"y"}}}, {{"Out", {"loss"}}}, kRoleForward | kRoleLoss);
  p.BoolAttr("reduce_all", true);
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, fill_role);
  p.IntAttr("dtype", 5).FloatAttr("value", 1).LongsAttr("shape", {});
  p.Op("reduce_mean_grad", {{"X", {"y"}}, {"Out@GRAD", {"loss@GRAD"}}}, {{"X@GRAD", {"y@GRAD"}}},
       kRoleBackward);
  p.BoolAttr("reduce_all", true);
  p.Op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {grad}}},
       kRoleBackward);
  return p;
}

void AddSgd(ProgramBuilder* p, const std::string& grad = "w@GRAD") {
  p->Op("sgd", {{"Param", {"w"}}, {"Grad", {grad}}, {"LearningRate", {"lr"}}},
        {{"ParamOut", {"w"}}}, kRoleOptimize);
  p->Pairs({"w", grad});
}

struct Outcome {
  std::vector<float> w;  // after the last step, by rank
  std::vector<std::string> warnings;
};

// Two ranks from w = 0 with lr = 1: rank r is fed r + 1 in every step.
absl::StatusOr<Outcome> Train(ProgramBuilder builder, const TranspileOptions& options, int steps) {
  // Fetched behind everything else.
  builder.InBlock(0).Var("w_after", {1, 1});
  builder.Op("assign", {{"X", {"w"}}}, {{"Out", {"w_after"}}}, kRoleOptimize);
  Program main = builder.Build();
  ProgramPair programs{&main, nullptr};
  WEFT_ASSIGN_OR_RETURN(const TranspileResult rewritten, Transpile(options, programs));
  Outcome outcome;
  outcome.warnings = rewritten.warnings;
  outcome.w.resize(2);
  std::map<std::string, Tensor> params;
  for (VarId id : main.block(0).vars()) {
    if (!main.var(id).persistable()) continue;
    const std::string name(main.var(id).name());
    params[name] = Floats(DeclaredType(main.var(id))->dims, {name == "lr" ? 1.0f : 0.0f});
  }
  RunOptions run;
  run.kernels = &CpuKernels();
  run.ranks = 2;
  run.steps = steps;
  run.fetch = {"w_after"};
  run.strict_host_sync = options.dialect == Dialect::kPaddle;
  RunInputs inputs;
  inputs.main = &main;
  inputs.params = &params;
  inputs.feeds.variables = {"x"};
  inputs.feeds.read = [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
    return std::vector<Tensor>{Floats({2, 1}, {1, 2})};
  };
  inputs.on_result = [&outcome](const StepResult& result) {
    outcome.w[result.rank] = result.values[0].data<float>()[0];
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, run).status());
  return outcome;
}

TranspileOptions Weft(const std::string& mode) {
  TranspileOptions options;
  options.mode = mode;
  options.participants.nranks = 2;
  return options;
}

TranspileOptions Paddle(const std::string& mode) {
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags["nrings"] = "1";
  options.dialect = Dialect::kPaddle;
  options.participants.endpoints = {"a:1", "b:1"};
  return options;
}

// The gradient of w over both ranks is (1 + 2) / 2.
TEST(PaddleDefects, SoundProgramTrainsAlikeInBothDialects) {
  ProgramBuilder p = Model();
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce"), 2));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, Weft("grad_allreduce"), 2));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  EXPECT_THAT(weft.w, ElementsAre(-3, -3));
  EXPECT_THAT(paddle.warnings, IsEmpty());
}

TEST(PaddleDefects, No6GradientIsNotDividedWhereTheLossRoleIsLost) {
  ProgramBuilder p = Model("w@GRAD", kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce"), 1));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  EXPECT_THAT(paddle.warnings, ElementsAre(HasSubstr("does not come from a loss gradient")));

  EXPECT_THAT(Train(p, Weft("grad_allreduce"), 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not come from a loss gradient")));
  TranspileOptions average = Weft("grad_allreduce");
  average.mode_flags["scale"] = "avg";
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, average, 1));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

TEST(PaddleDefects, No7GradientIsDividedByTrainersButSummedOverDevices) {
  ProgramBuilder p = Model();
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p);
  TranspileOptions options = Paddle("multi_thread");
  options.participants.endpoints = {"a:1"};
  options.participants.devices = {{0, 1}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, options, 1));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, options, 1));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

TEST(PaddleDefects, No12GatheredGradientsAreNotUsedByOptimizersOtherThanAdam) {
  ProgramBuilder p = Model();
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p);
  TranspileOptions options = Paddle("multi_thread");
  options.mode_flags["trans_mode"] = "all_gather";
  options.participants.devices = {{0}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, options, 1));
  EXPECT_THAT(paddle.w, ElementsAre(-0.5, -1));  // each rank by itself
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, options, 1));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

// Gradients of two steps are added up, and their mean is used in every second step.
ProgramBuilder GradientMerge() {
  ProgramBuilder p = Model();
  p.Param("total", {1, 1});
  p.Op("elementwise_add", {{"X", {"w@GRAD"}}, {"Y", {"total"}}}, {{"Out", {"total"}}},
       kRoleBackward);
  p.Pairs({"w", "total"});
  // 1, 0, 1, 0, ...
  p.Param("turn", {1}).Var("one", {1}).Var("due", {1}, pb::VarType::BOOL);
  p.Op("fill_constant", {}, {{"Out", {"one"}}});
  p.IntAttr("dtype", 5).FloatAttr("value", 1).LongsAttr("shape", {1});
  p.Op("elementwise_sub", {{"X", {"one"}}, {"Y", {"turn"}}}, {{"Out", {"turn"}}});
  p.Op("less_than", {{"X", {"turn"}}, {"Y", {"one"}}}, {{"Out", {"due"}}});
  // Of optimize role, so that Paddle's waits stand before it. (Paddle gives it forward role: then
  // it runs while the sums are on their way.)
  p.Op("conditional_block", {{"Cond", {"due"}}, {"Input", {"total", "w"}}},
       {{"Out", {"total", "w"}}}, kRoleOptimize);
  p.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  p.Op("scale", {{"X", {"total"}}}, {{"Out", {"total"}}}, kRoleBackward).FloatAttr("scale", 0.5f);
  AddSgd(&p, "total");
  p.Op("fill_constant", {}, {{"Out", {"total"}}}, kRoleOptimize);
  p.IntAttr("dtype", 5).FloatAttr("value", 0).LongsAttr("shape", {1, 1});
  return p;
}

TEST(PaddleDefects, No25AccumulatedGradientIsSummedOverTheRanksInEveryStep) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle,
                            Train(GradientMerge(), Paddle("grad_allreduce"), 2));
  // Step 0: 1.5 on both; step 1: (1.5 + 0.5) + (1.5 + 1), of which a half.
  EXPECT_THAT(paddle.w, ElementsAre(-2.25, -2.25));
  EXPECT_THAT(paddle.warnings, ElementsAre(HasSubstr("accumulated over several steps")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(GradientMerge(), Weft("grad_allreduce"), 2));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

TEST(PaddleDefects, No33GradientThatIsNamedTwiceIsReducedTwice) {
  ProgramBuilder p = Model();
  p.Pairs({"w", "w@GRAD", "w", "w@GRAD"});
  AddSgd(&p);
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce"), 1));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  EXPECT_THAT(paddle.warnings, ElementsAre(HasSubstr("a second time")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, Weft("grad_allreduce"), 1));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

}  // namespace
}  // namespace weft
