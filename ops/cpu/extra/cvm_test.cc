#include <cmath>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

const Tensor& Counts() {
  static const auto* const counts = new Tensor(Floats({1, 2}, {5, 6}));
  return *counts;
}

TEST(CvmTest, CountsBecomeLogarithms) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("cvm", {{"X", {Floats({1, 3}, {3, 7, 9})}}, {"CVM", {Counts()}}}, {}, {{"Y", 1}}));
  EXPECT_THAT(Values<float>(out["Y"][0]),
              Pointwise(FloatNear(1e-6f), {std::log(4.0f), std::log(8.0f) - std::log(4.0f), 9.0f}));
}

TEST(CvmTest, CountsMayBeLeftOut) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("cvm", {{"X", {Floats({1, 3}, {3, 7, 9})}}, {"CVM", {Counts()}}},
                                  {{"use_cvm", false}}, {{"Y", 1}}));
  EXPECT_THAT(Values<float>(out["Y"][0]), ElementsAre(9));
}

TEST(CvmTest, TheGradientOfTheCountsIsThatOfTheStep) {
  for (bool use_cvm : {true, false}) {
    const Tensor dy = use_cvm ? Floats({1, 3}, {1, 2, 3}) : Floats({1, 1}, {3});
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto out, RunOp("cvm_grad",
                        {{"X", {Floats({1, 3}, {3, 7, 9})}}, {"CVM", {Counts()}}, {"Y@GRAD", {dy}}},
                        {{"use_cvm", use_cvm}}, {{"X@GRAD", 1}}));
    EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(5, 6, 3));
  }
}

TEST(CvmTest, TwoCountsARow) {
  EXPECT_THAT(RunOp("cvm", {{"X", {Floats({1, 1}, {3})}}, {"CVM", {Counts()}}}, {}, {{"Y", 1}}),
              IsInvalidArgument("input X"));
  EXPECT_THAT(RunOp("cvm", {{"X", {Floats({2, 3}, {1, 2, 3, 4, 5, 6})}}, {"CVM", {Counts()}}}, {},
                    {{"Y", 1}}),
              IsInvalidArgument("input CVM"));
}

}  // namespace
}  // namespace weft::testing
