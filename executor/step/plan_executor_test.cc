#include "executor/step/plan_executor.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/streams/thread_stream.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

ProgramBuilder& Scale(ProgramBuilder& builder, const std::string& from, const std::string& to,
                      float factor) {
  return builder.Op("scale", {{"X", {from}}}, {{"Out", {to}}}).FloatAttr("scale", factor);
}

// A rank with its plan.
class Rank {
 public:
  explicit Rank(const ProgramBuilder& builder, int rank = 0, CommunicatorGroup* group = nullptr,
                bool check_nan = false, double timeout_s = 600)
      : device_(NewHostDevice()), random_(RandomState::Seeded(0, rank)) {
    PlanOptions plan_options;
    plan_options.kernels = &CpuKernels();
    plan_options.nranks = group == nullptr ? 1 : 2;
    plan_ = std::make_unique<Plan>(*Plan::Build(builder.Build(), plan_options));
    PlanExecutorOptions options;
    options.plan = plan_.get();
    options.scope = &scope_;
    options.device = device_.get();
    options.group = group;
    options.rank = rank;
    options.random = &random_;
    options.check_nan = check_nan;
    options.timeout_s = timeout_s;
    options.accessed.resize(plan_->variables.size());
    std::iota(options.accessed.begin(), options.accessed.end(), 0);
    options.is_aborted = [this] { return aborted_; };
    options.on_error = [this](const absl::Status& status) { errors_.push_back(status); };
    executor_ = *PlanExecutor::Create(options);
  }

  Tensor& operator[](const char* name) { return *executor_->tensor(plan_->FindVariable(name)); }
  absl::Status RunStep() { return executor_->RunStep(); }
  Scope& scope() { return scope_; }
  const std::vector<absl::Status>& errors() const { return errors_; }
  void SetAborted() { aborted_ = true; }

 private:
  std::unique_ptr<Plan> plan_;
  Scope scope_;
  std::unique_ptr<Device> device_;
  RandomState random_;
  std::vector<absl::Status> errors_;
  bool aborted_ = false;
  std::unique_ptr<PlanExecutor> executor_;
};

// Two ranks that run the same program; rank r has x = [r + 1, 10 (r + 1)].
class TwoRanks {
 public:
  explicit TwoRanks(const ProgramBuilder& builder) {
    GroupOptions options;
    options.nranks = 2;
    group_ = NewLocalGroup(options);
    for (int r = 0; r < 2; ++r) {
      ranks_.push_back(std::make_unique<Rank>(builder, r, group_.get()));
      const auto base = static_cast<float>(r + 1);
      (*ranks_[r])["x"] = Floats({2, 1}, {base, 10 * base});
    }
  }
  absl::Status RunStep() {
    absl::Status status[2];
    std::thread other([&] { status[1] = ranks_[1]->RunStep(); });
    status[0] = ranks_[0]->RunStep();
    other.join();
    status[0].Update(status[1]);
    return status[0];
  }
  Rank& operator[](int r) { return *ranks_[r]; }

 private:
  std::unique_ptr<CommunicatorGroup> group_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

ProgramBuilder Collective(const std::string& type, std::vector<int64_t> out_dims = {2, 1}) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1}).Var("y", std::move(out_dims));
  builder.Op(type, {{"X", {"x"}}}, {{"Out", {"y"}}});
  return builder;
}

TEST(PlanExecutorTest, OpsRunInOrderAndStepsAgain) {
  ProgramBuilder builder;
  builder.Param("w", {1});
  Scale(builder, "w", "w", 2);
  Scale(builder, "w", "y", 10);
  Rank rank(builder);
  rank["w"] = Floats({1}, {1});
  WEFT_ASSERT_OK(rank.RunStep());
  WEFT_ASSERT_OK(rank.RunStep());
  EXPECT_THAT(Values<float>(rank["w"]), ElementsAre(4));
  EXPECT_THAT(Values<float>(rank["y"]), ElementsAre(40));
}

TEST(PlanExecutorTest, PersistablesLiveInTheScopeAndOthersDoNot) {
  ProgramBuilder builder;
  builder.Param("w", {1});
  Scale(builder, "w", "y", 1);
  Rank rank(builder);
  EXPECT_NE(rank.scope().Find("w"), nullptr);
  EXPECT_EQ(rank.scope().Find("y"), nullptr);
}

