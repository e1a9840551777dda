// Traces of devices whose streams mark times.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "executor/step/plan_executor.h"
#include "ops/cpu/testing.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct NoEvent : public Event {};

// Marks 1, 2, 3, ... seconds.
class MarkingStream : public Stream {
 public:
  void Launch(Task task) override {
    if (status_.ok()) status_ = task();
  }
  void Record(Event*) override {}
  void Wait(Event*) override {}
  absl::Status Synchronize() override { return status_; }
  bool MarksTimes() const override { return true; }
  void MarkTime() override {
    times_.push_back(Clock::time_point(std::chrono::seconds(++num_marks_)));
  }
  absl::StatusOr<std::vector<Clock::time_point>> TakeTimes() override {
    return std::exchange(times_, {});
  }

 private:
  absl::Status status_;
  int num_marks_ = 0;
  std::vector<Clock::time_point> times_;
};

class MarkingDevice : public Device {
 public:
  Memory* memory() override { return HostMemory(); }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view) override {
    return std::make_unique<MarkingStream>();
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return std::make_unique<NoEvent>(); }
};

std::vector<std::vector<int64_t>> Seconds(absl::Span<const OpSpan> spans) {
  std::vector<std::vector<int64_t>> result;
  for (const OpSpan& span : spans) {
    const auto seconds = [](Clock::time_point time) {
      return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
    };
    result.push_back({span.op, seconds(span.begin), seconds(span.end)});
  }
  return result;
}

TEST(MarkedTimesTest, OpsRanBetweenTheTimesBeforeAndAfterThem) {
  ProgramBuilder builder;
  builder.Var("x", {1}).Var("y", {1}).Var("z", {1});
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}).FloatAttr("scale", 2);
  builder.Op("exp", {{"X", {"y"}}}, {{"Out", {"z"}}});
  PlanOptions plan_options;
  plan_options.kernels = &CpuKernels();
  const Plan plan = *Plan::Build(builder.Build(), plan_options);
  MarkingDevice device;
  RandomState random = RandomState::Seeded(0, 0);
  Scope scope;
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = &scope;
  options.device = &device;
  options.random = &random;
  options.accessed = {0, 1, 2};
  options.trace = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto executor, PlanExecutor::Create(options));
  *executor->tensor(plan.FindVariable("x")) = Floats({1}, {1});
  WEFT_ASSERT_OK(executor->RunStep());
  ASSERT_EQ(executor->spans().size(), 1);
  EXPECT_THAT(Seconds(executor->spans()[0]),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(1, 3, 4)));
  WEFT_ASSERT_OK(executor->RunStep());
  EXPECT_THAT(Seconds(executor->spans()[0]),
              ElementsAre(ElementsAre(0, 5, 6), ElementsAre(1, 7, 8)));
}

}  // namespace
}  // namespace weft::testing
