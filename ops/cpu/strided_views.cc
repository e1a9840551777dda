// Ops that read, or assign to, a strided view of a tensor.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/cpu/view_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- set_value -----------------------------------------------------------------------------------

// The slice, without the axes of one element that its value lacks.
ViewOf AssignedView(const OpAttrs& attrs) {
  return [slice = SliceView(attrs), dropped = attrs.Ints("decrease_axes")](const Dims& x,
                                                                           const Dims& out) {
    const View whole = slice(x, out);
    View view = whole;
    view.extents.clear();
    view.strides.clear();
    for (size_t d = 0; d < x.size(); ++d) {
      const bool drops = absl::c_any_of(dropped, [&](int64_t axis) {
        return axis == static_cast<int64_t>(d) ||
               axis + static_cast<int64_t>(x.size()) == static_cast<int64_t>(d);
      });
      // Without an element there, the slice is empty.
      if (drops && whole.extents[d] != 0) continue;
      view.extents.push_back(whole.extents[d]);
      view.strides.push_back(whole.strides[d]);
    }
    return view;
  };
}

// A value, repeated to a slice: without dimensions of size 1 in front that the slice lacks.
View FillOf(Dims value, const View& slice) {
  if (value.size() > slice.extents.size()) {
    value.erase(value.begin(), value.begin() + (value.size() - slice.extents.size()));
  }
  return ExpandedView(value, slice.extents);
}

// Out = Input, except for a slice, which is the tensor of attributes shape and values, broadcast to
// the slice's dims.
absl::StatusOr<Kernel> SetNumbers(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  const std::vector<int64_t> shape = op.attrs().Ints("shape");
  const Dims dims(shape.begin(), shape.end());
  const std::vector<Scalar> scalars = op.attrs().Scalars("values");
  if (scalars.empty()) {
    return absl::InvalidArgumentError("expected an input ValueTensor, or an attribute values");
  }
  return op.InPlace(out, x).Make(AllTypesButHalf(x), [=, slice = AssignedView(op.attrs())](
                                                         const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const std::unique_ptr<T[]> numbers(new T[scalars.size()]);
    for (size_t i = 0; i < scalars.size(); ++i) {
      numbers[i] = std::visit([](auto value) { return static_cast<T>(value); }, scalars[i]);
    }
    const View view = slice(x(ctx).dims(), {});
    const std::unique_ptr<T[]> values(new T[view.size()]);
    ReadView(FillOf(dims, view), numbers.get(), values.get());
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    if (from != to) std::copy_n(from, x(ctx).size(), to);
    WriteView(view, values.get(), to);
  });
}

// The same with ValueTensor.
absl::StatusOr<Kernel> SetValue(OpKernel op) {
  if (op.spec().Input("ValueTensor") < 0) return SetNumbers(op);
  const In x = op.in("Input"), value = op.in("ValueTensor");
  const Out out = op.out("Out");
  return op.Make(RawElements{x},
                 [=, slice = AssignedView(op.attrs())](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   const View view = slice(x(ctx).dims(), {});
                   std::vector<T> values(view.size());
                   ReadView(FillOf(value(ctx).dims(), view), value.elements<T>(ctx), values.data());
                   std::copy_n(x.elements<T>(ctx), x(ctx).size(), out.elements<T>(ctx));
                   WriteView(view, values.data(), out.elements<T>(ctx));
                 });
}

absl::StatusOr<Kernel> SetValueGrad(OpKernel op) {
  op.Ignore({"ValueTensor"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD"), dvalue = op.out("ValueTensor@GRAD");
  return op.Make(Floats(dout),
                 [=, slice = AssignedView(op.attrs())](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   const View view = slice(dout(ctx).dims(), {});
                   std::vector<T> values(view.size());
                   ReadView(view, dout.data<T>(ctx), values.data());
                   if (Tensor* gradient = dvalue.get(ctx)) {
                     std::fill_n(gradient->data<T>(), gradient->size(), T(0));
                     AddToView(FillOf(gradient->dims(), view), values.data(), gradient->data<T>());
                   }
                   if (Tensor* gradient = dx.get(ctx)) {
                     std::copy_n(dout.data<T>(ctx), dout(ctx).size(), gradient->data<T>());
                     std::fill(values.begin(), values.end(), T(0));
                     WriteView(view, values.data(), gradient->data<T>());
                   }
                 });
}

}  // namespace

void AddStridedViewKernels(KernelTable* table) {
  table->Add("set_value", SetValue, SetValueGrad);
  for (const ViewOp& op : ViewOps()) AddView(op.type, op.make_view, table, op.x_slot);
  for (const char* type : {"flip", "reverse"}) {  // their own gradients
    table->Add(type, [](const KernelSpec& spec) { return ViewKernel(spec, "X", FlippedView); });
  }
}

}  // namespace weft
