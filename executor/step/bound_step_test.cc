#include "executor/step/bound_step.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "ops/make_kernel.h"

namespace weft::testing {
namespace {

std::unique_ptr<Plan> PlanOf(const std::string& block) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  return std::make_unique<Plan>(*Plan::Build(testing::CompactProgram(block), options));
}

// A step of a plan whose variable x holds `x`, and whose variable y is read after the step.
class Bound {
 public:
  Bound(const std::string& block, const Tensor& x) : plan_(PlanOf(block)), accesses_(*plan_) {
    values_.resize(plan_->variables.size());
    resources_.plan = plan_.get();
    resources_.accesses = &accesses_;
    for (Value& value : values_) {
      resources_.values.push_back(&value);
      resources_.tensors.push_back(&value.tensor);
    }
    for (const Plan::PlanOp& op : plan_->ops) {
      resources_.kernels.push_back(*MakeKernel(*op.factory(), op.kernel_spec));
    }
    resources_.native_streams.resize(plan_->stream_names.size(), nullptr);
    resources_.is_accessed.resize(values_.size(), false);
    resources_.is_accessed[plan_->FindVariable("y")] = true;
    resources_.memories = {HostMemory(), HostMemory()};
    resources_.arena_memories = resources_.memories;
    resources_.joins_ops = true;
    (*this)["x"] = x;
    step_ = std::make_unique<BoundStep>(resources_);
    step_->Enter(&arena_);
  }

  Tensor& operator[](const char* name) { return *resources_.tensors[plan_->FindVariable(name)]; }
  BoundStep& step() { return *step_; }

 private:
  const std::unique_ptr<Plan> plan_;
  const PlanAccesses accesses_;
  std::vector<Value> values_;
  StepResources resources_;
  StepArenas arena_;
  std::unique_ptr<BoundStep> step_;
};

constexpr char kChain[] = R"(
    var x : fp32[-1, 8]
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[a])
    Out=[y] = relu(X=[b])
)";

TEST(BoundStepTest, AnOpThatMayWorkInPlaceWritesOverAnInputThatEnds) {
  Bound bound(kChain, Floats({8, 8}, std::vector<float>(64, 1)));
  EXPECT_EQ(bound["a"].raw(), bound["b"].raw());
  EXPECT_EQ(bound.step().arena_bytes(DeviceKind::kAccelerator), 256);
  EXPECT_EQ(bound.step().live_bytes(DeviceKind::kAccelerator), 256);
  // What is accessed between steps has its own memory.
  EXPECT_NE(bound["x"].raw(), bound["a"].raw());
  EXPECT_NE(bound["y"].raw(), bound["a"].raw());
}

TEST(BoundStepTest, OpsOfOneStreamThatFollowOneAnotherAreOneTask) {
  Bound bound(kChain, Floats({8, 8}, std::vector<float>(64, 1)));
  ASSERT_EQ(bound.step().calls().size(), 3);
  for (const StepCall& call : bound.step().calls()) EXPECT_EQ(call.end_of_task, 3);
}

TEST(BoundStepTest, AnInputThatIsReadLaterIsNotOverwritten) {
  Bound bound(R"(
    var x : fp32[8]
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[a])
    Out=[y] = elementwise_add(X=[a], Y=[b])
)",
              Floats({8}, std::vector<float>(8, 1)));
  EXPECT_NE(bound["a"].raw(), bound["b"].raw());
}

TEST(BoundStepTest, AnInputOfWhichOnlyTheTypeMattersLosesItsMemory) {
  Bound bound(R"(
    var x : fp32[8]
    Out=[a] = tanh(X=[x])
    Out=[b] = tanh(X=[a])
    Out=[c] = tanh(X=[b])
    X@GRAD=[y] = elementwise_sub_grad(Out@GRAD=[c], X=[a], Y=[a])
)",
              Floats({8}, std::vector<float>(8, 1)));
  EXPECT_EQ(bound["a"].raw(), bound["c"].raw());
  EXPECT_EQ(bound.step().live_bytes(DeviceKind::kAccelerator), 64);
}

