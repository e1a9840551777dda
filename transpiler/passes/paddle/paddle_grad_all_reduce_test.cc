#include "transpiler/passes/paddle/paddle_grad_all_reduce.h"

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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's.
constexpr char kThreeBackwardOps[] = R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Out=[w2@GRAD], Bias=[b2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(PaddleGradAllReduce, RingsAndPairsAreDealtOutWalkingBackwards) {
  ExpectRewrite("paddle-grad-all-reduce", kThreeBackwardOps, R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Out=[w3@GRAD] = c_sync_calc_stream(X=[w3@GRAD]) role=backward
    Out=[w3@GRAD] = c_allreduce_sum(X=[w3@GRAD]) role=backward {ring_id=1}
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w2@GRAD] = c_sync_calc_stream(X=[w2@GRAD]) role=backward
    Out=[b2@GRAD] = c_allreduce_sum(X=[b2@GRAD]) role=backward
    Out=[w2@GRAD] = c_allreduce_sum(X=[w2@GRAD]) role=backward {ring_id=1}
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
    Out=[w1@GRAD] = c_allreduce_sum(X=[w1@GRAD]) role=backward
    Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward
    Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward {ring_id=1}
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
    ParamOut=[w3] = sgd(Grad=[w3@GRAD], LearningRate=[lr], Param=[w3]) role=optimize
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleGradAllReduce, DistributedParameterIsNotReducedButNamedByTheWait) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"w3", "w2"};
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", kThreeBackwardOps, R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[b2@GRAD] = c_sync_calc_stream(X=[b2@GRAD]) role=backward
    Out=[b2@GRAD] = c_allreduce_sum(X=[b2@GRAD]) role=backward
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
    Out=[w1@GRAD] = c_allreduce_sum(X=[w1@GRAD]) role=backward
    Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
    ParamOut=[w3] = sgd(Grad=[w3@GRAD], LearningRate=[lr], Param=[w3]) role=optimize
  )",
                options);
}

// Paddle's defect: w@GRAD is used while it may still be in flight.
TEST(PaddleGradAllReduce, OnlyTheFirstOptimizerIsWaitedFor) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    Out=[v@GRAD] = c_sync_calc_stream(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_allreduce_sum(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_sync_comm_stream(X=[v@GRAD]) role=backward
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

// Paddle's defect: the sum is four times too large on two ranks.
TEST(PaddleGradAllReduce, PairThatIsNamedTwiceIsReducedTwice) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD, w, w@GRAD]
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD, w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleGradAllReduce, LearningRateMultiplierCountsAsAnOptimizer) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    var lr : fp32[1] persistable
    var lr2 : fp32[1]
    Out=[lr2] = scale(X=[lr]) role=optimize|lr_sched {scale=2.0}
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  )",
                R"(
    Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    Out=[lr2] = scale(X=[lr]) role=optimize|lr_sched {scale=2.0}
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleGradAllReduce, PairsWithoutAGradientAreLeftOut) {
  ExpectRewrite("paddle-grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[e, @EMPTY@, w, w@GRAD]
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[e, @EMPTY@, w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

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

// Paddle's defect: the second optimizer reads what may still be on its way.
TEST(PaddleGradAllReduce, SoundProgramGivesNoWarning) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  EXPECT_THAT(Warnings(Paddle(), p.Build()), IsEmpty());
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
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds: op 2 "
                                           "(c_allreduce_sum) takes w3@GRAD")));
}

TEST(PaddleGradAllReduce, MissingDistributedParameterIsRefused) {
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
  std::vector<Remark> remarks;
  PassContext context = Paddle();
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", context, &program));
  ASSERT_EQ(remarks.size(), 4);
  EXPECT_EQ(remarks[0].subject, "w1@GRAD");
  EXPECT_THAT(remarks[0].details,
              ElementsAre(std::make_pair("ring", "0"), std::make_pair("after", "op 2 (g1)")));
}

TEST(PaddleGradAllReduce, NotesSayWhyNothingIsReduced) {
  Program program = ThreeBackwardOps().Build();
  std::vector<Remark> remarks;
  PassContext context = ContextWithDevices({"a:1", "b:1"}, {{0}});
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce{skip=one_device}", context, &program));
  ASSERT_EQ(remarks.size(), 4);
  EXPECT_EQ(remarks[0].what, "not reduced");
  EXPECT_THAT(remarks[0].why, HasSubstr("each trainer drives one device"));
}

}  // namespace
}  // namespace weft
