#include "ops/broadcast.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

TEST(AlignShapesTest, AxisMinusOneAlignsTheEnds) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({2, 3, 4}, {3, 4}, -1));
  EXPECT_THAT(shapes.y, ElementsAre(1, 3, 4));
  EXPECT_THAT(shapes.out, ElementsAre(2, 3, 4));
}

TEST(AlignShapesTest, AxisPlacesTheShortOperand) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({2, 3, 4}, {3}, 1));
  EXPECT_THAT(shapes.y, ElementsAre(1, 3, 1));
}

TEST(AlignShapesTest, TheShortOperandMayBeX) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({3}, {2, 3}, -1));
  EXPECT_THAT(shapes.x, ElementsAre(1, 3));
  EXPECT_THAT(shapes.y, ElementsAre(2, 3));
}

TEST(AlignShapesTest, BothOperandsMayBeRepeated) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({1, 5}, {4, 1}, -1));
  EXPECT_THAT(shapes.out, ElementsAre(4, 5));
}

TEST(AlignShapesTest, OnesOverTheEndAreDropped) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({2, 3, 4}, {4, 1}, 2));
  EXPECT_THAT(shapes.y, ElementsAre(1, 1, 4));
}

TEST(AlignShapesTest, ScalarsFitEverything) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({2, 3}, {}, -1));
  EXPECT_THAT(shapes.y, ElementsAre(1, 1));
  WEFT_ASSERT_OK_AND_ASSIGN(shapes, AlignShapes({}, {}, -1));
  EXPECT_THAT(shapes.out, IsEmpty());
}

TEST(AlignShapesTest, ZeroAgainstOneIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(Broadcast shapes, AlignShapes({0, 3}, {1, 3}, -1));
  EXPECT_THAT(shapes.out, ElementsAre(0, 3));
}

TEST(AlignShapesTest, ShapesThatDoNotFitAreNamed) {
  EXPECT_THAT(AlignShapes({2, 3}, {4}, -1), IsInvalidArgument("[4] does not fit shape [2"));
  EXPECT_THAT(AlignShapes({2, 3}, {3}, 2), IsInvalidArgument("does not fit"))
      << "hangs over the end";
  EXPECT_THAT(AlignShapes({2, 3}, {2, 3}, 1), IsInvalidArgument("does not fit"))
      << "equal ranks leave no room for an axis";
}

TEST(LoopNestTest, DimensionsTreatedAlikeAreMerged) {
  const LoopNest nest = MakeLoopNest({2, 3, 4, 5}, {2, 3, 4, 5}, {1, 1, 4, 5});
  EXPECT_THAT(nest.extents, ElementsAre(6, 20));
  EXPECT_THAT(nest.a_strides, ElementsAre(20, 1));
  EXPECT_THAT(nest.b_strides, ElementsAre(0, 1));
}

TEST(LoopNestTest, DimensionsOfOneAreDropped) {
  EXPECT_THAT(MakeLoopNest({1, 1}, {1, 1}, {1, 1}).extents, IsEmpty());
}

TEST(WalkTest, VisitsPositionsInRowMajorOrder) {
  std::vector<std::pair<int64_t, int64_t>> visited;
  Walk(MakeLoopNest({2, 3}, {2, 3}, {2, 1}),
       [&](int64_t a, int64_t b) { visited.emplace_back(a, b); });
  using Position = std::pair<int64_t, int64_t>;
  EXPECT_THAT(visited, ElementsAre(Position(0, 0), Position(1, 0), Position(2, 0), Position(3, 1),
                                   Position(4, 1), Position(5, 1)));
}

TEST(WalkTest, VisitsAScalarOnceAndAnEmptyTensorNever) {
  int visits = 0;
  Walk(MakeLoopNest({}, {}, {}), [&](int64_t, int64_t) { ++visits; });
  EXPECT_EQ(visits, 1);
  Walk(MakeLoopNest({2, 0}, {2, 0}, {2, 0}), [&](int64_t, int64_t) { ++visits; });
  EXPECT_EQ(visits, 1);
}