TEST(PlanExecutorTest, ErrorNamesTheOpAndIsReportedOnce) {
  ProgramBuilder builder;
  Scale(builder, "x", "y", 1);
  Scale(builder, "y", "z", 1);
  Rank rank(builder);
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       "op 0 (scale): variable x is read before it is written"));
  EXPECT_EQ(rank.errors().size(), 1u);
  EXPECT_FALSE(rank.RunStep().ok());
}

TEST(PlanExecutorTest, CheckNanNamesTheFirstOpThatMakesOne) {
  ProgramBuilder builder;
  builder.Var("x", {1}).Var("y", {1}).Var("z", {1});
  Scale(builder, "x", "y", 1e30f);
  Scale(builder, "y", "z", 1e30f);
  Scale(builder, "z", "z", 0);
  Rank rank(builder, 0, nullptr, /*check_nan=*/true);
  rank["x"] = Floats({1}, {-1});
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       "op 1 (scale): makes -inf in variable z"));
}

TEST(PlanExecutorTest, AllReduceIntoAnotherVariableKeepsItsInput) {
  TwoRanks ranks(Collective("c_allreduce_sum"));
  WEFT_ASSERT_OK(ranks.RunStep());
  for (int r : {0, 1}) {
    EXPECT_THAT(Values<float>(ranks[r]["y"]), ElementsAre(3, 30));
  }
  EXPECT_THAT(Values<float>(ranks[1]["x"]), ElementsAre(2, 20));
}

TEST(PlanExecutorTest, AllReduceReducesAsItsTypeSays) {
  const std::vector<std::pair<std::string, float>> expected = {
      {"c_allreduce_avg", 1.5f}, {"c_allreduce_max", 2}, {"c_allreduce_min", 1},
      {"c_allreduce_prod", 2},   {"c_allreduce_sum", 3},
  };
  for (const auto& [type, value] : expected) {
    TwoRanks ranks(Collective(type));
    WEFT_ASSERT_OK(ranks.RunStep());
    EXPECT_EQ(Values<float>(ranks[0]["y"])[0], value) << type;
  }
}

TEST(PlanExecutorTest, SeveralVariablesAreReducedByOneOp) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1}).Var("z", {2, 1});
  Scale(builder, "x", "z", 2);
  builder.Op("c_wait_compute", {{"X", {"x", "z"}}}, {{"Out", {"x", "z"}}});
  builder.Op("c_allreduce_xsum", {{"X", {"x", "z"}}}, {{"Out", {"x", "z"}}});
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  for (int r : {0, 1}) {
    EXPECT_THAT(Values<float>(ranks[r]["x"]), ElementsAre(3, 30));
    EXPECT_THAT(Values<float>(ranks[r]["z"]), ElementsAre(6, 60));
  }
}

TEST(PlanExecutorTest, BroadcastTakesTheRootsTensor) {
  ProgramBuilder builder = Collective("c_broadcast");
  builder.IntAttr("root", 1);
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["y"]), ElementsAre(2, 20));
}

TEST(PlanExecutorTest, AllGatherStacksRows) {
  ProgramBuilder builder = Collective("c_allgather", {4, 1});
  builder.IntAttr("nranks", 2);
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(ranks[0]["y"].dims(), ElementsAre(4, 1));
  EXPECT_THAT(Values<float>(ranks[0]["y"]), ElementsAre(1, 10, 2, 20));
}

TEST(PlanExecutorTest, ReduceScatterGivesEachRankItsRows) {
  ProgramBuilder builder = Collective("c_reducescatter", {1, 1});
  builder.IntAttr("nranks", 2);
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(ranks[1]["y"].dims(), ElementsAre(1, 1));
  EXPECT_THAT(Values<float>(ranks[0]["y"]), ElementsAre(3));
  EXPECT_THAT(Values<float>(ranks[1]["y"]), ElementsAre(30));
}

TEST(PlanExecutorTest, AllToAllExchangesRows) {
  TwoRanks ranks(Collective("alltoall"));
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["y"]), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(ranks[1]["y"]), ElementsAre(10, 20));
}

