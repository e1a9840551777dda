#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

class AucTest : public ::testing::Test {
 protected:
  // One step with one sample of each class, the positive one predicted as `positive`.
  absl::StatusOr<double> Step(float positive, float negative) {
    Tensor predict = Floats({2, 1}, {positive, negative});
    Tensor label = MakeTensor<int64_t>({2, 1}, {1, 0}), auc;
    const SlotPointers inputs = {{"Label", {&label}},
                                 {"Predict", {&predict}},
                                 {"StatNeg", {&stat_neg_}},
                                 {"StatPos", {&stat_pos_}}};
    WEFT_RETURN_IF_ERROR(
        RunOpOn("auc", inputs, {{"num_thresholds", 3}, {"slide_steps", 2}},
                {{"AUC", {&auc}}, {"StatNegOut", {&stat_neg_}}, {"StatPosOut", {&stat_pos_}}}));
    return Values<double>(auc)[0];
  }

  // 4 counters for each of 2 steps, their sums, the number of steps.
  Tensor stat_pos_ = MakeTensor<int64_t>({13}, std::vector<int64_t>(13, 0));
  Tensor stat_neg_ = MakeTensor<int64_t>({13}, std::vector<int64_t>(13, 0));
};

TEST_F(AucTest, CountsTheLastStepsOnly) {
  EXPECT_THAT(Step(0.1f, 0.9f), IsOkAndHolds(0));
  // Of the four pairs of a positive and a negative sample, one is in order and two are ties.
  EXPECT_THAT(Step(0.9f, 0.1f), IsOkAndHolds(0.5));
  EXPECT_THAT(Values<int64_t>(stat_pos_), ElementsAre(1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 2));
  // The first step has left the window.
  EXPECT_THAT(Step(0.9f, 0.1f), IsOkAndHolds(1));
  EXPECT_THAT(Values<int64_t>(stat_pos_), ElementsAre(0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 3));
}

TEST_F(AucTest, PredictionsAreProbabilities) {
  EXPECT_THAT(Step(1.5f, 0), IsInvalidArgument("1.5 of sample 0 is not in [0, 1]"));
  EXPECT_THAT(Values<int64_t>(stat_pos_), Each(0));
}

}  // namespace
}  // namespace weft::testing
