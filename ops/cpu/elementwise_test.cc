#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

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

TEST(ElementwiseTest, OutMayTakeThePlaceOfARepeatedOperand) {
  Tensor x = Floats({2, 2}, {1, 2, 3, 4}), y = Floats({2}, {5, 7});
  WEFT_ASSERT_OK(RunOpOn("elementwise_add", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&y}}}));
  EXPECT_THAT(Values<float>(y), ElementsAre(6, 9, 8, 11));
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

TEST(ElementwiseTest, UnreadGradientsAreSkipped) {
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
      IsInvalidArgument("input Y: expected dimensions that broadcast with [2] of X"));
}

TEST(ElementwiseTest, MissingInputIsAnError) {
  EXPECT_THAT(RunOp("elementwise_add", {{"X", {Floats({2}, {1, 2})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input Y: missing"));
}

// X op Y for tensors of one dimension.
template <typename T>
absl::StatusOr<std::vector<T>> Apply(const char* op, const std::vector<T>& x,
                                     const std::vector<T>& y) {
  auto out = RunOp(op,
                   {{"X", {MakeTensor<T>({static_cast<int64_t>(x.size())}, x)}},
                    {"Y", {MakeTensor<T>({static_cast<int64_t>(y.size())}, y)}}},
                   {}, {{"Out", 1}});
  if (!out.ok()) return out.status();
  return Values<T>((*out)["Out"][0]);
}

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

TEST(ElementwiseTest, IntegersWrapAround) {
  EXPECT_THAT(Apply<int64_t>("elementwise_add", {kHighest}, {1}),
              IsOkAndHolds(ElementsAre(kLowest)));
  EXPECT_THAT(Apply<int64_t>("elementwise_sub", {kLowest}, {1}),
              IsOkAndHolds(ElementsAre(kHighest)));
  EXPECT_THAT(Apply<int64_t>("elementwise_mul", {kHighest}, {2}), IsOkAndHolds(ElementsAre(-2)));
}

TEST(ElementwiseTest, DivCutsIntegersOffTowardsZero) {
  EXPECT_THAT(Apply<int32_t>("elementwise_div", {7, -7, 7}, {2, 2, -2}),
              IsOkAndHolds(ElementsAre(3, -3, -3)));
  EXPECT_THAT(Apply<int64_t>("elementwise_div", {kLowest}, {-1}),
              IsOkAndHolds(ElementsAre(kLowest)));
}

TEST(ElementwiseTest, ModHasTheSignOfY) {
  EXPECT_THAT(Apply<int32_t>("elementwise_mod", {7, -7, 7, -6}, {3, 3, -3, 3}),
              IsOkAndHolds(ElementsAre(1, 2, -2, 0)));
  EXPECT_THAT(Apply<float>("elementwise_mod", {5.5f, -5.5f}, {2, 2}),
              IsOkAndHolds(ElementsAre(1.5f, 0.5f)));
  EXPECT_THAT(Apply<int64_t>("elementwise_mod", {kLowest}, {-1}), IsOkAndHolds(ElementsAre(0)));
}

TEST(ElementwiseTest, IntegersCannotBeDividedByZero) {
  for (const char* op : {"elementwise_div", "elementwise_mod"}) {
    EXPECT_THAT(
        Apply<int32_t>(op, {1, 1}, {1, 0}),
        StatusIs(absl::StatusCode::kInvalidArgument, "input Y: 0 at position 1: division by zero"));
  }
  EXPECT_THAT(Apply<float>("elementwise_div", {1}, {0}),
              IsOkAndHolds(ElementsAre(std::numeric_limits<float>::infinity())));
}

TEST(ElementwiseTest, PowOfIntegersIsExact) {
  EXPECT_THAT(Apply<int64_t>("elementwise_pow", {3, -3, 0, 2}, {39, 3, 0, 62}),
              IsOkAndHolds(ElementsAre(4052555153018976267, -27, 1, 4611686018427387904)));
  EXPECT_THAT(Apply<int32_t>("elementwise_pow", {2}, {-1}), IsInvalidArgument("negative power"));
  EXPECT_THAT(Apply<float>("elementwise_pow", {0.25f}, {-0.5f}), IsOkAndHolds(ElementsAre(2)));
}

TEST(ElementwiseTest, MaxAndMin) {
  EXPECT_THAT(Apply<float>("elementwise_max", {1, 5}, {3, 2}), IsOkAndHolds(ElementsAre(3, 5)));
  EXPECT_THAT(Apply<int64_t>("elementwise_min", {1, 5}, {3, 2}), IsOkAndHolds(ElementsAre(1, 2)));
}

// As in Paddle 3.3.1, and in PyTorch.
TEST(ElementwiseTest, MaxAndMinOfNanAreNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Floats({3}, {nan, 1, nan}), y = Floats({3}, {1, nan, nan});
  for (const char* op : {"elementwise_max", "elementwise_min"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(op, {{"X", {x}}, {"Y", {y}}}, {}, {{"Out", 1}}));
    EXPECT_THAT(Values<float>(out["Out"][0]), Each(IsNan())) << op;
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto grads, RunOp(absl::StrCat(op, "_grad"),
                          {{"X", {x}}, {"Y", {y}}, {"Out@GRAD", {Floats({3}, {1, 2, 3})}}}, {},
                          {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
    EXPECT_THAT(Values<float>(grads["X@GRAD"][0]), Each(0)) << op;
    EXPECT_THAT(Values<float>(grads["Y@GRAD"][0]), Each(0)) << op;
  }
  EXPECT_THAT(Apply<float>("elementwise_fmax", {nan, 1}, {1, nan}), IsOkAndHolds(Each(1)));
}

TEST(ElementwiseTest, OperandsOfTwoElementTypesAreAnError) {
  EXPECT_THAT(
      RunOp("elementwise_mul", {{"X", {Floats({1}, {1})}}, {"Y", {MakeTensor<double>({1}, {1})}}},
            {}, {{"Out", 1}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "input Y: expected fp32 as the other inputs, found fp64[1]"));
}

TEST(ElementwiseTest, MulGradIsSummedOverBroadcastDimensions) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("elementwise_mul_grad",
                                            {{"X", {Floats({2, 2}, {1, 2, 3, 4})}},
                                             {"Y", {Floats({2}, {5, 6})}},
                                             {"Out@GRAD", {Floats({2, 2}, {1, 1, 10, 10})}}},
                                            {}, {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(5, 6, 50, 60));
  EXPECT_THAT(Values<float>(out["Y@GRAD"][0]), ElementsAre(31, 42));
}

TEST(ElementwiseTest, GradientsOfAProductMayTakeThePlaceOfInputs) {
  Tensor x = Floats({2}, {2, 3}), y = Floats({2}, {5, 7}), dout = Floats({2}, {1, 10});
  WEFT_ASSERT_OK(RunOpOn("elementwise_mul_grad", {{"X", {&x}}, {"Y", {&y}}, {"Out@GRAD", {&dout}}},
                         {}, {{"X@GRAD", {&dout}}, {"Y@GRAD", {&x}}}));
  EXPECT_THAT(Values<float>(dout), ElementsAre(5, 70));
  EXPECT_THAT(Values<float>(x), ElementsAre(2, 30));
}

TEST(ElementwiseTest, DivGradTakesTheQuotientFromForward) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("elementwise_div_grad",
                                            {{"X", {Floats({1}, {6})}},
                                             {"Y", {Floats({1}, {2})}},
                                             {"Out", {Floats({1}, {3})}},
                                             {"Out@GRAD", {Floats({1}, {4})}}},
                                            {}, {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(2));
  EXPECT_THAT(Values<float>(out["Y@GRAD"][0]), ElementsAre(-6));
}

TEST(ElementwiseTest, GradientOfEqualOperandsIsThatOfY) {
  for (const char* op : {"elementwise_max_grad", "elementwise_min_grad"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(op,
                                              {{"X", {Floats({1}, {3})}},
                                               {"Y", {Floats({1}, {3})}},
                                               {"Out@GRAD", {Floats({1}, {4})}}},
                                              {}, {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
    EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(0)) << op;
    EXPECT_THAT(Values<float>(out["Y@GRAD"][0]), ElementsAre(4)) << op;
  }
}

// As in Paddle 3.3.1, for all signs.
TEST(ElementwiseTest, RemaindersHaveGradients) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("elementwise_mod_grad",
                                            {{"X", {Floats({4}, {5.5, -5.5, 5.5, -5.5})}},
                                             {"Y", {Floats({4}, {2, 2, -2, -2})}},
                                             {"Out@GRAD", {Floats({4}, {1, 2, 3, 4})}}},
                                            {}, {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<float>(out["Y@GRAD"][0]), ElementsAre(-2, 6, 9, -8));
}

Tensor Bools(const std::vector<bool>& values) {
  Tensor tensor;
  tensor.Resize(DType::kBool, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<bool>());
  return tensor;
}

TEST(MaskedFillTest, AllOperandsBroadcast) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6}), value = Floats({2, 1}, {7, 8});
  const Tensor mask = Bools({true, false, true});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("masked_fill", {{"x", {x}}, {"mask", {mask}}, {"value", {value}}}, {}, {{"out", 1}}));
  EXPECT_THAT(Values<float>(out["out"][0]), ElementsAre(7, 2, 7, 8, 5, 8));
  WEFT_ASSERT_OK_AND_ASSIGN(auto back, RunOp("masked_fill_grad",
                                             {{"x", {x}},
                                              {"mask", {mask}},
                                              {"value", {value}},
                                              {"out@GRAD", {Floats({2, 3}, {1, 2, 3, 4, 5, 6})}}},
                                             {}, {{"x@GRAD", 1}, {"value@GRAD", 1}}));
  EXPECT_THAT(Values<float>(back["x@GRAD"][0]), ElementsAre(0, 2, 0, 0, 5, 0));
  EXPECT_THAT(Values<float>(back["value@GRAD"][0]), ElementsAre(4, 10));
  EXPECT_THAT(
      RunOp("masked_fill", {{"x", {x}}, {"mask", {Bools({true, true})}}, {"value", {value}}}, {},
            {{"out", 1}})
          .status(),
      IsInvalidArgument("input mask"));
}

TEST(ElementwiseTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(RunOp("elementwise_mul_grad",
                    {{"X", {Floats({2}, {1, 2})}},
                     {"Y", {Floats({2}, {1, 2})}},
                     {"Out@GRAD", {Floats({1}, {1})}}},
                    {}, {{"X@GRAD", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Out@GRAD: expected dimensions [2] of X with Y, found fp32[1]"));
}

}  // namespace
}  // namespace weft::testing
