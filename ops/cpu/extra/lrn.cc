// Local response normalization, over n neighboring channels:
//   MidOut[c] = k + alpha Σ X[i]² for i from c - (n - 1) / 2 on, Out = X MidOut^-beta
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

struct Lrn {
  int64_t n;
  double k, alpha, beta;
  bool channels_last;

  static absl::StatusOr<Lrn> Read(const OpAttrs& attrs) {
    Lrn lrn{attrs.Int("n"), attrs.Float("k"), attrs.Float("alpha"), attrs.Float("beta"), false};
    WEFT_ASSIGN_OR_RETURN(lrn.channels_last, ReadChannelsLast(attrs, 2));
    return lrn;
  }

  // Calls visit(i, begin, end, step) for every element i of X: its neighbors are begin, begin +
  // step, ... up to end, which is not one.
  template <typename Visit>
  void ForEachElement(const Dims& x, Visit visit) const {
    const Dims dims = ChannelsFirst(x, channels_last);
    const auto steps = ImageSteps(dims, channels_last);
    const int64_t places = dims[2] * dims[3], step = steps[1];
    for (int64_t image = 0; image < dims[0]; ++image) {
      for (int64_t place = 0; place < places; ++place) {
        const int64_t first = image * steps[0] + place * steps[4];
        for (int64_t c = 0; c < dims[1]; ++c) {
          const int64_t begin = std::max<int64_t>(c - (n - 1) / 2, 0);
          const int64_t end = std::min(c - (n - 1) / 2 + n, dims[1]);
          visit(first + c * step, first + begin * step, first + end * step, step);
        }
      }
    }
  }
};

absl::StatusOr<Kernel> Forward(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), mid_out = op.out("MidOut");
  WEFT_ASSIGN_OR_RETURN(const Lrn lrn, Lrn::Read(spec.attrs));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    T *outs = out.data<T>(ctx), *mids = mid_out.data<T>(ctx);
    lrn.ForEachElement(x(ctx).dims(), [&](int64_t i, int64_t begin, int64_t end, int64_t step) {
      double squares = 0;
      for (int64_t j = begin; j < end; j += step) squares += double{xs[j]} * xs[j];
      const double mid = lrn.k + lrn.alpha * squares;
      mids[i] = static_cast<T>(mid);
      outs[i] = static_cast<T>(xs[i] * std::pow(mid, -lrn.beta));
    });
  });
}

// dX = dOut MidOut^-beta - 2 alpha beta X Σ dOut Out / MidOut, over the elements that X is a
// neighbor of.
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), mid_out = op.in("MidOut");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  WEFT_ASSIGN_OR_RETURN(const Lrn lrn, Lrn::Read(spec.attrs));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *outs = out.data<T>(ctx), *mids = mid_out.data<T>(ctx);
    const T* d = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    lrn.ForEachElement(x(ctx).dims(), [&](int64_t i, int64_t begin, int64_t end, int64_t step) {
      to[i] += static_cast<T>(d[i] * std::pow(double{mids[i]}, -lrn.beta));
      const double factor = 2 * lrn.alpha * lrn.beta * d[i] * outs[i] / mids[i];
      for (int64_t j = begin; j < end; j += step) to[j] -= static_cast<T>(factor * xs[j]);
    });
  });
}

}  // namespace

void AddLrnKernels(KernelTable* table) {
  table->Add("lrn", Forward);
  table->Add("lrn_grad", Backward);
}

}  // namespace weft
