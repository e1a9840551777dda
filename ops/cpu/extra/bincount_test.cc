#include <cstdint>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(BinCountTest, NegativeNumbersAndThoseThatNoTensorHasRoomForAreErrors) {
  for (const int64_t number : {int64_t{-1}, int64_t{1} << 60}) {
    EXPECT_THAT(
        RunOp("bincount", {{"X", {MakeTensor<int64_t>({2}, {0, number})}}}, {}, {{"Out", 1}}),
        IsInvalidArgument("at position 1"));
  }
}

TEST(BinCountTest, WithoutNumbersThereAreMinlengthBins) {
  const Tensor none = MakeTensor<int64_t>({0}, {});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("bincount", {{"X", {none}}}, {{"minlength", 2}}, {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(0, 0));
}

}  // namespace
}  // namespace weft::testing
