#include "executor/run/runner.h"

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/self_test_testing.h"
#include "executor/run/runner_testing.h"
#include "executor/step/graph_device_testing.h"
#include "executor/streams/thread_stream.h"
#include "ops/cpu/testing.h"
#include "ops/schema/op_attrs.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The CPU kernels, with a replacement for ops of this type.
KernelTable CpuKernelsBut(const std::string& type, KernelFactory factory) {
  KernelTable kernels;
  for (const std::string& other : CpuKernels().op_types()) {
    if (other != type) kernels.Add(other, *CpuKernels().Find(other));
  }
  kernels.Add(type, std::move(factory));
  return kernels;
}

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() {
    options_.kernels = &CpuKernels();
    options_.steps = 3;
    options_.timeout_s = 60;
  }

  // Row r of step s is 10 s + r.
  FeedSource Rows(int count) {
    return {{"x"}, [count](int64_t step) {
              std::vector<float> rows;
              for (int r = 0; r < count; ++r) rows.push_back(static_cast<float>(10 * step + r));
              return std::vector<Tensor>{Floats({count, 1}, rows)};
            }};
  }
  // One row, the same at every step.
  static FeedSource Row(float value) {
    return {{"x"}, [value](int64_t) { return std::vector<Tensor>{Floats({1, 1}, {value})}; }};
  }

  absl::StatusOr<RunResult> RunMain(const ProgramBuilder& main, FeedSource feeds,
                                    const ProgramBuilder* startup = nullptr,
                                    const std::map<std::string, Tensor>* params = nullptr) {
    const Program main_program = main.Build();
    RunInputs inputs;
    inputs.main = &main_program;
    inputs.feeds = std::move(feeds);
    inputs.params = params;
    inputs.on_result = [this](const StepResult& result) {
      std::string text = absl::StrCat("step ", result.step, " rank ", result.rank, ":");
      for (const Tensor& value : result.values) {
        for (float x : Values<float>(value)) absl::StrAppend(&text, " ", x);
      }
      results_.push_back(text);
      return absl::OkStatus();
    };
    if (startup == nullptr) return RunProgram(inputs, options_);
    const Program startup_program = startup->Build();
    inputs.startup = &startup_program;
    return RunProgram(inputs, options_);
  }

  RunOptions options_;
  std::vector<std::string> results_;
  const ProgramBuilder startup_ = Startup();
};

TEST_F(RunnerTest, AnEngineThatComputesWronglyIsFoundBeforeTheFirstStep) {
  ProgramBuilder main;
  main.Var("x", {-1, 1}).Var("y", {1, 1});
  main.Op("reduce_sum", {{"X", {"x"}}}, {{"Out", {"y"}}}).BoolAttr("reduce_all", true);
  main.BoolAttr("keep_dim", true);
  main.Op("c_allreduce_sum", {{"X", {"y"}}}, {{"Out", {"y"}}}).IntAttr("ring_id", 0);
  main.BoolAttr("use_calc_stream", true);
  options_.fetch = {"y"};
  options_.nranks = 2;
  for (const CollectiveKind wrong : {CollectiveKind::kAllReduce, CollectiveKind::kBroadcast}) {
    results_.clear();
    options_.new_group = [wrong](GroupOptions group) {
      return std::make_unique<WrongGroup>(NewLocalGroup(std::move(group)), wrong, 1);
    };
    const absl::Status status = RunMain(main, Rows(2)).status();
    if (wrong == CollectiveKind::kBroadcast) {  // which the program does not call
      EXPECT_THAT(status, IsOk());
      continue;
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 HasSubstr("self-test of collectives: sum by all-reduce of 2 "
                                           "elements: element 1: expected ")));
    EXPECT_THAT(results_, IsEmpty());
  }
}

