#include "executor/run/run_messages.h"

#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

StepResult SomeResult() {
  StepResult result;
  result.step = int64_t{1} << 40;
  result.rank = 3;
  result.samples = 7;
  result.ms = 1.5;
  result.status = absl::FailedPreconditionError("loss is nan");
  result.values = {Floats({2, 2}, {1, 2, 3, 4}), Int64s({}, {-9}), Floats({0, 3}, {}),
                   Rows({5, 2}, {4, 1}, {1, 2, 3, 4})};
  return result;
}

TEST(RunMessagesTest, ResultIsTheSameAfterItsWay) {
  const StepResult sent = SomeResult();
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string message, ResultMessage(sent));
  WEFT_ASSERT_OK_AND_ASSIGN(const StepResult result, ParseResult(message));
  EXPECT_EQ(result.step, sent.step);
  EXPECT_EQ(result.rank, 3);
  EXPECT_EQ(result.samples, 7);
  EXPECT_EQ(result.ms, 1.5);
  EXPECT_EQ(result.status, sent.status);
  ASSERT_EQ(result.values.size(), 4u);
  EXPECT_THAT(result.values[0].dims(), ElementsAre(2, 2));
  EXPECT_THAT(Values<float>(result.values[0]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<int64_t>(result.values[1]), ElementsAre(-9));
  EXPECT_THAT(result.values[2].dims(), ElementsAre(0, 3));
  ASSERT_TRUE(result.values[3].is_rows());
  EXPECT_EQ(result.values[3].height(), 5);
  EXPECT_THAT(result.values[3].rows(), ElementsAre(4, 1));
  EXPECT_THAT(Values<float>(result.values[3]), ElementsAre(1, 2, 3, 4));
}

TEST(RunMessagesTest, StatesAreTheSameAfterTheirWay) {
  std::vector<RankState> sent(2);
  sent[0].step = 4;
  sent[0].values["w"] = Floats({1}, {2});
  sent[0].random = "1 2 3";
  sent[1].step = 4;
  sent[1].unset = {"a", "b"};
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string message, StatesMessage(sent));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<RankState> states, ParseStates(message));
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].step, 4);
  EXPECT_EQ(states[0].random, "1 2 3");
  EXPECT_THAT(Values<float>(states[0].values.at("w")), ElementsAre(2));
  EXPECT_THAT(states[1].unset, ElementsAre("a", "b"));
  EXPECT_TRUE(states[1].values.empty());
}

TEST(RunMessagesTest, StatusesAndNumbersAreTheSameAfterTheirWay) {
  EXPECT_EQ(ParseStatus(StatusMessage(absl::OkStatus())), absl::OkStatus());
  const absl::Status status = absl::ResourceExhaustedError("disk is full");
  EXPECT_EQ(ParseStatus(StatusMessage(status)), status);
  WEFT_ASSERT_OK_AND_ASSIGN(const auto numbers, ParseNumbers(NumbersMessage({1, ~uint64_t{0}})));
  EXPECT_THAT(numbers, ElementsAre(1, ~uint64_t{0}));
}

TEST(RunMessagesTest, AnyPartOfAMessageIsAnError) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string message, ResultMessage(SomeResult()));
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_THAT(ParseResult(message.substr(0, size)).status(), IsInternal("is no result"));
  }
  EXPECT_FALSE(ParseResult(message + "x").ok());
  EXPECT_FALSE(ParseStates("").ok());
  EXPECT_FALSE(ParseTensors(std::string(8, '\xff')).ok());
  EXPECT_FALSE(ParseNumbers(std::string(8, '\xff')).ok());
  EXPECT_THAT(ParseStatus("x"), IsInternal("is no status"));
}

}  // namespace
}  // namespace weft::testing