TEST(BoundStepTest, ElementwiseOpsOnLargeValuesRunTogether) {
  const std::string block = R"(
    var x : fp32[ROWS, 8192]
    Out=[a] = tanh(X=[x])
    Out=[b] = elementwise_add(X=[a], Y=[x])
    Out=[y] = scale(X=[b])
)";
  for (const int rows : {7, 8}) {
    const std::string sized = absl::StrReplaceAll(block, {{"ROWS", absl::StrCat(rows)}});
    Bound bound(sized, Floats({rows, 8192}, std::vector<float>(rows * 8192, 1)));
    const bool is_large = rows == 8;
    EXPECT_EQ(bound.step().calls().size(), is_large ? 1 : 3);
    std::vector<int> ops;  // of the first call
    ForEachOp(bound.step().calls()[0], [&](const OpCall& op) { ops.push_back(op.index); });
    EXPECT_EQ(ops, is_large ? std::vector<int>({0, 1, 2}) : std::vector<int>({0}));
  }
}

TEST(BoundStepTest, AViewIsNoOp) {
  Bound bound(R"(
    var x : fp32[2, 4]
    Out=[a] = relu(X=[x])
    Out=[b], XShape=[shape] = reshape2(X=[a]) {shape=ints[8]}
    Out=[y] = relu(X=[b])
)",
              Floats({2, 4}, std::vector<float>(8, 1)));
  EXPECT_EQ(bound.step().calls().size(), 2u);
  EXPECT_EQ(bound["a"].raw(), bound["b"].raw());
  EXPECT_THAT(bound["b"].dims(), ElementsAre(8));
}

TEST(BoundStepTest, AViewOfAValueThatChangesIsACopy) {
  Bound bound(R"(
    var x : fp32[2, 4]
    Out=[a] = relu(X=[x])
    Out=[b] = reshape(X=[a]) {shape=ints[8]}
    Out=[a] = scale(X=[a]) {scale=2.0}
    Out=[c] = reshape(X=[a]) {shape=ints[8]}
    Out=[y] = elementwise_add(X=[b], Y=[c])
)",
              Floats({2, 4}, std::vector<float>(8, 1)));
  EXPECT_EQ(bound.step().calls().size(), 5u);
  EXPECT_NE(bound["a"].raw(), bound["b"].raw());
}

TEST(BoundStepTest, AStepFitsTheTypesThatItBeganWith) {
  Bound bound(kChain, Floats({8, 8}, std::vector<float>(64, 1)));
  EXPECT_TRUE(bound.step().Fits());
  bound["x"] = Floats({1, 8}, std::vector<float>(8, 1));
  EXPECT_FALSE(bound.step().Fits());
}

class BoundExecutor {
 public:
  explicit BoundExecutor(const std::string& block) : plan_(PlanOf(block)) {
    PlanExecutorOptions options;
    options.plan = plan_.get();
    options.scope = &scope_;
    options.device = device_.get();
    options.accessed = {plan_->FindVariable("x"), plan_->FindVariable("y")};
    executor_ = *PlanExecutor::Create(options);
  }
  Tensor& operator[](const char* name) { return *executor_->tensor(plan_->FindVariable(name)); }
  absl::Status RunStep() { return executor_->RunStep(); }

 private:
  std::unique_ptr<Plan> plan_;
  Scope scope_;
  std::unique_ptr<Device> device_ = NewHostDevice();
  std::unique_ptr<PlanExecutor> executor_;
};

TEST(BoundStepTest, StepsOfSeveralBatchSizesTakeTurns) {
  BoundExecutor executor(kChain);
  for (int step = 0; step < 40; ++step) {
    const int64_t rows = 1 + step * 7 % 12;  // more sizes than bound steps are kept
    std::vector<float> values(rows * 8);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(step + i);
    executor["x"] = Floats({rows, 8}, values);
    WEFT_ASSERT_OK(executor.RunStep());
    EXPECT_EQ(Values<float>(executor["y"]), values) << step;
  }
}

