// What the paddle dialect writes, as Paddle's transpiler does, and what it computes: where that is
// wrong, the weft dialect gives what it should be. Numbers of defects as in docs/paddle_dialect.md.
// Here those of GradAllReduce, and those that all classes have.
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "tests/goldens/paddle_defects_model.h"
#include "transpiler/modes.h"

namespace weft::testing {
namespace {

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// The gradient of w over both ranks is (1 + 2) / 2.
TEST(PaddleDefects, SoundProgramTrainsAlikeInBothDialects) {
  ProgramBuilder p = PairedModel();
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce"), 2));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, Weft("grad_allreduce"), 2));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  EXPECT_THAT(weft.w, ElementsAre(-3, -3));
  EXPECT_THAT(paddle.warnings, IsEmpty());
}

// No. 2. Only host-blocking waits make this right: of the data, w@GRAD has no part in the wait.
TEST(PaddleDefects, WaitNamesOneGradientForAll) {
  const Program program = TwoGradients().Build();
  WEFT_ASSERT_OK_AND_ASSIGN(Rewritten paddle, Rewrite(program, Paddle("grad_allreduce")));
  EXPECT_THAT(OpTexts(paddle.main), Contains("c_sync_comm_stream@0(b@GRAD -> b@GRAD)"));
  TranspileOptions distributed = Paddle("grad_allreduce");
  distributed.distributed_params = {"b"};
  WEFT_ASSERT_OK_AND_ASSIGN(paddle, Rewrite(program, distributed));
  EXPECT_THAT(OpTexts(paddle.main), Contains("c_sync_comm_stream@0(b@GRAD -> b@GRAD)"));

  TranspileOptions one_by_one = Weft("grad_allreduce");
  one_by_one.mode_flags["buckets"] = "none";
  WEFT_ASSERT_OK_AND_ASSIGN(Rewritten weft, Rewrite(program, one_by_one));
  EXPECT_THAT(OpTexts(weft.main), Contains("c_wait_comm@0(b@GRAD, w@GRAD -> b@GRAD, w@GRAD)"));
  distributed.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(weft, Rewrite(program, distributed));
  EXPECT_THAT(OpTexts(weft.main), Contains("c_wait_comm@0(w@GRAD -> w@GRAD)"));
}

// No. 3. c_sync_* block the host (executor/plan/plan_test.cc), c_wait_* order streams only.
TEST(PaddleDefects, HostWaitsForStreams) {
  const Program program = TwoGradients().Build();
  for (const char* mode :
       {"grad_allreduce", "local_sgd", "single_process_multi_thread", "multi_thread"}) {
    SCOPED_TRACE(mode);
    WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(program, Paddle(mode)));
    EXPECT_THAT(OpTexts(paddle.main), Contains(StartsWith("c_sync_calc_stream")));
    EXPECT_THAT(OpTexts(paddle.main), Contains(StartsWith("c_sync_comm_stream")));
    WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(program, Weft(mode)));
    EXPECT_THAT(OpTexts(weft.main), Contains(StartsWith("c_wait_compute")));
    EXPECT_THAT(OpTexts(weft.main), Each(Not(StartsWith("c_sync_"))));
  }
}

// No. 6.
TEST(PaddleDefects, GradientIsNotDividedWhereTheLossRoleIsLost) {
  ProgramBuilder p = Data();
  AddLoss(&p, "w", "w@GRAD", kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce")));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  EXPECT_THAT(paddle.warnings, Contains(HasSubstr("does not come from a loss gradient")));

  EXPECT_THAT(Train(p, Weft("grad_allreduce")),
              StatusIs(kRefused, HasSubstr("does not come from a loss gradient")));
  TranspileOptions average = Weft("grad_allreduce");
  average.mode_flags["scale"] = "avg";
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, average));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

bool IsOfRows(const std::string& warning) {
  return absl::StrContains(warning, "found SelectedRows");
}