// The sum of an array of 1, 2, 3, ... of dims `big` over the dimensions where `out` has 1.
std::vector<float> SumOfCounting(const Dims& big, const Dims& out) {
  std::vector<float> values(NumElements(big)), sums(NumElements(out), -1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i + 1;
  SumBroadcast(values.data(), big, out, 1, sums.data());
  return sums;
}

TEST(SumBroadcastTest, SumsOverEveryKindOfDimension) {
  EXPECT_THAT(SumOfCounting({2, 3}, {2, 1}), ElementsAre(6, 15));
  EXPECT_THAT(SumOfCounting({2, 3}, {1, 3}), ElementsAre(5, 7, 9));
  EXPECT_THAT(SumOfCounting({2, 3}, {1, 1}), ElementsAre(21));
  EXPECT_THAT(SumOfCounting({2, 3, 2}, {1, 3, 1}), ElementsAre(18, 26, 34));
  EXPECT_THAT(SumOfCounting({2, 3, 2}, {2, 1, 2}), ElementsAre(9, 12, 27, 30));
}

TEST(SumBroadcastTest, RowsLongerThanABlockAreSummedWhole) {
  const std::vector<float> sums = SumOfCounting({2, 1000}, {1, 1000});
  EXPECT_EQ(sums[0], 1002);
  EXPECT_EQ(sums[257], 1516);
  EXPECT_EQ(sums[999], 3000);
}

TEST(SumBroadcastTest, SumOverNothingIsZero) {
  EXPECT_THAT(SumOfCounting({0, 3}, {1, 3}), ElementsAre(0, 0, 0));
  EXPECT_THAT(SumOfCounting({2, 0}, {2, 1}), ElementsAre(0, 0));
}

// The same, by the definition.
std::vector<float> SlowSumOfCounting(const Dims& big, const Dims& out) {
  std::vector<double> sums(NumElements(out), 0);
  Walk(MakeLoopNest(big, big, out), [&](int64_t from, int64_t to) { sums[to] += from + 1; });
  return {sums.begin(), sums.end()};
}

// Below, beside and above the sizes of blocks.
constexpr int64_t kWidths[] = {1, 3, 8, 32, 100, 128, 255, 256, 257, 500};

TEST(SumBroadcastTest, SumsColumnsAndRunsOfAnyLength) {
  for (const int64_t width : kWidths) {
    for (const int64_t rows : {0, 1, 2, 4, 7, 70}) {
      for (const auto& [big, out] : std::vector<std::pair<Dims, Dims>>{
               {{rows, width}, {1, width}},                 // columns
               {{rows, width}, {rows, 1}},                  // runs
               {{3, rows, width}, {3, 1, width}},           // columns, several times
               {{rows, 3, width}, {rows, 1, width}},        // few of them
               {{3, rows, width}, {1, rows, 1}},            // runs, several for a sum
               {{2, rows, 2, width}, {1, rows, 1, width}},  // columns, several times for a sum
           }) {
        EXPECT_EQ(SumOfCounting(big, out), SlowSumOfCounting(big, out))
            << DimsToString(big) << " to " << DimsToString(out);
      }
    }
  }
}

TEST(SumBroadcastTest, DividesInPlaceIfNothingIsSummed) {
  std::vector<float> values = {2, 4, 6};
  SumBroadcast(values.data(), {3}, {3}, 1, values.data());
  EXPECT_THAT(values, ElementsAre(2, 4, 6));
  SumBroadcast(values.data(), {3}, {3}, -2, values.data());
  EXPECT_THAT(values, ElementsAre(-1, -2, -3));
  std::vector<float> copy(3);
  SumBroadcast(values.data(), {1, 3}, {1, 3}, 1, copy.data());
  EXPECT_EQ(copy, values);
}

// x - y, of counting numbers.
void ExpectDifferences(const Dims& x_dims, const Dims& y_dims, const Dims& out_dims) {
  std::vector<float> x(NumElements(x_dims)), y(NumElements(y_dims)), out(NumElements(out_dims));
  for (size_t i = 0; i < x.size(); ++i) x[i] = i + 1;
  for (size_t i = 0; i < y.size(); ++i) y[i] = 3 * i;
  std::vector<float> expected;
  Walk(MakeLoopNest(out_dims, x_dims, y_dims),
       [&](int64_t a, int64_t b) { expected.push_back(x[a] - y[b]); });
  const Broadcast shapes = {x_dims, y_dims, out_dims};
  const auto minus = [](float a, float b) { return a - b; };
  MapBroadcast(shapes, x.data(), y.data(), out.data(), minus);
  EXPECT_EQ(out, expected) << DimsToString(x_dims) << " and " << DimsToString(y_dims);
  if (x_dims == out_dims) {
    MapBroadcast(shapes, x.data(), y.data(), x.data(), minus);
    EXPECT_EQ(x, expected) << "in place, " << DimsToString(y_dims);
  }
}

TEST(MapBroadcastTest, RepeatsRowsAndColumnsOfAnyLength) {
  for (const int64_t width : kWidths) {
    for (const int64_t rows : {0, 1, 2, 7, 70, 300}) {
      ExpectDifferences({rows, width}, {1, width}, {rows, width});
      ExpectDifferences({1, width}, {rows, width}, {rows, width});
      ExpectDifferences({rows, width}, {rows, 1}, {rows, width});
      ExpectDifferences({rows, 1}, {1, width}, {rows, width});
      ExpectDifferences({2, rows, width}, {2, 1, width}, {2, rows, width});
      ExpectDifferences({2, 1, width}, {1, rows, width}, {2, rows, width});
      ExpectDifferences({2, rows, width}, {1, rows, 1}, {2, rows, width});
    }
  }
}

// The bits of f(out) on 1, 2 and 3 threads; `out` begins as `size` zeros.
template <typename F>
void ExpectSameBitsOnAnyNumberOfThreads(int64_t size, const F& f) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    SetKernelThreads(threads);
    f(results.emplace_back(size).data());
  }
  SetKernelThreads(1);
  EXPECT_TRUE(results[0] == results[1]);
  EXPECT_TRUE(results[0] == results[2]);
}