// --- Two devices ---------------------------------------------------------------------------------

// A buffer of the accelerator, and one of the host that it is copied to.
constexpr char kTwoBuffers[] = R"(
    var x, a, b, a@CPU, b@CPU : fp32[4]
    FusedOutput=[f@CPU], Output=[a@CPU, b@CPU] = coalesce_tensor(Input=[a@CPU, b@CPU]) {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4], op_device="cpu"}
    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4]}
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[f] = stream_wait(X=[f]) {stream="d2h", awaited="compute"}
    Out=[f@CPU] = stream_wait(X=[f@CPU]) {stream="d2h", awaited="cpu"}
    Out=[f@CPU] = memcpy_d2h(X=[f])
    Out=[f@CPU] = stream_wait(X=[f@CPU]) {stream="cpu", awaited="d2h"}
    Out=[y] = elementwise_add(X=[a@CPU], Y=[b@CPU]) {op_device="cpu"}
)";

TEST(BoundStepTest, BuffersOfTwoDevicesLieInTheArenasWithTheirSlices) {
  Bound bound(kTwoBuffers, Floats({4}, {1, 2, 3, 4}));
  for (const char* device : {"", "@CPU"}) {
    const auto address = [&](const char* name) {
      return static_cast<const char*>(bound[absl::StrCat(name, device).c_str()].raw());
    };
    ASSERT_NE(address("f"), nullptr) << device;
    EXPECT_EQ(address("a"), address("f")) << device;
    EXPECT_EQ(address("b"), address("f") + 256) << device;
  }
  EXPECT_EQ(bound.step().live_bytes(DeviceKind::kAccelerator), 512);
  EXPECT_EQ(bound.step().live_bytes(DeviceKind::kHost), 512);
}

// Its memory may change, and what reads the slice sees it elsewhere.
TEST(BoundStepTest, BufferWithASliceThatIsReadBetweenStepsHasItsOwnMemory) {
  Bound bound(
      absl::StrReplaceAll(
          kTwoBuffers,
          {{"var y :", "var z :"}, {"Out=[y]", "Out=[z]"}, {"[b@CPU]", "[y]"}, {"b@CPU", "y"}}),
      Floats({4}, {1, 2, 3, 4}));
  EXPECT_EQ(bound.step().live_bytes(DeviceKind::kAccelerator), 512);
  EXPECT_EQ(bound.step().live_bytes(DeviceKind::kHost), 64);
}

// Members never have memory besides the buffer's.
TEST(BoundStepTest, BuffersOfOneDeviceHaveMemoryOnce) {
  Bound bound(R"(
    var x : fp32[-1]
    var a, b : fp32[4]
    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4]}
    Out=[a] = relu(X=[x])
    Out=[y] = elementwise_add(X=[a], Y=[b])
)",
              Floats({4}, {1, 2, 3, 4}));
  const auto address = [&](const char* name) {
    return static_cast<const char*>(bound[name].raw());
  };
  const char* const buffer = address("f");
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(address("a"), buffer);
  EXPECT_EQ(address("b"), buffer + 256);
  EXPECT_EQ(bound["f"].bytes(), 512);
  std::fill_n(bound["f"].data<float>(), 128, 1.0f);
  WEFT_ASSERT_OK(bound.step().ClearNewBuffers());
  EXPECT_THAT(Values<float>(bound["b"]), ElementsAre(0, 0, 0, 0));
  // It stays, with its values.
  std::fill_n(bound["f"].data<float>(), 128, 1.0f);
  bound.step().OwnValues();
  WEFT_ASSERT_OK(bound.step().ClearNewBuffers());
  EXPECT_EQ(address("f"), buffer);
  EXPECT_THAT(Values<float>(bound["b"]), ElementsAre(1, 1, 1, 1));
  // A member was taken away.
  bound["a"] = Floats({4}, {1, 2, 3, 4});
  bound.step().OwnValues();
  EXPECT_EQ(address("a"), address("f"));
  EXPECT_EQ(address("b"), address("f") + 256);
}

}  // namespace
}  // namespace weft::testing
