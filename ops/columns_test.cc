#include "ops/columns.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

// Small integers, whose sums are exact in any order.
std::vector<float> Numbers(int64_t n) {
  std::vector<float> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(i * 7 % 23 - 11);
  return numbers;
}

TEST(ColumnsTest, SumsEveryColumn) {
  for (int64_t columns : {0, 1, 2, 3, 8, 10, 63, 64, 65, 256, 300}) {
    for (int64_t rows : {0, 1, 2, 5, 21, 64, 257, 1025}) {
      const std::vector<float> x = Numbers(rows * columns);
      Columns loops(rows, columns);
      loops.Sum<float, 2>([x = x.data()](int64_t i, int64_t) {
        return std::array<double, 2>{x[i], double{x[i]} * x[i]};
      });
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0, squares = 0;
        for (int64_t r = 0; r < rows; ++r) {
          sum += x[r * columns + c];
          squares += x[r * columns + c] * x[r * columns + c];
        }
        ASSERT_EQ(loops.sum(0, c), sum) << rows << " x " << columns << ", column " << c;
        ASSERT_EQ(loops.sum(1, c), squares) << rows << " x " << columns << ", column " << c;
      }
    }
  }
}

TEST(ColumnsTest, VisitsEveryElementWithItsColumn) {
  for (int64_t columns : {0, 1, 3, 8, 64, 100}) {
    for (int64_t rows : {0, 1, 20, 21, 23}) {
      Columns loops(rows, columns);
      std::vector<double> column;
      loops.Tile([](int64_t c) { return static_cast<double>(c); }, &column);
      std::vector<float> seen(rows * columns, -1);
      loops.ForEach<float>([to = seen.data(), of = column.data()](int64_t i, int64_t j) {
        to[i] = static_cast<float>(of[j]);
      });
      for (int64_t i = 0; i < rows * columns; ++i) ASSERT_EQ(seen[i], i % columns);
    }
  }
}

TEST(ColumnsTest, ResultsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const int64_t columns : {3, 20, 64, 100, 1000}) {
    const int64_t rows = 2 * kMinParallelSize / columns + 5;
    std::vector<float> x(rows * columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    std::vector<std::vector<double>> sums, halves;
    for (const int threads : {1, 2, 3}) {
      SetKernelThreads(threads);
      Columns loops(rows, columns);
      loops.Sum<float, 1>(
          [x = x.data()](int64_t i, int64_t) { return std::array<double, 1>{x[i]}; });
      std::vector<double>& of_columns = sums.emplace_back();
      for (int64_t c = 0; c < columns; ++c) of_columns.push_back(loops.sum(0, c));
      std::vector<double>& half = halves.emplace_back(x.size());
      loops.ForEach<float>(
          [x = x.data(), to = half.data()](int64_t i, int64_t) { to[i] = x[i] / 2; });
    }
    SetKernelThreads(1);
    EXPECT_THAT(sums, Each(sums[0])) << columns;
    EXPECT_TRUE(halves[0] == halves[1] && halves[0] == halves[2]) << columns;
  }
}

TEST(ColumnsTest, SumsAnewEveryTime) {
  Columns loops(10, 3);
  for (int time = 0; time < 2; ++time) {
    loops.Sum<float, 1>([](int64_t, int64_t) { return std::array<double, 1>{1}; });
    EXPECT_EQ(loops.sum(0, 2), 10);
  }
}

}  // namespace
}  // namespace weft::testing
