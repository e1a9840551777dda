// Compiled with the optimizations of an optimized build (ops/BUILD): loops are vector loops.
#include "ops/vectorize.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

constexpr int64_t kSize = 1003;  // no multiple of a vector

// From `low` to `high`.
std::vector<float> Numbers(double low, double high) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < kSize; ++i) {
    numbers.push_back(static_cast<float>(low + (high - low) * i / (kSize - 1)));
  }
  return numbers;
}

// f(x) by vectors and by libm differ by at most 4 units in the last place.
template <typename F>
void ExpectAccurate(const char* name, double low, double high, F f) {
  const std::vector<float> x = Numbers(low, high);
  std::vector<float> y(kSize);
  const float* from = x.data();
  float* to = y.data();
  ForEach<float>(kSize, [=](int64_t i) { to[i] = f(from[i]); });
  for (int64_t i = 0; i < kSize; ++i) {
    const float expected = f(*static_cast<const volatile float*>(&x[i]));  // not in a vector loop
    const float size = std::fabs(expected);
    const float unit = std::nextafter(size, std::numeric_limits<float>::infinity()) - size;
    ASSERT_LE(std::fabs(y[i] - expected), 4 * unit) << name << "(" << x[i] << "), element " << i;
  }
}

TEST(VectorMathTest, IsAsAccurateAsDocumented) {
  ExpectAccurate("acos", -1, 1, [](float x) { return std::acos(x); });
  ExpectAccurate("acosh", 1, 50, [](float x) { return std::acosh(x); });
  ExpectAccurate("asin", -1, 1, [](float x) { return std::asin(x); });
  ExpectAccurate("asinh", -50, 50, [](float x) { return std::asinh(x); });
  ExpectAccurate("atan", -50, 50, [](float x) { return std::atan(x); });
  ExpectAccurate("atanh", -0.99, 0.99, [](float x) { return std::atanh(x); });
  ExpectAccurate("atan2", -50, 50, [](float x) { return std::atan2(x, 3.0F); });
  ExpectAccurate("cos", -50, 50, [](float x) { return std::cos(x); });
  ExpectAccurate("cosh", -20, 20, [](float x) { return std::cosh(x); });
  ExpectAccurate("erf", -5, 5, [](float x) { return std::erf(x); });
  ExpectAccurate("exp", -100, 88, [](float x) { return std::exp(x); });
  ExpectAccurate("expm1", -20, 20, [](float x) { return std::expm1(x); });
  ExpectAccurate("log", 1e-6, 50, [](float x) { return std::log(x); });
  ExpectAccurate("log10", 1e-6, 50, [](float x) { return std::log10(x); });
  ExpectAccurate("log1p", -0.99, 50, [](float x) { return std::log1p(x); });
  ExpectAccurate("log2", 1e-6, 50, [](float x) { return std::log2(x); });
  ExpectAccurate("pow", 1e-3, 50, [](float x) { return std::pow(x, 1.75F); });
  ExpectAccurate("sin", -50, 50, [](float x) { return std::sin(x); });
  ExpectAccurate("sinh", -20, 20, [](float x) { return std::sinh(x); });
  ExpectAccurate("tan", -50, 50, [](float x) { return std::tan(x); });
  ExpectAccurate("tanh", -20, 20, [](float x) { return std::tanh(x); });
}

// f(x) by vectors is what it is by libm: a value without rounding, or NaN.
template <typename F>
void ExpectExact(const char* name, F f) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    std::vector<float> x(32, value);
    float* const values = x.data();
    const float expected = f(*static_cast<const volatile float*>(values));
    ForEach<float>(32, [=](int64_t i) { values[i] = f(values[i]); });
    for (const float result : x) {
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(result)) << name << "(" << value << ") is " << result;
      } else {
        ASSERT_FLOAT_EQ(result, expected) << name << "(" << value << ")";
      }
    }
  }
}

