// Tensors joined along a dimension, and cut up again.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The positions begin, begin + 1, ... (`size` of them) along an axis of a tensor of these dims.
View Part(const Dims& whole, int64_t axis, int64_t begin, int64_t size) {
  View view = WholeView(whole);
  const size_t a = NormalizedAxis(axis, whole.size());
  view.offset = begin * view.strides[a];
  view.extents[a] = size;
  return view;
}

// Out = the parts, concatenated along the axis.
absl::StatusOr<Kernel> Concat(OpKernel op) {
  const In parts = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{parts},
                 [=, axis = op.attrs().Int("axis")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   int64_t begin = 0;
                   for (int i = 0; i < parts.count(); ++i) {
                     const Dims dims = parts(ctx, i).dims();
                     const int64_t size = dims[NormalizedAxis(axis, dims.size())];
                     WriteView(Part(out(ctx).dims(), axis, begin, size), parts.elements<T>(ctx, i),
                               out.elements<T>(ctx));
                     begin += size;
                   }
                 });
}

// Parts of x of these sizes along the axis; unread parts are skipped.
template <typename T>
void Cut(const Tensor& x, int64_t axis, const std::vector<int64_t>& sizes, const Out& parts,
         const KernelContext& ctx) {
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); begin += sizes[i], ++i) {
    if (parts.get(ctx, static_cast<int>(i)) == nullptr) continue;
    ReadView(Part(x.dims(), axis, begin, sizes[i]), static_cast<const T*>(x.raw()),
             parts.elements<T>(ctx, static_cast<int>(i)));
  }
}

// X@GRAD = the parts of Out@GRAD into which the X were concatenated.
absl::StatusOr<Kernel> ConcatGrad(OpKernel op) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(RawElements{dout}, [=, axis = op.attrs().Int("axis")](const KernelContext& ctx,
                                                                       auto zero) {
    std::vector<int64_t> sizes;
    for (int i = 0; i < x.count(); ++i) {
      sizes.push_back(x(ctx, i).dims()[NormalizedAxis(axis, x(ctx, i).rank())]);
    }
    return [=](const KernelContext& now) { Cut<decltype(zero)>(dout(now), axis, sizes, dx, now); };
  });
}

// Out = parts of X: equal ones, or of the sizes `sections`, of which one may be -1, the rest.
absl::StatusOr<Kernel> Split(OpKernel op) {
  const In x = op.in("X");
  const Out parts = op.out("Out");
  const std::vector<int64_t> sections =
      op.attrs().Int("num") > 0 ? std::vector<int64_t>() : op.attrs().Ints("sections");
  return op.Make(RawElements{x}, [=, axis = op.attrs().Int("axis")](const KernelContext& ctx,
                                                                    auto zero) {
    const int64_t size = x(ctx).dims()[NormalizedAxis(axis, x(ctx).rank())];
    std::vector<int64_t> sizes = sections;
    if (sizes.empty()) sizes.assign(parts.count(), size / parts.count());
    const auto rest = std::find(sizes.begin(), sizes.end(), -1);
    if (rest != sizes.end()) {
      *rest = 0;
      *rest = size - std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    }
    return [=](const KernelContext& now) { Cut<decltype(zero)>(x(now), axis, sizes, parts, now); };
  });
}

// The variables in turn, stacked along a new dimension.
absl::StatusOr<Kernel> Stack(OpKernel op, const char* parts_slot, const char* to) {
  const In parts = op.in(parts_slot);
  const Out out = op.out(to);
  return op.Make(RawElements{parts}, [=, axis = op.attrs().Int("axis")](const KernelContext& ctx,
                                                                        auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < parts.count(); ++i) {
      WriteView(Part(out(ctx).dims(), axis, i, 1), parts.elements<T>(ctx, i), out.elements<T>(ctx));
    }
  });
}

absl::StatusOr<Kernel> Unstack(OpKernel op, const char* from, const char* parts_slot) {
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out parts = op.out(parts_slot);
  return op.Make(
      RawElements{x}, [=, axis = op.attrs().Int("axis")](const KernelContext& ctx, auto zero) {
        Cut<decltype(zero)>(x(ctx), axis, std::vector<int64_t>(parts.count(), 1), parts, ctx);
      });
}

}  // namespace

void AddConcatSplitKernels(KernelTable* table) {
  table->Add("concat", Concat, ConcatGrad);
  table->Add("split", Split);
  table->Add(
      "stack", [](const KernelSpec& spec) { return Stack(spec, "X", "Y"); },
      [](const KernelSpec& spec) { return Unstack(spec, "Y@GRAD", "X@GRAD"); });
  table->Add(
      "unstack", [](const KernelSpec& spec) { return Unstack(spec, "X", "Y"); },
      [](const KernelSpec& spec) { return Stack(spec, "Y@GRAD", "X@GRAD"); });
  table->Add("unbind", [](const KernelSpec& spec) { return Unstack(spec, "X", "Out"); });
}

}  // namespace weft
