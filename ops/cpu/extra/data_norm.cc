// Normalization of columns by summaries of earlier batches (data_norm): with Means = BatchSum /
// BatchSize, Scales = √(BatchSize / BatchSquareSum)
//   Y = (X - Means) Scales, or (X - Means) Scales scale_w + bias
// The gradients of the summaries are not derivatives, but the contributions of the batch:
//   BatchSize@GRAD = n, BatchSum@GRAD = Σ X, BatchSquareSum@GRAD = Σ (X - Means)² + n epsilon
//
// If slot_dim is positive, columns form slots of that size. A slot whose first element is 0 is
// empty: its Y and X@GRAD are 0, and the sums skip it. The summaries are then means, and n is 1 in
// columns with a non-empty slot.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr double kEmpty = 1e-7;  // the first element of an empty slot is closer to 0 than this

// Marks the elements of empty slots.
template <typename T>
class Slots {
 public:
  Slots(const Tensor& x, int64_t slot_dim) : x_(x.data<T>()), columns_(x.dim(1)), size_(slot_dim) {}

  bool IsEmpty(int64_t row, int64_t column) const {
    return size_ > 0 && std::fabs(x_[row * columns_ + column / size_ * size_]) < kEmpty;
  }

 private:
  const T* x_;
  int64_t columns_, size_;
};

absl::StatusOr<Kernel> DataNorm(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), sizes = op.in("BatchSize"), sums = op.in("BatchSum");
  const In squares = op.in("BatchSquareSum"), weight = op.in("scale_w"), bias = op.in("bias");
  const Out y = op.out("Y"), means = op.out("Means"), scales = op.out("Scales");
  const int64_t slot_dim = spec.attrs.Int("slot_dim");
  const bool is_affine = spec.attrs.Bool("enable_scale_and_shift");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = x(ctx).dim(0), columns = x(ctx).dim(1);
    const T* from = x.data<T>(ctx);
    T *mean = means.data<T>(ctx), *scale = scales.data<T>(ctx), *to = y.data<T>(ctx);
    for (int64_t c = 0; c < columns; ++c) {
      mean[c] = sums.data<T>(ctx)[c] / sizes.data<T>(ctx)[c];
      scale[c] = std::sqrt(sizes.data<T>(ctx)[c] / squares.data<T>(ctx)[c]);
    }
    const Slots<T> slots(x(ctx), slot_dim);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t i = r * columns + c;
        to[i] = slots.IsEmpty(r, c) ? T(0) : (from[i] - mean[c]) * scale[c];
        if (!is_affine || slots.IsEmpty(r, c)) continue;
        to[i] = to[i] * weight.data<T>(ctx)[c] + bias.data<T>(ctx)[c];
      }
    }
  });
}

// Σ over the rows of f(row, column), without empty slots.
template <typename T, typename F>
void SetSums(const Slots<T>& slots, int64_t rows, Tensor* to, F f) {
  if (to == nullptr) return;
  for (int64_t c = 0; c < to->size(); ++c) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += slots.IsEmpty(r, c) ? 0 : f(r, c);
    to->data<T>()[c] = static_cast<T>(sum);
  }
}

// Like Paddle's CPU kernel, and unlike its GPU kernel, leaves the summaries unchanged, although
// they are outputs. Paddle's X@GRAD of an empty slot is that of a full one, except with scale and
// shift.
absl::StatusOr<Kernel> DataNormGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dy = op.in("Y@GRAD"), means = op.in("Means"), scales = op.in("Scales");
  const In weight = op.in("scale_w");
  op.Ignore({"bias"});
  const Out dx = op.out("X@GRAD"), dweight = op.out("scale_w@GRAD"), dbias = op.out("bias@GRAD");
  const Out dsize = op.out("BatchSize@GRAD"), dsum = op.out("BatchSum@GRAD");
  const Out dsquare = op.out("BatchSquareSum@GRAD");
  const int64_t slot_dim = spec.attrs.Int("slot_dim");
  const double epsilon = spec.attrs.Float("epsilon");
  const bool is_affine = spec.attrs.Bool("enable_scale_and_shift");
  const bool fills_empty = spec.paddle_cpu_quirks && !is_affine;
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = x(ctx).dim(0), columns = x(ctx).dim(1);
    const T *xs = x.data<T>(ctx), *dys = dy.data<T>(ctx);
    const T *mean = means.data<T>(ctx), *scale = scales.data<T>(ctx);
    const Slots<T> slots(x(ctx), slot_dim);
    if (T* to = dx.data_or_null<T>(ctx)) {
      for (int64_t i = 0; i < rows * columns; ++i) {
        const int64_t c = i % columns;
        const T factor = scale[c] * (is_affine ? weight.data<T>(ctx)[c] : T(1));
        to[i] = slots.IsEmpty(i / columns, c) && !fills_empty ? T(0) : dys[i] * factor;
      }
    }
    const auto distance = [=](int64_t r, int64_t c) {
      return double{xs[r * columns + c] - mean[c]};
    };
    if (is_affine) {
      SetSums(slots, rows, dbias.get(ctx),
              [=](int64_t r, int64_t c) { return dys[r * columns + c]; });
      SetSums(slots, rows, dweight.get(ctx), [=](int64_t r, int64_t c) {
        return dys[r * columns + c] * distance(r, c) * scale[c];
      });
    }
    Tensor counts;
    counts.Resize(x(ctx).dtype(), {columns});
    SetSums(slots, rows, &counts, [](int64_t, int64_t) { return 1; });
    const auto set = [&](Tensor* to, auto f) {
      SetSums(slots, rows, to, f);
      for (int64_t c = 0; to != nullptr && slot_dim > 0 && c < columns; ++c) {
        to->data<T>()[c] /= std::max(counts.data<T>()[c], T(1));
      }
    };
    set(dsize.get(ctx), [](int64_t, int64_t) { return 1; });
    set(dsum.get(ctx), [=](int64_t r, int64_t c) { return xs[r * columns + c]; });
    set(dsquare.get(ctx), [=](int64_t r, int64_t c) { return distance(r, c) * distance(r, c); });
    if (Tensor* to = dsquare.get(ctx)) {
      for (int64_t c = 0; c < columns; ++c) {
        to->data<T>()[c] += counts.data<T>()[c] * static_cast<T>(epsilon);
      }
    }
  });
}

}  // namespace

void AddDataNormKernels(KernelTable* table) {
  table->Add("data_norm", DataNorm);
  table->Add("data_norm_grad", DataNormGrad);
}

}  // namespace weft
