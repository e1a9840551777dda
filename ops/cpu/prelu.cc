// ReLU with a trained slope for negative elements.
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The slope of prelu that applies to an element of X.
struct Slopes {
  int64_t count, stride;

  Slopes(const OpAttrs& attrs, const Dims& dims) : count(1), stride(1) {
    const std::string& mode = attrs.String("mode");
    const absl::Span<const int64_t> all = dims;
    if (mode == "element") {
      count = NumElements(all.subspan(1));
    } else if (mode == "channel") {
      const size_t axis = attrs.String("data_format").back() == 'C' ? dims.size() - 1 : 1;
      count = dims[axis];
      stride = NumElements(all.subspan(axis + 1));
    }
  }
  int64_t operator()(int64_t element) const { return element / stride % count; }
};

// Out = X if X > 0, else Alpha X.
absl::StatusOr<Kernel> Prelu(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha");
  const Out out = op.out("Out");
  return op.InPlace(out, x).Make(Floats(x),
                                 [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
                                   using T = decltype(zero);
                                   const Slopes slope(attrs, x(ctx).dims());
                                   const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx);
                                   T* to = out.data<T>(ctx);
                                   for (int64_t i = 0; i < x(ctx).size(); ++i) {
                                     to[i] = xs[i] > 0 ? xs[i] : alphas[slope(i)] * xs[i];
                                   }
                                 });
}

// X@GRAD = Out@GRAD if X > 0, else Alpha Out@GRAD. Alpha@GRAD = Σ X Out@GRAD over X <= 0.
absl::StatusOr<Kernel> PreluGrad(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dalpha = op.out("Alpha@GRAD");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Slopes slope(attrs, x(ctx).dims());
    const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx), *dys = dout.data<T>(ctx);
    std::vector<double> sums(slope.count, 0.0);
    T* to = dx.data_or_null<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      if (to != nullptr) to[i] = xs[i] > 0 ? dys[i] : alphas[slope(i)] * dys[i];
      if (!(xs[i] > 0)) sums[slope(i)] += double{xs[i]} * dys[i];
    }
    if (T* sum = dalpha.data_or_null<T>(ctx)) {
      for (int64_t k = 0; k < slope.count; ++k) sum[k] = static_cast<T>(sums[k]);
    }
  });
}

}  // namespace

void AddPreluKernels(KernelTable* table) { table->Add("prelu", Prelu, PreluGrad); }

}  // namespace weft
