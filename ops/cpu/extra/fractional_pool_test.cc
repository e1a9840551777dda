// Windows as Paddle 3.3.1 places them, draws, and errors.
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

// A row of the numbers 0, 1, ...: a maximum is its window's last element.
Tensor Row(int64_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 0.0F);
  return Floats({1, 1, 1, size}, values);
}

absl::StatusOr<std::vector<int32_t>> Maxima(int64_t size, const AttrValues& attrs,
                                            RandomState* random = nullptr) {
  auto out = RunOp("fractional_max_pool2d", {{"x", {Row(size)}}}, attrs, {{"mask", 1}, {"out", 1}},
                   random);
  if (!out.ok()) return out.status();
  return Values<int32_t>((*out)["mask"][0]);
}

TEST(FractionalPoolTest, WindowsFollowEachOtherOrHaveTheirSize) {
  EXPECT_THAT(Maxima(10, {{"output_size", Ints{1, 4}}, {"random_u", 0.3F}}),
              IsOkAndHolds(ElementsAre(1, 4, 6, 9)));
  EXPECT_THAT(
      Maxima(10, {{"output_size", Ints{1, 4}}, {"kernel_size", Ints{1, 3}}, {"random_u", 0.3F}}),
      IsOkAndHolds(ElementsAre(2, 5, 7, 9)));
  EXPECT_THAT(
      Maxima(10, {{"output_size", Ints{1, 1}}, {"kernel_size", Ints{1, 3}}, {"random_u", 0.3F}}),
      IsOkAndHolds(ElementsAre(2)));
}

TEST(FractionalPoolTest, WithoutAShiftOneIsDrawn) {
  const AttrValues attrs = {{"output_size", Ints{1, 31}}};
  std::vector<std::vector<int32_t>> drawn;
  for (const int rank : {0, 0, 1}) {
    RandomState random = RandomState::Seeded(7, rank);
    WEFT_ASSERT_OK_AND_ASSIGN(drawn.emplace_back(), Maxima(100, attrs, &random));
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], drawn[2]);
  EXPECT_THAT(Maxima(100, attrs), IsFailedPrecondition("no random numbers"));
}

TEST(FractionalPoolTest, GradientsOfOneMaximumAddUp) {
  const AttrValues attrs = {{"output_size", Ints{1, 2}}, {"random_u", 0.5F}};
  const auto gradient = [&](const std::vector<int32_t>& places) {
    return RunOp("fractional_max_pool2d_grad",
                 {{"x", {Row(3)}},
                  {"mask", {MakeTensor<int32_t>({1, 1, 1, 2}, places)}},
                  {"out@GRAD", {Floats({1, 1, 1, 2}, {10, 20})}}},
                 attrs, {{"x@GRAD", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto same, gradient({2, 2}));
  EXPECT_THAT(Values<float>(same["x@GRAD"][0]), ElementsAre(0, 0, 30));
  WEFT_ASSERT_OK_AND_ASSIGN(auto none, gradient({-1, 1}));
  EXPECT_THAT(Values<float>(none["x@GRAD"][0]), ElementsAre(0, 20, 0));
  EXPECT_THAT(gradient({3, 1}), IsInvalidArgument("input mask: 3 at position 0"));
}

TEST(FractionalPoolTest, MoreWindowsThanElementsAreErrors) {
  EXPECT_THAT(Maxima(3, {{"output_size", Ints{1, 4}}, {"random_u", 0.5F}}),
              IsInvalidArgument("expected a dimension 3 of at least 4 for 4 windows"));
  EXPECT_THAT(Maxima(3, {{"output_size", Ints{1, 2}}, {"random_u", 1.0F}}),
              IsInvalidArgument("attribute random_u"));
}

}  // namespace
}  // namespace weft::testing
