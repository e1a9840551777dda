// Under ThreadSanitizer: a missing wait is a data race, and is reported regardless of timing. A
// program that has its waits is clean.
#include <memory>
#include <numeric>
#include <string>

#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/kernel.h"
#include "proto/testing/program_builder.h"

#ifdef __SANITIZE_THREAD__
namespace {
int num_reports = 0;
}

// Hooks of the ThreadSanitizer runtime. Reports are the subject of the test: they must not fail the
// process.
extern "C" void __tsan_on_report(void* /*report*/) { ++num_reports; }
extern "C" const char* __tsan_default_options() {
  return "exitcode=0:suppress_equal_stacks=0:suppress_equal_addresses=0";
}
#endif

namespace weft::testing {
namespace {

enum Waits { kForCompute = 1, kForComm = 2 };

// x -> g on the compute stream, g summed on the communication stream, g -> y on the compute stream,
// with the given waits in between. Twice: the waits of the second repetition must not hide races of
// the first.
ProgramBuilder MakeProgram(int first_waits, int second_waits) {
  ProgramBuilder builder;
  const int waits[] = {first_waits, second_waits};
  for (int i = 0; i < 2; ++i) {
    const std::string g = "g" + std::to_string(i), y = "y" + std::to_string(i);
    builder.Op("scale", {{"X", {"x"}}}, {{"Out", {g}}});
    if (waits[i] & kForCompute) builder.Op("c_wait_compute", {{"X", {g}}}, {{"Out", {g}}});
    builder.Op("c_allreduce_sum", {{"X", {g}}}, {{"Out", {g}}});
    if (waits[i] & kForComm) builder.Op("c_wait_comm", {{"X", {g}}}, {{"Out", {g}}});
    builder.Op("scale", {{"X", {g}}}, {{"Out", {y}}});
  }
  return builder;
}

// The number of races reported in one step of the program.
int CountRaces(const ProgramBuilder& builder) {
#ifdef __SANITIZE_THREAD__
  // Copies four numbers into existing memory, so that no allocator adds ordering.
  KernelTable kernels;
  kernels.Add("scale", [](const KernelSpec&) -> absl::StatusOr<Kernel> {
    return Kernel([](const KernelContext& context) {
      for (int i = 0; i < 4; ++i) {
        context.outputs[0]->data<float>()[i] = context.inputs[0]->data<float>()[i];
      }
      return absl::OkStatus();
    });
  });
  PlanOptions plan_options;
  plan_options.kernels = &kernels;
  const Plan plan = *Plan::Build(builder.Build(), plan_options);

  Scope scope;
  RandomState random = RandomState::Seeded(0, 0);
  const std::unique_ptr<Device> device = NewHostDevice();
  const std::unique_ptr<CommunicatorGroup> group = NewLocalGroup({});
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = &scope;
  options.device = device.get();
  options.group = group.get();
  options.random = &random;
  options.accessed.resize(plan.variables.size());
  std::iota(options.accessed.begin(), options.accessed.end(), 0);
  const std::unique_ptr<PlanExecutor> executor = *PlanExecutor::Create(options);
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    executor->tensor(static_cast<int>(v))->Resize(DType::kFloat32, {2, 2});
  }
  num_reports = 0;
  WEFT_EXPECT_OK(executor->RunStep());
  return num_reports;
#else
  return 0;
#endif
}

class MissingWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef __SANITIZE_THREAD__
    GTEST_SKIP() << "needs ThreadSanitizer";
#endif
  }
};

TEST_F(MissingWaitTest, CompleteWaitsReportNothing) {
  EXPECT_EQ(CountRaces(MakeProgram(kForCompute | kForComm, kForCompute | kForComm)), 0);
}

TEST_F(MissingWaitTest, RingThatDoesNotWaitForComputeIsReported) {
  EXPECT_GT(CountRaces(MakeProgram(kForComm, kForCompute | kForComm)), 0);
}

TEST_F(MissingWaitTest, ComputeThatDoesNotWaitForTheRingIsReported) {
  EXPECT_GT(CountRaces(MakeProgram(kForCompute, kForCompute | kForComm)), 0);
}

TEST_F(MissingWaitTest, LastWaitThatIsMissingIsReported) {
  EXPECT_GT(CountRaces(MakeProgram(kForCompute | kForComm, kForCompute)), 0);
}

}  // namespace
}  // namespace weft::testing
