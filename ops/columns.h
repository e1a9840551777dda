// Loops over the columns of a row-major matrix.
#ifndef WEFT_OPS_COLUMNS_H_
#define WEFT_OPS_COLUMNS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/vectorize.h"

namespace weft {

// A matrix of `rows` x `columns` elements. Loops take several short rows at once, as one long row,
// which fills vectors: column j of a long row, j < width(), is column j % columns of the matrix.
// Keeps buffers, so that its loops allocate nothing.
class Columns {
 public:
  Columns() = default;
  Columns(int64_t rows, int64_t columns) { SetSize(rows, columns); }

  // Loops over another matrix, with the same buffers.
  void SetSize(int64_t rows, int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    width_ = columns * RowsAtOnce(columns);
  }

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t width() const { return width_; }

  // Sets tiled[j] = value(j % columns) for j < width().
  template <typename Value>
  void Tile(const Value& value, std::vector<double>* tiled) const {
    tiled->resize(width_);
    for (int64_t c = 0; c < columns_; ++c) {
      const double v = value(c);
      for (int64_t j = c; j < width_; j += columns_) (*tiled)[j] = v;
    }
  }

  // Calls f(i, j) for every element i of the matrix, in any order; it is in column j of a long row.
  // T: the type of the elements (ForEach).
  template <typename T, typename F>
  void ForEach(const F& f) const {
    VectorizedFor<T>([this, &f] {
      const F local = f;
      const int64_t size = rows_ * columns_;
      for (int64_t begin = 0; begin < size; begin += width_) {
        const int64_t n = std::min(width_, size - begin);
        WEFT_INDEPENDENT_ITERATIONS
        for (int64_t j = 0; j < n; ++j) local(begin + j, j);
      }
    });
  }

  // The sums over each column of f(i, j), an array of `count` numbers, for its elements i, as for
  // ForEach: sum(k, c) of number k and column c. In double precision, in an order that depends on
  // rows and columns alone.
  template <typename T, size_t count, typename F>
  void Sum(const F& f) {
    sums_.assign(count * width_, 0.0);
    if (rows_ * columns_ == 0) return;
    VectorizedFor<T>([this, &f] {
      const F local = f;
      const int64_t width = width_, size = rows_ * columns_;
      double* const sums = sums_.data();
      int64_t begin = 0;
      for (; begin + 4 * width <= size; begin += 4 * width) {
        WEFT_INDEPENDENT_ITERATIONS
        for (int64_t j = 0; j < width; ++j) {
          const auto a = local(begin + j, j), b = local(begin + width + j, j);
          const auto c = local(begin + 2 * width + j, j), d = local(begin + 3 * width + j, j);
          for (size_t k = 0; k < count; ++k) {
            sums[k * width + j] += (a[k] + b[k]) + (c[k] + d[k]);
          }
        }
      }
      for (; begin < size; begin += width) {
        const int64_t n = std::min(width, size - begin);
        WEFT_INDEPENDENT_ITERATIONS
        for (int64_t j = 0; j < n; ++j) {
          const auto a = local(begin + j, j);
          for (size_t k = 0; k < count; ++k) sums[k * width + j] += a[k];
        }
      }
    });
    for (size_t k = 0; k < count; ++k) {
      double* const of_k = sums_.data() + k * width_;
      for (int64_t j = columns_; j < width_; ++j) of_k[j % columns_] += of_k[j];
    }
  }
  double sum(size_t k, int64_t column) const { return sums_[k * width_ + column]; }

 private:
  static int64_t RowsAtOnce(int64_t columns) {
    constexpr int64_t kLong = 64;
    return std::max<int64_t>(1, kLong / std::max<int64_t>(columns, 1));
  }

  int64_t rows_ = 0, columns_ = 0, width_ = 0;
  std::vector<double> sums_;
};

}  // namespace weft

#endif  // WEFT_OPS_COLUMNS_H_