// Rough numbers, whose sums depend on their order.
std::vector<float> Waves(int64_t n) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = std::sin(static_cast<float>(i));
  return values;
}

TEST(MapBroadcastTest, ResultsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const Broadcast& shapes : std::vector<Broadcast>{
           {{70001}, {70001}, {70001}},
           {{70001}, {1}, {70001}},
           {{7001, 10}, {1, 10}, {7001, 10}},
           {{1, 10}, {7001, 10}, {7001, 10}},
           {{7001, 10}, {7001, 1}, {7001, 10}},
           {{7001, 1}, {1, 10}, {7001, 10}},
           {{3, 701, 33}, {1, 701, 1}, {3, 701, 33}},
           {{5, 1, 701, 33}, {1, 7, 1, 33}, {5, 7, 701, 33}},
       }) {
    SCOPED_TRACE(DimsToString(shapes.x) + " and " + DimsToString(shapes.y));
    const std::vector<float> x = Waves(NumElements(shapes.x)), y = Waves(NumElements(shapes.y));
    // In a vector, another function than in what is left at the end of one.
    ExpectSameBitsOnAnyNumberOfThreads(NumElements(shapes.out), [&](float* out) {
      MapBroadcast(shapes, x.data(), y.data(), out,
                   [](float a, float b) { return expf(a) + tanhf(b); });
    });
  }
}

TEST(SumBroadcastTest, ResultsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const auto& [big, out] : std::vector<std::pair<Dims, Dims>>{
           {{7001, 10}, {1, 10}},
           {{7001, 10}, {7001, 1}},
           {{71, 1001}, {1, 1001}},
           {{70001}, {1}},
           {{71, 3, 1001}, {1, 3, 1}},
           {{71, 3, 1001}, {71, 1, 1001}},
           {{7, 30, 3, 1001}, {1, 30, 1, 1001}},
       }) {
    SCOPED_TRACE(DimsToString(big) + " to " + DimsToString(out));
    const std::vector<float> values = Waves(NumElements(big));
    ExpectSameBitsOnAnyNumberOfThreads(NumElements(out), [&, &big = big, &out = out](float* sums) {
      SumBroadcast(values.data(), big, out, 3, sums);
    });
  }
}

TEST(SumBroadcastTest, ManySmallTermsAreNotLost) {
  // Added one by one in single precision, this stays at 2^24.
  const std::vector<float> ones((1 << 24) + 4, 1.0f);
  float sum = 0;
  SumBroadcast(ones.data(), {static_cast<int64_t>(ones.size())}, {1}, 1, &sum);
  EXPECT_EQ(sum, 16777220.0f);
}

}  // namespace
}  // namespace weft::testing
