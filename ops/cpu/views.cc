#include "ops/cpu/views.h"

#include <cstdint>
#include <vector>

#include "ops/cpu/indices.h"
#include "ops/schema/slice_range.h"

namespace weft {

ViewOf SliceView(const OpAttrs& attrs) {
  std::vector<int64_t> steps(attrs.Ints("axes").size(), 1);
  for (const char* name : {"strides", "steps"}) {
    if (attrs.Has(name)) steps = attrs.Ints(name);
  }
  return [axes = attrs.Ints("axes"), starts = attrs.Ints("starts"), ends = attrs.Ints("ends"),
          steps](const Dims& x, const Dims&) {
    View view = WholeView(x);
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t axis = NormalizedAxis(axes[i], x.size());
      const SliceRange range = TakeSlice(starts[i], ends[i], steps[i], x[axis]);
      view.offset += range.begin * view.strides[axis];
      view.extents[axis] = range.count;
      view.strides[axis] *= steps[i];
    }
    return view;
  };
}

View ExpandedView(const Dims& x, const Dims& out) {
  const Dims strides = RowMajorStrides(x);
  const size_t missing = out.size() - x.size();
  View view{out, Dims(out.size(), 0), 0};
  for (size_t d = 0; d < x.size(); ++d) {
    if (x[d] == out[missing + d]) view.strides[missing + d] = strides[d];
  }
  return view;
}

ViewOf FlippedView(const OpAttrs& attrs) {
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

namespace {

ViewOf TransposedView(const OpAttrs& attrs) {
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

ViewOf ExpandedViews(const OpAttrs&) { return ExpandedView; }

// Each dimension repeated as a whole.
ViewOf TiledView(const OpAttrs&) {
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
ViewOf InterleavedView(const OpAttrs& attrs) {
  return [dim = attrs.Int("dim"), repeats = attrs.Int("Repeats")](const Dims& x, const Dims&) {
    View view = WholeView(x);
    const size_t after = NormalizedAxis(dim, x.size()) + 1;
    view.extents.insert(view.extents.begin() + after, repeats);
    view.strides.insert(view.strides.begin() + after, 0);
    return view;
  };
}

ViewOf CroppedView(const OpAttrs& attrs) {
  return [offsets = attrs.Ints("offsets")](const Dims& x, const Dims& out) {
    View view{out, RowMajorStrides(x), 0};
    for (size_t d = 0; d < offsets.size(); ++d) view.offset += offsets[d] * view.strides[d];
    return view;
  };
}

constexpr ViewOp kViewOps[] = {
    {"crop", CroppedView, "X"},
    {"crop_tensor", CroppedView, "X"},
    {"expand", TiledView, "X"},
    {"expand_as_v2", ExpandedViews, "X"},
    {"expand_v2", ExpandedViews, "X"},
    {"repeat_interleave", InterleavedView, "X"},
    {"slice", SliceView, "Input"},
    {"strided_slice", SliceView, "Input"},
    {"tile", TiledView, "X"},
    {"transpose", TransposedView, "X"},
    {"transpose2", TransposedView, "X"},
};

}  // namespace

absl::Span<const ViewOp> ViewOps() { return kViewOps; }

}  // namespace weft