TEST_F(RunnerTest, StepsRunAsAGraphOnADeviceThatRecordsThem) {
  ProgramBuilder main;
  main.Param("w", {1, 1}).Var("x", {-1, 1}).Var("y", {1, 1});
  main.Op("reduce_sum", {{"X", {"x"}}}, {{"Out", {"y"}}}).BoolAttr("reduce_all", true);
  main.BoolAttr("keep_dim", true);
  main.Op("elementwise_add", {{"X", {"w"}}, {"Y", {"y"}}}, {{"Out", {"w"}}});
  options_.fetch = {"w"};
  options_.steps = 5;
  options_.graph = GraphMode::kOn;
  options_.new_device = [](int, Memory*) { return std::make_unique<testing::RecordingDevice>(); };
  const std::map<std::string, Tensor> params = {{"w", Floats({1, 1}, {0})}};
  auto result = RunMain(main, Rows(1), nullptr, &params);
  WEFT_ASSERT_OK(result.status());
  EXPECT_EQ(Values<float>(result->persistables["w"]), std::vector<float>{100});
  EXPECT_EQ(result->graph.steps, 5);
  EXPECT_EQ(result->graph.obstacle, "");
  EXPECT_EQ(result->graph.replayed, 4);
  EXPECT_EQ(result->graph.recorded, 1);

  options_.new_device = [](int, Memory*) { return NewHostDevice(); };
  EXPECT_THAT(RunMain(main, Rows(1), nullptr, &params).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "step 0, rank 0: the step cannot run as a graph: the device records no "
                       "graphs"));
}

TEST_F(RunnerTest, ParametersInHalfPrecisionAreCastBeforeTheFirstStep) {
  ProgramBuilder startup, main;
  startup.Param("w", {1, 1}).Op("fill_constant", {}, {{"Out", {"w"}}});
  startup.LongsAttr("shape", {1, 1}).IntAttr("dtype", pb::VarType::FP32).FloatAttr("value", 0.1F);
  main.Var("w", {1, 1}, pb::VarType::FP16).last_var().set_persistable(true);
  main.Var("x", {-1, 1}).Var("y", {1, 1});
  main.Op("cast", {{"X", {"w"}}}, {{"Out", {"y"}}});
  main.IntAttr("in_dtype", pb::VarType::FP16).IntAttr("out_dtype", pb::VarType::FP32);
  options_.fetch = {"y"};
  options_.steps = 1;
  auto result = RunMain(main, Rows(1), &startup);
  WEFT_ASSERT_OK(result.status());
  EXPECT_EQ(result->persistables["w"].dtype(), DType::kFloat16);
  EXPECT_THAT(results_, ElementsAre("step 0 rank 0: 0.0999756"));
}

TEST_F(RunnerTest, KernelsGetTheQuirksFlag) {
  std::set<bool> seen;
  const KernelTable kernels = CpuKernelsBut("scale", [&seen](const KernelSpec& spec) {
    seen.insert(spec.paddle_cpu_quirks);
    return (*CpuKernels().Find("scale"))(spec);
  });
  options_.kernels = &kernels;
  options_.paddle_cpu_quirks = true;
  WEFT_ASSERT_OK(RunMain(Main(), Rows(1), &startup_).status());
  EXPECT_THAT(seen, ElementsAre(true));
}

TEST_F(RunnerTest, PrintNamesStepRankAndVariable) {
  ProgramBuilder main;
  main.Var("x", {-1, 1}).Var("y", {-1, 1});
  main.Op("print", {{"In", {"x"}}}, {{"Out", {"y"}}});
  *main.last_op().add_attrs() = MakeAttr("message", std::string("rows"));
  options_.nranks = 2;
  options_.steps = 2;
  ::testing::internal::CaptureStderr();
  const absl::Status status = RunMain(main, Rows(2)).status();
  const std::string printed = ::testing::internal::GetCapturedStderr();
  WEFT_ASSERT_OK(status);
  const std::vector<absl::string_view> lines = absl::StrSplit(printed, '\n', absl::SkipEmpty());
  EXPECT_THAT(lines, UnorderedElementsAre("step 0, rank 0: print of x: rows fp32[1, 1] [0]",
                                          "step 0, rank 1: print of x: rows fp32[1, 1] [1]",
                                          "step 1, rank 0: print of x: rows fp32[1, 1] [10]",
                                          "step 1, rank 1: print of x: rows fp32[1, 1] [11]"));
}

// w = w + x + noise, where noise differs from step to step.
ProgramBuilder Noisy() {
  ProgramBuilder builder;
  builder.Var("x", {-1, 1});
  builder.last_var().set_need_check_feed(true);
  builder.Param("w", {1, 1}).Var("noise", {1, 1});
  builder.Op("uniform_random", {}, {{"Out", {"noise"}}}, kRoleLoss).IntAttr("seed", 0);
  builder.LongsAttr("shape", {1, 1});
  builder.Op("sum", {{"X", {"w", "x", "noise"}}}, {{"Out", {"w"}}});
  return builder;
}

