#include "transpiler/passes/paddle/paddle_single_process_fuse.h"

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
using ::weft::testing::ContextWithDevices;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPass[] = "paddle-single-process-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

PassContext Paddle() { return ContextWithDevices({"127.0.0.1:6170"}, {{0, 1}}); }

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's; one more backward op.
Program Backward() {
  ProgramBuilder p;
  p.Param("w1").Param("w2").Param("b2").Param("w3");
  p.Op("g3", {}, {{"W@GRAD", {"w3@GRAD"}}}, kRoleBackward).Pairs({"w3", "w3@GRAD"});
  p.Op("g2", {}, {{"W@GRAD", {"w2@GRAD"}}, {"B@GRAD", {"b2@GRAD"}}}, kRoleBackward);
  p.Pairs({"w2", "w2@GRAD", "b2", "b2@GRAD"});
  p.Op("g1", {}, {{"W@GRAD", {"w1@GRAD"}}}, kRoleBackward).Pairs({"w1", "w1@GRAD"});
  p.Op("g0", {}, {{"X@GRAD", {"x@GRAD"}}}, kRoleBackward);
  p.Op("sgd", {}, {{"ParamOut", {"w1"}}}, kRoleOptimize);
  return p.Build();
}

TEST(PaddleSingleProcessFuse, AllGradientsAreSummedBehindTheLastOne) {
  Program program = Backward();
  WEFT_ASSERT_OK(RunPasses(kPass, Paddle(), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("g3( -> w3@GRAD)",           //
                          "g2( -> w2@GRAD, b2@GRAD)",  //
                          "g1( -> w1@GRAD)",           //
                          "coalesce_tensor(w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD -> "
                          "fused_output, w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD)",
                          "c_sync_calc_stream(fused_output -> fused_output)",
                          "c_allreduce_sum@0(fused_output -> fused_output)",
                          "c_sync_comm_stream@0(fused_output -> fused_output)",
                          "g0( -> x@GRAD)",  //
                          "sgd( -> w1)"));
  const Op coalesce = program.op(program.block(0).ops()[3]);
  EXPECT_TRUE(coalesce.FindAttr("copy_data")->b());
  EXPECT_EQ(coalesce.FindAttr("dtype")->i(), pb::VarType::FP32);
  EXPECT_EQ(coalesce.role(), kRoleForward);  // Paddle's defect
}

TEST(PaddleSingleProcessFuse, Fuse2SumsTheGradientsThemselves) {
  Program program = Backward();
  WEFT_ASSERT_OK(RunPasses("paddle-single-process-fuse{fuse=2}", Paddle(), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("g3( -> w3@GRAD)",                         //
                          "g2( -> w2@GRAD, b2@GRAD)",                //
                          "g1( -> w1@GRAD)",                         //
                          "c_sync_calc_stream(w1@GRAD -> w1@GRAD)",  //
                          "c_allreduce_xsum@0(w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD -> "
                          "w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD)",
                          "c_sync_comm_stream@0(w1@GRAD -> w1@GRAD)",
                          "g0( -> x@GRAD)",  //
                          "sgd( -> w1)"));
  EXPECT_EQ(program.op(program.block(0).ops()[4]).role(), kRoleBackward);
}

TEST(PaddleSingleProcessFuse, GradientsOfDistributedParametersAreLeftOut) {
  Program program = Backward();
  PassContext context = Paddle();
  context.distributed_params = {"w1", "w2"};
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  EXPECT_EQ(OpTexts(program)[2],
            "coalesce_tensor(b2@GRAD, w3@GRAD -> fused_output, b2@GRAD, w3@GRAD)");
}

TEST(PaddleSingleProcessFuse, WithoutReplicatedParametersNothingChanges) {
  Program program = Backward();
  PassContext context = Paddle();
  context.distributed_params = {"w1", "w2", "b2", "w3"};
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  EXPECT_EQ(OpTexts(program).size(), 5);
}

TEST(PaddleSingleProcessFuse, BufferThatIsThereAlreadyIsRefused) {
  ProgramBuilder p;
  p.Param("w").Var("fused_output");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses(kPass, Paddle(), &program),
              StatusIs(kRefused, HasSubstr("variable fused_output already exists")));
}

TEST(PaddleSingleProcessFuse, ReducedGradientsAreRefused) {
  for (const char* fuse : {"1", "2"}) {
    Program program = Backward();
    const std::string pass = std::string(kPass) + "{fuse=" + fuse + "}";
    WEFT_ASSERT_OK(RunPasses(pass, Paddle(), &program));
    EXPECT_THAT(RunPasses(pass, Paddle(), &program),
                StatusIs(kRefused, HasSubstr("gradients-reduced holds already")));
  }
}

TEST(PaddleSingleProcessFuse, NotesNameTheGradients) {
  Program program = Backward();
  std::vector<Note> notes;
  PassContext context = Paddle();
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses(kPass, context, &program));
  ASSERT_EQ(notes.size(), 4);
  EXPECT_EQ(notes[0].subject, "w1@GRAD");
  EXPECT_EQ(notes[0].what, "reduced");
}

}  // namespace
}  // namespace weft