TEST(PlanExecutorTest, AllToAllOfPaddle3ExchangesRows) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1}).Var("y", {2, 1});
  builder.Op("all_to_all", {{"x", {"x"}}}, {{"out", {"y"}}});
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["y"]), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(ranks[1]["y"]), ElementsAre(10, 20));
}

// On the compute stream: later ops come after it.
TEST(PlanExecutorTest, BarrierSumsItsInputAndLaterOpsWait) {
  ProgramBuilder builder = Collective("barrier");
  builder.Var("z", {2, 1});
  Scale(builder, "y", "z", 2);
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  for (int r : {0, 1}) EXPECT_THAT(Values<float>(ranks[r]["z"]), ElementsAre(6, 60));
}

TEST(PlanExecutorTest, AllToAllInPlaceReadsAllRowsFirst) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1});
  builder.Op("alltoall", {{"X", {"x"}}}, {{"Out", {"x"}}});
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["x"]), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(ranks[1]["x"]), ElementsAre(10, 20));
}

TEST(PlanExecutorTest, AllToAllOfRowsThatDoNotDivideIsAnError) {
  ProgramBuilder builder;
  builder.Var("x", {3, 1}).Var("y", {3, 1});
  builder.Op("alltoall", {{"X", {"x"}}}, {{"Out", {"y"}}});
  TwoRanks ranks(builder);
  for (int r : {0, 1}) ranks[r]["x"] = Floats({3, 1}, {1, 2, 3});
  EXPECT_THAT(ranks.RunStep(), IsInvalidArgument("expected a multiple of 2 rows in x"));
}

// The output has other dims than the input that it replaces, and enough rows to detect a write past
// the end of the input.
TEST(PlanExecutorTest, AllGatherInPlaceGrowsItsVariable) {
  constexpr int kRows = 10000;
  ProgramBuilder builder;
  builder.Var("x", {2 * kRows, 1}).Var("y", {kRows, 1});
  Scale(builder, "y", "x", 10);
  builder.Op("c_allgather", {{"X", {"x"}}}, {{"Out", {"x"}}}).IntAttr("nranks", 2);
  builder.BoolAttr("use_calc_stream", true);
  TwoRanks ranks(builder);
  for (int r : {0, 1}) ranks[r]["y"] = Floats({kRows, 1}, std::vector<float>(kRows, r + 1));
  for (int step = 0; step < 3; ++step) {
    WEFT_ASSERT_OK(ranks.RunStep());
    for (int r : {0, 1}) {
      EXPECT_THAT(ranks[r]["x"].dims(), ElementsAre(2 * kRows, 1));
      std::vector<float> expected(2 * kRows, 10);
      std::fill(expected.begin() + kRows, expected.end(), 20);
      EXPECT_EQ(Values<float>(ranks[r]["x"]), expected);
    }
  }
}

TEST(PlanExecutorTest, ReduceScatterInPlaceShrinksItsVariable) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1}).Var("y", {2, 1});
  Scale(builder, "y", "x", 10);
  builder.Op("c_reducescatter", {{"X", {"x"}}}, {{"Out", {"x"}}}).IntAttr("nranks", 2);
  builder.BoolAttr("use_calc_stream", true);
  TwoRanks ranks(builder);
  for (int r : {0, 1}) ranks[r]["y"] = Floats({2, 1}, {1.0f + r, 5.0f + r});
  for (int step = 0; step < 3; ++step) {
    WEFT_ASSERT_OK(ranks.RunStep());
    for (int r : {0, 1}) EXPECT_THAT(ranks[r]["x"].dims(), ElementsAre(1, 1));
    EXPECT_THAT(Values<float>(ranks[0]["x"]), ElementsAre(30));
    EXPECT_THAT(Values<float>(ranks[1]["x"]), ElementsAre(110));
  }
}

TEST(PlanExecutorTest, ReduceGivesTheRootTheSum) {
  ProgramBuilder builder = Collective("c_reduce_sum");
  builder.IntAttr("root_id", 1);
  TwoRanks ranks(builder);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["y"]), ElementsAre(1, 10));
  EXPECT_THAT(Values<float>(ranks[1]["y"]), ElementsAre(3, 30));
}