TEST_F(RunnerTest, RanksDrawDifferentNoiseInTheMainProgram) {
  ProgramBuilder main;
  main.Var("noise", {1, 1});
  main.Op("uniform_random", {}, {{"Out", {"noise"}}}, kRoleLoss).IntAttr("seed", 0);
  main.LongsAttr("shape", {1, 1});
  options_.nranks = 2;
  options_.steps = 2;
  options_.fetch = {"noise"};
  WEFT_EXPECT_OK(RunMain(main, FeedSource()));
  std::set<std::string> drawn;
  for (const std::string& result : results_) drawn.insert(result.substr(result.find(':')));
  EXPECT_EQ(drawn.size(), 4u);
  main.last_op().clear_attrs();
  main.IntAttr("seed", 3).LongsAttr("shape", {1, 1});
  results_.clear();
  WEFT_EXPECT_OK(RunMain(main, FeedSource()));
  drawn.clear();
  for (const std::string& result : results_) drawn.insert(result.substr(result.find(':')));
  EXPECT_EQ(drawn.size(), 1u);
}

// y = x * rate, where results of earlier steps set the rate.
ProgramBuilder Rated() {
  ProgramBuilder builder = Main();
  builder.Param("rate", {1}).Var("y", {-1, 1});
  builder.Op("elementwise_mul", {{"X", {"x"}}, {"Y", {"rate"}}}, {{"Out", {"y"}}});
  return builder;
}

FeedSource WithRate(FeedSource source) {
  source.variables.push_back("rate");
  source.read = [read = std::move(source.read)](int64_t step) {
    absl::StatusOr<std::vector<Tensor>> batch = read(step);
    batch->push_back(Floats({1}, {kNan}));
    return batch;
  };
  return source;
}

TEST_F(RunnerTest, ResultsOfAllEarlierStepsSetAFedVariable) {
  options_.nranks = 2;
  options_.steps = 5;
  options_.fetch = {"y"};
  std::vector<std::string> known;
  options_.feedback = Feedback{"rate", 2, [&](int64_t step) {
                                 known.push_back(absl::StrCat(step, ": ", results_.size()));
                                 return 1.0 + static_cast<double>(results_.size());
                               }};
  WEFT_ASSERT_OK(RunMain(Rated(), WithRate(Rows(2)), &startup_).status());
  EXPECT_THAT(known, ElementsAre("0: 0", "2: 4", "4: 8"));
  EXPECT_THAT(results_, ElementsAre("step 0 rank 0: 0", "step 0 rank 1: 1", "step 1 rank 0: 10",
                                    "step 1 rank 1: 11", "step 2 rank 0: 100", "step 2 rank 1: 105",
                                    "step 3 rank 0: 150", "step 3 rank 1: 155",
                                    "step 4 rank 0: 360", "step 4 rank 1: 369"));
}

TEST_F(RunnerTest, FeedbackFirstSetsTheStepThatARunBeginsWith) {
  options_.begin_step = 3;
  options_.steps = 2;
  std::vector<int64_t> steps;
  options_.feedback = Feedback{"rate", 2, [&](int64_t step) {
                                 steps.push_back(step);
                                 return 1.0;
                               }};
  WEFT_ASSERT_OK(RunMain(Rated(), WithRate(Rows(1)), &startup_).status());
  EXPECT_THAT(steps, ElementsAre(3, 4));
}

TEST_F(RunnerTest, FeedbackToAnythingButAFedNumberIsAnError) {
  const auto value = [](int64_t) { return 1.0; };
  options_.feedback = Feedback{"w", 1, value};
  EXPECT_THAT(RunMain(Rated(), WithRate(Rows(1)), &startup_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "feedback w: expected a fed variable, found one that is not fed"));
  options_.feedback = Feedback{"x", 1, value};
  EXPECT_THAT(RunMain(Rated(), WithRate(Rows(1)), &startup_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "feedback x: expected one element of fp32 or fp64, found fp32[-1, 1]"));
  options_.feedback = Feedback{"rate", 0, value};
  EXPECT_THAT(RunMain(Rated(), WithRate(Rows(1)), &startup_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "feedback rate: expected 1 or more steps, found 0"));
}

