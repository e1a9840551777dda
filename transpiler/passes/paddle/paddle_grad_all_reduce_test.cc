#include "transpiler/passes/paddle/paddle_grad_all_reduce.h"

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
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// What is known to be wrong with the result.
std::vector<std::string> Warnings(PassContext context, Program program) {
  std::vector<std::string> warnings;
  context.warnings = &warnings;
  WEFT_EXPECT_OK(RunPasses("paddle-grad-all-reduce{nrings=1}", context, &program));
  return warnings;
}

PassContext Paddle() { return ContextWithEndpoints(2, Dialect::kPaddle); }

void AddSgd(ProgramBuilder* p, const std::string& w) {
  p->Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}}, {{"ParamOut", {w}}}, kRoleOptimize);
}

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's.
ProgramBuilder ThreeBackwardOps() {
  ProgramBuilder p;
  p.Param("w1").Param("w2").Param("b2").Param("w3");
  p.Op("g3", {}, {{"W@GRAD", {"w3@GRAD"}}}, kRoleBackward).Pairs({"w3", "w3@GRAD"});
  p.Op("g2", {}, {{"W@GRAD", {"w2@GRAD"}}, {"B@GRAD", {"b2@GRAD"}}}, kRoleBackward);
  p.Pairs({"w2", "w2@GRAD", "b2", "b2@GRAD"});
  p.Op("g1", {}, {{"W@GRAD", {"w1@GRAD"}}}, kRoleBackward).Pairs({"w1", "w1@GRAD"});
  AddSgd(&p, "w1");
  AddSgd(&p, "w3");
  return p;
}

TEST(PaddleGradAllReduce, RingsAndPairsAreDealtOutWalkingBackwards) {
  Program program = ThreeBackwardOps().Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", Paddle(), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("g3( -> w3@GRAD)",                         //
                          "c_sync_calc_stream(w3@GRAD -> w3@GRAD)",  //
                          "c_allreduce_sum@1(w3@GRAD -> w3@GRAD)",   //
                          "g2( -> w2@GRAD, b2@GRAD)",                //
                          "c_sync_calc_stream(w2@GRAD -> w2@GRAD)",  //
                          "c_allreduce_sum@0(b2@GRAD -> b2@GRAD)",   //
                          "c_allreduce_sum@1(w2@GRAD -> w2@GRAD)",   //
                          "g1( -> w1@GRAD)",                         //
                          "c_sync_calc_stream(w1@GRAD -> w1@GRAD)",  //
                          "c_allreduce_sum@0(w1@GRAD -> w1@GRAD)",   //
                          "c_sync_comm_stream@0(w3@GRAD -> w3@GRAD)",
                          "c_sync_comm_stream@1(w3@GRAD -> w3@GRAD)",
                          "sgd(w1, w1@GRAD -> w1)",  //
                          "sgd(w3, w3@GRAD -> w3)"));
}

TEST(PaddleGradAllReduce, DistributedParameterIsNotReducedButNamedByTheWait) {
  Program program = ThreeBackwardOps().Build();
  PassContext context = Paddle();
  context.distributed_params = {"w3", "w2"};
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{nrings=1}", context, &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("g3( -> w3@GRAD)",                         //
                          "g2( -> w2@GRAD, b2@GRAD)",                //
                          "c_sync_calc_stream(b2@GRAD -> b2@GRAD)",  //
                          "c_allreduce_sum@0(b2@GRAD -> b2@GRAD)",   //
                          "g1( -> w1@GRAD)",                         //
                          "c_sync_calc_stream(w1@GRAD -> w1@GRAD)",  //
                          "c_allreduce_sum@0(w1@GRAD -> w1@GRAD)",   //
                          "c_sync_comm_stream@0(w3@GRAD -> w3@GRAD)",
                          "sgd(w1, w1@GRAD -> w1)",  //
                          "sgd(w3, w3@GRAD -> w3)"));
}

// Paddle's defect: the second optimizer reads what may still be on its way.
TEST(PaddleGradAllReduce, SoundProgramGivesNoWarning) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  EXPECT_THAT(Warnings(Paddle(), p.Build()), IsEmpty());
}

// Paddle's defect: w@GRAD is used while it may still be on its way.
TEST(PaddleGradAllReduce, OnlyTheFirstOptimizerIsWaitedFor) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  AddSgd(&p, "v");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{nrings=1}", Paddle(), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("mul_grad( -> v@GRAD)", "c_sync_calc_stream(v@GRAD -> v@GRAD)",
                          "c_allreduce_sum@0(v@GRAD -> v@GRAD)",
                          "c_sync_comm_stream@0(v@GRAD -> v@GRAD)", "sgd(v, v@GRAD -> v)",
                          "mul_grad( -> w@GRAD)", "c_sync_calc_stream(w@GRAD -> w@GRAD)",
                          "c_allreduce_sum@0(w@GRAD -> w@GRAD)", "sgd(w, w@GRAD -> w)"));
  EXPECT_THAT(Warnings(Paddle(), p.Build()),
              ElementsAre("pass paddle-grad-all-reduce: gradient w@GRAD is not waited for: op 2 "
                          "(mul_grad) completes it, and op 3 (sgd) uses it, behind the only wait, "
                          "before op 1 (sgd)"));
}

