#include "ops/cpu/erfinv.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ErfinvTest, InvertsErfInDoublePrecision) {
  for (double y = -0.9999; y < 1; y += 0.0007) {
    EXPECT_NEAR(std::erf(Erfinv(y)), y, 1e-15) << y;
  }
}

TEST(ErfinvTest, InvertsErfInSinglePrecision) {
  for (float y = -0.999f; y < 1; y += 0.0007f) {
    EXPECT_NEAR(std::erf(static_cast<double>(Erfinv(y))), y, 3e-7) << y;
  }
}

TEST(ErfinvTest, InvertsErfcInTheTail) {
  // 1 - y, exact in double precision; erfc(x) is its value at the inverse.
  for (double rest = 0x1p-5; rest > 0x1p-50; rest /= 2) {
    EXPECT_NEAR(std::erfc(Erfinv(1 - rest)) / rest, 1, 1e-12) << rest;
  }
}

TEST(ErfinvTest, IsOddAndInfiniteAtTheEnds) {
  EXPECT_EQ(Erfinv(-0.9), -Erfinv(0.9));
  EXPECT_EQ(Erfinv(0.0), 0);
  EXPECT_EQ(Erfinv(1.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Erfinv(-1.0f), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(Erfinv(1.5)));
  EXPECT_TRUE(std::isnan(Erfinv(std::nan(""))));
}

}  // namespace
}  // namespace weft