TEST_F(RunnerTest, RanksThatWaitForAValueEndWithTheRun) {
  options_.nranks = 2;
  options_.feedback = Feedback{"rate", 1, [](int64_t) { return 1.0; }};
  FeedSource feeds = WithRate(Rows(2));
  feeds.read = [read = feeds.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    if (step == 1) return absl::DataLossError("step 1: disk is broken");
    return read(step);
  };
  EXPECT_THAT(RunMain(Rated(), feeds, &startup_).status(), IsDataLoss("disk is broken"));
}

TEST_F(RunnerTest, RunResumesWhereAnotherHasEnded) {
  std::map<std::string, Tensor> params;
  params["w"] = Floats({1, 1}, {1});
  options_.seed = 3;
  options_.steps = 6;
  WEFT_ASSERT_OK_AND_ASSIGN(RunResult through, RunMain(Noisy(), Rows(1), nullptr, &params));
  const std::vector<std::string> all = std::exchange(results_, {});
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 6);

  options_.steps = 4;
  WEFT_ASSERT_OK_AND_ASSIGN(RunResult first, RunMain(Noisy(), Rows(1), nullptr, &params));
  options_.begin_step = 4;
  options_.steps = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(RunResult second,
                            RunMain(Noisy(), Rows(1), nullptr, &first.persistables));
  EXPECT_EQ(results_, all);
  EXPECT_EQ(Values<float>(second.persistables["w"]), Values<float>(through.persistables["w"]));
}

TEST_F(RunnerTest, ElementwiseOpsGiveTheSameBitsOnAnyNumberOfThreads) {
  // Long enough to be divided (kMinParallelSize), and no multiple of the parts.
  constexpr int64_t kSize = 100'001;
  ProgramBuilder startup, main;
  startup.Param("w", {kSize});
  startup.Op("fill_constant", {}, {{"Out", {"w"}}})
      .IntAttr("dtype", pb::VarType::FP32)
      .FloatAttr("value", 0.7F);
  *startup.last_op().add_attrs() = MakeAttr("shape", std::vector<int64_t>{kSize});
  main.Param("w", {kSize}).Var("x", {kSize}).Var("a", {kSize}).Var("b", {kSize});
  main.Op("elementwise_add", {{"X", {"w"}}, {"Y", {"x"}}}, {{"Out", {"a"}}});
  main.Op("tanh", {{"X", {"a"}}}, {{"Out", {"b"}}});
  main.Op("elementwise_mul", {{"X", {"b"}}, {"Y", {"w"}}}, {{"Out", {"w"}}});
  const Program startup_program = startup.Build(), main_program = main.Build();
  Tensor x;
  x.Resize(DType::kFloat32, {kSize});
  for (int64_t i = 0; i < kSize; ++i) x.data<float>()[i] = static_cast<float>(i % 997) / 997;
  RunInputs inputs;
  inputs.main = &main_program;
  inputs.startup = &startup_program;
  inputs.feeds.variables = {"x"};
  inputs.feeds.read = [&](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
    return std::vector<Tensor>{x};
  };
  std::vector<float> alone;
  for (int threads : {1, 2, 3}) {
    options_.threads = threads;
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(inputs, options_));
    const std::vector<float> w = Values<float>(result.persistables.at("w"));
    if (threads == 1) alone = w;
    EXPECT_EQ(w, alone) << threads << " threads";
  }
  options_.threads = kMaxThreads + 1;
  EXPECT_THAT(
      RunProgram(inputs, options_).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, "threads: expected 1 to 256, found 257"));
}

TEST_F(RunnerTest, FirstStepMustBeANumberOfAStep) {
  options_.begin_step = -1;
  EXPECT_THAT(RunMain(Main(), Rows(1)).status(), IsInvalidArgument("begin_step: expected 0 to "));
  options_.begin_step = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(RunMain(Main(), Rows(1)).status(), IsInvalidArgument("begin_step: expected 0 to "));
}

TEST_F(RunnerTest, RanksSumWhatTheyWereFedAndAgree) {
  for (int ranks : {1, 2, 4}) {
    options_.nranks = ranks;
    WEFT_ASSERT_OK_AND_ASSIGN(RunResult result, RunMain(Main(), Rows(ranks), &startup_));
    // 1, and over three steps the sum over the rows of 10 s + r.
    const float expected = 1 + 30 * ranks + 3 * ranks * (ranks - 1) / 2;
    EXPECT_THAT(Values<float>(result.persistables["w"]), ElementsAre(expected)) << ranks;
  }
}

