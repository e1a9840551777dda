#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

TEST(ConcatTest, JoinsAlongTheAxis) {
  const SlotTensors x = {{"X", {Floats({2, 1}, {1, 2}), Floats({2, 2}, {3, 4, 5, 6})}}};
  for (const int axis : {1, -1}) {
    WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("concat", x, {{"axis", axis}}, {{"Out", 1}}));
    EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 3));
    EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(1, 3, 4, 2, 5, 6));
  }
}

TEST(ConcatTest, OfAnyElementTypeAndWithEmptyParts) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("concat", {{"X", {MakeTensor<int64_t>({0}, {}), MakeTensor<int64_t>({2}, {7, 8})}}}, {},
            {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(7, 8));
}

TEST(ConcatTest, ShapesThatDifferElsewhereAreAnError) {
  EXPECT_THAT(
      RunOp("concat", {{"X", {Floats({1, 2}, {1, 2}), Floats({1, 1}, {3})}}}, {}, {{"Out", 1}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "input X: expected fp32[1, 2] but for dimension 0, found fp32[1, 1]"));
  EXPECT_THAT(RunOp("concat", {{"X", {Floats({1}, {1}), Floats({1, 1}, {3})}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("input X: expected"));
  EXPECT_THAT(RunOp("concat", {{"X", {Floats({1}, {1})}}}, {{"axis", 1}}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute axis: expected an axis of 1 dimensions, found 1"));
}

TEST(ConcatTest, OutMayTakeThePlaceOfAPart) {
  Tensor x = Floats({1}, {1}), y = Floats({1}, {2});
  WEFT_ASSERT_OK(RunOpOn("concat", {{"X", {&x, &y}}}, {}, {{"Out", {&y}}}));
  EXPECT_THAT(Values<float>(y), ElementsAre(1, 2));
}

TEST(ConcatTest, GradientIsCutUpAsTheInputsWere) {
  Tensor x = Floats({2, 1}, {0, 0}), y = Floats({2, 2}, {0, 0, 0, 0});
  Tensor dout = Floats({2, 3}, {1, 2, 3, 4, 5, 6}), dx, dy;
  const SlotPointers inputs = {{"X", {&x, &y}}, {"Out@GRAD", {&dout}}};
  WEFT_ASSERT_OK(RunOpOn("concat_grad", inputs, {{"axis", 1}}, {{"X@GRAD", {&dx, &dy}}}));
  EXPECT_THAT(Values<float>(dx), ElementsAre(1, 4));
  EXPECT_THAT(Values<float>(dy), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(dy.dims(), ElementsAre(2, 2));
}

TEST(ConcatTest, GradientIsOfTheTypeOfTheInputs) {
  EXPECT_THAT(RunOp("concat_grad",
                    {{"X", {Floats({1}, {0}), Floats({1}, {0})}},
                     {"Out@GRAD", {MakeTensor<int64_t>({2}, {1, 2})}}},
                    {}, {{"X@GRAD", 2}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Out@GRAD: expected fp32[2] as Out, found int64[2]"));
}

TEST(ConcatTest, EveryPartIsAVariable) {
  Tensor x = Floats({1}, {0}), dout = Floats({2}, {1, 2}), dx, dy, out;
  EXPECT_THAT(RunOpOn("concat", {{"X", {&x, nullptr}}}, {}, {{"Out", {&out}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected 2 variables, found none for 1"));
  EXPECT_THAT(RunOpOn("concat_grad", {{"X", {nullptr, &x}}, {"Out@GRAD", {&dout}}}, {},
                      {{"X@GRAD", {&dx, &dy}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected 2 variables, found none for 0"));
}

TEST(ConcatTest, UnreadGradientsAreSkipped) {
  Tensor x = Floats({1}, {0}), y = Floats({1}, {0}), dout = Floats({2}, {1, 2}), dy;
  const SlotPointers inputs = {{"X", {&x, &y}}, {"Out@GRAD", {&dout}}};
  WEFT_ASSERT_OK(RunOpOn("concat_grad", inputs, {}, {{"X@GRAD", {nullptr, &dy}}}));
  EXPECT_THAT(Values<float>(dy), ElementsAre(2));
  WEFT_EXPECT_OK(RunOpOn("concat_grad", inputs, {}, {}));
  EXPECT_THAT(RunOpOn("concat_grad", inputs, {}, {{"X@GRAD", {&dy}}}),
              IsInvalidArgument("expected 1 variables, as many as X@GRAD has"));
}

absl::StatusOr<std::vector<Tensor>> Split(const Tensor& x, const AttrValues& attrs, int count) {
  auto out = RunOp("split", {{"X", {x}}}, attrs, {{"Out", count}});
  if (!out.ok()) return out.status();
  return (*out)["Out"];
}

TEST(SplitTest, IntoEqualParts) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto parts, Split(Floats({4}, {1, 2, 3, 4}), {{"num", 2}}, 2));
  EXPECT_THAT(Values<float>(parts[0]), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(parts[1]), ElementsAre(3, 4));
}

// With a negative axis, Paddle's CPU kernel splits the elements as one row.
TEST(SplitTest, IntoSectionsOfWhichOneTakesTheRest) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto parts,
                            Split(Floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}),
                                  {{"axis", -1}, {"sections", Ints{1, -1, 0}}}, 3));
  EXPECT_THAT(Values<float>(parts[0]), ElementsAre(1, 5));
  EXPECT_THAT(Values<float>(parts[1]), ElementsAre(2, 3, 4, 6, 7, 8));
  EXPECT_THAT(parts[2].dims(), ElementsAre(2, 0));
}

TEST(SplitTest, PartsThatDoNotFitAreAnError) {
  const Tensor x = Floats({3}, {1, 2, 3});
  EXPECT_THAT(Split(x, {{"num", 2}}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected 2 equal parts along the axis, found fp32[3]"));
  EXPECT_THAT(Split(x, {{"sections", Ints{1, 1}}}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute sections: expected parts of 3 elements, found [1, 1]"));
  EXPECT_THAT(Split(x, {{"sections", Ints{-1, -1}}}, 2), IsInvalidArgument("attribute sections"));
  EXPECT_THAT(Split(x, {{"num", 3}}, 2), IsInvalidArgument("expected 2 parts"));
}

TEST(SplitTest, OutMayTakeThePlaceOfX) {
  Tensor x = Floats({2}, {1, 2}), y;
  WEFT_ASSERT_OK(RunOpOn("split", {{"X", {&x}}}, {{"num", 2}}, {{"Out", {&x, &y}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(1));
  EXPECT_THAT(Values<float>(y), ElementsAre(2));
}

TEST(SplitTest, UnreadPartsAreSkipped) {
  Tensor x = Floats({3}, {1, 2, 3}), y;
  WEFT_ASSERT_OK(
      RunOpOn("split", {{"X", {&x}}}, {{"sections", Ints{2, -1}}}, {{"Out", {nullptr, &y}}}));
  EXPECT_THAT(Values<float>(y), ElementsAre(3));
}

}  // namespace
}  // namespace weft::testing
