#include "ops/cpu/gemm.h"

#include <array>
#include <cmath>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

// op(A) op(B) by the definition.
template <typename T>
std::vector<T> Expected(int64_t m, int64_t n, int64_t k, Transpose ta, Transpose tb,
                        const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> c(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += double{a[ta == Transpose::kYes ? p * m + i : i * k + p]} *
               b[tb == Transpose::kYes ? j * k + p : p * n + j];
      }
      c[i * n + j] = static_cast<T>(sum);
    }
  }
  return c;
}

template <typename T>
std::vector<T> Wave(int64_t size, double phase) {
  std::vector<T> values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = static_cast<T>(std::sin(phase + 0.7 * i));
  return values;
}

template <typename T>
void ExpectProduct(Gemm* gemm, int64_t m, int64_t n, int64_t k, Transpose ta, Transpose tb) {
  const std::vector<T> a = Wave<T>(m * k, 0), b = Wave<T>(k * n, 1);
  std::vector<T> c(m * n, T(99));
  gemm->Run(m, n, k, a.data(), b.data(), c.data());
  const std::vector<T> expected = Expected(m, n, k, ta, tb, a, b);
  for (int64_t i = 0; i < m * n; ++i) {
    ASSERT_NEAR(c[i], expected[i], 1e-5) << m << "x" << n << "x" << k << " element " << i;
  }
}

template <typename T>
class GemmTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GemmTest, ElementTypes);

TYPED_TEST(GemmTest, MultipliesWithEveryTransposition) {
  for (Transpose ta : {Transpose::kNo, Transpose::kYes}) {
    for (Transpose tb : {Transpose::kNo, Transpose::kYes}) {
      Gemm gemm(ta, tb);
      ExpectProduct<TypeParam>(&gemm, 3, 5, 4, ta, tb);
      ExpectProduct<TypeParam>(&gemm, 1, 1, 13, ta, tb);
      ExpectProduct<TypeParam>(&gemm, 33, 17, 64, ta, tb);
    }
  }
}

TYPED_TEST(GemmTest, FollowsAChangeOfShape) {
  Gemm gemm(Transpose::kNo, Transpose::kNo);
  ExpectProduct<TypeParam>(&gemm, 8, 4, 6, Transpose::kNo, Transpose::kNo);
  ExpectProduct<TypeParam>(&gemm, 3, 4, 6, Transpose::kNo, Transpose::kNo);
  ExpectProduct<TypeParam>(&gemm, 8, 4, 6, Transpose::kNo, Transpose::kNo);
}

TYPED_TEST(GemmTest, EmptySumIsZero) {
  Gemm gemm(Transpose::kNo, Transpose::kNo);
  ExpectProduct<TypeParam>(&gemm, 2, 3, 0, Transpose::kNo, Transpose::kNo);
  ExpectProduct<TypeParam>(&gemm, 0, 3, 2, Transpose::kNo, Transpose::kNo);
}

// Products of a batch, against the definition for each of them.
template <typename T>
void ExpectBatch(const GemmShape& s) {
  const int64_t a_size = s.m * s.k, b_size = s.k * s.n, c_size = s.m * s.n;
  const std::vector<T> a = Wave<T>((s.repeats_a ? 1 : s.batch) * a_size, 0);
  const std::vector<T> b = Wave<T>((s.repeats_b ? 1 : s.batch) * b_size, 1);
  std::vector<T> c(s.batch * c_size, T(99));
  WEFT_ASSERT_OK(BatchedGemm<T>(s).Run(a.data(), b.data(), c.data()));
  for (int64_t i = 0; i < s.batch; ++i) {
    const auto as = a.begin() + (s.repeats_a ? 0 : i * a_size);
    const auto bs = b.begin() + (s.repeats_b ? 0 : i * b_size);
    const std::vector<T> expected =
        Expected<T>(s.m, s.n, s.k, s.a, s.b, {as, as + a_size}, {bs, bs + b_size});
    for (int64_t j = 0; j < c_size; ++j) {
      ASSERT_NEAR(c[i * c_size + j], s.alpha * expected[j], 1e-5)
          << s.m << "x" << s.n << "x" << s.k << " product " << i << " element " << j;
    }
  }
}

TYPED_TEST(GemmTest, MultipliesABatch) {
  for (Transpose ta : {Transpose::kNo, Transpose::kYes}) {
    for (Transpose tb : {Transpose::kNo, Transpose::kYes}) {
      for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{
               {3, 5, 4}, {16, 16, 16}, {1, 6, 7}, {6, 1, 7}, {6, 7, 1}, {33, 17, 20}}) {
        GemmShape shape{ta, tb, m, n, k};
        shape.batch = 7;
        ExpectBatch<TypeParam>(shape);
        shape.repeats_a = true;
        ExpectBatch<TypeParam>(shape);
        shape.repeats_a = false;
        shape.repeats_b = true;
        ExpectBatch<TypeParam>(shape);
        shape.alpha = 0.25;
        ExpectBatch<TypeParam>(shape);
      }
    }
  }
}

TYPED_TEST(GemmTest, ABatchMayBeEmpty) {
  for (auto [m, n, k, batch] : std::vector<std::array<int64_t, 4>>{
           {2, 3, 0, 4}, {0, 3, 2, 4}, {2, 0, 3, 4}, {2, 3, 4, 0}, {2, 3, 0, 0}}) {
    GemmShape shape{Transpose::kNo, Transpose::kNo, m, n, k, /*alpha=*/2};
    shape.batch = batch;
    ExpectBatch<TypeParam>(shape);
  }
}

TEST(GemmDeterminismTest, EqualCallsGiveEqualBits) {
  Gemm first(Transpose::kNo, Transpose::kNo), second(Transpose::kNo, Transpose::kNo);
  const std::vector<float> a = Wave<float>(64 * 256, 0), b = Wave<float>(256 * 10, 1);
  std::vector<float> c(640), again(640);
  first.Run(64, 10, 256, a.data(), b.data(), c.data());
  second.Run(64, 10, 256, a.data(), b.data(), again.data());
  EXPECT_EQ(c, again);
}

}  // namespace
}  // namespace weft::testing
