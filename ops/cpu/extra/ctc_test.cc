// Cases beyond Paddle's vectors (tests/data/op_vectors/programs.jsonl).
#include <cmath>
#include <cstdint>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// One sequence of two equally probable classes per time step; class 0 is blank.
struct Ctc {
  Tensor logits = Floats({2, 1, 2}, {0, 0, 0, 0});
  Tensor label = MakeTensor<int32_t>({1, 2}, {1, 1});
  Tensor time = MakeTensor<int64_t>({1}, {2}), length = MakeTensor<int64_t>({1}, {1});
  Tensor loss, grad;

  absl::Status Run() {
    return RunOpOn("warpctc",
                   {{"Logits", {&logits}},
                    {"Label", {&label}},
                    {"LogitsLength", {&time}},
                    {"LabelLength", {&length}}},
                   {}, {{"Loss", {&loss}}, {"WarpCTCGrad", {&grad}}});
  }
};

// Three of the four paths, 11, 01 and 10, are the label 1.
TEST(WarpCtcTest, LossIsMinusTheLogProbabilityOfAllPaths) {
  Ctc ctc;
  WEFT_ASSERT_OK(ctc.Run());
  EXPECT_NEAR(*ctc.loss.data<float>(), -std::log(0.75), 1e-6);
  // At each time step, two of the three paths have class 1, with a total probability of one half.
  EXPECT_THAT(Values<float>(ctc.grad),
              ElementsAre(FloatNear(1.0 / 6, 1e-6), FloatNear(-1.0 / 6, 1e-6),
                          FloatNear(1.0 / 6, 1e-6), FloatNear(-1.0 / 6, 1e-6)));
}

// The label 1 1 needs a blank between.
TEST(WarpCtcTest, ALabelThatTheTimeIsTooShortForCountsNothing) {
  Ctc ctc;
  ctc.length = MakeTensor<int64_t>({1}, {2});
  WEFT_ASSERT_OK(ctc.Run());
  EXPECT_THAT(Values<float>(ctc.loss), ElementsAre(0));
  EXPECT_THAT(Values<float>(ctc.grad), ElementsAre(0, 0, 0, 0));
}

TEST(WarpCtcTest, LengthsAndClassesOutOfRangeAreErrors) {
  Ctc ctc;
  ctc.time = MakeTensor<int64_t>({1}, {3});
  EXPECT_THAT(ctc.Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  "input LogitsLength: 3 at position 0 is not in [0, 3)"));
  ctc = Ctc();
  ctc.label = MakeTensor<int32_t>({1, 2}, {2, 0});
  EXPECT_THAT(ctc.Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  "input Label: 2 of sequence 0 is not in [0, 2)"));
}

TEST(WarpCtcTest, AGradientOfAnotherBatchIsAnError) {
  Ctc ctc;
  WEFT_ASSERT_OK(ctc.Run());
  Tensor dloss = Floats({2, 1}, {1, 1}), dlogits;
  EXPECT_THAT(RunOpOn("warpctc_grad",
                      {{"Logits", {&ctc.logits}},
                       {"LogitsLength", {&ctc.time}},
                       {"Loss@GRAD", {&dloss}},
                       {"WarpCTCGrad", {&ctc.grad}}},
                      {}, {{"Logits@GRAD", {&dlogits}}}),
              IsInvalidArgument("Loss@GRAD"));
}

}  // namespace
}  // namespace weft::testing
