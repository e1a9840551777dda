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

ViewOf Transpose(const OpAttrs& attrs) {
  return [axes = attrs.Ints("axis")](const Dims& x, const Dims&) {
    const View whole = WholeView(x);
    View view;
    for (int64_t axis : axes) {
      view.extents.push_back(x[NormalizedAxis(axis, x.size())]);
      view.strides.push_back(whole.strides[NormalizedAxis(axis, x.size())]);
    }
    return view;
  };
}

ViewOf Flip(const OpAttrs& attrs) {
  return [axes = attrs.Ints("axis")](const Dims& x, const Dims&) {
    View view = WholeView(x);
    for (int64_t a : axes) {
      const size_t axis = NormalizedAxis(a, x.size());
      view.offset += (x[axis] - 1) * view.strides[axis];
      view.strides[axis] *= -1;
    }
    return view;
  };
}

ViewOf Expand(const OpAttrs&) { return ExpandedView; }

// Each dimension repeated as a whole.
ViewOf Tile(const OpAttrs&) {
  return [](const Dims& x, const Dims& out) {
    const Dims strides = RowMajorStrides(x);
    const size_t missing = out.size() - x.size();
    View view;
    for (size_t d = 0; d < out.size(); ++d) {
      const int64_t extent = d < missing ? 1 : x[d - missing];
      view.extents.push_back(extent == 0 ? 0 : out[d] / extent);
      view.strides.push_back(0);
      view.extents.push_back(extent);
      view.strides.push_back(d < missing ? 0 : strides[d - missing]);
    }
    return view;
  };
}

// Each element repeated along a dimension.
ViewOf RepeatInterleave(const OpAttrs& attrs) {
  return [dim = attrs.Int("dim"), repeats = attrs.Int("Repeats")](const Dims& x, const Dims&) {
    View view = WholeView(x);
    const size_t after = NormalizedAxis(dim, x.size()) + 1;
    view.extents.insert(view.extents.begin() + after, repeats);
    view.strides.insert(view.strides.begin() + after, 0);
    return view;
  };
}

ViewOf Crop(const OpAttrs& attrs) {
  return [offsets = attrs.Ints("offsets")](const Dims& x, const Dims& out) {
    View view{out, RowMajorStrides(x), 0};
    for (size_t d = 0; d < offsets.size(); ++d) view.offset += offsets[d] * view.strides[d];
    return view;
  };
}

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
  AddView("crop_tensor", Crop, table);
  AddView("expand", Tile, table);
  AddView("expand_as_v2", Expand, table);
  AddView("expand_v2", Expand, table);
  AddView("repeat_interleave", RepeatInterleave, table);
  AddView("slice", SliceView, table, "Input");
  AddView("strided_slice", SliceView, table, "Input");
  AddView("tile", Tile, table);
  AddView("transpose", Transpose, table);
  AddView("transpose2", Transpose, table);
  for (const char* type : {"flip", "reverse"}) {  // their own gradients
    table->Add(type, [](const KernelSpec& spec) { return ViewKernel(spec, "X", Flip); });
  }
}

}  // namespace weft
