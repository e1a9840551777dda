// Elements that keep their values and get other places; sizes.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"

namespace weft {
namespace batch {
namespace {

bool SameUpTo(const Dims& a, const Dims& b, size_t n) {
  return a.size() >= n && b.size() >= n && std::equal(a.begin(), a.begin() + n, b.begin()) &&
         std::find(a.begin(), a.begin() + n, -1) == a.begin() + n;
}

// Whether a dimension of Out, declared unknown, has the size of the batch, not one that attribute
// shape or a tensor gives.
bool IsOfBatch(const BatchContext& c, size_t axis) {
  if (!c.attrs().Has("shape")) return true;
  if (!c.IsOverridden("shape")) {
    const std::vector<int64_t> shape = c.attrs().Ints("shape");
    return axis >= shape.size() || shape[axis] <= 0;
  }
  const absl::Span<const BatchRelation> sizes = c.AllIn("ShapeTensor");
  return c.In("Shape") == BatchRelation::Shape(static_cast<int>(axis)) ||
         (axis < sizes.size() && sizes[axis] == BatchRelation::Replicated(-1));
}

// The dimension that sizes in the inputs make as long as the rank's batch: -1 if all sizes are
// those of one device, none if it is unknown. `rank`: that of the output.
absl::optional<int> BatchInSizes(const BatchContext& c, const char* shape, const char* list,
                                 size_t rank) {
  if (c.OthersAreSame({"X"})) return -1;
  const absl::Span<const BatchRelation> sizes = c.AllIn(list);
  if (sizes.empty()) {
    const BatchRelation in = c.In(shape);
    return in.kind == BatchRelation::Kind::kShape ? absl::make_optional<int>(in.axis)
                                                  : absl::nullopt;
  }
  int found = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].IsSame()) continue;
    if (sizes[i] != BatchRelation::Replicated(-1) || found >= 0) return absl::nullopt;
    found = static_cast<int>(i);
  }
  return sizes.size() == rank && found >= 0 ? absl::make_optional(found) : absl::nullopt;
}

// Attributes axes, starts, ends and strides of slice ops. None that an input gives.
struct Slices {
  explicit Slices(const BatchContext& c, const char* strides_attr = "strides")
      : axes(c.attrs().Ints("axes")) {
    if (!c.IsOverridden("starts")) starts = c.attrs().Ints("starts");
    if (!c.IsOverridden("ends")) ends = c.attrs().Ints("ends");
    if (!c.attrs().Has(strides_attr)) {
      strides.assign(axes.size(), 1);
    } else if (!c.IsOverridden(strides_attr)) {
      strides = c.attrs().Ints(strides_attr);
    }
  }

  // Whether they leave an axis of a tensor with `rank` dimensions as it is.
  bool Keep(int axis, size_t rank) const {
    for (size_t i = 0; i < axes.size(); ++i) {
      if (BatchContext::Counted(axes[i], rank) != axis) continue;
      const bool is_whole = i < starts.size() && i < ends.size() && i < strides.size() &&
                            starts[i] == 0 && strides[i] == 1 &&
                            ends[i] >= std::numeric_limits<int32_t>::max();
      if (!is_whole) return false;
    }
    return true;
  }

  std::vector<int64_t> axes, starts, ends, strides;
};

// Of a list of sizes, one of which is that of the batch.
void SliceShape(BatchContext& c, const Slices& slices) {
  if (slices.axes != std::vector<int64_t>{0} || slices.starts.size() != 1 ||
      slices.ends.size() != 1 || slices.strides != std::vector<int64_t>{1}) {
    return;
  }
  const int batch = c.In("Input").axis;
  const int64_t start = slices.starts[0], end = slices.ends[0];
  if (start < 0 || end < 0) return;
  if (batch < start || batch >= end) return c.SetAll(BatchRelation::Replicated());
  c.SetAll(end == start + 1 ? BatchRelation::Replicated(-1)
                            : BatchRelation::Shape(static_cast<int>(batch - start)));
}

}  // namespace

// Elements keep their order. A share is a run of elements where no dimension before the batch is
// larger than 1, or where those dimensions stay as they are.
namespace {

// The axis that has the elements of an axis, if the sizes before it stay, whatever axes of size 1
// come or go.
absl::optional<size_t> ReshapedAxis(const Dims& from, size_t axis, const Dims& to) {
  if (from[axis] == 1) return SameUpTo(from, to, axis) ? absl::make_optional(axis) : absl::nullopt;
  size_t out = 0;
  const auto skip_ones = [&] {
    while (out < to.size() && to[out] == 1) ++out;
  };
  for (size_t i = 0; i < axis; ++i) {
    if (from[i] == 1) continue;
    skip_ones();
    if (out == to.size() || to[out] != from[i] || from[i] == -1) return absl::nullopt;
    ++out;
  }
  skip_ones();
  return out < to.size() ? absl::make_optional(out) : absl::nullopt;
}

}  // namespace

