// Loops over the columns of a row-major matrix.
#ifndef WEFT_OPS_COLUMNS_H_
#define WEFT_OPS_COLUMNS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/threads.h"
#include "ops/vectorize.h"

namespace weft {

// A matrix of `rows` x `columns` elements. Loops take several short rows at once, as one long row,
// which fills vectors: column j of a long row, j < width, is column j % columns of the matrix. The
// last long row may end early.
struct LongRows {
  // No row is made longer than this.
  static constexpr int64_t kLong = 64;

  LongRows() = default;
  LongRows(int64_t rows, int64_t columns)
      : size(rows * columns),
        columns(columns),
        width(columns * std::max<int64_t>(1, kLong / std::max<int64_t>(columns, 1))) {}

  int64_t size = 0, columns = 0, width = 0;
};

// Adds f(i, j), an array of `count` numbers, of the elements i in the columns [begin, end) of long
// rows: number k and column j to sums[k * stride + j - begin]. In an order that depends on `rows`
// alone.
template <size_t count, typename F>
inline void AddColumns(const LongRows& rows, int64_t begin, int64_t end, const F& f, double* sums,
                       int64_t stride) {
  if (rows.size == 0) return;
  const F local = f;  // not aliased by the sums
  const int64_t width = rows.width, columns = end - begin;
  int64_t row = 0;
  for (; row + 4 * width <= rows.size; row += 4 * width) {
    const int64_t first = row + begin;
    WEFT_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < columns; ++j) {
      const auto a = local(first + j, begin + j), b = local(first + width + j, begin + j);
      const auto c = local(first + 2 * width + j, begin + j);
      const auto d = local(first + 3 * width + j, begin + j);
      for (size_t k = 0; k < count; ++k) sums[k * stride + j] += (a[k] + b[k]) + (c[k] + d[k]);
    }
  }
  for (; row < rows.size; row += width) {
    const int64_t first = row + begin, n = std::min(columns, rows.size - first);
    WEFT_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < n; ++j) {
      const auto a = local(first + j, begin + j);
      for (size_t k = 0; k < count; ++k) sums[k * stride + j] += a[k];
    }
  }
}

// Of the sums over the columns of long rows, makes those over the columns of the matrix.
inline void JoinColumns(const LongRows& rows, double* sums) {
  int64_t copies = rows.columns == 0 ? 0 : rows.width / rows.columns;
  while (copies > 1) {
    const int64_t added = copies / 2;
    copies -= added;
    const double* const from = sums + copies * rows.columns;
    const int64_t n = added * rows.columns;
    WEFT_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < n; ++j) sums[j] += from[j];
  }
}

// Loops over a matrix that run on the threads of the rank (ops/threads.h), with the same results
// for any number of them. Keeps buffers, so that its loops allocate nothing.
class Columns {
 public:
  Columns() = default;
  Columns(int64_t rows, int64_t columns) { SetSize(rows, columns); }

  // Loops over another matrix, with the same buffers.
  void SetSize(int64_t rows, int64_t columns) {
    num_rows_ = rows;
    rows_ = LongRows(rows, columns);
  }

  int64_t rows() const { return num_rows_; }
  int64_t columns() const { return rows_.columns; }
  int64_t width() const { return rows_.width; }  // of a long row

  // Sets tiled[j] = value(j % columns) for every column j of a long row.
  template <typename U, typename Value>
  void Tile(const Value& value, std::vector<U>* tiled) const {
    tiled->resize(rows_.width);
    for (int64_t c = 0; c < rows_.columns; ++c) {
      const U v = value(c);
      for (int64_t j = c; j < rows_.width; j += rows_.columns) (*tiled)[j] = v;
    }
  }

  // So that Sum of `count` numbers allocates nothing.
  void ReserveSums(size_t count) { sums_.resize(count * rows_.width); }

  // Calls f(i, j) for every element i of the matrix, in any order; it is in column j of a long row.
  // T: the type of the elements (ForEach).
  template <typename T, typename F>
  void ForEach(const F& f) const {
    ForEachPartIfLong(rows_.size, rows_.size, std::max<int64_t>(rows_.width, 1),
                      [this, &f](int64_t part, int64_t end) {
                        VectorizedFor<T>([width = rows_.width, part, end, &f] {
                          const F local = f;
                          for (int64_t begin = part; begin < end; begin += width) {
                            const int64_t n = std::min(width, end - begin);
                            WEFT_INDEPENDENT_ITERATIONS
                            for (int64_t j = 0; j < n; ++j) local(begin + j, j);
                          }
                        });
                      });
  }

  // The sums over each column of f(i, j), an array of `count` numbers, for its elements i, as for
  // ForEach: sum(k, c) of number k and column c. In double precision, in an order that depends on
  // rows and columns alone.
  template <typename T, size_t count, typename F>
  void Sum(const F& f) {
    sums_.assign(count * rows_.width, 0.0);
    // Parts are whole lines of the cache.
    ForEachPartIfLong(rows_.size, rows_.width, 16, [this, &f](int64_t begin, int64_t end) {
      VectorizedFor<T>([this, begin, end, &f] {
        AddColumns<count>(rows_, begin, end, f, sums_.data() + begin, rows_.width);
      });
    });
    for (size_t k = 0; k < count; ++k) JoinColumns(rows_, sums_.data() + k * rows_.width);
  }
  double sum(size_t k, int64_t column) const { return sums_[k * rows_.width + column]; }

 private:
  int64_t num_rows_ = 0;
  LongRows rows_;
  std::vector<double> sums_;
};

}  // namespace weft

#endif  // WEFT_OPS_COLUMNS_H_
