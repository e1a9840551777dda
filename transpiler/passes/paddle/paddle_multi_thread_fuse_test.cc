#include "transpiler/passes/paddle/paddle_multi_thread_fuse.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPass[] = "paddle-multi-thread-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

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

TEST(PaddleMultiThreadFuse, GradientsAreSummedBeforeTheFirstOptimizeOp) {
  ProgramBuilder p;
  for (const char* w : {"c", "b", "a"}) AddGradient(&p, w);
  AddClipAndSgd(&p);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("mul_grad( -> c@GRAD)", "mul_grad( -> b@GRAD)", "mul_grad( -> a@GRAD)",
                          "coalesce_tensor(a@GRAD, b@GRAD, c@GRAD -> "
                          "FusedOutput_a@GRAD_0, a@GRAD, b@GRAD, c@GRAD)",
                          "c_sync_calc_stream(FusedOutput_a@GRAD_0 -> FusedOutput_a@GRAD_0)",
                          "c_allreduce_sum@0(FusedOutput_a@GRAD_0 -> FusedOutput_a@GRAD_0)",
                          "c_sync_comm_stream@0(FusedOutput_a@GRAD_0 -> FusedOutput_a@GRAD_0)",
                          "clip( -> c)", "sgd( -> a)"));
}

TEST(PaddleMultiThreadFuse, SegmentsEndWhereTheElementTypeChangesAndStandInReverseOrder) {
  ProgramBuilder p;
  AddGradient(&p, "d");
  AddGradient(&p, "c", pb::VarType::FP16);
  AddGradient(&p, "b", pb::VarType::FP16);
  AddGradient(&p, "a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  std::vector<std::string> ops = OpTexts(program);
  ops.erase(ops.begin(), ops.begin() + 4);
  EXPECT_THAT(ops, ElementsAre("coalesce_tensor(d@GRAD -> FusedOutput_d@GRAD_0, d@GRAD)",
                               "coalesce_tensor(b@GRAD, c@GRAD -> "
                               "FusedOutput_b@GRAD_0, b@GRAD, c@GRAD)",
                               "coalesce_tensor(a@GRAD -> FusedOutput_a@GRAD_0, a@GRAD)",
                               HasSubstr("c_sync_calc_stream(FusedOutput_d@GRAD_0"),
                               HasSubstr("c_allreduce_sum@0(FusedOutput_d@GRAD_0"),
                               HasSubstr("c_sync_calc_stream(FusedOutput_b@GRAD_0"),
                               HasSubstr("c_allreduce_sum@0(FusedOutput_b@GRAD_0"),
                               HasSubstr("c_sync_calc_stream(FusedOutput_a@GRAD_0"),
                               HasSubstr("c_allreduce_sum@0(FusedOutput_a@GRAD_0"),
                               HasSubstr("c_sync_comm_stream@0(FusedOutput_a@GRAD_0"),
                               "clip( -> c)", "sgd( -> a)"));
  EXPECT_EQ(program.op(program.block(0).ops()[5]).FindAttr("dtype")->i(), pb::VarType::FP16);
  const Var buffer =
      program.var(program.block(0).FindVar(program.FindSymbol("FusedOutput_b@GRAD_0")));
  EXPECT_EQ(buffer.Tensor()->data_type(), pb::VarType::FP16);
  EXPECT_THAT(buffer.Tensor()->dims(), IsEmpty());
  EXPECT_FALSE(buffer.persistable());
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

TEST(PaddleMultiThreadFuse, NamesOfBuffersThatAreTakenAreSkipped) {
  ProgramBuilder p;
  p.Var("FusedOutput_a@GRAD_0");
  AddGradient(&p, "a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_EQ(OpTexts(program)[1], "coalesce_tensor(a@GRAD -> FusedOutput_a@GRAD_1, a@GRAD)");
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
              StatusIs(kRefused, HasSubstr("gradients-reduced holds already")));
}

TEST(PaddleMultiThreadFuse, NotesNameTheBuffer) {
  ProgramBuilder p;
  AddGradient(&p, "a");
  AddClipAndSgd(&p);
  Program program = p.Build();
  std::vector<Note> notes;
  PassContext context = Paddle();
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  ASSERT_EQ(notes.size(), 1);
  EXPECT_THAT(notes[0].details, ElementsAre(std::make_pair("ring", "0"),
                                            std::make_pair("buffer", "FusedOutput_a@GRAD_0")));
}

}  // namespace
}  // namespace weft
