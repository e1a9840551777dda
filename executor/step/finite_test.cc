#include "executor/step/finite.h"

#include <limits>

#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(FirstNonFiniteTest, FiniteTensorGivesNothing) {
  EXPECT_EQ(FirstNonFinite(Floats({3}, {1, -2, 3e38f})), "");
}

TEST(FirstNonFiniteTest, FirstOneCounts) {
  EXPECT_EQ(FirstNonFinite(Floats({3}, {1, kNan, kInf})), "nan");
  EXPECT_EQ(FirstNonFinite(Floats({3}, {1, kInf, kNan})), "inf");
  EXPECT_EQ(FirstNonFinite(Floats({2}, {-kInf, kNan})), "-inf");
}

TEST(FirstNonFiniteTest, LooksAtDoublesToo) {
  EXPECT_EQ(FirstNonFinite(MakeTensor<double>({1}, {kNan})), "nan");
  EXPECT_EQ(FirstNonFinite(MakeTensor<double>({1}, {1e300})), "");
}

TEST(FirstNonFiniteTest, LooksAtHalfPrecisionToo) {
  EXPECT_EQ(FirstNonFinite(MakeTensor<Float16>({2}, {65504, 65520})), "inf");
  EXPECT_EQ(FirstNonFinite(MakeTensor<BFloat16>({2}, {65520, kNan})), "nan");
  EXPECT_EQ(FirstNonFinite(MakeTensor<BFloat16>({1}, {-1e38f})), "");
}

TEST(FirstNonFiniteTest, IntegersAreFinite) {
  EXPECT_EQ(FirstNonFinite(MakeTensor<int64_t>({1}, {-1})), "");
}

}  // namespace
}  // namespace weft::testing
