#include "executor/run/run_control.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/run/run_state.h"
#include "executor/run/runner.h"
#include "executor/run/runner_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// A run on two ranks, and what it has brought.
class RunControlTest : public ::testing::Test {
 protected:
  void Begin(FeedSource feeds) {
    inputs_.main = &main_;
    inputs_.startup = &startup_;
    inputs_.feeds = std::move(feeds);
    inputs_.on_result = [this](const StepResult& result) {
      std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(absl::StrCat("step ", result.step, " rank ", result.rank));
      changed_.notify_all();
      return absl::OkStatus();
    };
    inputs_.on_checkpoint = [this](const Checkpoint& checkpoint) {
      std::lock_guard<std::mutex> lock(mutex_);
      const Tensor* const w = FindValue(checkpoint, 0, "w");
      events_.push_back(absl::StrCat("state ", checkpoint.step, ": w ", Values<float>(*w)[0]));
      changed_.notify_all();
      return absl::OkStatus();
    };
    options_.kernels = &CpuKernels();
    options_.nranks = 2;
    options_.steps = 1000;
    options_.timeout_s = 60;
    options_.control = &control_;
    run_ = std::thread([this] { result_ = RunProgram(inputs_, options_); });
  }

  void WaitFor(size_t num_events) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return events_.size() >= num_events; });
  }

  const Program main_ = Main().Build(), startup_ = Startup().Build();
  RunInputs inputs_;
  RunOptions options_;
  RunControl control_;
  std::thread run_;
  absl::StatusOr<RunResult> result_ = absl::UnknownError("");
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
};

// Rows of step s: s and 1.
FeedSource Rows() {
  FeedSource feeds = {{"x"}, [](int64_t step) {
                        return std::vector<Tensor>{Floats({2, 1}, {static_cast<float>(step), 1})};
                      }};
  feeds.when = BatchReader::When::kInTime;
  return feeds;
}

TEST_F(RunControlTest, RanksDoWhatIsOrderedAndNoMore) {
  Begin(Rows());
  control_.Give(RunControl::Order::kGiveState);
  WaitFor(1);
  control_.Give(RunControl::Order::kStep);
  WaitFor(3);
  control_.Give(RunControl::Order::kStep);
  WaitFor(5);
  control_.Give(RunControl::Order::kGiveState);
  WaitFor(6);
  control_.Give(RunControl::Order::kGiveState);
  WaitFor(7);
  control_.Give(RunControl::Order::kEnd);
  run_.join();
  WEFT_ASSERT_OK(result_);
  EXPECT_EQ(result_->end_step, 2);
  // Step 0 adds 0 + 1, step 1 adds 1 + 1.
  EXPECT_THAT(events_,
              ElementsAre("state 0: w 1", "step 0 rank 0", "step 0 rank 1", "step 1 rank 0",
                          "step 1 rank 1", "state 2: w 4", "state 2: w 4", "state 2: w 4"));
}

TEST_F(RunControlTest, RanksTakeValuesBetweenSteps) {
  Begin(Rows());
  control_.Give(RunControl::Order::kStep);
  WaitFor(2);
  const std::map<std::string, Tensor> values = {{"w", Floats({1}, {10})}, {"other", Tensor()}};
  control_.GiveValues(&values);
  WaitFor(3);
  control_.Give(RunControl::Order::kStep);
  WaitFor(5);
  control_.Give(RunControl::Order::kEnd);
  run_.join();
  WEFT_ASSERT_OK(result_);
  // Step 1 adds 1 + 1.
  EXPECT_THAT(events_, ElementsAre("step 0 rank 0", "step 0 rank 1", "state 1: w 10",
                                   "step 1 rank 0", "step 1 rank 1", "state 2: w 12"));
}

TEST_F(RunControlTest, AValueOfAnotherTypeEndsTheRun) {
  Begin(Rows());
  const std::map<std::string, Tensor> values = {{"w", Floats({2}, {1, 1})}};
  control_.GiveValues(&values);
  run_.join();
  EXPECT_THAT(result_, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("variable w: expected fp32[1], found fp32[2]")));
}

TEST_F(RunControlTest, AFailureReleasesRanksThatWaitForOrders) {
  FeedSource feeds = Rows();
  feeds.read = [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
    return absl::DataLossError("no batch");
  };
  Begin(feeds);
  control_.Give(RunControl::Order::kStep);
  run_.join();
  EXPECT_THAT(result_, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no batch")));
}

TEST_F(RunControlTest, ServersAreRefused) {
  options_.num_servers = 1;
  inputs_.server = &main_;
  Begin(Rows());
  run_.join();
  EXPECT_THAT(result_, StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("one by one")));
}

}  // namespace
}  // namespace weft::testing