TEST(VectorMathTest, KeepsWhatIsNoNumber) {
  ExpectExact("acos", [](float x) { return std::acos(x); });
  ExpectExact("acosh", [](float x) { return std::acosh(x); });
  ExpectExact("asin", [](float x) { return std::asin(x); });
  ExpectExact("asinh", [](float x) { return std::asinh(x); });
  ExpectExact("atan", [](float x) { return std::atan(x); });
  ExpectExact("atanh", [](float x) { return std::atanh(x); });
  ExpectExact("atan2", [](float x) { return std::atan2(x, 3.0F); });
  ExpectExact("cos", [](float x) { return std::cos(x); });
  ExpectExact("cosh", [](float x) { return std::cosh(x); });
  ExpectExact("erf", [](float x) { return std::erf(x); });
  ExpectExact("exp", [](float x) { return std::exp(x); });
  ExpectExact("expm1", [](float x) { return std::expm1(x); });
  ExpectExact("log", [](float x) { return std::log(x); });
  ExpectExact("log10", [](float x) { return std::log10(x); });
  ExpectExact("log1p", [](float x) { return std::log1p(x); });
  ExpectExact("log2", [](float x) { return std::log2(x); });
  ExpectExact("pow", [](float x) { return std::pow(x, 1.75F); });
  ExpectExact("sin", [](float x) { return std::sin(x); });
  ExpectExact("sinh", [](float x) { return std::sinh(x); });
  ExpectExact("tan", [](float x) { return std::tan(x); });
  ExpectExact("tanh", [](float x) { return std::tanh(x); });
  ExpectExact("max", [](float x) { return x > 0 ? x : 0; });
}

// Which elements make a vector depends on their places in the array alone.
TEST(VectorMathTest, DoesNotDependOnWhereTheArrayLies) {
  const std::vector<float> x = Numbers(-5, 5);
  std::vector<float> expected;
  for (int64_t offset = 0; offset < 16; ++offset) {
    std::vector<float> from(offset), to(kSize + 16);
    from.insert(from.end(), x.begin(), x.end());
    const float* const in = from.data() + offset;
    float* const out = to.data() + 15 - offset;
    ForEach<float>(kSize, [=](int64_t i) { out[i] = std::tanh(in[i]); });
    const std::vector<float> y(out, out + kSize);
    if (offset == 0) expected = y;
    ASSERT_EQ(y, expected) << offset;
  }
}

TEST(ForEachTest, VisitsEveryIndexOnce) {
  std::vector<int> visits(kSize, 0);
  int* const counts = visits.data();
  ForEach<float>(kSize, [=](int64_t i) { ++counts[i]; });
  EXPECT_THAT(visits, Each(1));
  ForEach<float>(0, [=](int64_t i) { ++counts[i]; });
  EXPECT_THAT(visits, Each(1));
}

TEST(SumOfTest, AddsEveryElementOnce) {
  for (int64_t n = 0; n < 70; ++n) {
    EXPECT_EQ(SumOf<float>(n, [](int64_t i) { return static_cast<double>(i); }), n * (n - 1) / 2.0)
        << n;
  }
}

TEST(SumsOfTest, SumsAreThoseOfEachNumberAndCallsMayWrite) {
  for (int64_t n : {0, 1, 15, 16, 17, 1000, 1031}) {
    std::vector<float> written(n, 0.5F);
    float* const to = written.data();
    const std::array<double, 2> sums = SumsOf<float, 2>(n, [=](int64_t i) {
      to[i] += static_cast<float>(i);
      return std::array<double, 2>{1 / (1.0 + static_cast<double>(i)), double{to[i]} * to[i]};
    });
    EXPECT_EQ(sums[0],
              SumOf<float>(n, [](int64_t i) { return 1 / (1.0 + static_cast<double>(i)); }));
    EXPECT_EQ(sums[1], SumOf<float>(n, [=](int64_t i) { return double{to[i]} * to[i]; }));
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(written[i], static_cast<float>(i) + 0.5F);
  }
}

TEST(SumsOfTest, AddsInTheTypeThatIsAskedFor) {
  for (int64_t n = 0; n < 70; ++n) {
    const std::array<double, 2> sums = SumsOf<float, 2, float>(n, [](int64_t i) {
      return std::array<float, 2>{static_cast<float>(i), 1.0F};
    });
    EXPECT_EQ(sums[0], n * (n - 1) / 2.0) << n;
    EXPECT_EQ(sums[1], n) << n;
  }
  // 2^24 + 1 is 2^24 in fp32.
  const auto numbers = [](auto big) {
    return [big](int64_t i) { return std::array<decltype(big), 1>{i == 0 ? big : 1}; };
  };
  EXPECT_EQ((SumsOf<float, 1, float>(17, numbers(0x1p24F))[0]), 0x1p24 + 14);
  EXPECT_EQ((SumsOf<float, 1>(17, numbers(0x1p24))[0]), 0x1p24 + 16);
}

TEST(SumOfTest, IsInDoublePrecision) {
  const std::vector<float> x(1 << 20, 0.1F);
  const float* const from = x.data();
  EXPECT_NEAR(SumOf<float>(1 << 20, [=](int64_t i) { return double{from[i]}; }),
              (1 << 20) * double{0.1F}, 1e-6);
}

}  // namespace
}  // namespace weft::testing