// No. 21.
TEST(PaddleDefects, RowsGoIntoOpsThatTakeDenseTensorsOnly) {
  ProgramBuilder p = Data();
  p.Param("w", {5, 2}).Rows("w@GRAD", {5, 2});
  p.Var("ids", {3}, pb::VarType::INT64).last_var().set_need_check_feed(true);
  p.Var("y@GRAD", {3, 2});
  p.Op("fill_constant", {}, {{"Out", {"y@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.LongsAttr("shape", {3, 2}).FloatAttr("value", 1);
  p.Op("lookup_table_v2_grad", {{"W", {"w"}}, {"Ids", {"ids"}}, {"Out@GRAD", {"y@GRAD"}}},
       {{"W@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.BoolAttr("is_sparse", true).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w", "w@GRAD");
  for (const char* mode : {"grad_allreduce", "single_process_multi_thread", "multi_thread"}) {
    SCOPED_TRACE(mode);
    WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle(mode)));
    EXPECT_TRUE(absl::c_any_of(paddle.warnings, IsOfRows));
    const auto layout = [&](TranspileOptions options, const std::string& sparse) {
      options.mode_flags["sparse"] = sparse;
      const absl::StatusOr<Rewritten> rewritten = Rewrite(p.Build(), options);
      EXPECT_THAT(OpTexts(rewritten->main), Contains(StartsWith("c_allreduce_sum@0(")));
      EXPECT_EQ(absl::c_any_of(rewritten->warnings, IsOfRows),
                sparse == "rows" && options.dialect == Dialect::kPaddle);
      return rewritten->main.var(rewritten->main.block(0).FindVar("w@GRAD")).type();
    };
    // The all-reduce of the weft dialect takes rows; in the paddle dialect, a flag makes them
    // dense.
    for (const TranspileOptions& options : {Weft(mode), Paddle(mode)}) {
      EXPECT_EQ(layout(options, "rows"), pb::VarType::SELECTED_ROWS);
      EXPECT_EQ(layout(options, "dense"), pb::VarType::LOD_TENSOR);
    }
  }
}

// Gradients of two steps are added up, and their mean is used in every second step.
ProgramBuilder GradientMerge(int role_of_block = kRoleOptimize) {
  ProgramBuilder p = Data();
  AddLoss(&p, "w", "w@GRAD");
  p.Param("total", {1, 1}).last_var().set_is_parameter(false);
  p.Op("elementwise_add", {{"X", {"w@GRAD"}}, {"Y", {"total"}}}, {{"Out", {"total"}}},
       kRoleBackward);
  p.Pairs({"w", "total"});
  // 1, 0, 1, 0, ...
  p.Param("turn", {1}).Var("one", {1}).Var("due", {1}, pb::VarType::BOOL);
  p.Op("fill_constant", {}, {{"Out", {"one"}}});
  p.IntAttr("dtype", 5).FloatAttr("value", 1).LongsAttr("shape", {1});
  p.Op("elementwise_sub", {{"X", {"one"}}, {"Y", {"turn"}}}, {{"Out", {"turn"}}});
  p.Op("less_than", {{"X", {"turn"}}, {"Y", {"one"}}}, {{"Out", {"due"}}});
  // With optimize role, Paddle's waits stand before it. (Paddle gives it forward role: then it runs
  // while the sums are on their way.)
  p.Op("conditional_block", {{"Cond", {"due"}}, {"Input", {"total", "w"}}},
       {{"Out", {"total", "w"}}}, role_of_block);
  p.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  p.Op("scale", {{"X", {"total"}}}, {{"Out", {"total"}}}, kRoleBackward).FloatAttr("scale", 0.5f);
  AddSgd(&p, "w", "total");
  p.Op("fill_constant", {}, {{"Out", {"total"}}}, kRoleOptimize);
  p.IntAttr("dtype", 5).FloatAttr("value", 0).LongsAttr("shape", {1, 1});
  return p;
}

// No. 25.
TEST(PaddleDefects, AccumulatedGradientIsSummedOverTheRanksInEveryStep) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle,
                            Train(GradientMerge(), Paddle("grad_allreduce"), 2));
  // Step 0: 1.5 on both; step 1: (1.5 + 0.5) + (1.5 + 1), of which a half.
  EXPECT_THAT(paddle.w, ElementsAre(-2.25, -2.25));
  EXPECT_THAT(paddle.warnings, Contains(HasSubstr("accumulated over several steps")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(GradientMerge(), Weft("grad_allreduce"), 2));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

// No. 25. As Paddle writes gradient merge, no op of the root block has optimize role.
TEST(PaddleDefects, AccumulatedGradientIsNeverReducedThroughBuffers) {
  const ProgramBuilder p = GradientMerge(kRoleForward);
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle("multi_thread")));
  EXPECT_THAT(OpTexts(paddle.main), Each(Not(StartsWith("c_"))));
  EXPECT_THAT(OpTexts(paddle.main, 1), Each(Not(StartsWith("c_"))));
  EXPECT_THAT(paddle.warnings, Contains(HasSubstr("total is not reduced, nor is any other")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, Weft("multi_thread"), 2));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

// No. 27. The op leaves zeros in the gradient; what it took out would have to be exchanged.
TEST(PaddleDefects, ResidualOfGradientCompressionIsReduced) {
  ProgramBuilder p = Data();
  AddLoss(&p, "w", "w@GRAD");
  p.Op("dgc",
       {{"U", {"u"}},
        {"V", {"v"}},
        {"Param", {"w"}},
        {"Grad", {"w@GRAD"}},
        {"current_step", {"step"}},
        {"nranks", {"nranks"}}},
       {{"U_out", {"u"}},
        {"V_out", {"v"}},
        {"EncodeGrad", {"encoded"}},
        {"Grad_out", {"w@GRAD"}},
        {"k", {"k"}},
        {"GatherBuff", {"gathered"}}},
       kRoleBackward);
  p.FloatAttr("rampup_step", 1);
  pb::OpDesc::Attr* sparsity = p.last_op().add_attrs();
  sparsity->set_name("sparsity");
  sparsity->set_type(pb::FLOATS);
  sparsity->add_floats(0.5f);
  p.Pairs({"w", "w@GRAD"});
  p.Op("dgc_momentum", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"lr"}}},
       {{"ParamOut", {"w"}}}, kRoleOptimize);
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten reduced, Rewrite(p.Build(), Paddle("grad_allreduce")));
  EXPECT_THAT(OpTexts(reduced.main), Contains("c_allreduce_sum@0(w@GRAD -> w@GRAD)"));
  constexpr char kWhy[] = "(dgc) compresses gradient w@GRAD";
  for (const Mode& mode : Modes()) {
    if (mode.pipelines.empty()) continue;
    SCOPED_TRACE(mode.name);
    for (Dialect dialect : DialectsOf(mode)) {
      if (dialect == Dialect::kWeft) {
        EXPECT_THAT(Rewrite(p.Build(), Weft(mode.name)), StatusIs(kRefused, HasSubstr(kWhy)));
        continue;
      }
      WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(p.Build(), Paddle(mode.name)));
      EXPECT_THAT(paddle.warnings, Contains(HasSubstr(kWhy)));
    }
  }
}

