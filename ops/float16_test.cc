#include "ops/float16.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Float16Test, EveryNumberComesBackFromSingleAndDoublePrecision) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Float16::FromBits(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float{Float16(value)}));
      continue;
    }
    ASSERT_EQ(Float16(value).bits(), bits);
    ASSERT_EQ(Float16(double{value}).bits(), bits);
  }
}

TEST(Float16Test, RoundsToNearestTiesToEven) {
  EXPECT_EQ(float{Float16(2049.0f)}, 2048);  // half way between 2048 and 2050
  EXPECT_EQ(float{Float16(2051.0f)}, 2052);
  EXPECT_EQ(float{Float16(2049.01f)}, 2050);
  EXPECT_EQ(float{Float16(0x1p-25f)}, 0);  // half of the smallest number
  EXPECT_EQ(float{Float16(0x1.8p-24f)}, 0x1p-23f);
  EXPECT_EQ(float{Float16(0x1.ffep-15f)}, 0x1p-14f);  // carries into the normal numbers
}

TEST(Float16Test, DoublePrecisionIsRoundedOnce) {
  // To single precision first it would become 2049, which is then a tie.
  EXPECT_EQ(float{Float16(2049.0 + 1e-9)}, 2050);
}

TEST(Float16Test, LargeNumbersAreInfinite) {
  EXPECT_EQ(float{Float16(65519.0f)}, 65504);
  EXPECT_EQ(float{Float16(-65520.0f)}, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float{Float16(1e300)}, std::numeric_limits<float>::infinity());
}

TEST(BFloat16Test, IsTheUpperHalfOfSinglePrecisionRounded) {
  EXPECT_EQ(BFloat16(1.0f).bits(), 0x3f80);
  EXPECT_EQ(float{BFloat16(257.0f)}, 256);  // half way between 256 and 258
  EXPECT_EQ(float{BFloat16(259.0f)}, 260);
  EXPECT_TRUE(std::isnan(float{BFloat16(std::numeric_limits<float>::quiet_NaN())}));
  EXPECT_EQ(float{BFloat16(std::numeric_limits<float>::max())},
            std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace weft
