// Elements selected by a boolean mask (where, masked_select) or by a triangle of a matrix.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Out = X where Condition holds, Y elsewhere.
absl::StatusOr<Kernel> Where(OpKernel op) {
  const In condition = op.in("Condition"), x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.InPlace(out, x).InPlace(out, y).Make(
      RawElements{x}, [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const bool* is_x = condition.data<bool>(ctx);
        const T *xs = x.elements<T>(ctx), *ys = y.elements<T>(ctx);
        T* to = out.elements<T>(ctx);
        ForEach<T>(x(ctx).size(), [=](int64_t i) { to[i] = is_x[i] ? xs[i] : ys[i]; });
      });
}

absl::StatusOr<Kernel> WhereGrad(OpKernel op) {
  op.Ignore({"X", "Y"});
  const In condition = op.in("Condition"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const bool* is_x = condition.data<bool>(ctx);
    const T* from = dout.data<T>(ctx);
    T *dxs = dx.data_or_null<T>(ctx), *dys = dy.data_or_null<T>(ctx);
    for (int64_t i = 0; i < dout(ctx).size(); ++i) {
      if (dxs != nullptr) dxs[i] = is_x[i] ? from[i] : T(0);
      if (dys != nullptr) dys[i] = is_x[i] ? T(0) : from[i];
    }
  });
}

// Out = the indices of nonzero elements, one per row.
absl::StatusOr<Kernel> WhereIndex(OpKernel op) {
  const In condition = op.in("Condition");
  const Out out = op.out("Out");
  return op.Make(AllTypesButHalf(condition), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Tensor& tensor = condition(ctx);
    const T* values = condition.data<T>(ctx);
    const Dims strides = RowMajorStrides(tensor.dims());
    std::vector<int64_t> places;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (values[i] != T(0)) places.push_back(i);
    }
    out(ctx).Resize(DType::kInt64, {static_cast<int64_t>(places.size()), tensor.rank()});
    int64_t* to = out.data<int64_t>(ctx);
    for (int64_t place : places) {
      for (int d = 0; d < tensor.rank(); ++d) *to++ = place / strides[d] % tensor.dim(d);
    }
  });
}

// Y = the elements of X where Mask is true, flattened.
absl::StatusOr<Kernel> MaskedSelect(OpKernel op) {
  const In x = op.in("X"), mask = op.in("Mask");
  const Out y = op.out("Y");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const bool* kept = mask.data<bool>(ctx);
    const int64_t size = x(ctx).size();
    y(ctx).Resize(x(ctx).dtype(), {std::count(kept, kept + size, true)});
    T* to = y.elements<T>(ctx);
    for (int64_t i = 0; i < size; ++i) {
      if (kept[i]) *to++ = x.elements<T>(ctx)[i];
    }
  });
}

absl::StatusOr<Kernel> MaskedSelectGrad(OpKernel op) {
  op.Ignore({"X"});
  const In mask = op.in("Mask"), dy = op.in("Y@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dy), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const bool* kept = mask.data<bool>(ctx);
    const int64_t size = dx(ctx).size();
    WEFT_RETURN_IF_ERROR(CheckSize("Y@GRAD", dy(ctx), std::count(kept, kept + size, true)));
    const T* from = dy.data<T>(ctx);
    for (int64_t i = 0; i < size; ++i) dx.data<T>(ctx)[i] = kept[i] ? *from++ : T(0);
    return absl::OkStatus();
  });
}

// The lower, or upper, triangle of the last two dimensions; 0 elsewhere.
absl::StatusOr<Kernel> TrilTriu(OpKernel op, const char* from, const char* to_slot) {
  const In x = op.in(from);
  const Out out = op.out(to_slot);
  const int64_t diagonal = op.attrs().Int("diagonal");
  const bool lower = op.attrs().Bool("lower");
  return op.InPlace(out, x).Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t columns = x(ctx).dims().back(), rows = x(ctx).dim(x(ctx).rank() - 2);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t above = i % columns - i / columns % rows;
      const bool is_kept = lower ? above <= diagonal : above >= diagonal;
      out.elements<T>(ctx)[i] = is_kept ? x.elements<T>(ctx)[i] : T(0);
    }
  });
}

}  // namespace

void AddWhereKernels(KernelTable* table) {
  table->Add("where", Where, WhereGrad);
  table->Add("where_index", WhereIndex);
  table->Add("masked_select", MaskedSelect, MaskedSelectGrad);
  table->Add(
      "tril_triu", [](const KernelSpec& spec) { return TrilTriu(spec, "X", "Out"); },
      [](const KernelSpec& spec) { return TrilTriu(spec, "Out@GRAD", "X@GRAD"); });
}

}  // namespace weft