TEST(PlanExecutorTest, AllReduceIsSkippedWhereItsConditionIsFalse) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1}).Var("go", {1}, pb::VarType::BOOL);
  builder.Op("c_allreduce_sum", {{"Cond", {"go"}}, {"X", {"x"}}}, {{"Out", {"x"}}});
  TwoRanks ranks(builder);
  const auto set_condition = [&](bool value) {
    for (int r : {0, 1}) ranks[r]["go"] = MakeTensor<bool>({1}, {value});
  };
  set_condition(false);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["x"]), ElementsAre(1, 10));
  set_condition(true);
  WEFT_ASSERT_OK(ranks.RunStep());
  EXPECT_THAT(Values<float>(ranks[0]["x"]), ElementsAre(3, 30));
}

TEST(PlanExecutorTest, DifferentShapesOnTwoRanksAreAnErrorThatNamesTheOps) {
  TwoRanks ranks(Collective("c_allreduce_sum"));
  ranks[1]["x"] = Floats({1, 1}, {1});
  EXPECT_THAT(ranks.RunStep(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 0 (c_allreduce_sum): ring 0: ranks call different collectives: rank 0 "
                       "calls all-reduce #0 of x (fp32[2, 1]) in op 0 (c_allreduce_sum), rank 1 "
                       "calls all-reduce #0 of x (fp32[1, 1]) in op 0 (c_allreduce_sum)"));
}

// A device whose collectives are enqueued, and then end without a result.
class CutOff : public CommunicatorGroup, public Communicator {
 public:
  int rank() const override { return 0; }
  int nranks() const override { return 2; }
  absl::StatusOr<Communicator*> Get(const RingKey&, int) override { return this; }
  void Abort(const absl::Status&) override {}
  absl::Status Run(const CollectiveCall&, const void*, void*) override { return absl::OkStatus(); }
  absl::Status Check() override { return absl::DeadlineExceededError("rank 1 has not arrived"); }
};

TEST(PlanExecutorTest, CollectiveThatWasCutOffAfterItWasEnqueuedFailsTheStep) {
  CutOff group;
  Rank rank(Collective("c_allreduce_sum"), 0, &group);
  rank["x"] = Floats({2, 1}, {1, 2});
  EXPECT_THAT(rank.RunStep(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1 has not arrived"));
}

// --- SelectedRows -------------------------------------------------------------------------------

// Two look-ups in a table w fp32[4, 1]. Its gradient is averaged over the ranks and subtracted.
ProgramBuilder SparseTraining() {
  ProgramBuilder builder;
  builder.Param("w", {4, 1}).Var("lr", {1}).Var("x", {2, 1}).Rows("w@GRAD", {4, 1});
  builder.Rows("a", {4, 1}).Rows("b", {4, 1});
  builder.Var("ids_a", {2}, pb::VarType::INT64).Var("ids_b", {2}, pb::VarType::INT64);
  for (const std::string name : {"a", "b"}) {
    builder.Op("lookup_table_v2_grad",
               {{"W", {"w"}}, {"Ids", {"ids_" + name}}, {"Out@GRAD", {"x"}}}, {{"W@GRAD", {name}}});
    builder.BoolAttr("is_sparse", true);
  }
  builder.Op("sum", {{"X", {"a", "b"}}}, {{"Out", {"w@GRAD"}}});
  builder.Op("c_wait_compute", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}});
  builder.Op("c_allreduce_avg", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}});
  builder.Op("c_wait_comm", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}});
  builder.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"lr"}}},
             {{"ParamOut", {"w"}}});
  return builder;
}

TEST(PlanExecutorTest, SparseGradientsAreAveragedOverTheRanks) {
  TwoRanks ranks(SparseTraining());
  for (int r = 0; r < 2; ++r) {
    ranks[r]["w"] = Floats({4, 1}, {0, 0, 0, 0});
    ranks[r]["lr"] = Floats({1}, {1});
  }
  for (int step = 0; step < 2; ++step) {
    // Rank 0: row 3 gets 1 + 10, row 1 gets 10, row 0 gets 1. Rank 1: row 3 gets 2 (2 + 20).
    ranks[0]["ids_a"] = MakeTensor<int64_t>({2}, {3, 1});
    ranks[0]["ids_b"] = MakeTensor<int64_t>({2}, {0, 3});
    ranks[1]["ids_a"] = ranks[1]["ids_b"] = MakeTensor<int64_t>({2}, {3, 3});
    WEFT_ASSERT_OK(ranks.RunStep());
  }
  for (int r = 0; r < 2; ++r) {
    EXPECT_THAT(ranks[r]["w@GRAD"].rows(), ElementsAre(0, 1, 3));
    EXPECT_THAT(Values<float>(ranks[r]["w@GRAD"]), ElementsAre(0.5, 5, 27.5));
    EXPECT_THAT(Values<float>(ranks[r]["w"]), ElementsAre(-1, -10, 0, -55));
  }
}

