#include <cmath>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

absl::StatusOr<Tensor> Clip(const Tensor& x, float min, float max) {
  auto out = RunOp("clip", {{"X", {x}}}, {{"min", min}, {"max", max}}, {{"Out", 1}});
  if (!out.ok()) return out.status();
  return (*out)["Out"][0];
}

TEST(ClipTest, CutsOffOnBothSides) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor out, Clip(Floats({3}, {-2, 0.5f, 2}), -1, 1));
  EXPECT_THAT(Values<float>(out), ElementsAre(-1, 0.5f, 1));
}

TEST(ClipTest, NotANumberStays) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor out, Clip(Floats({1}, {std::nanf("")}), -1, 1));
  EXPECT_THAT(Values<float>(out), ElementsAre(IsNan()));
}

TEST(ClipTest, BoundsOfIntegersMayBeBeyondTheirType) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor out,
                            Clip(MakeTensor<int32_t>({2}, {-5, 2000000000}), -1, 1e20f));
  EXPECT_THAT(Values<int32_t>(out), ElementsAre(-1, 2000000000));
}

TEST(ClipTest, TensorsReplaceAttributesAndOutMayTakeThePlaceOfX) {
  Tensor x = Floats({2}, {-2, 2}), max = Floats({1}, {0.5f});
  WEFT_ASSERT_OK(RunOpOn("clip", {{"X", {&x}}, {"Max", {&max}}}, {{"min", -1.0f}, {"max", 1.0f}},
                         {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(-1, 0.5f));
}

TEST(ClipTest, MinAboveMaxIsAnError) {
  EXPECT_THAT(Clip(Floats({1}, {0}), 1, -1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "expected min of at most max, found min 1 and max -1"));
}

absl::StatusOr<Tensor> ClipByNorm(const Tensor& x, float max_norm) {
  auto out = RunOp("clip_by_norm", {{"X", {x}}}, {{"max_norm", max_norm}}, {{"Out", 1}});
  if (!out.ok()) return out.status();
  return (*out)["Out"][0];
}

TEST(ClipByNormTest, ScalesDownLargerNorms) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, ClipByNorm(Floats({2}, {3, 4}), 1));
  EXPECT_THAT(Values<float>(out), ElementsAre(FloatEq(0.6f), FloatEq(0.8f)));
  WEFT_ASSERT_OK_AND_ASSIGN(out, ClipByNorm(Floats({2}, {3, 4}), 5));
  EXPECT_THAT(Values<float>(out), ElementsAre(3, 4));
}

TEST(ClipByNormTest, SquaresDoNotOverflow) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor out, ClipByNorm(Floats({2}, {3e30f, 4e30f}), 5));
  EXPECT_THAT(Values<float>(out), ElementsAre(FloatEq(3), FloatEq(4)));
}

TEST(ClipByNormTest, ZerosAndEmptyTensorsStay) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, ClipByNorm(Floats({2}, {0, 0}), 1));
  EXPECT_THAT(Values<float>(out), ElementsAre(0, 0));
  WEFT_ASSERT_OK_AND_ASSIGN(out, ClipByNorm(Floats({0, 2}, {}), 1));
  EXPECT_THAT(out.dims(), ElementsAre(0, 2));
}

TEST(ClipByNormTest, NotANumberIsNotHidden) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor out, ClipByNorm(Floats({2}, {std::nanf(""), 1}), 1));
  EXPECT_THAT(Values<float>(out), ElementsAre(IsNan(), IsNan()));
}

TEST(ClipByNormTest, NormMustBePositive) {
  EXPECT_THAT(ClipByNorm(Floats({1}, {1}), 0), IsInvalidArgument("attribute max_norm"));
}

}  // namespace
}  // namespace weft::testing