TEST_F(RunnerTest, LossesAreFetchedInOrderOfStepsAndRanks) {
  options_.nranks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunMain(Main(), Rows(2), &startup_));
  EXPECT_THAT(result.fetch, ElementsAre("loss"));
  EXPECT_THAT(results_, ElementsAre("step 0 rank 0: 0", "step 0 rank 1: 1", "step 1 rank 0: 10",
                                    "step 1 rank 1: 11", "step 2 rank 0: 20", "step 2 rank 1: 21"));
}

TEST_F(RunnerTest, FetchesRequestedVariables) {
  options_.steps = 1;
  options_.fetch = {"w", "x"};
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunMain(Main(), Row(5), &startup_));
  EXPECT_THAT(result.fetch, ElementsAre("w", "x"));
  EXPECT_THAT(results_, ElementsAre("step 0 rank 0: 6 5"));
}

TEST_F(RunnerTest, StrictHostSyncGivesTheSame) {
  ProgramBuilder main = Main();
  main.Op("c_sync_calc_stream", {{"X", {"w"}}}, {{"Out", {"w"}}});
  options_.nranks = 2;
  options_.strict_host_sync = true;
  WEFT_ASSERT_OK_AND_ASSIGN(RunResult result, RunMain(main, Rows(2), &startup_));
  EXPECT_THAT(Values<float>(result.persistables["w"]), ElementsAre(64));
}

TEST_F(RunnerTest, ParametersReplaceWhatTheStartupProgramMade) {
  options_.steps = 1;
  const std::map<std::string, Tensor> params = {{"w", Floats({1}, {100})}};
  WEFT_ASSERT_OK_AND_ASSIGN(RunResult result, RunMain(Main(), Row(5), &startup_, &params));
  EXPECT_THAT(Values<float>(result.persistables["w"]), ElementsAre(105));
  EXPECT_THAT(Values<float>(params.at("w")), ElementsAre(100));
}

TEST_F(RunnerTest, MainProgramAloneNeedsNoRingSetUp) {
  options_.nranks = 2;
  options_.steps = 1;
  const std::map<std::string, Tensor> params = {{"w", Floats({1}, {0})}};
  WEFT_ASSERT_OK_AND_ASSIGN(RunResult result, RunMain(Main(), Rows(2), nullptr, &params));
  EXPECT_THAT(Values<float>(result.persistables["w"]), ElementsAre(1));
}

TEST_F(RunnerTest, SameSeedGivesTheSameDrawsOnEveryRankAndRun) {
  ProgramBuilder startup;
  startup.Param("w", {1});
  startup.Op("uniform_random", {}, {{"Out", {"w"}}}).IntAttr("dtype", pb::VarType::FP32);
  *startup.last_op().add_attrs() = MakeAttr("shape", std::vector<int64_t>{1});
  ProgramBuilder main;
  main.Param("w", {1});
  main.Op("scale", {{"X", {"w"}}}, {{"Out", {"y"}}});
  options_.steps = 1;
  options_.nranks = 2;
  options_.fetch = {"y"};
  const auto draw = [&](uint64_t seed) {
    options_.seed = seed;
    results_.clear();
    WEFT_EXPECT_OK(RunMain(main, FeedSource(), &startup));
    return results_;
  };
  const std::vector<std::string> first = draw(7);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].substr(13), first[1].substr(13));  // after "step 0 rank 0"
  EXPECT_EQ(draw(7), first);
  EXPECT_NE(draw(8), first);
}

