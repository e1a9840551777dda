// Diagonals taken from matrices, summed, and made matrices.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/cpu/view_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The diagonal `offset` above the main one of two dimensions, as the last dimension.
View Diagonal(const Dims& x, int64_t axis1, int64_t axis2, int64_t offset) {
  const size_t a = NormalizedAxis(axis1, x.size()), b = NormalizedAxis(axis2, x.size());
  const Dims strides = RowMajorStrides(x);
  View view;
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == a || d == b) continue;
    view.extents.push_back(x[d]);
    view.strides.push_back(strides[d]);
  }
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  view.offset = row * strides[a] + column * strides[b];
  view.extents.push_back(std::max<int64_t>(0, std::min(x[a] - row, x[b] - column)));
  view.strides.push_back(strides[a] + strides[b]);
  return view;
}

ViewOf DiagonalView(const OpAttrs& attrs) {
  return [axis1 = attrs.Int("axis1"), axis2 = attrs.Int("axis2"), offset = attrs.Int("offset")](
             const Dims& x, const Dims&) { return Diagonal(x, axis1, axis2, offset); };
}

// Paddle's trace uses the axes in the order of the tensor.
ViewOf TracedDiagonal(const KernelSpec& spec) {
  if (!spec.paddle_cpu_quirks) return DiagonalView(spec.attrs);
  return [axis1 = spec.attrs.Int("axis1"), axis2 = spec.attrs.Int("axis2"),
          offset = spec.attrs.Int("offset")](const Dims& x, const Dims&) {
    const size_t a = NormalizedAxis(axis1, x.size()), b = NormalizedAxis(axis2, x.size());
    return Diagonal(x, std::min(a, b), std::max(a, b), offset);
  };
}

// Out = the sums of the diagonals.
absl::StatusOr<Kernel> Trace(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x),
                 [=, diagonal = TracedDiagonal(op.spec())](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   const View view = diagonal(x(ctx).dims(), {});
                   std::vector<T> elements(view.size());
                   ReadView(view, x.data<T>(ctx), elements.data());
                   const int64_t width = view.extents.back();
                   for (int64_t i = 0; i < out(ctx).size(); ++i) {
                     T sum = 0;
                     for (int64_t k = 0; k < width; ++k) {
                       sum = static_cast<T>(Wrapping(sum) + Wrapping(elements[i * width + k]));
                     }
                     out.data<T>(ctx)[i] = sum;
                   }
                 });
}

absl::StatusOr<Kernel> TraceGrad(OpKernel op) {
  op.Ignore({"Input"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD");
  return op.Make(Floats(dout),
                 [=, diagonal = TracedDiagonal(op.spec())](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   const View view = diagonal(dx(ctx).dims(), {});
                   const int64_t width = view.extents.back();
                   std::vector<T> elements(view.size());
                   for (int64_t i = 0; i < view.size(); ++i)
                     elements[i] = dout.data<T>(ctx)[i / width];
                   std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
                   WriteView(view, elements.data(), dx.data<T>(ctx));
                 });
}

// A vector becomes a diagonal, surrounded by padding_value, or 0 for a gradient; the diagonal of a
// matrix becomes a vector.
template <bool is_grad>
absl::StatusOr<Kernel> Diag(OpKernel op) {
  op.Ignore({"X"});
  const In from = op.in(is_grad ? "Out@GRAD" : "X");
  const Out to = op.out(is_grad ? "X@GRAD" : "Out");
  const int64_t offset = op.attrs().Int("offset");
  const double padding = is_grad ? 0 : op.attrs().Float("padding_value");
  const auto step = [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    if (from(ctx).rank() == 2) {
      ReadView(Diagonal(from(ctx).dims(), 0, 1, offset), from.data<T>(ctx), to.data<T>(ctx));
      return;
    }
    std::fill_n(to.data<T>(ctx), to(ctx).size(), static_cast<T>(padding));
    WriteView(Diagonal(to(ctx).dims(), 0, 1, offset), from.data<T>(ctx), to.data<T>(ctx));
  };
  return is_grad ? op.Make(Floats(from), step) : op.Make(FloatsAndInts(from), step);
}

// Out = matrices with the rows of Input on a diagonal, 0 elsewhere.
absl::StatusOr<Kernel> DiagEmbed(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  const int64_t dim1 = op.attrs().Int("dim1"), dim2 = op.attrs().Int("dim2");
  const int64_t offset = op.attrs().Int("offset");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = out(ctx).dims();
    WEFT_ASSIGN_OR_RETURN(const int rows, CheckedAxis(dim1, dims));
    WEFT_ASSIGN_OR_RETURN(const int columns, CheckedAxis(dim2, dims));
    std::fill_n(out.data<T>(ctx), out(ctx).size(), T(0));
    WriteView(Diagonal(dims, rows, columns, offset), x.data<T>(ctx), out.data<T>(ctx));
    return absl::OkStatus();
  });
}

}  // namespace

void AddDiagonalKernels(KernelTable* table) {
  AddView("diagonal", DiagonalView, table, "Input");
  table->Add("trace", Trace);
  table->Add("trace_grad", TraceGrad);
  table->Add("diag_v2", Diag</*is_grad=*/false>);
  table->Add("diag_v2_grad", Diag</*is_grad=*/true>);
  table->Add("diag_embed", DiagEmbed);
}

}  // namespace weft
