// Ops that read, or assign to, a strided view of a tensor.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/cpu/view_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- set_value -----------------------------------------------------------------------------------

// Out = Input, except for a slice, which is ValueTensor, broadcast to the slice's dims.
absl::StatusOr<Kernel> SetValue(OpKernel op) {
  if (op.spec().Input("ValueTensor") < 0) {
    return absl::UnimplementedError("no kernel for attribute values in place of ValueTensor");
  }
  const In x = op.in("Input"), value = op.in("ValueTensor");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=, slice = SliceView(op.attrs())](const KernelContext& ctx,
                                                                    auto zero) {
    using T = decltype(zero);
    const View view = slice(x(ctx).dims(), {});
    std::vector<T> values(view.size());
    ReadView(ExpandedView(value(ctx).dims(), view.extents), value.elements<T>(ctx), values.data());
    std::copy_n(x.elements<T>(ctx), x(ctx).size(), out.elements<T>(ctx));
    WriteView(view, values.data(), out.elements<T>(ctx));
  });
}

absl::StatusOr<Kernel> SetValueGrad(OpKernel op) {
  op.Ignore({"ValueTensor"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD"), dvalue = op.out("ValueTensor@GRAD");
  return op.Make(Floats(dout), [=, slice = SliceView(op.attrs())](const KernelContext& ctx,
                                                                  auto zero) {
    using T = decltype(zero);
    const View view = slice(dout(ctx).dims(), {});
    std::vector<T> values(view.size());
    ReadView(view, dout.data<T>(ctx), values.data());
    if (Tensor* gradient = dvalue.get(ctx)) {
      std::fill_n(gradient->data<T>(), gradient->size(), T(0));
      AddToView(ExpandedView(gradient->dims(), view.extents), values.data(), gradient->data<T>());
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
