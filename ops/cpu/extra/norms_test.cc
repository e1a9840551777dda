#include <cmath>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

absl::StatusOr<std::vector<float>> Renormed(float p) {
  const Tensor x = Floats({2, 3}, {0.5, 1, 3, 0.2, 0.3, 0.1});
  auto out =
      RunOp("renorm", {{"X", {x}}}, {{"p", p}, {"axis", 0}, {"max_norm", 0.05f}}, {{"Out", 1}});
  if (!out.ok()) return out.status();
  return Values<float>((*out)["Out"][0]);
}

// The numbers are those of Paddle 2.6.2: powers give norms for any p.
TEST(RenormTest, AnyPowerGivesANorm) {
  EXPECT_THAT(Renormed(INFINITY),
              IsOkAndHolds(Pointwise(FloatNear(1e-6f),
                                     std::vector<float>{0.025, 0.05, 0.15, 0.01, 0.015, 0.005})));
  EXPECT_THAT(Renormed(0), IsOkAndHolds(Each(0)));
  EXPECT_THAT(Renormed(-1),
              IsOkAndHolds(
                  Pointwise(FloatNear(1e-6f), std::vector<float>{0.08333333, 0.16666666, 0.49999997,
                                                                 0.18333332, 0.275, 0.09166666})));
}

TEST(RenormTest, HasGradientsOfNormsAlone) {
  const Tensor x = Floats({1, 2}, {1, 2});
  for (const float p : {0.0f, -1.0f, INFINITY}) {
    EXPECT_THAT(RunOp("renorm_grad", {{"X", {x}}, {"Out@GRAD", {x}}},
                      {{"p", p}, {"axis", 0}, {"max_norm", 1.0f}}, {{"X@GRAD", 1}}),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("attribute p")));
  }
}

}  // namespace
}  // namespace weft::testing
