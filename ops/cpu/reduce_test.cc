#include <cmath>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ints = std::vector<int32_t>;

absl::StatusOr<Tensor> Mean(const Tensor& x, const AttrValues& attrs) {
  auto out = RunOp("reduce_mean", {{"X", {x}}}, attrs, {{"Out", 1}});
  if (!out.ok()) return out.status();
  return (*out)["Out"][0];
}

TEST(ReduceMeanTest, OverAllDimensionsGivesAScalar) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      Tensor mean, Mean(Floats({2, 2}, {1, 2, 3, 4}), {{"reduce_all", true}, {"dim", Ints{}}}));
  EXPECT_THAT(mean.dims(), IsEmpty());
  EXPECT_THAT(Values<float>(mean), ElementsAre(2.5));
}

TEST(ReduceMeanTest, NoDimensionsMeansAll) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(Floats({2, 2}, {1, 2, 3, 4}), {{"dim", Ints{}}}));
  EXPECT_THAT(mean.dims(), IsEmpty());
}

TEST(ReduceMeanTest, KeepDimLeavesOnes) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      Tensor mean, Mean(Floats({2, 2}, {1, 2, 3, 4}), {{"dim", Ints{-1}}, {"keep_dim", true}}));
  EXPECT_THAT(mean.dims(), ElementsAre(2, 1));
  EXPECT_THAT(Values<float>(mean), ElementsAre(1.5, 3.5));
}

TEST(ReduceMeanTest, OverOuterAndInnerDimensionKeepsTheMiddleOne) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      Tensor mean, Mean(Floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), {{"dim", Ints{0, 2}}}));
  EXPECT_THAT(mean.dims(), ElementsAre(2));
  EXPECT_THAT(Values<float>(mean), ElementsAre(3.5, 5.5));
}

TEST(ReduceMeanTest, OfAScalarIsItself) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(Floats({}, {3}), {{"reduce_all", true}}));
  EXPECT_THAT(Values<float>(mean), ElementsAre(3));
}

TEST(ReduceMeanTest, OfNothingIsNotANumber) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(Floats({0, 2}, {}), {{"reduce_all", true}}));
  EXPECT_TRUE(std::isnan(Values<float>(mean)[0]));
}

TEST(ReduceMeanTest, DimensionThatIsNotThereIsNamed) {
  EXPECT_THAT(Mean(Floats({2}, {1, 2}), {{"dim", Ints{1}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute dim: expected an axis of 1 dimensions, found 1")));
}

TEST(ReduceMeanGradTest, SpreadsTheGradientEvenly) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("reduce_mean_grad",
                      {{"X", {Floats({2, 2}, {0, 0, 0, 0})}}, {"Out@GRAD", {Floats({2}, {4, 8})}}},
                      {{"dim", Ints{1}}}, {{"X@GRAD", 1}}));
  EXPECT_THAT(out["X@GRAD"][0].dims(), ElementsAre(2, 2));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(2, 2, 4, 4));
}

TEST(ReduceMeanGradTest, OfAScalarResult) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("reduce_mean_grad",
                      {{"X", {Floats({4}, {0, 0, 0, 0})}}, {"Out@GRAD", {Floats({}, {1})}}},
                      {{"reduce_all", true}}, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(0.25, 0.25, 0.25, 0.25));
}

TEST(ReduceMeanGradTest, XGradMayTakeThePlaceOfX) {
  Tensor x = Floats({2}, {5, 6}), dout = Floats({}, {1});
  WEFT_ASSERT_OK(RunOpOn("reduce_mean_grad", {{"X", {&x}}, {"Out@GRAD", {&dout}}},
                         {{"reduce_all", true}}, {{"X@GRAD", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(0.5, 0.5));
}

TEST(SquaredL2NormTest, HasOneElementWhateverTheShape) {
  for (const Dims& dims : {Dims{2, 1}, Dims{2}}) {
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto out, RunOp("squared_l2_norm", {{"X", {Floats(dims, {3, -4})}}}, {}, {{"Out", 1}}));
    EXPECT_THAT(out["Out"][0].dims(), ElementsAre(1));
    EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(25));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("squared_l2_norm", {{"X", {Floats({0}, {})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0));
}

}  // namespace
}  // namespace weft::testing
