#include "transpiler/passes/paddle/paddle_local_sgd.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPasses[] = "paddle-comm-init{nrings=2},broadcast-params{nrings=2},paddle-local-sgd";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

PassContext Paddle() { return ContextWithEndpoints(4, Dialect::kPaddle); }

void AddSgd(ProgramBuilder* p, const std::string& w) {
  p->Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}, {"LearningRate", {"lr"}}},
        {{"ParamOut", {w}}}, kRoleOptimize);
}

// Updates w, then v; b has no update.
Program Main() {
  ProgramBuilder p;
  p.Param("v", {3}).Param("w", {5, 7}).Param("b");
  AddSgd(&p, "w");
  AddSgd(&p, "v");
  return p.Build();
}

Program Startup() {
  ProgramBuilder p;
  p.Param("v", {3}).Param("w", {5, 7}).Param("b");
  for (const char* name : {"w", "b", "v"}) p.Op("fill_constant", {}, {{"Out", {name}}});
  return p.Build();
}

TEST(PaddleLocalSgd, ParametersBecomeTheSnapshotMinusTheMeanOfTheSteps) {
  Program main = Main();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main));
  EXPECT_THAT(OpTexts(main), ElementsAre("sgd(w, w@GRAD, lr -> w)",              //
                                         "elementwise_sub(w@SNAPSHOT, w -> w)",  //
                                         "c_sync_calc_stream(w -> w)",           //
                                         "c_allreduce_sum@1(w -> w)",            //
                                         "sgd(v, v@GRAD, lr -> v)",              //
                                         "elementwise_sub(v@SNAPSHOT, v -> v)",  //
                                         "c_sync_calc_stream(v -> v)",           //
                                         "c_allreduce_sum@0(v -> v)",            //
                                         "c_sync_comm_stream@0(w -> w)",         //
                                         "c_sync_comm_stream@1(w -> w)",         //
                                         "scale(w -> w)",                        //
                                         "elementwise_sub(w@SNAPSHOT, w -> w)",  //
                                         "assign(w -> w@SNAPSHOT)",              //
                                         "scale(v -> v)",                        //
                                         "elementwise_sub(v@SNAPSHOT, v -> v)",  //
                                         "assign(v -> v@SNAPSHOT)"));
  EXPECT_EQ(main.op(main.block(0).ops()[10]).FindAttr("scale")->f(), 0.25f);
  EXPECT_EQ(main.op(main.block(0).ops()[10]).role(), kRoleOptimize);
}

TEST(PaddleLocalSgd, SnapshotsAreLikeTheirParametersAndPersist) {
  Program main = Main();
  Program startup = Startup();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main, &startup));
  for (const Program* program : {&main, &startup}) {
    const Var var = program->var(program->block(0).FindVar(program->FindSymbol("w@SNAPSHOT")));
    EXPECT_TRUE(var.persistable());
    EXPECT_TRUE(var.stop_gradient());
    EXPECT_FALSE(var.is_parameter());
    EXPECT_EQ(var.Tensor()->data_type(), pb::VarType::FP32);
    EXPECT_THAT(var.Tensor()->dims(), ElementsAre(5, 7));
  }
}

TEST(PaddleLocalSgd, StartupTakesSnapshotsOfWhatItBroadcasts) {
  Program main = Main();
  Program startup = Startup();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main, &startup));
  std::vector<std::string> ops = OpTexts(startup);
  ops.erase(ops.begin(), ops.begin() + 7);  // initializers, rings
  EXPECT_THAT(ops, ElementsAre("c_broadcast@0(w -> w)", "c_broadcast@1(b -> b)",
                               "c_broadcast@0(v -> v)", "c_sync_comm_stream@0(v -> v)",
                               "c_sync_comm_stream@1(v -> v)", "assign(w -> w@SNAPSHOT)",
                               "assign(b -> b@SNAPSHOT)", "assign(v -> v@SNAPSHOT)"));
}

