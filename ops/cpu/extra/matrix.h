// Matrices of tensors, row-major, as Eigen's in double precision.
#ifndef WEFT_OPS_CPU_EXTRA_MATRIX_H_
#define WEFT_OPS_CPU_EXTRA_MATRIX_H_

#include <cstdint>
#include <eigen3/Eigen/Core>

#include "ops/tensor.h"

namespace weft {

template <typename T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = MatrixOf<double>;

// Matrix number `which` of those that `all` holds one after the other.
template <typename T>
Matrix ReadMatrix(const T* all, int64_t which, int64_t rows, int64_t columns) {
  const T* from = all + which * rows * columns;
  return Eigen::Map<const MatrixOf<T>>(from, rows, columns).template cast<double>();
}

// The tensor, of rank 2.
template <typename T>
Matrix ReadMatrix(const Tensor& tensor) {
  return ReadMatrix(tensor.data<T>(), 0, tensor.dim(0), tensor.dim(1));
}

template <typename T>
void WriteMatrix(const Matrix& matrix, int64_t which, T* all) {
  Eigen::Map<MatrixOf<T>>(all + which * matrix.size(), matrix.rows(), matrix.cols()) =
      matrix.cast<T>();
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_EXTRA_MATRIX_H_