void Reshape(BatchContext& c) {
  const BatchRelation in = c.In("X");
  if (in.IsReplicated() || in.IsPartial()) {
    // Sizes of the batch would give another shape.
    if (c.OthersAreSame({"X"})) c.SetAll(in);
    return;
  }
  const absl::optional<Dims> from = c.InDims("X"), to = c.OutDims("Out");
  if (!in.IsSharded() || !from.has_value() || !to.has_value()) return;
  const size_t axis = in.axis;
  const absl::optional<size_t> reshaped = ReshapedAxis(*from, axis, *to);
  if (!reshaped.has_value()) return;
  const size_t out = *reshaped;
  // A dimension that is fixed does not grow with the batch, unless it is the declared batch itself.
  const bool follows = (*to)[out] == -1 ? IsOfBatch(c, out) : (*to)[out] == (*from)[axis];
  // Sizes that are computed may make any later dimension grow.
  const bool is_fixed =
      c.OthersAreSame({"X"}) || std::count(to->begin() + out + 1, to->end(), -1) == 0 ||
      BatchInSizes(c, "Shape", "ShapeTensor", to->size()) == static_cast<int>(out);
  if (follows && is_fixed) c.Set("Out", in.Along(static_cast<int>(out)));
}

void Transpose(BatchContext& c) {
  const std::vector<int64_t> perm = c.attrs().Ints("axis");
  const auto found = std::find(perm.begin(), perm.end(), c.In("X").axis);
  if (c.In("X").IsSharded() && found != perm.end()) {
    c.Set("Out", BatchRelation::Sharded(static_cast<int>(found - perm.begin())));
  }
}

BatchRun Joined(bool adds) {
  return [=](BatchContext& c) {
    const absl::optional<Dims> dims = c.InDims("X");
    const BatchRelation in = c.In("X");
    if (!in.IsSharded() || !dims.has_value() || !c.OthersAreReplicated({"X"})) return;
    for (const BatchRelation& other : c.AllIn("X")) {
      if (other != in) return;
    }
    const int axis = c.Axis("axis", dims->size() + (adds ? 1 : 0));
    if (axis < 0 || (!adds && axis == in.axis)) return;
    c.SetAll(BatchRelation::Sharded(in.axis + (adds && axis <= in.axis ? 1 : 0)));
  };
}

bool JoinSizes(BatchContext& c) {
  const absl::Span<const BatchRelation> sizes = c.AllIn("X");
  if (!c.IsNoFloatOut() || !c.OthersAreSame({"X"})) return false;
  const size_t first = sizes.data() - c.inputs().data();
  int64_t before = 0;
  int batch = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const absl::optional<Dims> dims = c.DimsOfInput(first + i);
    if (!dims.has_value() || dims->size() != 1 || (*dims)[0] < 0) return false;
    const bool is_batch = sizes[i] == BatchRelation::Replicated(-1) && (*dims)[0] == 1;
    if (is_batch || sizes[i].kind == BatchRelation::Kind::kShape) {
      if (batch >= 0) return false;
      batch = static_cast<int>(before) + sizes[i].axis;
    } else if (!sizes[i].IsSame()) {
      return false;
    }
    before += (*dims)[0];
  }
  if (batch < 0) return false;
  c.SetAll(BatchRelation::Shape(batch));
  return true;
}

void Slice(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  const Slices slices(c);
  if (!c.OthersAreSame({"Input"})) return;
  if (in.kind == BatchRelation::Kind::kShape) return SliceShape(c, slices);
  if (!in.IsSharded()) return c.SetAll(in);
  const absl::optional<Dims> dims = c.InDims("Input");
  if (!dims.has_value() || !slices.Keep(in.axis, dims->size())) return;
  int before = 0;
  if (c.attrs().Has("decrease_axis")) {
    for (int64_t axis : c.attrs().Ints("decrease_axis")) {
      before += BatchContext::Counted(axis, dims->size()) < in.axis ? 1 : 0;
    }
  }
  c.SetAll(in.Along(in.axis - before));
}

