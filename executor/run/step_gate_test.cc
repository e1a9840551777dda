#include "executor/run/step_gate.h"

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "base/testing/test.h"
#include "executor/jobs/job_link_testing.h"

namespace weft::testing {
namespace {

TEST(StepGateTest, RanksBehindRunTheLastStepThatAnyHasBegun) {
  bool stops = false;
  StepGate gate(0, 100, [&stops] { return stops; });
  for (int64_t step : {0, 1, 2}) EXPECT_TRUE(gate.Begins(step));
  stops = true;
  EXPECT_TRUE(gate.Begins(1)) << "another rank";
  EXPECT_TRUE(gate.Begins(2));
  EXPECT_FALSE(gate.Begins(3));
  EXPECT_EQ(gate.end(), 3);
}

TEST(StepGateTest, RunEndsAfterItsLastStep) {
  StepGate gate(4, 6, nullptr);
  gate.AskToStop();  // there is nobody to ask
  EXPECT_TRUE(gate.Begins(4));
  EXPECT_TRUE(gate.Begins(5));
  EXPECT_FALSE(gate.Begins(6));
  EXPECT_EQ(gate.end(), 6);
}

// A parameter server begins no steps.
TEST(StepGateTest, RankThatBeginsNoStepsStopsTheOthers) {
  bool stops = false;
  int asked = 0;
  StepGate gate(0, 100, [&] {
    ++asked;
    return stops;
  });
  EXPECT_TRUE(gate.Begins(0));
  gate.AskToStop();
  EXPECT_TRUE(gate.Begins(1));
  EXPECT_EQ(asked, 3);
  stops = true;
  gate.AskToStop();
  EXPECT_EQ(gate.end(), 2);
  EXPECT_TRUE(gate.Begins(1)) << "another rank";
  EXPECT_FALSE(gate.Begins(2));
  gate.AskToStop();
  EXPECT_EQ(asked, 4) << "not any more once the answer is yes";
}

TEST(StepGateTest, RankThatBeginsNoStepsStopsThoseOfOtherProcesses) {
  const std::vector<std::unique_ptr<JobLink>> links = MakeLinks(2);
  {
    std::atomic<bool> have_workers_heard{false};
    StepGate workers(0, int64_t{1} << 40, nullptr, links[0].get(),
                     [&have_workers_heard] { have_workers_heard = true; });
    StepGate servers(
        0, int64_t{1} << 40, [] { return true; }, links[1].get());
    EXPECT_TRUE(workers.Begins(0));
    EXPECT_FALSE(have_workers_heard);
    servers.AskToStop();
    int64_t step = 1;
    while (workers.Begins(step)) ++step;  // until the messages have come
    EXPECT_EQ(workers.end(), step);
    EXPECT_TRUE(have_workers_heard);
    EXPECT_FALSE(servers.Begins(step));  // waits for the answer
    EXPECT_EQ(servers.end(), step);
  }
  std::vector<std::future<absl::Status>> finished;
  for (const auto& link : links) {
    finished.push_back(std::async(std::launch::async, [&link] { return link->Finish(); }));
  }
  for (auto& status : finished) WEFT_EXPECT_OK(status.get());
}

TEST(StepGateTest, StopReleasesRanks) {
  StepGate gate(0, 100, nullptr);
  EXPECT_TRUE(gate.Begins(0));
  gate.Stop();
  EXPECT_FALSE(gate.Begins(1));
}

}  // namespace
}  // namespace weft::testing
