#include "executor/step/step_graph.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/plan/plan.h"
#include "executor/step/graph_device_testing.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "ops/op_kernel.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

// --- Steps of two streams, without a plan --------------------------------------------------------

class StepGraphTest : public ::testing::Test {
 protected:
  StepGraphTest() {
    for (const char* name : {"compute", "ring 0"}) streams_.push_back(*device_.NewStream(name));
  }

  // Each stream counts.
  absl::Status Launch() {
    ++num_steps_launched_;
    for (const std::unique_ptr<Stream>& stream : streams_) {
      stream->Launch([this] {
        ++count_;
        return absl::OkStatus();
      });
    }
    return absl::OkStatus();
  }
  // As if it were bound, at no new address.
  void Enter(StepGraph* graph, const std::string& obstacle = "", const void* step = nullptr) {
    graph->Enter(reinterpret_cast<const BoundStep*>(step), graph->memory_changes(), obstacle);
  }
  absl::Status RunStep(StepGraph* graph) {
    return graph->Run([this] { return Launch(); }, addresses_);
  }

  RecordingDevice device_;
  std::vector<std::unique_ptr<Stream>> streams_;
  int variable_ = 0, other_ = 0;
  std::vector<const void*> addresses_ = {&variable_};
  int count_ = 0, num_steps_launched_ = 0;
};

TEST_F(StepGraphTest, TheSecondStepIsRecordedAndLaterOnesAreReplayed) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  Enter(&graph);
  for (int step = 0; step < 5; ++step) {
    WEFT_ASSERT_OK(RunStep(&graph));
    EXPECT_EQ(count_, 2 * (step + 1));
    EXPECT_EQ(device_.num_run(), 2);  // of the first step
    EXPECT_EQ(device_.num_launched(), step);
  }
  EXPECT_EQ(num_steps_launched_, 2);
  EXPECT_EQ(graph.use().steps, 5);
  EXPECT_EQ(graph.use().replayed, 4);
  EXPECT_EQ(graph.use().recorded, 1);
}

TEST_F(StepGraphTest, AnotherAddressStartsAnew) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  Enter(&graph);
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep(&graph));
  addresses_[0] = &other_;
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(count_, 12);
  EXPECT_EQ(device_.num_run(), 4);  // the first step of both
  EXPECT_EQ(graph.use().recorded, 2);
}

TEST_F(StepGraphTest, EachBoundStepHasAGraph) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  for (int round = 0; round < 3; ++round) {
    for (const int* step : {&variable_, &other_}) {
      Enter(&graph, "", step);
      for (int i = 0; i < 2; ++i) WEFT_ASSERT_OK(RunStep(&graph));
    }
  }
  EXPECT_EQ(graph.use().recorded, 2);
  EXPECT_EQ(graph.use().replayed, 10);
  // Another step may come to lie there.
  graph.Forget(reinterpret_cast<const BoundStep*>(&variable_));
  Enter(&graph, "", &variable_);
  WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(graph.use().replayed, 10);
}

// A kernel that needs more for one step has given up what the graph of another one uses.
TEST_F(StepGraphTest, MemoryThatComesOrGoesMakesOtherStepsStartAnew) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  Enter(&graph, "", &variable_);
  for (int i = 0; i < 3; ++i) WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(graph.use().replayed, 2);
  Enter(&graph, "", &other_);
  const auto launch = [this] {
    (void)device_.memory()->Allocate(1);
    return Launch();
  };
  WEFT_ASSERT_OK(graph.Run(launch, addresses_));
  WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(graph.use().replayed, 3);  // its own memory is there
  Enter(&graph, "", &variable_);
  for (int i = 0; i < 2; ++i) WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(graph.use().replayed, 4);
  EXPECT_EQ(graph.use().recorded, 3);
  // While a step is bound.
  const int64_t before = graph.memory_changes();
  (void)device_.memory()->Allocate(1);
  graph.Enter(reinterpret_cast<const BoundStep*>(&other_), before, "");
  WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(graph.use().replayed, 4);
}

TEST_F(StepGraphTest, AnObstacleMakesStepsRunOpByOp) {
  StepGraph graph(GraphMode::kAuto, &device_, streams_);
  Enter(&graph, "op 3 (print) uses the host");
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep(&graph));
  EXPECT_EQ(count_, 6);
  EXPECT_EQ(device_.num_launched(), 0);
  EXPECT_EQ(graph.use().steps, 3);
  EXPECT_EQ(graph.use().replayed, 0);
  EXPECT_EQ(graph.use().obstacle, "op 3 (print) uses the host");
}