// A slice of Input is overwritten, all of it along the batch, by a value that has the batch too or
// is repeated along it.
void SetValue(BatchContext& c) {
  const BatchRelation in = c.In("Input"), value = c.In("ValueTensor");
  const absl::optional<Dims> dims = c.InDims("Input");
  absl::optional<Dims> values = c.InDims("ValueTensor");
  if (c.AllIn("ValueTensor").empty()) {
    const std::vector<int64_t> shape = c.attrs().Ints("shape");
    values = Dims(shape.begin(), shape.end());
  }
  if (!in.IsSharded() || !dims.has_value() || !values.has_value() ||
      !c.OthersAreReplicated({"Input", "ValueTensor"}) || !c.attrs().Ints("none_axes").empty() ||
      !Slices(c, "steps").Keep(in.axis, dims->size())) {
    return;
  }
  // Dimensions of slice and value are counted from the right.
  int behind = static_cast<int>(dims->size()) - in.axis;
  for (int64_t value_axis : c.attrs().Ints("decrease_axes")) {
    const int axis = BatchContext::Counted(value_axis, dims->size());
    if (axis == in.axis) return;  // the value has no such dimension
    behind -= axis > in.axis ? 1 : 0;
  }
  if (IsRepeatedOrShared(value, *values, behind)) c.SetAll(in);
}

// Dimensions are repeated, but for the batch. Its size in the output is unknown, as in the input,
// or computed from the batch.
void Expand(BatchContext& c) {
  const BatchRelation in = c.In("X");
  const bool is_whole = in.IsReplicated() || in.IsPartial();
  if (is_whole && c.OthersAreSame({"X"})) return c.SetAll(in);
  const absl::optional<Dims> from = c.InDims("X"), to = c.OutDims("Out");
  if (!from.has_value() || !to.has_value() || to->size() < from->size()) return;
  const absl::optional<int> given = BatchInSizes(c, "Shape", "expand_shapes_tensor", to->size());
  if (!given.has_value()) return;
  const int added = static_cast<int>(to->size() - from->size());
  if (in.IsReplicated()) {
    const bool repeats = *given < added || (*from)[*given - added] == 1;
    if (repeats) c.SetAll(BatchRelation::Sharded(*given, in.power));
    return;
  }
  if (!in.IsSharded()) return;
  const int axis = in.axis + added;
  const bool keeps = *given >= 0 ? *given == axis
                                 : (*from)[in.axis] == (*to)[axis] && (*from)[in.axis] != 1 &&
                                       ((*to)[axis] != -1 || IsOfBatch(c, axis));
  if (keeps) c.SetAll(in.Along(axis));
}

// As Expand, with the sizes of another tensor.
void ExpandAs(BatchContext& c) {
  const BatchRelation in = c.In("X"), like = c.In("Y");
  const absl::optional<Dims> from = c.InDims("X"), to = c.InDims("Y");
  if (!in.IsSharded() && (like.IsReplicated() || like.IsPartial())) return c.SetAll(in);
  if (!like.IsSharded() || !from.has_value() || !to.has_value()) return;
  const int added = static_cast<int>(to->size()) - static_cast<int>(from->size());
  const int at = like.axis - added;
  const bool repeats = in.IsReplicated() && (at < 0 || (*from)[at] == 1);
  if (repeats || (in.IsSharded() && in.axis == at)) {
    c.SetAll(BatchRelation::Sharded(like.axis, in.power));
  }
}

void Unsqueeze(BatchContext& c) {
  const BatchRelation in = c.In("X");
  const absl::optional<Dims> dims = c.InDims("X");
  if (c.inputs().size() != 1) return Reshape(c);
  if (!in.IsSharded() || !dims.has_value()) return;
  int64_t rank = static_cast<int64_t>(dims->size()), at = in.axis;
  for (int64_t axis : c.attrs().Ints("axes")) {
    if ((axis < 0 ? axis + rank + 1 : axis) <= at) ++at;
    ++rank;
  }
  c.Set("Out", in.Along(static_cast<int>(at)));
}

void Squeeze(BatchContext& c) {
  const BatchRelation in = c.In("X");
  const absl::optional<Dims> dims = c.InDims("X");
  const std::vector<int64_t> axes = c.attrs().Ints("axes");
  // A share of one row has such a dimension where the batch has none.
  if (axes.empty() || !in.IsSharded() || !dims.has_value()) return;
  int before = 0;
  for (int64_t value : axes) {
    const int axis = BatchContext::Counted(value, dims->size());
    // Whether a dimension is dropped depends on its size.
    if (axis < 0 || axis == in.axis || (*dims)[axis] == -1) return;
    before += axis < in.axis && (*dims)[axis] == 1 ? 1 : 0;
  }
  c.Set("Out", in.Along(in.axis - before));
}