// No. 29. Here both dialects refuse it, in every mode; Paddle reduces, and divides, twice.
TEST(PaddleDefects, RewritingTwiceIsNotNoticed) {
  for (const Mode& mode : Modes()) {
    // These need a startup program: shard_updates_test, power_sgd_test.
    if (mode.pipelines.empty() || mode.name == "zero" || mode.name == "power_sgd") continue;
    for (Dialect dialect : DialectsOf(mode)) {
      const bool is_weft = dialect == Dialect::kWeft;
      SCOPED_TRACE(absl::StrCat(mode.name, is_weft ? " weft" : " paddle"));
      TranspileOptions options = is_weft ? Weft(mode.name) : Paddle(mode.name);
      // Ranks get the same data here, and a sum over them would be N times too large.
      if (mode.name == "mindspore_reducer") options.mode_flags["reduce_method"] = "mean";
      // Residuals need a startup program.
      if (absl::StartsWith(mode.name, "singa_sparse")) options.mode_flags["corr"] = "false";
      WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten once, Rewrite(TwoGradients().Build(), options));
      EXPECT_THAT(Rewrite(once.main, options), StatusIs(kRefused, HasSubstr("already holds")));
    }
  }
}

// No. 31. No defect: the sum over the ranks is clipped, not what each of them has.
TEST(PaddleDefects, ClippingFollowsTheReductionInBothDialects) {
  ProgramBuilder p = PairedModel();
  p.Op("clip", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleOptimize);
  p.FloatAttr("min", -1.25f).FloatAttr("max", 1.25f).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce")));
  EXPECT_THAT(paddle.w, ElementsAre(-1.25, -1.25));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, Weft("grad_allreduce")));
  EXPECT_THAT(weft.w, ElementsAre(-1.25, -1.25));
}

// No. 33.
TEST(PaddleDefects, GradientThatIsNamedTwiceIsReducedTwice) {
  ProgramBuilder p = Data();
  AddLoss(&p, "w", "w@GRAD");
  p.Pairs({"w", "w@GRAD", "w", "w@GRAD"});
  AddSgd(&p, "w", "w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome paddle, Train(p, Paddle("grad_allreduce")));
  EXPECT_THAT(paddle.w, ElementsAre(-3, -3));
  EXPECT_THAT(paddle.warnings, Contains(HasSubstr("a second time")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Outcome weft, Train(p, Weft("grad_allreduce")));
  EXPECT_THAT(weft.w, ElementsAre(-1.5, -1.5));
}

}  // namespace
}  // namespace weft::testing
