// The products of matrices that ops compute, for all devices.
#ifndef WEFT_OPS_PRODUCTS_H_
#define WEFT_OPS_PRODUCTS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/kernel.h"

namespace weft {

// Out[b] = op(X[b]) op(Y[b]) for every position b of the batch dimensions, in which operands of
// size 1 are broadcast: op(X) is m x k, op(Y) is k x n.
struct Product {
  Dims x_batch, y_batch, batch;  // of one rank
  int64_t m = 0, k = 0, n = 0;
  bool trans_x = false, trans_y = false;
};

// For matmul. A vector is one row on the left, one column on the right, regardless of
// transposition.
inline Product MatMulProduct(const Dims& x, const Dims& y, bool trans_x, bool trans_y) {
  Product p;
  p.trans_x = trans_x && x.size() > 1;
  p.trans_y = trans_y && y.size() > 1;
  const auto matrix = [](const Dims& dims, bool is_left, bool transpose) {
    if (dims.size() == 1)
      return is_left ? std::make_pair(int64_t{1}, dims[0]) : std::make_pair(dims[0], int64_t{1});
    std::pair<int64_t, int64_t> shape(dims[dims.size() - 2], dims.back());
    if (transpose) std::swap(shape.first, shape.second);
    return shape;
  };
  std::tie(p.m, p.k) = matrix(x, true, p.trans_x);
  p.n = matrix(y, false, p.trans_y).second;
  if (x.size() > 2) p.x_batch.assign(x.begin(), x.end() - 2);
  if (y.size() > 2) p.y_batch.assign(y.begin(), y.end() - 2);
  const size_t rank = std::max(p.x_batch.size(), p.y_batch.size());
  p.x_batch.insert(p.x_batch.begin(), rank - p.x_batch.size(), 1);
  p.y_batch.insert(p.y_batch.begin(), rank - p.y_batch.size(), 1);
  for (size_t i = 0; i < rank; ++i) {
    p.batch.push_back(p.x_batch[i] == 1 ? p.y_batch[i] : p.x_batch[i]);
  }
  // All rows of X times a single Y are one product.
  if (NumElements(p.y_batch) == 1 && !p.trans_x) {
    p.m *= NumElements(p.batch);
    p.x_batch = p.y_batch = p.batch = {};
  }
  return p;
}

// The operands of an op: their slots, and how they are multiplied.
struct ProductOp {
  const char* x = "X";
  const char* y = "Y";
  std::function<Product(const Dims& x, const Dims& y)> shape;
  double alpha = 1;
};

inline ProductOp TransposingProduct(bool trans_x, bool trans_y) {
  ProductOp product;
  product.shape = [=](const Dims& x, const Dims& y) {
    return MatMulProduct(x, y, trans_x, trans_y);
  };
  return product;
}

// Results have the element type of the operands.
inline absl::Status CheckResultType(const KernelSpec& spec) {
  constexpr char kForced[] = "force_fp32_output";
  if (!spec.attrs.Has(kForced) || !spec.attrs.Bool(kForced)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("attribute ", kForced, ": no kernel for true"));
}

inline ProductOp MatMulV2(const KernelSpec& spec) {
  return TransposingProduct(spec.attrs.Bool("trans_x"), spec.attrs.Bool("trans_y"));
}

inline ProductOp MatMul(const KernelSpec& spec) {
  ProductOp product =
      TransposingProduct(spec.attrs.Bool("transpose_X"), spec.attrs.Bool("transpose_Y"));
  product.alpha = spec.attrs.Float("alpha");
  return product;
}

inline ProductOp Bmm(const KernelSpec&) { return TransposingProduct(false, false); }

inline ProductOp Mv(const KernelSpec& spec) {
  ProductOp product = Bmm(spec);
  product.y = "Vec";
  return product;
}

// X as a matrix whose rows are its first x_num_col_dims dimensions, Y likewise.
inline ProductOp Mul(const KernelSpec& spec) {
  const int64_t x_rows = spec.attrs.Int("x_num_col_dims");
  const int64_t y_rows = spec.attrs.Int("y_num_col_dims");
  ProductOp product;
  product.shape = [=](const Dims& x, const Dims& y) {
    const auto xs = absl::MakeConstSpan(x), ys = absl::MakeConstSpan(y);
    Product p;
    p.m = NumElements(xs.first(std::min<size_t>(x_rows, xs.size())));
    p.k = NumElements(ys.first(std::min<size_t>(y_rows, ys.size())));
    p.n = NumElements(ys.subspan(std::min<size_t>(y_rows, ys.size())));
    return p;
  };
  return product;
}

}  // namespace weft

#endif  // WEFT_OPS_PRODUCTS_H_
