#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

struct Case {
  std::string name;
  Dims x_batch, y_batch, batch;  // of one rank
  int64_t m, n, k;
  bool trans_x = false, trans_y = false;
};

template <typename T>
Tensor Wave(const Dims& dims, double phase) {
  std::vector<T> values(NumElements(dims));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(std::sin(phase + 0.7 * i));
  return MakeTensor<T>(dims, values);
}

Dims MatrixDims(Dims batch, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  batch.insert(batch.end(), {rows, columns});
  return batch;
}

// The number of the operand's matrix at a batch position.
int64_t MatrixAt(int64_t position, const Dims& batch, const Dims& operand) {
  int64_t matrix = 0, size = 1;
  for (size_t d = batch.size(); d-- > 0;) {
    if (operand[d] != 1) matrix += position % batch[d] * size;
    size *= operand[d];
    position /= batch[d];
  }
  return matrix;
}

// Calls visit(i, j, o) for every product of element i of X and j of Y, which is a term of element
// o.
template <typename Visit>
void ForEachProduct(const Case& c, Visit visit) {
  for (int64_t position = 0; position < NumElements(c.batch); ++position) {
    const int64_t x = MatrixAt(position, c.batch, c.x_batch) * c.m * c.k;
    const int64_t y = MatrixAt(position, c.batch, c.y_batch) * c.k * c.n;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        for (int64_t p = 0; p < c.k; ++p) {
          visit(x + (c.trans_x ? p * c.m + i : i * c.k + p),
                y + (c.trans_y ? j * c.k + p : p * c.n + j), (position * c.m + i) * c.n + j);
        }
      }
    }
  }
}

template <typename T>
void ExpectNear(const Tensor& tensor, const std::vector<double>& expected) {
  ASSERT_EQ(tensor.size(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(tensor.data<T>()[i], expected[i], 2e-5) << "element " << i;
  }
}

// The op and its gradient, against the definition.
template <typename T>
void ExpectProducts(const Case& c, double alpha) {
  SCOPED_TRACE(c.name);
  const Tensor x = Wave<T>(MatrixDims(c.x_batch, c.m, c.k, c.trans_x), 0);
  const Tensor y = Wave<T>(MatrixDims(c.y_batch, c.k, c.n, c.trans_y), 1);
  const Tensor dout = Wave<T>(MatrixDims(c.batch, c.m, c.n, false), 2);
  std::vector<double> out(dout.size()), dx(x.size()), dy(y.size());
  ForEachProduct(c, [&](int64_t i, int64_t j, int64_t o) {
    const double a = x.data<T>()[i], b = y.data<T>()[j], d = dout.data<T>()[o];
    out[o] += alpha * a * b;
    dx[i] += alpha * d * b;
    dy[j] += alpha * d * a;
  });
  const AttrValues attrs = {
      {"transpose_X", c.trans_x}, {"transpose_Y", c.trans_y}, {"alpha", static_cast<float>(alpha)}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto forward,
                            RunOp("matmul", {{"X", {x}}, {"Y", {y}}}, attrs, {{"Out", 1}}));
  ExpectNear<T>(forward["Out"][0], out);
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto backward, RunOp("matmul_grad", {{"X", {x}}, {"Y", {y}}, {"Out@GRAD", {dout}}}, attrs,
                           {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
  ExpectNear<T>(backward["X@GRAD"][0], dx);
  ExpectNear<T>(backward["Y@GRAD"][0], dy);
}

TEST(MatMulTest, MultipliesAndDifferentiatesEveryBatchPosition) {
  for (bool trans_x : {false, true}) {
    for (bool trans_y : {false, true}) {
      for (Case c : {Case{"one batch", {2, 3}, {2, 3}, {2, 3}, 4, 5, 6},
                     Case{"one X", {1, 1}, {2, 3}, {2, 3}, 4, 5, 6},
                     Case{"one Y", {2, 3}, {1, 1}, {2, 3}, 4, 5, 6},
                     Case{"X repeats inside", {2, 1}, {2, 3}, {2, 3}, 4, 5, 6},
                     Case{"Y repeats outside", {2, 3}, {1, 3}, {2, 3}, 4, 5, 6},
                     Case{"both repeat", {2, 1, 4}, {1, 3, 1}, {2, 3, 4}, 2, 1, 3},
                     Case{"empty batch", {0, 3}, {1, 3}, {0, 3}, 4, 5, 6},
                     Case{"no rows", {2, 3}, {1, 3}, {2, 3}, 0, 5, 6},
                     Case{"no columns", {2, 3}, {1, 3}, {2, 3}, 4, 0, 6},
                     Case{"empty sums", {2, 3}, {1, 3}, {2, 3}, 4, 5, 0}}) {
        c.trans_x = trans_x;
        c.trans_y = trans_y;
        for (double alpha : {1.0, 0.5}) {
          ExpectProducts<float>(c, alpha);
          ExpectProducts<double>(c, alpha);
        }
      }
    }
  }
}

TEST(MatMulTest, TheSameKernelTakesAnotherShape) {
  Tensor x = Floats({2, 1, 2}, {1, 2, 3, 4}), y = Floats({2, 2, 1}, {5, 6, 7, 8}), out;
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner op, OpRunner::Make("matmul_v2", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&out}}}));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(17, 53));
  y = Floats({1, 2, 1}, {1, 10});
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(21, 43));
  x = Floats({1, 2, 2}, {1, 2, 3, 4});
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(21, 43));
  EXPECT_THAT(out.dims(), ElementsAre(1, 2, 1));
}

}  // namespace
}  // namespace weft::testing