TEST(PlanExecutorTest, IdOutsideOfTheTableIsAnErrorThatNamesTheOp) {
  ProgramBuilder builder;
  builder.Param("w", {4, 1}).Var("x", {2, 1}).Rows("w@GRAD", {4, 1});
  builder.Var("ids", {2}, pb::VarType::INT64);
  builder.Op("lookup_table_v2_grad", {{"W", {"w"}}, {"Ids", {"ids"}}, {"Out@GRAD", {"x"}}},
             {{"W@GRAD", {"w@GRAD"}}});
  builder.BoolAttr("is_sparse", true);
  Rank rank(builder);
  rank["w"] = Floats({4, 1}, {0, 0, 0, 0});
  rank["x"] = Floats({2, 1}, {1, 1});
  rank["ids"] = MakeTensor<int64_t>({2}, {0, 4});
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "op 0 (lookup_table_v2_grad): input Ids: 4 at position 1 is "
                                       "not in [0, 4), the rows of W"));
}

TEST(PlanExecutorTest, RowsWhereThePlanExpectsADenseTensorAreAnError) {
  ProgramBuilder builder;
  builder.Var("x", {4, 1});
  Scale(builder, "x", "y", 1);
  Rank rank(builder);
  rank["x"] = Rows({4, 1}, {2}, {1});
  EXPECT_THAT(rank.RunStep(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 0 (scale): variable x: expected a dense tensor, found SelectedRows"));
}

TEST(PlanExecutorTest, DenseTensorWhereACollectiveExpectsRowsIsAnError) {
  ProgramBuilder builder;
  builder.Rows("x", {2, 1}).Op("c_allreduce_sum", {{"X", {"x"}}}, {{"Out", {"x"}}});
  TwoRanks ranks(builder);
  EXPECT_THAT(ranks.RunStep(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (c_allreduce_sum): X: expected SelectedRows in x, found a dense "
                       "tensor"));
}

TEST(PlanExecutorTest, CheckNanLooksAtTheValuesOfRows) {
  ProgramBuilder builder;
  builder.Rows("g", {4, 1}).Op("scale", {{"X", {"g"}}}, {{"Out", {"g"}}});
  builder.FloatAttr("scale", 1e30f);
  Rank rank(builder, 0, nullptr, /*check_nan=*/true);
  rank["g"] = Rows({4, 1}, {2}, {1e30f});
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       "op 0 (scale): makes inf in variable g"));
}

// --- Blocks that run on a condition -------------------------------------------------------------

// w doubles if `cond` holds, and is then copied to y.
ProgramBuilder Conditional(bool is_scalar) {
  ProgramBuilder builder;
  builder.Param("w", {1}).Var("cond", {1}, pb::VarType::BOOL).Var("y", {1});
  builder.Op("conditional_block", {{"Cond", {"cond"}}}, {{"Out", {"w"}}});
  builder.BoolAttr("is_scalar_condition", is_scalar).BlockAttr("sub_block", 1);
  builder.Op("assign", {{"X", {"w"}}}, {{"Out", {"y"}}});
  builder.NewBlock(0).Var("t", {1});
  Scale(builder, "w", "t", 2);
  builder.Op("assign", {{"X", {"t"}}}, {{"Out", {"w"}}});
  return builder;
}

TEST(PlanExecutorTest, BlockRunsWhereItsConditionHoldsStepByStep) {
  Rank rank(Conditional(/*is_scalar=*/true));
  rank["w"] = Floats({1}, {1});
  std::vector<float> seen;
  for (bool cond : {true, false, true}) {
    rank["cond"] = MakeTensor<bool>({1}, {cond});
    WEFT_ASSERT_OK(rank.RunStep());
    seen.push_back(Values<float>(rank["y"])[0]);
  }
  EXPECT_THAT(seen, ElementsAre(2, 2, 4));
}