TEST_F(RunnerTest, RanksThatBeginWithDifferentValuesAreReported) {
  ProgramBuilder startup;
  startup.Param("v", {64});
  startup.Param("w", {64});
  for (const char* param : {"v", "w"}) {
    startup.Op("uniform_random", {}, {{"Out", {param}}}).IntAttr("dtype", pb::VarType::FP32);
    *startup.last_op().add_attrs() = MakeAttr("shape", std::vector<int64_t>{64});
    *startup.last_op().add_attrs() = MakeAttr("min", 0.0f);
  }
  ProgramBuilder main;
  main.Param("v", {64});
  main.Param("w", {64});
  main.Op("elementwise_add", {{"X", {"v"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  options_.steps = 1;
  options_.nranks = 3;
  options_.fetch = {"y"};
  std::vector<std::string> warnings;
  options_.warn = [&](const std::string& message) { warnings.push_back(message); };
  WEFT_EXPECT_OK(RunMain(main, FeedSource(), &startup));
  EXPECT_THAT(warnings, IsEmpty());
  // Initializers draw the same numbers on every rank, other ops do not.
  startup.Op("bernoulli", {{"X", {"w"}}}, {{"Out", {"w"}}});
  WEFT_EXPECT_OK(RunMain(main, FeedSource(), &startup));
  EXPECT_THAT(warnings, ElementsAre("rank 1 begins with another value of w than rank 0"));
}

TEST_F(RunnerTest, VariableThatNothingHasWrittenIsAnErrorWithAdvice) {
  EXPECT_THAT(RunMain(Main(), Row(1)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 5 (elementwise_add): reads variable w, which nothing has written: it is "
                       "persistable, so pass a startup program or parameters that have it"));
  EXPECT_THAT(results_, IsEmpty());
}

TEST_F(RunnerTest, TemporaryThatNothingHasWrittenIsAnErrorWithoutAdvice) {
  ProgramBuilder main;
  main.Var("x").last_var().set_need_check_feed(true);  // else all that ops only read is data
  main.Op("scale", {{"X", {"nobody"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(RunMain(main, FeedSource()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 0 (scale): reads variable nobody, which nothing has written"));
}

TEST_F(RunnerTest, StartupProgramForAnotherNumberOfRanksIsAnError) {
  ProgramBuilder startup = Startup();
  startup.Op("c_comm_init", {{"X", {"id"}}}, {}).IntAttr("nranks", 2).IntAttr("rank", 0);
  options_.nranks = 4;
  EXPECT_THAT(
      RunMain(Main(), Rows(4), &startup).status(),
      IsInvalidArgument(AllOf(StartsWith("startup program: op 4 (c_comm_init)"),
                              HasSubstr("written for 2 ranks"), HasSubstr("the run has 4"))));
}

TEST_F(RunnerTest, UnknownFetchIsAnErrorThatOffersASimilarName) {
  options_.fetch = {"lost"};
  EXPECT_THAT(RunMain(Main(), Row(1), &startup_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "fetch lost: the program has no such variable; did you mean loss?"));
}

TEST_F(RunnerTest, FetchOfNoTensorIsAnError) {
  ProgramBuilder builder = Main();
  builder.Param("list", {1});
  builder.last_var().mutable_type()->clear_lod_tensor();
  builder.last_var().mutable_type()->set_type(pb::VarType::FETCH_LIST);
  options_.fetch = {"list"};
  EXPECT_THAT(RunMain(builder, Row(1), &startup_),
              StatusIs(absl::StatusCode::kInvalidArgument, "fetch list: is no tensor"));
}

TEST_F(RunnerTest, FetchOfAVariableWithoutAValueIsAnError) {
  ProgramBuilder builder = Main();
  builder.Param("unset", {1});
  options_.fetch = {"unset"};
  EXPECT_THAT(RunMain(builder, Row(1), &startup_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "step 0, rank 0: fetch unset: nothing has written it"));
}

TEST_F(RunnerTest, FetchNamedTwiceIsAnError) {
  options_.fetch = {"w", "x", "w"};
  EXPECT_THAT(RunMain(Main(), Row(1), &startup_),
              StatusIs(absl::StatusCode::kInvalidArgument, "fetch w: named twice"));
}

TEST_F(RunnerTest, ParameterOfAnotherShapeIsAnError) {
  const std::map<std::string, Tensor> params = {{"w", Floats({2}, {1, 2})}};
  EXPECT_THAT(
      RunMain(Main(), Row(1), nullptr, &params),
      StatusIs(absl::StatusCode::kInvalidArgument, "parameter w: expected fp32[1], found fp32[2]"));
}

TEST_F(RunnerTest, ParameterThatTheProgramDoesNotHaveIsAnError) {
  const std::map<std::string, Tensor> params = {{"v", Floats({1}, {1})}};
  EXPECT_THAT(RunMain(Main(), Row(1), nullptr, &params).status(),
              IsInvalidArgument(StartsWith("parameter v: ")));
}

TEST_F(RunnerTest, FeedErrorEndsTheRunOnAllRanks) {
  options_.nranks = 2;
  FeedSource feeds = Rows(2);
  feeds.read = [read = feeds.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    if (step == 1) return std::vector<Tensor>{Floats({3, 1}, {1, 2, 3})};
    return read(step);
  };
  EXPECT_THAT(RunMain(Main(), feeds, &startup_).status(),
              IsInvalidArgument("step 1: feed x: 3 rows cannot be split equally over 2 ranks"));
  EXPECT_EQ(results_.size(), 2u);
}

TEST_F(RunnerTest, LossThatIsNaNEndsTheRunWithStepAndRank) {
  options_.nranks = 2;
  FeedSource feeds = Rows(2);
  feeds.read = [read = feeds.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    if (step == 2) return std::vector<Tensor>{Floats({2, 1}, {1, kNan})};
    return read(step);
  };
  options_.steps = 1000;
  EXPECT_THAT(RunMain(Main(), feeds, &startup_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "step 2, rank 1: loss loss is nan"));
  EXPECT_EQ(results_.size(), 6u);
}

TEST_F(RunnerTest, UnfetchedLossIsCheckedToo) {
  options_.fetch = {"x"};
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(RunMain(Main(), Row(infinity), &startup_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "step 0, rank 0: loss loss is inf"));
  EXPECT_THAT(results_, ElementsAre("step 0 rank 0: inf"));
}

TEST_F(RunnerTest, CheckNanNamesStepRankOpAndVariable) {
  options_.check_nan = true;
  EXPECT_THAT(RunMain(Main(), Row(kNan), &startup_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "step 0, rank 0: op 0 (scale): makes nan in variable loss"));
}

TEST_F(RunnerTest, RankThatFailsReleasesTheOthersAndIsTheOneNamed) {
  // Rank 1 draws an id out of range: only it fails, before its all-reduce.
  KernelTable kernels = CpuKernelsBut("scale", [](const KernelSpec&) -> absl::StatusOr<Kernel> {
    return Kernel([](const KernelContext& context) {
      if (context.inputs[0]->data<float>()[0] == 11) return absl::DataLossError("eleven");
      *context.outputs[0] = context.inputs[0]->Clone();
      return absl::OkStatus();
    });
  });
  options_.kernels = &kernels;
  options_.nranks = 2;
  EXPECT_THAT(RunMain(Main(), Rows(2), &startup_).status(),
              StatusIs(absl::StatusCode::kDataLoss, "step 1, rank 1: op 0 (scale): eleven"));
}

TEST_F(RunnerTest, ErrorOfTheResultCallbackEndsTheRun) {
  const Program main = Main().Build(), startup = startup_.Build();
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.feeds = Rows(2);
  inputs.on_result = [](const StepResult&) { return absl::ResourceExhaustedError("disk is full"); };
  options_.nranks = 2;
  options_.steps = 1000;
  EXPECT_THAT(RunProgram(inputs, options_).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk is full"));
}

// Per step, on each rank: w = w - x.
ProgramBuilder Unsynchronized() {
  ProgramBuilder main;
  main.Var("x", {1});
  main.last_var().set_need_check_feed(true);
  main.Param("w", {1}).Param("rate", {1});
  main.Op("sgd", {{"Param", {"w"}}, {"Grad", {"x"}}, {"LearningRate", {"rate"}}},
          {{"ParamOut", {"w"}}}, kRoleOptimize);
  return main;
}

TEST_F(RunnerTest, RanksThatWouldTrainApartAreAnErrorUnlessThatIsMeant) {
  FeedSource feeds = {{"x"}, [](int64_t) { return std::vector<Tensor>{Floats({2}, {1, 2})}; }};
  const std::map<std::string, Tensor> params = {{"w", Floats({1}, {0})},
                                                {"rate", Floats({1}, {1})}};
  options_.nranks = 2;
  options_.steps = 1;
  options_.fetch = {"w"};
  EXPECT_THAT(RunMain(Unsynchronized(), feeds, nullptr, &params).status(),
              IsFailedPrecondition(StartsWith("op 0 (sgd): ")));
  EXPECT_THAT(results_, IsEmpty());
  options_.allow_unsynchronized = true;
  WEFT_EXPECT_OK(RunMain(Unsynchronized(), feeds, nullptr, &params));
  EXPECT_THAT(results_, ElementsAre("step 0 rank 0: -1", "step 0 rank 1: -2"));
}

// Without a collective, a rank waits for the other only where it is ahead of it.
TEST_F(RunnerTest, RankThatFailsReleasesOneThatWaitsForFeeds) {
  FeedSource feeds = {{"x"}, [](int64_t) { return std::vector<Tensor>{Floats({2}, {1, 2})}; }};
  const std::map<std::string, Tensor> params = {{"w", Floats({1}, {0})},
                                                {"rate", Floats({1}, {1})}};
  KernelTable kernels = CpuKernelsBut("sgd", [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    return Kernel([grad = spec.Input("Grad")](const KernelContext& context) {
      const bool is_rank1 = context.inputs[grad]->data<float>()[0] == 2;
      return is_rank1 ? absl::InternalError("no") : absl::OkStatus();
    });
  });
  options_.kernels = &kernels;
  options_.nranks = 2;
  options_.steps = 1000;
  options_.fetch = {"w"};
  options_.allow_unsynchronized = true;
  EXPECT_THAT(RunMain(Unsynchronized(), feeds, nullptr, &params).status(),
              StatusIs(absl::StatusCode::kInternal, "step 0, rank 1: op 0 (sgd): no"));
}

// Both where the rank's own thread allocates memory and where a stream does.
TEST_F(RunnerTest, OutOfMemoryIsTheErrorOfItsRankAndReleasesTheOthers) {
  FeedSource feeds = Rows(2);
  feeds.read = [read = feeds.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    if (step == 1) throw std::bad_alloc();
    return read(step);
  };
  options_.nranks = 2;
  EXPECT_THAT(RunMain(Main(), feeds, &startup_).status(),
              IsResourceExhausted(::testing::MatchesRegex("step 1, rank [01]: out of memory")));
  EXPECT_EQ(results_.size(), 2u);

  KernelTable kernels = CpuKernelsBut("scale", [](const KernelSpec&) -> absl::StatusOr<Kernel> {
    return Kernel([](const KernelContext& context) {
      if (context.inputs[0]->data<float>()[0] == 11) throw std::bad_alloc();
      *context.outputs[0] = context.inputs[0]->Clone();
      return absl::OkStatus();
    });
  });
  options_.kernels = &kernels;
  EXPECT_THAT(RunMain(Main(), Rows(2), &startup_).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "step 1, rank 1: op 0 (scale): out of memory"));
}

TEST_F(RunnerTest, ExceptionIsTheErrorOfItsRankAndReleasesTheOthers) {
  FeedSource feeds = Rows(2);
  feeds.read = [read = feeds.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    if (step == 1) throw std::runtime_error("the disk is gone");
    return read(step);
  };
  options_.nranks = 2;
  EXPECT_THAT(RunMain(Main(), feeds, &startup_).status(),
              IsInternal(::testing::MatchesRegex("step 1, rank [01]: the disk is gone")));
  EXPECT_EQ(results_.size(), 2u);
}

TEST_F(RunnerTest, NoRanksAndFarTooManyAreErrors) {
  for (int ranks : {0, 100000}) {
    options_.nranks = ranks;
    EXPECT_THAT(RunMain(Main(), Row(1), &startup_).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("ranks: expected 1 to 1024, found ", ranks)));
  }
}

// Kernels keep buffers, so no two ranks may run the same one; they share plans.
TEST_F(RunnerTest, EachRankMakesItsKernelsFromOnePlan) {
  std::atomic<int> made{0};
  KernelTable kernels = CpuKernelsBut("scale", [&](const KernelSpec&) -> absl::StatusOr<Kernel> {
    ++made;
    return Kernel([](const KernelContext& context) {
      *context.outputs[0] = context.inputs[0]->Clone();
      return absl::OkStatus();
    });
  });
  options_.kernels = &kernels;
  options_.nranks = 3;
  WEFT_EXPECT_OK(RunMain(Main(), Rows(3), &startup_));
  EXPECT_EQ(made, 2 + 3 * 2);  // two ops: once for the plan, then by each rank
}

}  // namespace
}  // namespace weft::testing
