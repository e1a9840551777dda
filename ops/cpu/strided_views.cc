// Ops whose output is a strided view of the input.
#include <cstdint>

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

// Each element along a dimension repeated.
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

}  // namespace

void AddStridedViewKernels(KernelTable* table) {
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
