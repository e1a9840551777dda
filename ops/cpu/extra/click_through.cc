// Features of click-through models.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr int64_t kCounts = 2;

// With use_cvm, Y = X with log(shows + 1) and log(clicks + 1) - log(shows + 1) in place of the
// counts. Otherwise Y omits their columns.
absl::StatusOr<Kernel> Cvm(OpKernel op) {
  op.Ignore({"CVM"});
  const In x = op.in("X");
  const Out y = op.out("Y");
  const bool keeps_counts = op.attrs().Bool("use_cvm");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = x(ctx).dim(1), left_out = keeps_counts ? 0 : kCounts;
    const T* from = x.data<T>(ctx);
    T* to = y.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).dim(0); ++i, from += width, to += width - left_out) {
      std::copy(from + left_out, from + width, to);
      if (!keeps_counts) continue;
      to[0] = std::log(from[0] + 1);
      to[1] = std::log(from[1] + 1) - to[0];
    }
  });
}

// By definition of the op, the gradients of the counts are the counts of this step: CVM.
absl::StatusOr<Kernel> CvmGrad(OpKernel op) {
  op.Ignore({"X"});
  const In counts = op.in("CVM"), dy = op.in("Y@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t left_out = op.attrs().Bool("use_cvm") ? 0 : kCounts;
  return op.Make(Floats(dy), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = dx(ctx).dim(1);
    const T *from = dy.data<T>(ctx), *count = counts.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    for (int64_t i = 0; i < dx(ctx).dim(0); ++i, from += width - left_out, to += width) {
      std::copy(from, from + width - left_out, to + left_out);
      std::copy_n(count + i * kCounts, kCounts, to);
    }
  });
}

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

absl::StatusOr<Kernel> DataNorm(OpKernel op) {
  const In x = op.in("X"), sizes = op.in("BatchSize"), sums = op.in("BatchSum");
  const In squares = op.in("BatchSquareSum"), weight = op.in("scale_w"), bias = op.in("bias");
  const Out y = op.out("Y"), means = op.out("Means"), scales = op.out("Scales");
  const int64_t slot_dim = op.attrs().Int("slot_dim");
  const bool is_affine = op.attrs().Bool("enable_scale_and_shift");
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
absl::StatusOr<Kernel> DataNormGrad(OpKernel op) {
  const In x = op.in("X"), dy = op.in("Y@GRAD"), means = op.in("Means"), scales = op.in("Scales");
  const In weight = op.in("scale_w");
  op.Ignore({"bias"});
  const Out dx = op.out("X@GRAD"), dweight = op.out("scale_w@GRAD"), dbias = op.out("bias@GRAD");
  const Out dsize = op.out("BatchSize@GRAD"), dsum = op.out("BatchSum@GRAD");
  const Out dsquare = op.out("BatchSquareSum@GRAD");
  const int64_t slot_dim = op.attrs().Int("slot_dim");
  const double epsilon = op.attrs().Float("epsilon");
  const bool is_affine = op.attrs().Bool("enable_scale_and_shift");
  const bool fills_empty = op.spec().paddle_cpu_quirks && !is_affine;
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

void AddClickThroughKernels(KernelTable* table) {
  table->Add("cvm", Cvm);
  table->Add("cvm_grad", CvmGrad);
  table->Add("data_norm", DataNorm);
  table->Add("data_norm_grad", DataNormGrad);
}

}  // namespace weft