TEST(PlanExecutorTest, BlockWithoutAScalarConditionRunsWhereTheConditionIsNotEmpty) {
  Rank rank(Conditional(/*is_scalar=*/false));
  rank["w"] = Floats({1}, {1});
  rank["cond"] = MakeTensor<bool>({1}, {false});
  WEFT_ASSERT_OK(rank.RunStep());
  EXPECT_THAT(Values<float>(rank["w"]), ElementsAre(2));
  rank["cond"] = MakeTensor<bool>({0}, {});
  WEFT_ASSERT_OK(rank.RunStep());
  EXPECT_THAT(Values<float>(rank["w"]), ElementsAre(2));
}

TEST(PlanExecutorTest, UnwrittenConditionIsAnError) {
  Rank rank(Conditional(/*is_scalar=*/true));
  rank["w"] = Floats({1}, {1});
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       "op 0 (conditional_block): variable cond is read before "
                                       "it is written"));
  EXPECT_EQ(rank.errors().size(), 1);
}

TEST(PlanExecutorTest, ConditionOfAnotherTypeIsAnError) {
  Rank rank(Conditional(/*is_scalar=*/true));
  rank["w"] = Floats({1}, {1});
  rank["cond"] = Floats({1}, {1});
  EXPECT_THAT(rank.RunStep(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 0 (conditional_block): input Cond: expected one bool in cond, found "
                       "fp32[1]"));
}

// y = x x where x is positive, and its gradient: g = 2 x dy.
TEST(PlanExecutorTest, GradientsGoThroughTheBlockThatWasRun) {
  ProgramBuilder builder;
  builder.Var("x", {1}).Var("positive", {1}, pb::VarType::BOOL).Var("y", {1});
  builder.Var("y@GRAD", {1}).Var("g", {1});
  builder.Op("conditional_block", {{"Cond", {"positive"}}, {"Input", {"x"}}},
             {{"Out", {"y"}}, {"Scope", {"scope"}}});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  builder.Op("conditional_block_grad",
             {{"Cond", {"positive"}}, {"Input", {"x"}}, {"Out@GRAD", {"y@GRAD"}}},
             {{"Input@GRAD", {"g"}}}, kRoleBackward);
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 2);
  builder.NewBlock(0).Var("copy", {1});
  Scale(builder, "x", "copy", 1);
  builder.Op("elementwise_mul", {{"X", {"x"}}, {"Y", {"copy"}}}, {{"Out", {"y"}}});
  builder.NewBlock(0).Var("x@GRAD", {1}).Var("left", {1}).Var("right", {1});
  builder.Op("elementwise_mul_grad", {{"X", {"x"}}, {"Y", {"x"}}, {"Out@GRAD", {"y@GRAD"}}},
             {{"X@GRAD", {"left"}}, {"Y@GRAD", {"right"}}}, kRoleBackward);
  builder.Op("sum", {{"X", {"left", "right"}}}, {{"Out", {"x@GRAD"}}}, kRoleBackward);
  Rank rank(builder);
  rank["y@GRAD"] = Floats({1}, {10});
  rank["x"] = Floats({1}, {3});
  std::vector<float> gradients;
  for (bool positive : {true, false, true}) {
    rank["positive"] = MakeTensor<bool>({1}, {positive});
    WEFT_ASSERT_OK(rank.RunStep());
    gradients.push_back(Values<float>(rank["g"])[0]);
  }
  EXPECT_THAT(gradients, ElementsAre(60, 0, 60));
}

