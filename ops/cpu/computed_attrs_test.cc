#include "ops/cpu/computed_attrs.h"

#include <cstdint>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ComputedAttrsTest, AVariableHoldsAllNumbers) {
  Tensor shape = MakeTensor<int64_t>({2}, {2, 3}), out;
  WEFT_ASSERT_OK(
      RunOpOn("fill_constant", {{"ShapeTensor", {&shape}}}, {{"value", 2.0f}}, {{"Out", {&out}}}));
  EXPECT_THAT(out.dims(), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(out), ElementsAre(2, 2, 2, 2, 2, 2));
}

TEST(ComputedAttrsTest, AVariableForEachNumber) {
  Tensor rows = MakeTensor<int32_t>({}, {2}), columns = MakeTensor<int32_t>({1}, {1}), out;
  WEFT_ASSERT_OK(
      RunOpOn("fill_constant", {{"ShapeTensorList", {&rows, &columns}}}, {}, {{"Out", {&out}}}));
  EXPECT_THAT(out.dims(), ElementsAre(2, 1));
}

// As with the last, smaller batch.
TEST(ComputedAttrsTest, NumbersMayChangeFromStepToStep) {
  Tensor x = Floats({4}, {1, 2, 3, 4}), shape = MakeTensor<int32_t>({2}, {2, -1}), out, xshape;
  WEFT_ASSERT_OK_AND_ASSIGN(BoundOp op,
                            BoundOp::Make("reshape2", {{"X", {&x}}, {"Shape", {&shape}}}, {},
                                          {{"Out", {&out}}, {"XShape", {&xshape}}}));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(out.dims(), ElementsAre(2, 2));
  shape = MakeTensor<int32_t>({2}, {1, -1});
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(out.dims(), ElementsAre(1, 4));
  shape = MakeTensor<int32_t>({2}, {3, -1});
  EXPECT_THAT(op.Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not fit")));
}

TEST(ComputedAttrsTest, FewerNumbersThanAttributesSetTheLast) {
  Tensor x = Floats({1, 1, 1, 2}, {1, 3}), size = MakeTensor<int32_t>({2}, {1, 4}), out;
  WEFT_ASSERT_OK(RunOpOn("nearest_interp_v2", {{"X", {&x}}, {"OutSize", {&size}}},
                         {{"align_corners", false}}, {{"Out", {&out}}}));
  EXPECT_THAT(Values<float>(out), ElementsAre(1, 1, 3, 3));
}

TEST(ComputedAttrsTest, NumbersThatDoNotFitAreErrors) {
  Tensor x = Floats({1, 1, 1, 2}, {1, 3}), size = MakeTensor<int32_t>({4}, {1, 1, 1, 1}), out;
  EXPECT_THAT(
      RunOpOn("nearest_interp_v2", {{"X", {&x}}, {"OutSize", {&size}}}, {}, {{"Out", {&out}}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "input OutSize: expected at most 3 numbers, found 4"));
  Tensor two = MakeTensor<int32_t>({2}, {1, 1});
  EXPECT_THAT(RunOpOn("fill_constant", {{"ShapeTensorList", {&two}}}, {}, {{"Out", {&out}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input ShapeTensorList")));
  Tensor negative = MakeTensor<int32_t>({1}, {-3});
  EXPECT_THAT(RunOpOn("fill_constant", {{"ShapeTensor", {&negative}}}, {}, {{"Out", {&out}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dimension")));
}

}  // namespace
}  // namespace weft::testing