TEST(PaddleLocalSgd, DistributedParameterIsNotAveragedButNamedByTheWait) {
  Program main = Main();
  Program startup = Startup();
  PassContext context = Paddle();
  context.distributed_params = {"w"};
  WEFT_ASSERT_OK(RunPasses(kPasses, context, &main, &startup));
  EXPECT_THAT(OpTexts(main), ElementsAre("sgd(w, w@GRAD, lr -> w)",              //
                                         "sgd(v, v@GRAD, lr -> v)",              //
                                         "elementwise_sub(v@SNAPSHOT, v -> v)",  //
                                         "c_sync_calc_stream(v -> v)",           //
                                         "c_allreduce_sum@0(v -> v)",            //
                                         "c_sync_comm_stream@0(w -> w)",         //
                                         "c_sync_comm_stream@1(w -> w)",         //
                                         "scale(v -> v)",                        //
                                         "elementwise_sub(v@SNAPSHOT, v -> v)",  //
                                         "assign(v -> v@SNAPSHOT)"));
  EXPECT_FALSE(startup.FindSymbol("w@SNAPSHOT").valid());
}

// Paddle's defect: of two updates of a parameter, each is averaged.
TEST(PaddleLocalSgd, ParameterThatIsUpdatedTwiceHasOneSnapshot) {
  ProgramBuilder p;
  p.Param("w");
  AddSgd(&p, "w");
  AddSgd(&p, "w");
  Program main = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main));
  EXPECT_EQ(OpTexts(main).size(), 2 + 2 * 3 + 2 + 2 * 3);
}

TEST(PaddleLocalSgd, WithoutUpdatesInTheRootBlockItIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul", {{"Param", {"w"}}}, {{"Out", {"y"}}});
  p.NewBlock();
  AddSgd(&p, "w");
  p.InBlock(0).Op("conditional_block", {}, {}).BlockAttr("sub_block", 1);
  Program main = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(kRefused, HasSubstr("no op of the root block updates a parameter")));
}

TEST(PaddleLocalSgd, UpdateOfNoParameterIsRefused) {
  ProgramBuilder p;
  p.Op("sgd", {{"Param", {}}, {"Grad", {"g"}}, {"LearningRate", {"lr"}}}, {}, kRoleOptimize);
  Program main = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (sgd) input Param: expected a parameter, found none")));
}

TEST(PaddleLocalSgd, SecondRunIsRefused) {
  Program main = Main();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main));
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(kRefused, HasSubstr("parameters-averaged holds already: op 3 "
                                           "(c_allreduce_sum) takes w")));
}

TEST(PaddleLocalSgd, SnapshotThatTheStartupProgramHasIsRefused) {
  Program main = Main();
  ProgramBuilder p;
  p.Param("v", {3}).Param("w", {5, 7}).Param("b").Var("w@SNAPSHOT");
  Program startup = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main, &startup),
              StatusIs(kRefused, HasSubstr("startup program: variable w@SNAPSHOT already exists")));
}

TEST(PaddleLocalSgd, UpdateOfWhatIsNoTensorOfTheRootBlockIsRefused) {
  ProgramBuilder p;
  p.Var("w");
  AddSgd(&p, "@EMPTY@");
  Program main = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (sgd): variable @EMPTY@ is not declared")));
}

TEST(PaddleLocalSgd, ReducedGradientsAreRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  Program main = p.Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", Paddle(), &main));
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(kRefused, HasSubstr("gradients-reduced holds already")));
}

TEST(PaddleLocalSgd, SnapshotsFollowTheBroadcastByContract) {
  Program main = Main();
  EXPECT_THAT(RunPasses("paddle-local-sgd", Paddle(), &main),
              StatusIs(kRefused, HasSubstr("requires parameters-equal")));
}

TEST(PaddleLocalSgd, NotesNameRingAndPlace) {
  Program main = Main();
  std::vector<Note> notes;
  PassContext context = Paddle();
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses(kPasses, context, &main));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_EQ(notes[0].subject, "v");
  EXPECT_EQ(notes[0].what, "averaged");
  EXPECT_THAT(notes[0].details,
              ElementsAre(std::make_pair("ring", "0"), std::make_pair("after", "op 1 (sgd)")));
}

}  // namespace
}  // namespace weft