// Paddle's defect: the sum is four times too large on two ranks.
TEST(PaddleGradAllReduce, PairThatIsNamedTwiceIsReducedTwice) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD", "w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{nrings=1}", Paddle(), &program));
  EXPECT_THAT(
      OpTexts(program),
      ElementsAre("mul_grad( -> w@GRAD)", "c_sync_calc_stream(w@GRAD -> w@GRAD)",
                  "c_allreduce_sum@0(w@GRAD -> w@GRAD)", "c_allreduce_sum@0(w@GRAD -> w@GRAD)"));
  EXPECT_THAT(Warnings(Paddle(), p.Build()),
              ElementsAre(HasSubstr("op 0 (mul_grad): gradient w@GRAD is named in op_role_var a "
                                    "second time")));
}

TEST(PaddleGradAllReduce, SparseGradientIsAWarning) {
  ProgramBuilder p;
  p.Param("w").Var("w@GRAD");
  pb::VarType* type = p.last_var().mutable_type();
  *type->mutable_selected_rows() = type->lod_tensor().tensor();
  type->set_type(pb::VarType::SELECTED_ROWS);
  p.Op("lookup_table_v2_grad", {}, {{"W@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  EXPECT_THAT(Warnings(Paddle(), p.Build()), ElementsAre(HasSubstr("found SelectedRows")));
}

TEST(PaddleGradAllReduce, LearningRateMultiplierCountsAsAnOptimizer) {
  ProgramBuilder p;
  p.Param("w").Op("scale", {{"X", {"lr"}}}, {{"Out", {"lr2"}}}, kRoleOptimize | kRoleLrSched);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{nrings=1}", Paddle(), &program));
  EXPECT_EQ(OpTexts(program)[0], "c_sync_comm_stream@0(w@GRAD -> w@GRAD)");
}

TEST(PaddleGradAllReduce, PairsWithoutAGradientAreLeftOut) {
  ProgramBuilder p;
  p.Param("w").Param("e");
  p.Op("fc_grad", {}, {{"W@GRAD", {"w@GRAD"}}, {"E@GRAD", {"@EMPTY@"}}}, kRoleBackward);
  p.Pairs({"e", "@EMPTY@", "w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", Paddle(), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("fc_grad( -> w@GRAD, @EMPTY@)", "c_sync_calc_stream(w@GRAD -> w@GRAD)",
                          "c_allreduce_sum@0(w@GRAD -> w@GRAD)"));
}

TEST(PaddleGradAllReduce, NoGradientsAreRefused) {
  Program program = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(RunPasses("paddle-grad-all-reduce", Paddle(), &program),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(PaddleGradAllReduce, NothingToReduceMaySkip) {
  const std::string pass = "paddle-grad-all-reduce{skip=no_gradient}";
  Program program = ThreeBackwardOps().Build();
  PassContext context = Paddle();
  context.distributed_params = {"w1", "w2", "b2", "w3"};
  WEFT_ASSERT_OK(RunPasses(pass, context, &program));
  EXPECT_EQ(OpTexts(program).size(), 5);
  // Otherwise a wait is left.
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{nrings=1}", context, &program));
  EXPECT_EQ(OpTexts(program).size(), 6);
}

TEST(PaddleGradAllReduce, OneDeviceMaySkip) {
  const std::string pass = "paddle-grad-all-reduce{skip=one_device}";
  Program program = ThreeBackwardOps().Build();
  WEFT_ASSERT_OK(RunPasses(pass, ContextWithDevices({"a:1", "b:1"}, {{0}}), &program));
  EXPECT_EQ(OpTexts(program).size(), 5);
  EXPECT_THAT(RunPasses(pass, Paddle(), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the devices of each trainer are not given")));
  WEFT_ASSERT_OK(RunPasses(pass, ContextWithDevices({"a:1"}, {{0, 1}}), &program));
  EXPECT_GT(OpTexts(program).size(), 5);
}

TEST(PaddleGradAllReduce, ReducedGradientsAreRefused) {
  Program program = ThreeBackwardOps().Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", Paddle(), &program));
  EXPECT_THAT(RunPasses("paddle-grad-all-reduce", Paddle(), &program),
              StatusIs(kRefused, HasSubstr("gradients-reduced holds already: op 2 "
                                           "(c_allreduce_sum) takes w3@GRAD")));
}

TEST(PaddleGradAllReduce, DistributedParameterThatIsNotThereIsRefused) {
  Program program = ThreeBackwardOps().Build();
  PassContext context = Paddle();
  context.distributed_params = {"w9"};
  EXPECT_THAT(RunPasses("paddle-grad-all-reduce", context, &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("distributed parameter w9 is not a variable of the program")));
}

TEST(PaddleGradAllReduce, OddNumberOfNamesIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("paddle-grad-all-reduce", Paddle(), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (mul_grad): attribute op_role_var")));
}

TEST(PaddleGradAllReduce, NotesNameRingAndPlace) {
  Program program = ThreeBackwardOps().Build();
  std::vector<Note> notes;
  PassContext context = Paddle();
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", context, &program));
  ASSERT_EQ(notes.size(), 4);
  EXPECT_EQ(notes[0].subject, "w1@GRAD");
  EXPECT_THAT(notes[0].details,
              ElementsAre(std::make_pair("ring", "0"), std::make_pair("after", "op 2 (g1)")));
}

TEST(PaddleGradAllReduce, NotesSayWhyNothingIsReduced) {
  Program program = ThreeBackwardOps().Build();
  std::vector<Note> notes;
  PassContext context = ContextWithDevices({"a:1", "b:1"}, {{0}});
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{skip=one_device}", context, &program));
  ASSERT_EQ(notes.size(), 4);
  EXPECT_EQ(notes[0].what, "not reduced");
  EXPECT_THAT(notes[0].why, HasSubstr("each trainer drives one device"));
}

}  // namespace
}  // namespace weft