// y is 2 x or, if `negative` holds, 3 x; the skipped branch writes nothing.
TEST(PlanExecutorTest, ResultIsThatOfTheBranchThatWasRun) {
  ProgramBuilder builder;
  builder.Var("x", {1}).Var("negative", {1}, pb::VarType::BOOL);
  builder.Var("other", {1}, pb::VarType::BOOL).Var("mask", {1}, pb::VarType::INT32);
  builder.Var("doubled", {1}).Var("tripled", {1}).Var("y", {1});
  builder.Op("logical_not", {{"X", {"negative"}}}, {{"Out", {"other"}}});
  builder.Op("conditional_block", {{"Cond", {"other"}}}, {{"Out", {"doubled"}}});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  builder.Op("conditional_block", {{"Cond", {"negative"}}}, {{"Out", {"tripled"}}});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 2);
  builder.Op("select_input", {{"X", {"doubled", "tripled"}}, {"Mask", {"mask"}}}, {{"Out", {"y"}}});
  builder.Op("select_output", {{"X", {"y"}}, {"Mask", {"mask"}}}, {{"Out", {"a", "b"}}});
  builder.NewBlock(0);
  Scale(builder, "x", "doubled", 2);
  builder.NewBlock(0);
  Scale(builder, "x", "tripled", 3);
  for (bool negative : {false, true}) {
    Rank rank(builder);
    rank["x"] = Floats({1}, {5});
    rank["negative"] = MakeTensor<bool>({1}, {negative});
    rank["mask"] = MakeTensor<int32_t>({1}, {negative ? 1 : 0});
    WEFT_ASSERT_OK(rank.RunStep());
    EXPECT_THAT(Values<float>(rank["y"]), ElementsAre(negative ? 15 : 10));
    EXPECT_THAT(Values<float>(rank[negative ? "b" : "a"]), ElementsAre(negative ? 15 : 10));
    EXPECT_FALSE(rank[negative ? "a" : "b"].allocated());
  }
  Rank rank(builder);
  rank["x"] = Floats({1}, {5});
  rank["negative"] = MakeTensor<bool>({1}, {false});
  rank["mask"] = MakeTensor<int32_t>({1}, {2});
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "op 3 (select_input): input Mask: 2 is not in [0, 2)"));
  Rank wrong(builder);
  wrong["x"] = Floats({1}, {5});
  wrong["negative"] = MakeTensor<bool>({1}, {false});
  wrong["mask"] = MakeTensor<int32_t>({1}, {1});
  EXPECT_THAT(wrong.RunStep(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 3 (select_input): input X: variable 1 is read before it is written"));
}

// --- Loops --------------------------------------------------------------------------------------

ProgramBuilder& LessThan(ProgramBuilder& builder, const std::string& x, const std::string& y,
                         const std::string& out) {
  return builder.Op("less_than", {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}});
}

ProgramBuilder& While(ProgramBuilder& builder, const std::string& condition, int block) {
  builder.Op("while", {{"X", {}}, {"Condition", {condition}}}, {{"Out", {}}, {"StepScopes", {}}});
  return builder.BlockAttr("sub_block", block);
}

// While x < limit, x = 2 x; then y = x.
ProgramBuilder Doubling() {
  ProgramBuilder builder;
  builder.Var("x", {1}).Var("limit", {1}).Var("more", {1}, pb::VarType::BOOL).Var("y", {1});
  LessThan(builder, "x", "limit", "more");
  While(builder, "more", 1);
  Scale(builder, "x", "y", 1);
  builder.NewBlock(0);
  Scale(builder, "x", "x", 2);
  LessThan(builder, "x", "limit", "more");
  return builder;
}

TEST(PlanExecutorTest, LoopRunsWhileItsConditionHolds) {
  Rank rank(Doubling());
  rank["limit"] = Floats({1}, {100});
  for (const auto& [from, to] : {std::pair(3, 192), std::pair(100, 100), std::pair(99, 198)}) {
    rank["x"] = Floats({1}, {static_cast<float>(from)});
    WEFT_ASSERT_OK(rank.RunStep());
    EXPECT_THAT(Values<float>(rank["y"]), ElementsAre(to));
  }
}

// While a < 3: a = a + 1; b = 0; while b < a: b = b + 1, n = n + 1. The two blocks end at once.
TEST(PlanExecutorTest, LoopsNest) {
  ProgramBuilder builder;
  for (const char* name : {"a", "b", "n", "three"}) builder.Var(name, {1});
  builder.Var("outer", {1}, pb::VarType::BOOL).Var("inner", {1}, pb::VarType::BOOL);
  const auto increment = [&](const char* name) {
    builder.Op("increment", {{"X", {name}}}, {{"Out", {name}}}).FloatAttr("step", 1);
  };
  LessThan(builder, "a", "three", "outer");
  While(builder, "outer", 1).NewBlock(0);
  increment("a");
  Scale(builder, "b", "b", 0);
  LessThan(builder, "b", "a", "inner");
  LessThan(builder, "a", "three", "outer");
  While(builder, "inner", 2).NewBlock(1);
  increment("b");
  increment("n");
  LessThan(builder, "b", "a", "inner");
  Rank rank(builder);
  rank["a"] = rank["b"] = rank["n"] = Floats({1}, {0});
  rank["three"] = Floats({1}, {3});
  WEFT_ASSERT_OK(rank.RunStep());
  EXPECT_THAT(Values<float>(rank["n"]), ElementsAre(1 + 2 + 3));
}

