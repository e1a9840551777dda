#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

// A layer of LSTM for both directions: input 5, hidden 3.
InferenceCase Lstm(int states_out = 2) {
  InferenceCase lstm("rnn");
  std::vector<std::string> weights;
  for (int direction = 0; direction < 2; ++direction) {
    weights.insert(weights.end(), {"fp32[12, 5]", "fp32[12, 3]"});
  }
  weights.insert(weights.end(), 4, "fp32[12]");
  lstm.In("Input", {"fp32[7, -1, 5]"})
      .In("PreState", {"fp32[2, -1, 3]", "fp32[2, -1, 3]"})
      .In("WeightList", weights)
      .Out("Out")
      .Out("Reserve")
      .Out("State", states_out)
      .Attr("hidden_size", 3)
      .Attr("input_size", 5)
      .Attr("is_bidirec", true);
  return lstm;
}

TEST(RnnTest, OutHasBothDirections) {
  EXPECT_THAT(
      Lstm().Attr("mode", std::string("LSTM")).Infer(),
      IsOkAndHolds(
          "Out: fp32[7, -1, 6], Reserve: fp32[-1], State: fp32[2, -1, 3] | fp32[2, -1, 3]"));
}

TEST(RnnTest, UnknownModeIsAnError) {
  EXPECT_THAT(Lstm().Attr("mode", std::string("SRU")).Infer(),
              IsInvalidArgument("attribute mode: expected LSTM, GRU, RNN_TANH or RNN_RELU"));
}

TEST(RnnTest, MissingStatesAreNotReturned) {
  EXPECT_THAT(Lstm(/*states_out=*/3).Attr("mode", std::string("LSTM")).Infer(),
              IsInvalidArgument("output State: expected 2 variables, found"));
}

TEST(RnnTest, StatesAndWeightsMustFitTheMode) {
  EXPECT_THAT(Lstm().Attr("mode", std::string("GRU")).Infer(),
              IsInvalidArgument("input PreState: expected 1 variables, found 2"));
}

}  // namespace
}  // namespace weft::testing
