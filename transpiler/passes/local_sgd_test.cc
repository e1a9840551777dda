#include "transpiler/passes/local_sgd.h"

#include <string>
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
using ::testing::IsEmpty;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Two parameters; w's optimizer keeps a velocity.
ProgramBuilder TwoUpdates() {
  ProgramBuilder p;
  p.Param("b").Param("w").Param("velocity");
  p.Op("sgd", {{"Param", {"b"}}, {"Grad", {"b@GRAD"}}}, {{"ParamOut", {"b"}}}, kRoleOptimize);
  p.Op("momentum", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"Velocity", {"velocity"}}},
       {{"ParamOut", {"w"}}, {"VelocityOut", {"velocity"}}}, kRoleOptimize);
  return p;
}

ProgramBuilder Startup() {
  ProgramBuilder p;
  p.Param("b").Param("w").Param("velocity");
  p.Op("fill_constant", {}, {{"Out", {"velocity"}}}).FloatAttr("value", 0.5f);
  return p;
}

// The ops behind those of the original.
std::vector<std::string> Added(const Program& program, size_t before = 2) {
  std::vector<std::string> texts = OpTexts(program);
  texts.erase(texts.begin(), texts.begin() + before);
  return texts;
}

TEST(LocalSgd, ParametersAreAveragedInOneAfterTheUpdates) {
  Program program = TwoUpdates().Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd", ContextWithRanks(0), &program));
  EXPECT_THAT(Added(program),
              ElementsAre("coalesce_tensor(b, w -> local_sgd_buffer_0, b, w)",
                          "c_wait_compute@0(b, w, local_sgd_buffer_0 -> b, w, local_sgd_buffer_0)",
                          "c_allreduce_avg@0(local_sgd_buffer_0 -> local_sgd_buffer_0)",
                          "c_wait_comm@0(b, w, local_sgd_buffer_0 -> b, w, local_sgd_buffer_0)"));
}

TEST(LocalSgd, KnownNumberOfRanksSumsAndDivides) {
  Program program = TwoUpdates().Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd", ContextWithRanks(4), &program));
  EXPECT_EQ(Added(program)[2], "c_allreduce_sum@0(local_sgd_buffer_0 -> local_sgd_buffer_0)");
  EXPECT_EQ(Added(program)[4], "scale(local_sgd_buffer_0 -> local_sgd_buffer_0)");
  const Op scale = program.op(program.block(0).ops().back());
  EXPECT_EQ(scale.FindAttr("scale")->f(), 0.25f);
  EXPECT_EQ(scale.FindAttr("nranks")->i(), 4);
}

TEST(LocalSgd, EveryKStepsTheAverageStandsInABlock) {
  Program program = TwoUpdates().Build();
  Program startup = Startup().Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd{k_steps=4}", ContextWithRanks(0), &program, &startup));
  EXPECT_THAT(Added(program),
              ElementsAre("increment(local_sgd_step -> local_sgd_step)",  //
                          "fill_constant( -> local_sgd_k)",
                          "elementwise_mod(local_sgd_step, local_sgd_k -> local_sgd_rest)",
                          "fill_constant( -> local_sgd_none)",
                          "equal(local_sgd_rest, local_sgd_none -> local_sgd_due)",
                          "conditional_block(local_sgd_due, b, w -> b, w, local_sgd_scope)"));
  EXPECT_THAT(OpTexts(program, 1),
              ElementsAre("coalesce_tensor(b, w -> local_sgd_buffer_0, b, w)",  //
                          HasSubstr("c_wait_compute"), HasSubstr("c_allreduce_avg"),
                          HasSubstr("c_wait_comm")));
  EXPECT_EQ(OpTexts(startup).back(), "fill_constant( -> local_sgd_step)");
  const Var step = program.var(program.block(0).FindVar(program.FindSymbol("local_sgd_step")));
  EXPECT_TRUE(step.persistable());
}

TEST(LocalSgd, FirstStepLaterThanKIsAConditionOfItsOwn) {
  Program program = TwoUpdates().Build();
  Program startup = Startup().Build();
  WEFT_ASSERT_OK(
      RunPasses("local-sgd{k_steps=2,begin_step=9}", ContextWithRanks(0), &program, &startup));
  EXPECT_EQ(Added(program)[6], "greater_equal(local_sgd_step, local_sgd_begin -> local_sgd_begun)");
  EXPECT_EQ(Added(program)[7],
            "logical_and(local_sgd_due, local_sgd_begun -> local_sgd_condition)");
}

TEST(LocalSgd, CountingStepsNeedsAStartupProgram) {
  Program program = TwoUpdates().Build();
  EXPECT_THAT(RunPasses("local-sgd{k_steps=4}", ContextWithRanks(0), &program),
              StatusIs(kRefused, HasSubstr("counting steps needs the startup program")));
}