TEST_F(StepGraphTest, AnObstacleIsAnErrorIfGraphsAreDemanded) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  Enter(&graph, "op 3 (print) uses the host");
  EXPECT_THAT(RunStep(&graph),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "the step cannot run as a graph: op 3 (print) uses the host"));
  EXPECT_EQ(count_, 0);
}

TEST_F(StepGraphTest, TheHostRecordsNoGraphs) {
  const std::unique_ptr<Device> host = NewHostDevice();
  StepGraph graph(GraphMode::kAuto, host.get(), streams_);
  Enter(&graph);
  EXPECT_EQ(graph.use().obstacle, "the device records no graphs");
}

TEST_F(StepGraphTest, WaitsOfTheHostCannotBeRecorded) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  Enter(&graph);
  const auto launch = [this]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(Launch());
    return streams_[1]->Synchronize();
  };
  WEFT_ASSERT_OK(graph.Run(launch, addresses_));
  EXPECT_THAT(graph.Run(launch, addresses_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "recording a graph: stream ring 0 is synchronized"));
}

TEST_F(StepGraphTest, StepThatCannotBeRecordedRunsOpByOp) {
  StepGraph graph(GraphMode::kAuto, &device_, streams_);
  Enter(&graph);
  const auto launch = [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(Launch());
    // As a kernel that allocates memory: the stream that records is poisoned.
    if (!graph.is_recording()) return absl::OkStatus();
    return streams_[1]->Synchronize();
  };
  for (int step = 0; step < 4; ++step) {
    WEFT_ASSERT_OK(graph.Run(launch, addresses_));
    for (const auto& stream : streams_) WEFT_ASSERT_OK(stream->Synchronize());
    EXPECT_EQ(count_, 2 * (step + 1));
  }
  EXPECT_EQ(num_steps_launched_, 5);  // recorded once, in vain
  EXPECT_EQ(graph.use().replayed, 0);
  EXPECT_EQ(graph.use().obstacle, "recording a graph: stream ring 0 is synchronized");
  // Also when it is bound again.
  Enter(&graph);
  WEFT_ASSERT_OK(graph.Run(launch, addresses_));
  EXPECT_EQ(num_steps_launched_, 6);
}

TEST_F(StepGraphTest, TheErrorOfWorkThatCannotBeLaunchedIsThatOfTheStep) {
  StepGraph graph(GraphMode::kOn, &device_, streams_);
  Enter(&graph);
  WEFT_ASSERT_OK(RunStep(&graph));
  const auto launch = [this]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(Launch());
    return absl::InternalError("op 3 (mul): no memory");
  };
  EXPECT_THAT(graph.Run(launch, addresses_),
              StatusIs(absl::StatusCode::kInternal, "recording a graph: op 3 (mul): no memory"));
  EXPECT_EQ(count_, 2);  // nothing has run
  WEFT_EXPECT_OK(streams_[0]->Synchronize());
  EXPECT_EQ(count_, 2);
}

// --- Steps of plans ------------------------------------------------------------------------------

class PlanGraphTest : public ::testing::Test {
 protected:
  // Rank 0 of two, if there is a group.
  absl::Status Make(const std::string& blocks, PlanExecutorOptions options = {},
                    const KernelTable& kernels = CpuKernels()) {
    WEFT_ASSIGN_OR_RETURN(const Program program,
                          ParseProgramText(absl::StrCat("program {\n", blocks, "}\n")));
    PlanOptions plan_options;
    plan_options.kernels = &kernels;
    plan_options.nranks = options.group == nullptr ? 1 : 2;
    WEFT_ASSIGN_OR_RETURN(Plan plan, Plan::Build(program, plan_options));
    plan_ = std::make_unique<Plan>(std::move(plan));
    options.plan = plan_.get();
    options.scope = &scope_;
    if (options.device == nullptr) options.device = &device_;
    options.random = &random_;
    options.graph = mode_;
    for (size_t v = 0; v < plan_->variables.size(); ++v) {
      if (plan_->variables[v].name != "hidden") options.accessed.push_back(static_cast<int>(v));
    }
    WEFT_ASSIGN_OR_RETURN(executor_, PlanExecutor::Create(options));
    return absl::OkStatus();
  }

  Tensor& operator[](const char* name) { return *executor_->tensor(plan_->FindVariable(name)); }
  absl::Status RunStep() { return executor_->RunStep(); }
  const GraphUse& use() const { return executor_->graph_use(); }
  // That of a step of this program.
  std::string Obstacle(const std::string& blocks, const std::string& run_on,
                       PlanExecutorOptions options = {},
                       const KernelTable& kernels = CpuKernels()) {
    mode_ = GraphMode::kAuto;
    WEFT_EXPECT_OK(Make(blocks, options, kernels));
    if (!run_on.empty()) (*this)[run_on.c_str()] = Floats({2}, {1, 2});
    WEFT_EXPECT_OK(executor_->Bind());
    return use().obstacle;
  }

