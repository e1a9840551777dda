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

TEST(ElementwiseTest, AddRepeatsTheBiasOverRows) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("elementwise_add",
                                            {{"X", {Floats({2, 3}, {1, 2, 3, 4, 5, 6})}},
                                             {"Y", {Floats({3}, {10, 20, 30})}}},
                                            {{"axis", 1}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(11, 22, 33, 14, 25, 36));
}

TEST(ElementwiseTest, SubRepeatsAColumn) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("elementwise_sub",
                      {{"X", {Floats({2, 2}, {1, 2, 3, 4})}}, {"Y", {Floats({2}, {1, 2})}}},
                      {{"axis", 0}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 1, 1, 2));
}

TEST(ElementwiseTest, IntegersAreAdded) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("elementwise_add",
                                            {{"X", {MakeTensor<int64_t>({2}, {1, 2})}},
                                             {"Y", {MakeTensor<int64_t>({1}, {1LL << 40})}}},
                                            {}, {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre((1LL << 40) + 1, (1LL << 40) + 2));
}

TEST(ElementwiseTest, ScalarsAndEmptyTensorsKeepTheirShape) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("elementwise_add", {{"X", {Floats({}, {1})}}, {"Y", {Floats({}, {2})}}}, {},
                      {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), IsEmpty());
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(3));

  WEFT_ASSERT_OK_AND_ASSIGN(
      out, RunOp("elementwise_add", {{"X", {Floats({0, 2}, {})}}, {"Y", {Floats({2}, {1, 2})}}}, {},
                 {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(0, 2));
}

TEST(ElementwiseTest, OutMayTakeThePlaceOfX) {
  Tensor x = Floats({2}, {1, 2}), y = Floats({2}, {5, 7});
  WEFT_ASSERT_OK(RunOpOn("elementwise_sub", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(-4, -5));
}

TEST(ElementwiseTest, OutCannotTakeThePlaceOfARepeatedOperand) {
  Tensor x = Floats({2, 2}, {1, 2, 3, 4}), y = Floats({2}, {5, 7});
  EXPECT_THAT(RunOpOn("elementwise_add", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&y}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in place of input Y")));
}

TEST(ElementwiseTest, GradientOfARepeatedOperandIsSummed) {
  Tensor x = Floats({2, 2}, {0, 0, 0, 0}), y = Floats({2}, {0, 0});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("elementwise_sub_grad",
                      {{"X", {x}}, {"Y", {y}}, {"Out@GRAD", {Floats({2, 2}, {1, 2, 3, 4})}}},
                      {{"axis", 1}}, {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<float>(out["Y@GRAD"][0]), ElementsAre(-4, -6));
}

TEST(ElementwiseTest, GradientsThatNobodyWantsAreSkipped) {
  Tensor x = Floats({2}, {0, 0}), dout = Floats({2}, {1, 2}), dy;
  const SlotPointers inputs = {{"X", {&x}}, {"Y", {&x}}, {"Out@GRAD", {&dout}}};
  WEFT_ASSERT_OK(RunOpOn("elementwise_sub_grad", inputs, {}, {{"Y@GRAD", {&dy}}}));
  EXPECT_THAT(Values<float>(dy), ElementsAre(-1, -2));
  WEFT_ASSERT_OK(RunOpOn("elementwise_sub_grad", inputs, {}, {{"X@GRAD", {nullptr}}}));
}

TEST(ElementwiseTest, EitherGradientMayTakeThePlaceOfOutGrad) {
  Tensor x = Floats({2}, {0, 0});
  for (const bool x_in_place : {true, false}) {
    Tensor dout = Floats({2}, {1, 2}), other;
    Tensor* dx = x_in_place ? &dout : &other;
    Tensor* dy = x_in_place ? &other : &dout;
    WEFT_ASSERT_OK(RunOpOn("elementwise_sub_grad",
                           {{"X", {&x}}, {"Y", {&x}}, {"Out@GRAD", {&dout}}}, {},
                           {{"X@GRAD", {dx}}, {"Y@GRAD", {dy}}}));
    EXPECT_THAT(Values<float>(*dx), ElementsAre(1, 2));
    EXPECT_THAT(Values<float>(*dy), ElementsAre(-1, -2));
  }
}

TEST(ElementwiseTest, ShapesThatDoNotFitAreAnError) {
  EXPECT_THAT(
      RunOp("elementwise_add", {{"X", {Floats({2}, {1, 2})}}, {"Y", {Floats({3}, {1, 2, 3})}}}, {},
            {{"Out", 1}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input Y: shape [3]")));
}

TEST(ElementwiseTest, MissingInputIsAnError) {
  EXPECT_THAT(RunOp("elementwise_add", {{"X", {Floats({2}, {1, 2})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input Y: missing"));
}

}  // namespace
}  // namespace weft::testing