// A block that two ops run continues after the op that ran it.
TEST(PlanExecutorTest, BlockIsRunByTwoOps) {
  ProgramBuilder builder = Doubling();
  builder.InBlock(0).Var("cond", {1}, pb::VarType::BOOL);
  builder.Op("conditional_block", {{"Cond", {"cond"}}}, {});
  builder.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", 1);
  Scale(builder, "x", "z", 1);
  Rank rank(builder);
  rank["limit"] = Floats({1}, {100});
  for (bool cond : {true, false}) {
    rank["x"] = Floats({1}, {3});
    rank["cond"] = MakeTensor<bool>({1}, {cond});
    WEFT_ASSERT_OK(rank.RunStep());
    EXPECT_THAT(Values<float>(rank["y"]), ElementsAre(192));
    EXPECT_THAT(Values<float>(rank["z"]), ElementsAre(cond ? 384 : 192));
  }
}

TEST(PlanExecutorTest, LoopThatDoesNotEndIsStopped) {
  Rank rank(Doubling(), 0, nullptr, false, /*timeout_s=*/0.05);
  rank["limit"] = Floats({1}, {100});
  rank["x"] = Floats({1}, {0});
  const absl::Status status = rank.RunStep();
  EXPECT_THAT(status, IsDeadlineExceeded(
                          "op 1 (while): its block has run for more than 0.05 s, in iteration "));
  EXPECT_THAT(status.message(), HasSubstr("; condition more still holds"));
  EXPECT_THAT(rank.errors(), ElementsAre(status));
}

TEST(PlanExecutorTest, LoopEndsWhenTheRunIsAborted) {
  Rank rank(Doubling());
  rank["limit"] = Floats({1}, {100});
  rank["x"] = Floats({1}, {0});
  rank.SetAborted();
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kAborted, "the run was aborted"));
}

TEST(PlanExecutorTest, ConditionOfALoopIsOneBool) {
  Rank rank(Doubling());
  rank["x"] = rank["limit"] = Floats({2}, {1, 2});
  EXPECT_THAT(rank.RunStep(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "op 1 (while): input Condition: expected one bool in more, "
                                       "found bool[2]"));
}

// Gradients are written into the buffer that is reduced.
TEST(PlanExecutorTest, FusedBufferIsReducedInOne) {
  ProgramBuilder builder;
  builder.Var("x", {2, 1}).Var("a", {2, 1}).Var("b", {2, 1}).Var("buffer", {128});
  builder.Op("coalesce_tensor", {{"Input", {"a", "b"}}},
             {{"Output", {"a", "b"}}, {"FusedOutput", {"buffer"}}});
  builder.IntAttr("dtype", 5).IntAttr("align_size", 256);
  builder.LongsAttr("concated_shapes", {2, 1, 2, 1}).LongsAttr("concated_ranks", {2, 2});
  Scale(builder, "x", "a", 2);
  Scale(builder, "x", "b", 3);
  builder.Op("c_wait_compute", {{"X", {"buffer"}}}, {{"Out", {"buffer"}}});
  builder.Op("c_allreduce_sum", {{"X", {"buffer"}}}, {{"Out", {"buffer"}}});
  builder.Op("c_wait_comm", {{"X", {"buffer"}}}, {{"Out", {"buffer"}}});
  TwoRanks ranks(builder);
  for (int step = 0; step < 2; ++step) {
    WEFT_ASSERT_OK(ranks.RunStep());
    for (int r = 0; r < 2; ++r) {
      EXPECT_THAT(Values<float>(ranks[r]["a"]), ElementsAre(6, 60));
      EXPECT_THAT(Values<float>(ranks[r]["b"]), ElementsAre(9, 90));
    }
  }
}

}  // namespace
}  // namespace weft::testing