// Dimensions from start_axis to stop_axis become one. Of those, the batch must be the first larger
// than 1: else a share is no run of elements.
void FlattenRange(BatchContext& c) {
  const BatchRelation in = c.In("X");
  const absl::optional<Dims> dims = c.InDims("X");
  if (!in.IsSharded() || !dims.has_value()) return;
  const int start = c.Axis("start_axis", dims->size()), stop = c.Axis("stop_axis", dims->size());
  if (start < 0 || stop < start) return;
  if (in.axis < start) return c.Set("Out", in);
  if (in.axis > stop) return c.Set("Out", in.Along(in.axis - (stop - start)));
  if (std::all_of(dims->begin() + start, dims->begin() + in.axis,
                  [](int64_t d) { return d == 1; })) {
    c.Set("Out", in.Along(start));
  }
}

// The dimension of the batch is not padded.
void Pad(BatchContext& c) {
  const BatchRelation in = c.In("X");
  const std::vector<int64_t> paddings = c.attrs().Ints("paddings");
  const size_t at = 2 * static_cast<size_t>(in.axis);
  if (in.IsSharded() && at + 1 < paddings.size() && paddings[at] == 0 && paddings[at + 1] == 0) {
    c.SetAll(in);
  }
}

void Crop(BatchContext& c) {
  const BatchRelation in = c.In("X");
  if (!in.IsSharded() || !c.OthersAreReplicated({"X"}) || c.IsOverridden("offsets") ||
      c.IsOverridden("shape")) {
    return;
  }
  const std::vector<int64_t> offsets = c.attrs().Ints("offsets"), shape = c.attrs().Ints("shape");
  const size_t at = in.axis;
  // -1: up to the end.
  if (at < offsets.size() && at < shape.size() && offsets[at] == 0 && shape[at] == -1) c.SetAll(in);
}

// The tensors of an array, concatenated or stacked.
void ArrayToTensor(BatchContext& c) {
  const BatchRelation in = c.In("X");
  const int64_t axis = c.attrs().Int("axis");
  if (!in.IsSharded() || axis < 0) return;
  const bool stacks = c.attrs().Bool("use_stack");
  if (!stacks && axis == in.axis) return;
  c.Set("Out", in.Along(in.axis + (stacks && axis <= in.axis ? 1 : 0)));
  c.Set("OutIndex", BatchRelation::Replicated());
}

BatchRun Repeat(const char* attr) {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In("X");
    const absl::optional<Dims> dims = c.InDims("X");
    if (!in.IsSharded() || !dims.has_value() || c.IsOverridden(attr)) return;
    const std::vector<int64_t> times = c.attrs().Ints(attr);
    // The shorter of dims and attribute has leading ones.
    const int new_dims = std::max(0, static_cast<int>(times.size() - dims->size()));
    const int at = in.axis + static_cast<int>(times.size()) - static_cast<int>(dims->size());
    if (at < 0 || times[at] == 1) c.SetAll(BatchRelation::Sharded(in.axis + new_dims));
  };
}

// Sizes of one dimension of another tensor: `from_attr` of the input gives `to_attr` of the output.
void BatchSizeLike(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  c.SetAll(c.attrs().Int("input_dim_idx") == in.axis
               ? BatchRelation::Sharded(static_cast<int>(c.attrs().Int("output_dim_idx")))
               : BatchRelation::Replicated());
}

// A constant in the shape of the input.
void Like(BatchContext& c) {
  if (!c.inputs().empty()) c.SetAll(c.inputs()[0]);
}

// Sizes: of n parts along an axis, each rank has one.
void ShapeOf(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  c.SetAll(in.IsSharded()     ? BatchRelation::Shape(in.axis)
           : in.IsUnrelated() ? in
                              : BatchRelation::Replicated());
}

// The number of elements.
void ElementCount(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  c.SetAll(in.IsSharded()     ? BatchRelation::Replicated(-1)
           : in.IsUnrelated() ? in
                              : BatchRelation::Replicated());
}

// One value everywhere. A dimension that has the size of the batch is one of parts.
void FillConstant(BatchContext& c) {
  if (!c.OthersAreReplicated({"ShapeTensor", "ShapeTensorList"}) || !c.In("ValueTensor").IsSame()) {
    return;
  }
  BatchRelation out = BatchRelation::Replicated();
  if (c.In("ShapeTensor").kind == BatchRelation::Kind::kShape) {
    out = BatchRelation::Sharded(c.In("ShapeTensor").axis);
  } else if (!c.In("ShapeTensor").IsSame()) {
    return;
  }
  const absl::Span<const BatchRelation> sizes = c.AllIn("ShapeTensorList");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].IsSame()) continue;
    if (sizes[i] != BatchRelation::Replicated(-1) || out.IsSharded()) return;
    out = BatchRelation::Sharded(static_cast<int>(i));
  }
  c.SetAll(out);
}

}  // namespace batch
}  // namespace weft
