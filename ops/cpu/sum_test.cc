#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(SumTest, AddsInTheOrderOfTheInputs) {
  // In another order the last bits differ.
  const std::vector<Tensor> x = {Floats({1}, {1e8f}), Floats({1}, {-1e8f}), Floats({1}, {0.5f})};
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("sum", {{"X", x}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0.5f));
}

TEST(SumTest, OutMayTakeThePlaceOfAnyInput) {
  const int64_t size = 3000;  // more than a block
  for (const int place : {0, 1}) {
    Tensor x = Floats({size}, std::vector<float>(size, 1)),
           y = Floats({size}, std::vector<float>(size, 2));
    WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&x, &y}}}, {}, {{"Out", {place == 0 ? &x : &y}}}));
    EXPECT_THAT(Values<float>(place == 0 ? x : y), Each(3));
    EXPECT_THAT(Values<float>(place == 0 ? y : x), Each(place == 0 ? 2 : 1));
  }
}

TEST(SumTest, OutMayBeTheLastOfSeveralInputs) {
  for (const int place : {0, 1, 2}) {
    std::vector<Tensor> x;
    for (const float value : {1, 2, 4})
      x.push_back(Floats({1025}, std::vector<float>(1025, value)));
    WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&x[0], &x[1], &x[2]}}}, {}, {{"Out", {&x[place]}}}));
    EXPECT_THAT(Values<float>(x[place]), Each(7));
    WEFT_ASSERT_OK(
        RunOpOn("sum", {{"X", {&x[place], &x[place], &x[place]}}}, {}, {{"Out", {&x[place]}}}));
    EXPECT_THAT(Values<float>(x[place]), Each(21));
  }
}

TEST(SumTest, OfOneInputIsACopy) {
  const std::vector<float> values(1025, 3);
  Tensor x = Floats({1025}, values), out;
  WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&x}}}, {}, {{"Out", {&out}}}));
  EXPECT_EQ(Values<float>(out), values);
}

TEST(SumTest, AVariableMayOccurTwice) {
  Tensor x = Floats({2}, {1, 2});
  WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&x, &x}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(2, 4));
}

TEST(SumTest, EmptyInputsDoNotCount) {
  Tensor empty = Floats({0}, {}), x = Floats({2}, {1, 2}), out;
  WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&empty, nullptr, &x}}}, {}, {{"Out", {&out}}}));
  EXPECT_THAT(Values<float>(out), ElementsAre(1, 2));
  WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {nullptr, &empty}}}, {}, {{"Out", {&out}}}));
  EXPECT_THAT(out.dims(), ElementsAre(0));
  EXPECT_THAT(RunOpOn("sum", {{"X", {nullptr, nullptr}}}, {}, {{"Out", {&out}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input X: missing"));
}

TEST(SumTest, ScalarsAndIntegers) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("sum", {{"X", {MakeTensor<int64_t>({}, {1LL << 40}), MakeTensor<int64_t>({}, {2})}}},
            {}, {{"Out", 1}}));
  EXPECT_EQ(out["Out"][0].rank(), 0);
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre((1LL << 40) + 2));
}

TEST(SumTest, InputsOfTwoShapesOrTypesAreAnError) {
  const Tensor x = Floats({2}, {1, 2});
  EXPECT_THAT(RunOp("sum", {{"X", {x, Floats({1}, {1})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected fp32[2] as the others, found fp32[1]"));
  EXPECT_THAT(RunOp("sum", {{"X", {x, MakeTensor<double>({2}, {1, 2})}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("expected fp32"));
}

}  // namespace
}  // namespace weft::testing