  GraphMode mode_ = GraphMode::kOn;
  RecordingDevice device_;
  std::unique_ptr<Plan> plan_;
  Scope scope_;
  RandomState random_ = RandomState::Seeded(0, 0);
  std::unique_ptr<PlanExecutor> executor_;
};

// w grows by the fed x; hidden lies in the arena.
constexpr char kGrows[] = R"(
  block 0 parent=-1 {
    var w : fp32[1] persistable
    var x : fp32[-1]
    var hidden : fp32[1]
    var y : fp32[1]
    Out=[hidden] = reduce_sum(X=[x]) {reduce_all=true, keep_dim=true}
    Out=[w] = elementwise_add(X=[w], Y=[hidden])
    Out=[y] = scale(X=[w]) {scale=10.0}
  }
)";

TEST_F(PlanGraphTest, ReplayedStepsComputeOnWhatIsFed) {
  WEFT_ASSERT_OK(Make(kGrows));
  (*this)["w"] = Floats({1}, {0});
  (*this)["x"] = Floats({2}, {0, 0});
  float sum = 0;
  for (int step = 0; step < 5; ++step) {
    (*this)["x"].data<float>()[1] = static_cast<float>(step);
    sum += static_cast<float>(step);
    WEFT_ASSERT_OK(RunStep());
    EXPECT_THAT(Values<float>((*this)["y"]), ElementsAre(10 * sum));
  }
  EXPECT_EQ(use().recorded, 1);
  EXPECT_EQ(use().replayed, 4);
  EXPECT_EQ(use().obstacle, "");
}

TEST_F(PlanGraphTest, BatchesOfEachSizeHaveAGraph) {
  WEFT_ASSERT_OK(Make(kGrows));
  (*this)["w"] = Floats({1}, {0});
  int sum = 0;
  for (int round = 0; round < 3; ++round) {
    for (const int64_t size : {3, 2}) {
      WEFT_ASSERT_OK((*this)["x"].CopyFrom(Floats({size}, std::vector<float>(size, 1))));
      for (int step = 0; step < 2; ++step) WEFT_ASSERT_OK(RunStep());
      sum += 2 * static_cast<int>(size);
    }
  }
  EXPECT_THAT(Values<float>((*this)["w"]), ElementsAre(sum));
  EXPECT_EQ(use().recorded, 2);
  EXPECT_EQ(use().replayed, 12 - 2);
}

// A larger batch needs more memory, which replaces what graphs use.
TEST_F(PlanGraphTest, ALargerBatchStartsAnew) {
  WEFT_ASSERT_OK(Make(kGrows));
  (*this)["w"] = Floats({1}, {0});
  for (int64_t size : {2, 3, 2}) {
    (*this)["x"] = Floats({size}, std::vector<float>(size, 1));
    for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep());
  }
  EXPECT_THAT(Values<float>((*this)["w"]), ElementsAre(3 * 7));
  EXPECT_EQ(use().recorded, 3);
  EXPECT_EQ(use().replayed, 6);
}

TEST_F(PlanGraphTest, AValueElsewhereStartsAnew) {
  WEFT_ASSERT_OK(Make(kGrows));
  (*this)["w"] = Floats({1}, {0});
  (*this)["x"] = Floats({2}, {1, 1});
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep());
  (*this)["x"] = Floats({2}, {1, 2});
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep());
  EXPECT_THAT(Values<float>((*this)["w"]), ElementsAre(3 * 2 + 3 * 3));
  EXPECT_EQ(use().recorded, 2);
}

// The other stream belongs to a ring without this rank.
TEST_F(PlanGraphTest, AllStreamsAreRecorded) {
  GroupOptions group_options;
  group_options.nranks = 2;
  const std::unique_ptr<CommunicatorGroup> group = NewLocalGroup(group_options);
  PlanExecutorOptions options;
  options.group = group.get();
  WEFT_ASSERT_OK(Make(R"(
  block 0 parent=-1 {
    var x : fp32[1]
    var y : fp32[1]
    Out=[y] = scale(X=[x]) {scale=2.0}
    Out=[y] = c_wait_compute(X=[y]) {ring_id=0}
    Out=[y] = c_allreduce_sum(X=[y]) {ring_id=0, group_ranks=ints[1]}
    Out=[x] = scale(X=[x]) {scale=3.0}
    Out=[y] = c_wait_comm(X=[y]) {ring_id=0}
    Out=[y] = scale(X=[y]) {scale=5.0}
  }
)",
                      options));
  ASSERT_EQ(plan_->stream_names.size(), 2);
  (*this)["x"] = Floats({1}, {1});
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(RunStep());
  EXPECT_THAT(Values<float>((*this)["x"]), ElementsAre(27));
  EXPECT_THAT(Values<float>((*this)["y"]), ElementsAre(90));
  EXPECT_EQ(use().recorded, 1);
  EXPECT_EQ(use().replayed, 2);
}