TEST(LocalSgd, ElementTypesTravelApartOnRingsInTurn) {
  ProgramBuilder p = TwoUpdates();
  p.Param("h");
  p.last_var().mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_data_type(
      pb::VarType::FP64);
  p.Op("sgd", {{"Param", {"h"}}, {"Grad", {"h@GRAD"}}}, {{"ParamOut", {"h"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd{nrings=2}", ContextWithRanks(0), &program));
  EXPECT_THAT(Added(program, 3),
              ElementsAre(HasSubstr("coalesce_tensor"), HasSubstr("c_wait_compute@0"),
                          "c_allreduce_avg@0(local_sgd_buffer_0 -> local_sgd_buffer_0)",
                          "c_wait_compute@1(h -> h)", "c_allreduce_avg@1(h -> h)",
                          HasSubstr("c_wait_comm@0"), "c_wait_comm@1(h -> h)"));
}

TEST(LocalSgd, StateOfOptimizersIsAveragedOrResetWhereAskedFor) {
  Program program = TwoUpdates().Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd{state=average}", ContextWithRanks(0), &program));
  EXPECT_EQ(Added(program)[0],
            "coalesce_tensor(b, w, velocity -> local_sgd_buffer_0, b, w, velocity)");

  program = TwoUpdates().Build();
  Program startup = Startup().Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd{state=reset}", ContextWithRanks(0), &program, &startup));
  EXPECT_EQ(Added(program).back(), "fill_constant( -> velocity)");
  const Op reset = program.op(program.block(0).ops().back());
  EXPECT_EQ(reset.FindAttr("value")->f(), 0.5f);
}

TEST(LocalSgd, StateThatTheStartupProgramDoesNotMakeCannotBeReset) {
  Program program = TwoUpdates().Build();
  EXPECT_THAT(RunPasses("local-sgd{state=reset}", ContextWithRanks(0), &program),
              StatusIs(kRefused, HasSubstr("state reset makes states again as the startup")));
  Program startup = ProgramBuilder().Param("b").Param("w").Param("velocity").Build();
  EXPECT_THAT(RunPasses("local-sgd{state=reset}", ContextWithRanks(0), &program, &startup),
              StatusIs(kRefused, HasSubstr("state velocity: expected one op of the startup")));
}

TEST(LocalSgd, RunningStatisticsAreAveragedWhereAskedFor) {
  ProgramBuilder p;
  p.Param("mean").Param("w");
  p.Op("batch_norm", {{"X", {"x"}}, {"Mean", {"mean"}}}, {{"Y", {"y"}}, {"MeanOut", {"mean"}}});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd", ContextWithRanks(0), &program));
  EXPECT_EQ(Added(program)[1], "c_allreduce_avg@0(w -> w)");
  program = p.Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd{statistics=true}", ContextWithRanks(0), &program));
  EXPECT_EQ(Added(program)[0], "coalesce_tensor(w, mean -> local_sgd_buffer_0, w, mean)");
}

TEST(LocalSgd, ParametersThatOtherOpsUpdateAreAveragedToo) {
  ProgramBuilder p = TwoUpdates();
  p.Param("target").Op("assign", {{"X", {"w"}}}, {{"Out", {"target"}}});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd", ContextWithRanks(0), &program));
  EXPECT_EQ(Added(program, 3)[0],
            "coalesce_tensor(b, w, target -> local_sgd_buffer_0, b, w, target)");
}

TEST(LocalSgd, MasterWeightIsAveragedAndTheParameterIsItsCast) {
  ProgramBuilder p;
  p.Param("w").Param("w32");
  p.Op("momentum", {{"Param", {"w"}}, {"MasterParam", {"w32"}}},
       {{"ParamOut", {"w"}}, {"MasterParamOut", {"w32"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd", ContextWithRanks(0), &program));
  EXPECT_THAT(Added(program, 1),
              ElementsAre("c_wait_compute@0(w32 -> w32)", "c_allreduce_avg@0(w32 -> w32)",
                          "c_wait_comm@0(w32 -> w32)", "cast(w32 -> w)"));
}

TEST(LocalSgd, DistributedParametersStayLocal) {
  Program program = TwoUpdates().Build();
  PassContext context = ContextWithRanks(0);
  context.distributed_params = {"b"};
  WEFT_ASSERT_OK(RunPasses("local-sgd", context, &program));
  EXPECT_EQ(Added(program)[1], "c_allreduce_avg@0(w -> w)");
}

TEST(LocalSgd, NothingToAverageIsRefused) {
  Program program = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(RunPasses("local-sgd", ContextWithRanks(0), &program),
              StatusIs(kRefused, HasSubstr("no op updates a replicated parameter")));
}

TEST(LocalSgd, AveragedParametersAndReducedGradientsExcludeEachOther) {
  Program program = TwoUpdates().Build();
  WEFT_ASSERT_OK(RunPasses("local-sgd", ContextWithRanks(0), &program));
  for (const char* pass : {"local-sgd", "grad-all-reduce"}) {
    EXPECT_THAT(RunPasses(pass, ContextWithRanks(0), &program),
                StatusIs(kRefused, HasSubstr("parameters-averaged holds already: op 4 "
                                             "(c_allreduce_avg) takes local_sgd_buffer_0")));
  }
  EXPECT_THAT(RunPasses("grad-all-reduce,local-sgd", ContextWithRanks(0), &program),
              StatusIs(kRefused, HasSubstr("parameters-averaged holds already")));
}

TEST(LocalSgd, NotesSayWhatIsAveragedAndWhen) {
  Program program = TwoUpdates().Build();
  std::vector<Note> notes;
  PassContext context = ContextWithRanks(0);
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("local-sgd", context, &program));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_EQ(notes[0].subject, "b");
  EXPECT_EQ(notes[0].what, "averaged");
  EXPECT_EQ(notes[0].details[0].second, "every step");
}

}  // namespace
}  // namespace weft
