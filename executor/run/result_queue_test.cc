#include "executor/run/result_queue.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

class ResultQueueTest : public ::testing::Test {
 protected:
  // Results as "step/rank".
  ResultCallback Log() {
    return [this](const StepResult& result) {
      log_.push_back(absl::StrCat(result.step, "/", result.rank));
      return absl::OkStatus();
    };
  }
  static StepResult Result(int64_t step, int rank) {
    StepResult result;
    result.step = step;
    result.rank = rank;
    result.values.push_back(Floats({1}, {1}));
    return result;
  }

  std::vector<std::string> log_;
};

TEST_F(ResultQueueTest, ResultsGoOutByStepAndRankAsSoonAsTheyCan) {
  ResultQueue queue(2, {"loss"}, Log());
  WEFT_EXPECT_OK(queue.Post(Result(0, 1)));
  EXPECT_THAT(log_, IsEmpty());
  WEFT_EXPECT_OK(queue.Post(Result(1, 1)));
  WEFT_EXPECT_OK(queue.Post(Result(0, 0)));
  EXPECT_THAT(log_, ElementsAre("0/0", "0/1"));
  WEFT_EXPECT_OK(queue.Post(Result(1, 0)));
  EXPECT_THAT(log_, ElementsAre("0/0", "0/1", "1/0", "1/1"));
}

TEST_F(ResultQueueTest, StatusOfAResultIsTheErrorOnceTheResultIsOut) {
  ResultQueue queue(2, {"loss"}, Log());
  StepResult bad = Result(0, 1);
  bad.status = absl::FailedPreconditionError("loss is nan");
  WEFT_EXPECT_OK(queue.Post(std::move(bad)));  // not its turn yet
  EXPECT_THAT(queue.Post(Result(0, 0)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "loss is nan"));
  EXPECT_FALSE(queue.Post(Result(1, 0)).ok());
  EXPECT_THAT(log_, ElementsAre("0/0", "0/1"));
}

TEST_F(ResultQueueTest, ErrorOfTheCallbackIsReturned) {
  ResultQueue queue(1, {"loss"},
                    [](const StepResult&) { return absl::ResourceExhaustedError("disk is full"); });
  EXPECT_THAT(queue.Post(Result(0, 0)),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk is full"));
}

}  // namespace
}  // namespace weft::testing