constexpr char kScale[] = R"(
  block 0 parent=-1 {
    var x : fp32[2]
    var y : fp32[2]
    Out=[y] = scale(X=[x])
  }
)";

// The error of an op of a recording is not one of the run, which would end other ranks, too.
TEST_F(PlanGraphTest, StepThatCannotBeRecordedRunsOpByOp) {
  int num_run = 0;
  KernelTable kernels;
  kernels.Add("scale", [&](OpKernel op) {
    const In x = op.in("X");
    op.out("Out");
    return op.Make(weft::Floats(x), [&](const KernelContext&, auto) -> absl::Status {
      if (device_.is_recording()) return absl::InternalError("cudaMalloc: not permitted");
      ++num_run;
      return absl::OkStatus();
    });
  });
  std::vector<absl::Status> errors;
  PlanExecutorOptions options;
  options.on_error = [&](const absl::Status& status) { errors.push_back(status); };
  device_.CallTasksOfRecordings();
  mode_ = GraphMode::kAuto;
  WEFT_ASSERT_OK(Make(kScale, options, kernels));
  (*this)["x"] = Floats({2}, {1, 1});
  for (int step = 0; step < 4; ++step) WEFT_ASSERT_OK(RunStep());
  EXPECT_EQ(num_run, 4);
  EXPECT_EQ(use().replayed, 0);
  EXPECT_EQ(use().obstacle, "recording a graph: op 0 (scale): cudaMalloc: not permitted");
  EXPECT_THAT(errors, IsEmpty());
}

TEST_F(PlanGraphTest, MeasuredAndCheckedStepsRunOpByOp) {
  EXPECT_EQ(Obstacle(kScale, "x"), "");
  PlanExecutorOptions options;
  options.trace = true;
  EXPECT_EQ(Obstacle(kScale, "x", options), "the times of ops are measured");
  options.trace = false;
  options.check_nan = true;
  EXPECT_EQ(Obstacle(kScale, "x", options), "the host looks at each result for a NaN");
  const std::unique_ptr<Device> host = NewHostDevice();
  options.check_nan = false;
  options.device = host.get();
  EXPECT_EQ(Obstacle(kScale, "x", options), "the device records no graphs");
}

TEST_F(PlanGraphTest, CollectivesRunOpByOp) {
  GroupOptions group_options;
  group_options.nranks = 2;
  const std::unique_ptr<CommunicatorGroup> group = NewLocalGroup(group_options);
  PlanExecutorOptions options;
  options.group = group.get();
  EXPECT_EQ(Obstacle(R"(
  block 0 parent=-1 {
    var x : fp32[2]
    Out=[x] = c_allreduce_sum(X=[x]) {ring_id=0}
  }
)",
                     "x", options),
            "op 0 (c_allreduce_sum) communicates: each rank decides when it records");
}

TEST_F(PlanGraphTest, BlocksRunOpByOp) {
  EXPECT_EQ(Obstacle(R"(
  block 0 parent=-1 {
    var cond : bool[1]
    var w : fp32[1]
    Out=[w] = conditional_block(Cond=[cond]) {sub_block=block(1), is_scalar_condition=true}
  }
  block 1 parent=0 {
    Out=[w] = scale(X=[w]) {scale=2.0}
  }
)",
                     ""),
            "op 0 (conditional_block) has a block, whose condition the host reads");
}

TEST_F(PlanGraphTest, TypesThatDependOnValuesRunOpByOp) {
  EXPECT_EQ(Obstacle(R"(
  block 0 parent=-1 {
    var x : fp32[2]
    var at : int64[-1, 1]
    Out=[at] = where_index(Condition=[x])
  }
)",
                     "x"),
            "op 0 (where_index) has types that are known only when it runs");
}

TEST_F(PlanGraphTest, KernelsThatUseTheHostRunOpByOp) {
  KernelTable kernels;
  kernels.Add("scale", [](OpKernel op) {
    const In x = op.in("X");
    op.out("Out");
    return op.UsesHost().Make(weft::Floats(x), [](const KernelContext&, auto) {});
  });
  EXPECT_EQ(Obstacle(kScale, "x", {}, kernels), "op 0 (scale) uses the host");
}

}  // namespace
}  // namespace weft::testing
