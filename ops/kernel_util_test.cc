#include "ops/kernel_util.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

TEST(SaturatedTest, StopsAtTheLimitsOfIntegers) {
  EXPECT_EQ(Saturated<int32_t>(-2.9), -2);
  EXPECT_EQ(Saturated<int32_t>(1e20), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(Saturated<int64_t>(std::ldexp(1.0, 63)), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Saturated<int64_t>(-INFINITY), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Saturated<int64_t>(NAN), 0);
  EXPECT_EQ(Saturated<float>(0.5), 0.5f);
}

TEST(ScalarValueTest, IsOneFloatingPointElementOfADenseTensor) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {1});
  *tensor.data<float>() = 0.5f;
  EXPECT_THAT(ScalarValue("X", tensor), IsOkAndHolds(0.5));
  tensor.ResizeRows(DType::kFloat32, {2}, 1);
  EXPECT_THAT(ScalarValue("X", tensor),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected a dense tensor, found SelectedRows"));
  tensor.Resize(DType::kInt32, {1});
  EXPECT_FALSE(ScalarValue("X", tensor).ok());
  tensor.Resize(DType::kFloat32, {2});
  EXPECT_FALSE(ScalarValue("X", tensor).ok());
}

TEST(AxisOfTest, NegativeAxesCountFromTheRight) {
  EXPECT_THAT(CheckedAxis(1, {2, 3}), IsOkAndHolds(1));
  EXPECT_THAT(CheckedAxis(-2, {2, 3}), IsOkAndHolds(0));
  EXPECT_THAT(CheckedAxis(-3, {2, 3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute axis: -3 is not a dimension of shape [2, 3]"));
  EXPECT_FALSE(CheckedAxis(0, {}).ok());
}

}  // namespace
}  // namespace weft::testing
