#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ops/schema/batch_context.h"

namespace weft {
namespace {

using Kind = BatchRelation::Kind;

using Run = std::function<void(BatchContext&)>;

// --- Rows and other dimensions of which each is computed alone -----------------------------------

// Every output has the shares of the slots `data`, which are sharded along dimension 0; all other
// inputs are the same for each sample.
Run Rows(std::vector<absl::string_view> data) {
  return [data](BatchContext& c) {
    for (absl::string_view slot : data) {
      for (const BatchRelation& in : c.AllIn(slot)) {
        if (in != BatchRelation::Sharded(0)) return;
      }
    }
    if (c.OthersAreReplicated(data)) c.SetAll(BatchRelation::Sharded(0));
  };
}

// Works along the axis of an attribute, for each place of the other dimensions alone. `keeps`:
// whether an output has that dimension; attribute `keeps`, where it is one, says it.
Run Along(absl::string_view slot, const char* attr, const char* flatten = nullptr,
          const char* keep = nullptr) {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In(slot);
    const absl::optional<Dims> dims = c.InDims(slot);
    if (!in.IsSharded() || !dims.has_value() || !c.OthersAreReplicated({slot})) return;
    if (flatten != nullptr && c.attrs().Bool(flatten)) return;
    const int axis = c.Axis(attr, dims->size());
    if (axis < 0 || axis == in.axis) return;
    const bool drops = keep != nullptr && !c.attrs().Bool(keep);
    c.SetAll(BatchRelation::Sharded(in.axis - (drops && axis < in.axis ? 1 : 0)));
  };
}

// Works along the last dimensions, so many.
Run NotLast(absl::string_view slot, int num_dims = 1) {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In(slot);
    const absl::optional<Dims> dims = c.InDims(slot);
    if (in.IsSharded() && dims.has_value() && in.axis + num_dims < static_cast<int>(dims->size()) &&
        c.OthersAreReplicated({slot})) {
      c.SetAll(in);
    }
  };
}

// Takes the input apart along the axis, into outputs without that dimension.
Run Apart(absl::string_view slot) {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In(slot);
    const absl::optional<Dims> dims = c.InDims(slot);
    if (!dims.has_value()) return;
    const int axis = c.Axis("axis", dims->size());
    if (axis >= 0 && axis != in.axis) {
      c.SetAll(BatchRelation::Sharded(in.axis - (axis < in.axis ? 1 : 0)));
    }
  };
}

// The axes of a list attribute are not the batch; the shape stays the same.
Run NotAlong(absl::string_view slot, const char* attr) {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In(slot);
    const absl::optional<Dims> dims = c.InDims(slot);
    if (!in.IsSharded() || !dims.has_value() || !c.OthersAreReplicated({slot})) return;
    const std::vector<int64_t> axes = c.attrs().Ints(attr);
    if (axes.empty()) return;
    for (int64_t axis : axes) {
      if (BatchContext::Counted(axis, dims->size()) == in.axis) return;
    }
    c.SetAll(in);
  };
}

// Each element of `ids` picks a row of a table that is replicated.
Run Lookup(absl::string_view ids) {
  return [=](BatchContext& c) {
    if (c.In(ids).IsSharded() && c.OthersAreReplicated({ids})) c.SetAll(c.In(ids));
  };
}

// Paddle's Out keeps the dimensions of X, X picks by Index along `attr`.
Run Gather(const char* attr) {
  return [=](BatchContext& c) {
    const absl::optional<Dims> x = c.InDims("X"), index = c.InDims("Index");
    if (!x.has_value() || !index.has_value() || !c.OthersAreReplicated({"X", "Index"})) return;
    const int axis = c.Axis(attr, x->size());
    if (axis < 0) return;
    if (c.In("X").IsReplicated() && c.In("Index") == BatchRelation::Sharded(0)) {
      return c.SetAll(BatchRelation::Sharded(axis));
    }
    const int in = c.In("X").axis;
    if (c.In("X").IsSharded() && c.In("Index").IsReplicated() && in != axis && index->size() <= 1) {
      // A single index drops the dimension.
      c.SetAll(BatchRelation::Sharded(in - (index->empty() && axis < in ? 1 : 0)));
    }
  };
}

void GatherNd(BatchContext& c) {
  const absl::optional<Dims> index = c.InDims("Index");
  const BatchRelation in = c.In("Index");
  if (c.In("X").IsReplicated() && in.IsSharded() && index.has_value() &&
      in.axis + 1 < static_cast<int>(index->size())) {
    c.SetAll(in);
  }
}

// Both tensors have the batch, and the op picks along another axis.
void TakeAlong(BatchContext& c) {
  const BatchRelation in = c.In("Input");
  const absl::optional<Dims> dims = c.InDims("Input");
  if (!in.IsSharded() || !dims.has_value() || c.In("Index") != in) return;
  const absl::optional<Dims> index = c.InDims("Index");
  // With fewer rows than Input, the rows of the first ranks would be those of one device.
  if (!index.has_value() || in.axis >= static_cast<int>(index->size())) return;
  if ((*index)[in.axis] != (*dims)[in.axis]) return;
  if (c.Axis("Axis", dims->size()) != in.axis) c.SetAll(in);
}

// --- Reductions ----------------------------------------------------------------------------------

enum class Reduces : uint8_t { kMean, kSum, kMax, kMin, kProd, kOther };

Run Reduction(Reduces what, const char* dims_attr = "dim", const char* all_attr = "reduce_all",
              const char* keep_attr = "keep_dim") {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In("X");
    const absl::optional<Dims> dims = c.InDims("X");
    if (!dims.has_value()) return;
    const std::vector<int64_t> axes = c.attrs().Ints(dims_attr);
    bool has_batch = axes.empty() || (all_attr != nullptr && c.attrs().Bool(all_attr));
    int before = 0;
    for (int64_t value : axes) {
      const int axis = BatchContext::Counted(value, dims->size());
      has_batch = has_batch || axis == in.axis;
      before += axis < in.axis ? 1 : 0;
    }
    if (!has_batch) {
      return c.SetAll(BatchRelation::Sharded(in.axis - (c.attrs().Bool(keep_attr) ? 0 : before)));
    }
    // A mean of integers is rounded.
    if (what == Reduces::kMean && c.IsFloatOut()) c.SetAll(BatchRelation::Partial());
    if (what == Reduces::kSum) c.SetAll(BatchRelation::PartialSum());
    if (what == Reduces::kMax) c.SetAll(BatchRelation::PartialMax());
    if (what == Reduces::kMin) c.SetAll(BatchRelation::PartialMin());
    if (what == Reduces::kProd) c.SetAll(BatchRelation::PartialProd());
  };
}

// Of all elements, to one.
Run Whole(BatchRelation of_shards) {
  return [=](BatchContext& c) {
    if (c.OthersAreReplicated({"X", "Input"})) c.SetAll(of_shards);
  };
}

// --- Shapes --------------------------------------------------------------------------------------

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
    return in.kind == Kind::kShape ? absl::make_optional<int>(in.axis) : absl::nullopt;
  }
  int found = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].IsSame()) continue;
    if (sizes[i] != BatchRelation::Replicated(-1) || found >= 0) return absl::nullopt;
    found = static_cast<int>(i);
  }
  return sizes.size() == rank && found >= 0 ? absl::make_optional(found) : absl::nullopt;
}

// Elements keep their order. A share is a run of elements where no dimension before the batch is
// larger than 1, or where those dimensions stay as they are.
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
  const auto skip_ones = [](const Dims& dims) {
    size_t i = 0;
    while (i < dims.size() && dims[i] == 1) ++i;
    return i;
  };
  size_t out = axis;
  if (axis <= skip_ones(*from)) {
    out = skip_ones(*to);
  } else if (!SameUpTo(*from, *to, axis)) {
    return;
  }
  if (out >= to->size()) return;
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

// `adds`: a new dimension, at the axis.
Run Joined(bool adds) {
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

// Attributes axes, starts, ends and strides of slice ops. None that an input gives.
struct Slices {
  explicit Slices(const BatchContext& c) : axes(c.attrs().Ints("axes")) {
    if (!c.IsOverridden("starts")) starts = c.attrs().Ints("starts");
    if (!c.IsOverridden("ends")) ends = c.attrs().Ints("ends");
    if (!c.attrs().Has("strides")) {
      strides.assign(axes.size(), 1);
    } else if (!c.IsOverridden("strides")) {
      strides = c.attrs().Ints("strides");
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

// Dimensions are repeated as often as the attribute says, the batch once.
Run Repeat(const char* attr) {
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
void SizeOf(BatchContext& c) {
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

// --- Products ------------------------------------------------------------------------------------

// Out = op(X) op(Y): matrices in the last two dimensions, the others are broadcast.
void MatMulOf(BatchContext& c, bool transpose_x, bool transpose_y) {
  const BatchRelation x = c.In("X"), y = c.In("Y");
  const absl::optional<Dims> xs = c.InDims("X"), ys = c.InDims("Y");
  if (!xs.has_value() || !ys.has_value() || xs->size() < 2 || ys->empty()) return;
  if (ys->size() == 1) {
    // Y is a vector: the last dimension of Out, of size 1, is dropped.
    const int row = static_cast<int>(xs->size()) - (transpose_x ? 1 : 2);
    const int last = static_cast<int>(xs->size()) - 2;
    if (!y.IsReplicated() || !x.IsSharded()) return;
    if (x.axis == row || x.axis < last)
      c.SetAll(BatchRelation::Sharded(std::min<int>(x.axis, last)));
    return;
  }
  const int rx = static_cast<int>(xs->size()), ry = static_cast<int>(ys->size());
  const int rank = std::max(rx, ry);
  const int contracted_x = transpose_x ? rx - 2 : rx - 1, row = transpose_x ? rx - 1 : rx - 2;
  const int contracted_y = transpose_y ? ry - 1 : ry - 2, column = transpose_y ? ry - 2 : ry - 1;
  if (y.IsReplicated() && x.axis == row) return c.SetAll(BatchRelation::Sharded(rank - 2));
  if (x.IsReplicated() && y.axis == column) return c.SetAll(BatchRelation::Sharded(rank - 1));
  if (x.IsSharded() && y.IsSharded() && x.axis == contracted_x && y.axis == contracted_y) {
    return c.SetAll(BatchRelation::PartialSum());
  }
  // Matrices of different samples.
  const auto batch_axis = [&](BatchRelation in, int in_rank) {
    return in.IsSharded() && in.axis < in_rank - 2 ? in.axis + rank - in_rank : -1;
  };
  const int ax = batch_axis(x, rx), ay = batch_axis(y, ry);
  const auto is_repeated = [&](BatchRelation in, const Dims& dims, int axis) {
    const int at = axis - (rank - static_cast<int>(dims.size()));
    return in.IsReplicated() && (at < 0 || dims[at] == 1);
  };
  if (ax >= 0 && (ax == ay || is_repeated(y, *ys, ax))) return c.SetAll(BatchRelation::Sharded(ax));
  if (ay >= 0 && is_repeated(x, *xs, ay)) c.SetAll(BatchRelation::Sharded(ay));
}

// A matrix by a vector.
void MatVec(BatchContext& c) {
  const BatchRelation x = c.In("X"), vec = c.In("Vec");
  if (x == BatchRelation::Sharded(0) && vec.IsReplicated()) c.SetAll(x);
  if (x == BatchRelation::Sharded(1) && vec.IsSharded()) c.SetAll(BatchRelation::PartialSum());
}

// A product for each row.
void Dot(BatchContext& c) {
  const absl::optional<Dims> dims = c.InDims("X");
  if (!dims.has_value() || c.In("X") != BatchRelation::Sharded(0) || c.In("Y") != c.In("X")) return;
  c.SetAll(dims->size() == 1 ? BatchRelation::PartialSum() : BatchRelation::Sharded(0));
}

Run MatMul(const char* transpose_x, const char* transpose_y) {
  return [=](BatchContext& c) {
    MatMulOf(c, transpose_x != nullptr && c.attrs().Bool(transpose_x),
             transpose_y != nullptr && c.attrs().Bool(transpose_y));
  };
}

// X as a matrix whose rows are its first dimensions.
void Mul(BatchContext& c) {
  const BatchRelation x = c.In("X"), y = c.In("Y");
  if (y.IsReplicated() && x.IsSharded() && x.axis < c.attrs().Int("x_num_col_dims")) c.SetAll(x);
}

// Input + X Y, where the rows of Input are those of X, or one for all.
void AddMatMul(BatchContext& c) {
  const BatchRelation rows = BatchRelation::Sharded(0);
  const absl::optional<Dims> added = c.InDims("Input");
  if (c.In("X") != rows || !c.In("Y").IsReplicated() || !added.has_value()) return;
  const bool is_repeated = c.In("Input").IsReplicated() && (added->size() < 2 || (*added)[0] == 1);
  if (is_repeated || c.In("Input") == rows) c.SetAll(rows);
}

// The batch has one letter in the equation. It is contracted if the output lacks it.
void Einsum(BatchContext& c) {
  const std::vector<std::string> sides =
      absl::StrSplit(absl::StrReplaceAll(c.attrs().String("equation"), {{" ", ""}}), "->");
  if (sides.size() != 2) return;
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  const absl::Span<const BatchRelation> ins = c.AllIn("Operands");
  // The dimensions of an ellipsis have no letters.
  if (operands.size() != ins.size() || absl::StrContains(sides[0], '.')) return;
  char batch = 0;
  for (size_t i = 0; i < ins.size(); ++i) {
    if (!ins[i].IsSharded()) continue;
    if (ins[i].axis >= static_cast<int>(operands[i].size())) return;
    const char letter = operands[i][ins[i].axis];
    if (absl::c_count(operands[i], letter) > 1 || (batch != 0 && batch != letter)) return;
    batch = letter;
  }
  for (size_t i = 0; i < ins.size(); ++i) {
    if (ins[i].IsReplicated() && absl::StrContains(operands[i], batch)) return;
  }
  const size_t out = sides[1].find(batch);
  c.Set("Out", out == std::string::npos ? BatchRelation::PartialSum()
                                        : BatchRelation::Sharded(static_cast<int>(out)));
}

// --- Layers and losses ---------------------------------------------------------------------------

void LayerNorm(BatchContext& c) {
  const BatchRelation x = c.In("X");
  if (!x.IsSharded() || x.axis >= c.attrs().Int("begin_norm_axis") ||
      !c.OthersAreReplicated({"X"})) {
    return;
  }
  c.Set("Y", x);
  if (x.axis != 0) return;
  c.Set("Mean", x);
  c.Set("Variance", x);
}

// Normalizes by statistics of the rank's part of the batch, or by running statistics.
void BatchNorm(BatchContext& c) {
  const OpAttrs& attrs = c.attrs();
  const bool fixed = (attrs.Bool("is_test") && !attrs.Bool("trainable_statistics")) ||
                     attrs.Bool("use_global_stats");
  if (!c.OthersAreSame({"X", "Mean", "Variance"})) return;
  if (fixed && !(c.In("Mean").IsSame() && c.In("Variance").IsSame())) return;
  if (!c.In("X").IsSame() && c.In("X") != BatchRelation::Sharded(0)) return;
  c.Set("Y", c.In("X"));
  if (c.In("X").IsSame()) {
    // The statistics of one value are those of all ranks' values.
    for (const char* slot : {"SavedMean", "SavedVariance"})
      c.Set(slot, BatchRelation::Replicated());
    c.Set("MeanOut", c.In("Mean"));
    c.Set("VarianceOut", c.In("Variance"));
    return;
  }
  if (!fixed) return c.set_effect(BatchEffect::kStatistics);
  for (const char* slot : {"MeanOut", "VarianceOut", "SavedMean", "SavedVariance"}) {
    c.Set(slot, BatchRelation::Replicated());
  }
}

// The ranks exchange their statistics: those of the whole batch.
void SyncBatchNorm(BatchContext& c) {
  if (c.In("X") != BatchRelation::Sharded(0) || !c.OthersAreReplicated({"X"})) return;
  c.SetAll(BatchRelation::Replicated());
  c.Set("Y", BatchRelation::Sharded(0));
}

void Dropout(BatchContext& c) {
  if (!c.OthersAreSame({"X"})) return;
  c.Set("Out", c.In("X"));
  if (c.attrs().Bool("is_test") || c.attrs().Float("dropout_prob") == 0) return;
  c.Set("Mask", c.In("X").WithoutPower());
  c.set_effect(BatchEffect::kDraws);
}

// The classes of each example are along an axis; Label has one number there, or a share of each.
void SoftmaxCrossEntropy(BatchContext& c) {
  const BatchRelation in = c.In("Logits");
  const absl::optional<Dims> dims = c.InDims("Logits");
  if (!in.IsSharded() || !dims.has_value() || c.In("Label") != in) return;
  if (c.Axis("axis", dims->size()) != in.axis) c.SetAll(in);
}

void SigmoidCrossEntropy(BatchContext& c) {
  // Normalized by how many labels count, which differs between ranks.
  if (!c.attrs().Bool("normalize")) ShareElementwise(c);
}

void KlDiv(BatchContext& c) {
  const std::string& reduction = c.attrs().String("reduction");
  ShareElementwise(c);
  const BatchRelation each = c.In("X");
  if (reduction == "none" || each != BatchRelation::Sharded(0) || c.In("Target") != each) return;
  c.SetAll(reduction == "sum" ? BatchRelation::PartialSum() : BatchRelation::Partial());
}

void NllLoss(BatchContext& c) {
  const std::string& reduction = c.attrs().String("reduction");
  const BatchRelation rows = BatchRelation::Sharded(0);
  if (c.In("X") != rows || c.In("Label") != rows || !c.OthersAreReplicated({"X", "Label"})) return;
  // A mean is weighted by the labels that count.
  if (reduction != "mean") c.SetAll(BatchRelation::PartialSum());
  if (reduction == "none") c.Set("Out", rows);
}

void Accuracy(BatchContext& c) {
  for (const BatchRelation& in : c.inputs()) {
    if (in != BatchRelation::Sharded(0)) return;
  }
  c.Set("Accuracy", BatchRelation::Partial());
  c.Set("Correct", BatchRelation::PartialSum());
  c.Set("Total", BatchRelation::PartialSum());
}

// Draws a value of the shape that `shape` finds. Without a seed, it differs from that of one
// device, whatever inputs are.
Run Draw(Run shape) {
  return [=](BatchContext& c) {
    shape(c);
    if (c.attrs().Has("seed") && c.attrs().Int("seed") != 0 && c.OthersAreSame({})) return;
    c.set_effect(BatchEffect::kDraws);
  };
}

// The seed of an op that draws: the draw is the effect.
void Seed(BatchContext& c) { c.SetAll(BatchRelation::Replicated()); }

// Input and Out are [time, batch, ...]; states are [layers, batch, ...].
void Rnn(BatchContext& c) {
  const bool draws = c.attrs().Float("dropout_prob") != 0 && !c.attrs().Bool("is_test");
  if (draws) c.set_effect(BatchEffect::kDraws);
  if (c.OthersAreSame({}) && !draws) return c.SetAll(BatchRelation::Replicated());
  const BatchRelation in = c.In("Input");
  const absl::string_view per_sample[] = {"Input", "PreState", "SequenceLength"};
  if (in != BatchRelation::Sharded(1) || !c.OthersAreReplicated(per_sample)) return;
  for (const BatchRelation& state : c.AllIn("PreState")) {
    if (state != in) return;
  }
  if (!c.In("SequenceLength").IsReplicated() &&
      c.In("SequenceLength") != BatchRelation::Sharded(0)) {
    return;
  }
  c.Set("Out", in);
  c.Set("State", in);
}

// A loss for each sequence of [time, batch, classes].
void Ctc(BatchContext& c) {
  const absl::string_view per_sample[] = {"Logits", "Label", "LogitsLength", "LabelLength"};
  if (c.In("Logits") != BatchRelation::Sharded(1) || !c.OthersAreReplicated(per_sample)) return;
  for (absl::string_view slot : {"Label", "LogitsLength", "LabelLength"}) {
    if (c.In(slot) != BatchRelation::Sharded(0)) return;
  }
  c.Set("Loss", BatchRelation::Sharded(0));
}

// Without y, works along the last dimension.
void Swiglu(BatchContext& c) { c.AllIn("y").empty() ? NotLast("x")(c) : ShareElementwise(c); }

void DiagEmbed(BatchContext& c) {
  // Else the batch may be behind a new dimension.
  if (c.attrs().Int("dim1") == -2 && c.attrs().Int("dim2") == -1) NotLast("Input")(c);
}

void SequenceMask(BatchContext& c) {
  // Else as wide as the longest of the rank's own.
  if (c.attrs().Int("maxlen") > 0 || !c.AllIn("MaxLenTensor").empty()) Lookup("X")(c);
}

// Linear in parameter, gradient and velocity. (Of optimizers, the others are not.)
void LinearUpdate(BatchContext& c) {
  const absl::string_view linear[] = {"Param", "MasterParam", "Grad", "Velocity"};
  if (!c.OthersAreSame(linear)) return;
  BatchRelation joined = BatchRelation::Replicated();
  for (absl::string_view slot : linear) {
    for (BatchRelation in : c.AllIn(slot)) joined = Join(joined, in);
  }
  c.SetAll(joined);
}

// --- Arrays and branches -------------------------------------------------------------------------

// Out: X, whatever the other inputs say.
void First(BatchContext& c) {
  if (c.OthersAreReplicated({"X"})) c.SetAll(c.In("X"));
}

// Of an array of gradients, X_W has the dimensions of an element that is missing, which is zero.
void ReadFromArray(BatchContext& c) {
  const BatchRelation x = c.In("X");
  for (BatchRelation like : c.AllIn("X_W")) {
    if (like.WithoutPower() != x.WithoutPower()) return;
  }
  if (c.OthersAreReplicated({"X", "X_W"})) c.SetAll(x);
}

// Of an array: every rank has as many tensors as one device.
void Length(BatchContext& c) { c.SetAll(BatchRelation::Replicated()); }

void Selected(BatchContext& c) {
  if (!c.In("Mask").IsSame()) return;
  BatchRelation joined = c.In("X");
  for (BatchRelation in : c.AllIn("X")) joined = Join(joined, in);
  c.SetAll(joined);
}

const absl::flat_hash_map<absl::string_view, BatchRule>& Rules() {
  using Rules = absl::flat_hash_map<absl::string_view, BatchRule>;
  static const auto* const rules = new Rules({
      {"accuracy", {Accuracy}},
      {"addmm", {AddMatMul}},
      {"affine_channel", {Rows({"X"})}},
      {"affine_grid", {Rows({"Theta"})}},
      {"arg_max", {Along("X", "axis", "flatten", "keepdims")}},
      {"arg_min", {Along("X", "axis", "flatten", "keepdims")}},
      {"argsort", {Along("X", "axis")}},
      {"atan2", {ShareElementwise}},
      {"batch_norm", {BatchNorm, Powers::kOwn}},
      {"bce_loss", {ShareElementwise}},
      {"bernoulli", {Draw(ShareElementwise), Powers::kOwn}},
      {"bicubic_interp_v2", {Rows({"X"}), Powers::kFirst}},
      {"bilinear_interp_v2", {Rows({"X"}), Powers::kFirst}},
      {"bilinear_tensor_product", {Rows({"X", "Y"})}},
      {"bmm", {MatMul(nullptr, nullptr), Powers::kProduct}},
      {"channel_shuffle", {Rows({"X"}), Powers::kFirst}},
      {"concat", {Joined(/*adds=*/false), Powers::kTogether}},
      {"conv2d", {Rows({"Input"}), Powers::kProduct}},
      {"conv2d_transpose", {Rows({"Input"}), Powers::kProduct}},
      {"conv3d", {Rows({"Input"}), Powers::kProduct}},
      {"conv3d_transpose", {Rows({"Input"}), Powers::kProduct}},
      {"cross_entropy", {Rows({"X", "Label"})}},
      {"cross_entropy2", {Rows({"X", "Label"})}},
      {"cummax", {Along("x", "axis")}},
      {"cummin", {Along("x", "axis")}},
      {"cumprod", {Along("X", "dim")}},
      {"cumsum", {Along("X", "axis", "flatten"), Powers::kFirst}},
      {"cvm", {Rows({"X", "CVM"})}},
      {"deformable_conv", {Rows({"Input", "Offset", "Mask"})}},
      {"deformable_conv_v1", {Rows({"Input", "Offset"})}},
      {"depthwise_conv2d", {Rows({"Input"}), Powers::kProduct}},
      {"depthwise_conv2d_transpose", {Rows({"Input"}), Powers::kProduct}},
      {"diag_embed", {DiagEmbed, Powers::kFirst}},
      {"dot", {Dot, Powers::kProduct}},
      {"dropout", {Dropout, Powers::kOwn}},
      {"einsum", {Einsum, Powers::kProduct}},
      {"expand", {Repeat("expand_times"), Powers::kFirst}},
      {"expand_as_v2", {ExpandAs, Powers::kOwn}},
      {"expand_v2", {Expand, Powers::kOwn}},
      {"fill_any_like", {Like, Powers::kAny}},
      {"fill_constant", {FillConstant, Powers::kOwn}},
      {"fill_constant_batch_size_like", {BatchSizeLike, Powers::kAny}},
      {"fill_zeros_like", {Like, Powers::kAny}},
      {"fill_zeros_like2", {Like, Powers::kAny}},
      {"flatten", {Reshape, Powers::kFirst}},
      {"flatten2", {Reshape, Powers::kFirst}},
      {"flatten_contiguous_range", {FlattenRange, Powers::kFirst}},
      {"flip", {NotAlong("X", "axis"), Powers::kFirst}},
      {"fold", {Rows({"X"}), Powers::kFirst}},
      {"frobenius_norm", {Reduction(Reduces::kOther)}},
      {"gather", {Gather("axis"), Powers::kFirst}},
      {"gather_nd", {GatherNd, Powers::kFirst}},
      {"gaussian_random", {Draw(FillConstant), Powers::kOwn}},
      {"grid_sampler", {Rows({"X", "Grid"})}},
      {"group_norm", {Rows({"X"})}},
      {"gumbel_softmax", {Draw(Along("X", "axis")), Powers::kOwn}},
      {"hierarchical_sigmoid", {Rows({"X", "Label", "PathTable", "PathCode"})}},
      {"hinge_loss", {ShareElementwise}},
      {"huber_loss", {ShareElementwise}},
      {"index_sample", {Rows({"X", "Index"}), Powers::kFirst}},
      {"index_select", {Gather("dim"), Powers::kFirst}},
      {"instance_norm", {Rows({"X"})}},
      {"isfinite_v2", {ShareElementwise}},
      {"isinf_v2", {ShareElementwise}},
      {"isnan_v2", {ShareElementwise}},
      {"kldiv_loss", {KlDiv}},
      {"kthvalue", {Along("X", "axis", nullptr, "keepdim")}},
      {"l1_norm", {Whole(BatchRelation::PartialSum())}},
      {"label_smooth", {NotLast("X")}},
      {"layer_norm", {LayerNorm}},
      {"lerp", {ShareElementwise}},
      {"linear_interp_v2", {Rows({"X"}), Powers::kFirst}},
      {"lod_array_length", {Length, Powers::kAny}},
      {"log_loss", {ShareElementwise}},
      {"log_softmax", {Along("X", "axis")}},
      {"logcumsumexp", {Along("X", "axis", "flatten")}},
      {"logsumexp", {Reduction(Reduces::kOther, "axis", "reduce_all", "keepdim")}},
      {"lookup_table", {Lookup("Ids"), Powers::kTable}},
      {"lookup_table_v2", {Lookup("Ids"), Powers::kTable}},
      {"lrn", {Rows({"X"})}},
      {"masked_fill", {ShareElementwise}},
      {"matmul", {MatMul("transpose_X", "transpose_Y"), Powers::kProduct}},
      {"matmul_v2", {MatMul("trans_x", "trans_y"), Powers::kProduct}},
      {"max_pool2d_with_index", {Rows({"X"})}},
      {"max_pool3d_with_index", {Rows({"X"})}},
      {"maxout", {Rows({"X"})}},
      {"mean", {Whole(BatchRelation::Partial()), Powers::kFirst}},
      {"median", {Reduction(Reduces::kOther, "axis", nullptr, "keepdim")}},
      {"minus", {ShareElementwise, Powers::kTogether}},
      {"mode", {Along("X", "axis", nullptr, "keepdim")}},
      {"mul", {Mul, Powers::kProduct}},
      {"momentum", {LinearUpdate, Powers::kOwn}},
      {"multinomial", {Draw(NotLast("X")), Powers::kOwn}},
      {"mv", {MatVec, Powers::kProduct}},
      {"nanmedian", {Reduction(Reduces::kOther, "axis", nullptr, "keepdim")}},
      {"nearest_interp_v2", {Rows({"X"}), Powers::kFirst}},
      {"nll_loss", {NllLoss}},
      {"norm", {Along("X", "axis")}},
      {"one_hot", {Lookup("X")}},
      {"one_hot_v2", {Lookup("X")}},
      {"p_norm", {Along("X", "axis", "asvector", "keepdim")}},
      {"pad", {Pad}},
      {"pad3d", {Rows({"X"})}},
      {"pixel_shuffle", {Rows({"X"}), Powers::kFirst}},
      {"pixel_unshuffle", {Rows({"X"}), Powers::kFirst}},
      {"poisson", {Draw(ShareElementwise), Powers::kOwn}},
      {"pool2d", {Rows({"X"})}},
      {"pool3d", {Rows({"X"})}},
      {"prelu", {Rows({"X"})}},
      {"print", {ShareElementwise, Powers::kTogether}},
      {"randint", {Draw(FillConstant), Powers::kOwn}},
      {"randperm", {Draw(FillConstant), Powers::kOwn}},
      {"rank_loss", {ShareElementwise}},
      {"read_from_array", {ReadFromArray, Powers::kFirst}},
      {"reduce_all", {Reduction(Reduces::kOther)}},
      {"reduce_amax", {Reduction(Reduces::kMax)}},
      {"reduce_amin", {Reduction(Reduces::kMin)}},
      {"reduce_any", {Reduction(Reduces::kOther)}},
      {"reduce_max", {Reduction(Reduces::kMax)}},
      {"reduce_mean", {Reduction(Reduces::kMean), Powers::kFirst}},
      {"reduce_min", {Reduction(Reduces::kMin)}},
      {"reduce_prod", {Reduction(Reduces::kProd)}},
      {"reduce_sum", {Reduction(Reduces::kSum), Powers::kFirst}},
      {"repeat_interleave", {Along("X", "dim"), Powers::kFirst}},
      {"reshape", {Reshape, Powers::kOwn}},
      {"reshape2", {Reshape, Powers::kOwn}},
      {"reverse", {NotAlong("X", "axis"), Powers::kFirst}},
      {"rnn", {Rnn, Powers::kOwn, "Input"}},
      {"roll", {NotAlong("X", "axis"), Powers::kFirst}},
      {"row_conv", {Rows({"X"}), Powers::kProduct}},
      {"searchsorted", {Lookup("Values")}},
      {"seed", {Seed, Powers::kOwn}},
      {"select_input", {Selected, Powers::kOwn}},
      {"select_output", {First, Powers::kFirst}},
      {"sequence_mask", {SequenceMask}},
      {"sgd", {LinearUpdate, Powers::kOwn}},
      {"shape", {ShapeOf, Powers::kOwn}},
      {"shard_index", {Lookup("X")}},
      {"share_data", {ShareElementwise, Powers::kFirst}},
      {"shuffle_channel", {Rows({"X"}), Powers::kFirst}},
      {"sigmoid_cross_entropy_with_logits", {SigmoidCrossEntropy}},
      {"size", {SizeOf, Powers::kOwn}},
      {"slice", {Slice, Powers::kOwn}},
      {"smooth_l1_loss", {Rows({"X", "Y"})}},
      {"softmax", {Along("X", "axis")}},
      {"softmax_with_cross_entropy", {SoftmaxCrossEntropy}},
      {"split", {Along("X", "axis"), Powers::kFirst}},
      {"squared_l2_norm", {Whole(BatchRelation::PartialSum())}},
      {"squeeze", {Squeeze, Powers::kFirst}},
      {"squeeze2", {Squeeze, Powers::kFirst}},
      {"stack", {Joined(/*adds=*/true), Powers::kTogether}},
      {"strided_slice", {Slice, Powers::kOwn}},
      {"swiglu", {Swiglu}},
      {"sync_batch_norm", {SyncBatchNorm}},
      {"take_along_axis", {TakeAlong, Powers::kFirst}},
      {"tensor_array_to_tensor", {ArrayToTensor, Powers::kFirst}},
      {"tile", {Repeat("repeat_times"), Powers::kFirst}},
      {"top_k", {NotLast("X")}},
      {"top_k_v2", {Along("X", "axis")}},
      {"transpose", {Transpose, Powers::kFirst}},
      {"transpose2", {Transpose, Powers::kFirst}},
      {"tril_triu", {NotLast("X", 2), Powers::kFirst}},
      {"trilinear_interp_v2", {Rows({"X"}), Powers::kFirst}},
      {"truncated_gaussian_random", {Draw(FillConstant), Powers::kOwn}},
      {"unbind", {Apart("X"), Powers::kFirst}},
      {"unfold", {Rows({"X"}), Powers::kFirst}},
      {"uniform_random", {Draw(FillConstant), Powers::kOwn}},
      {"unsqueeze", {Unsqueeze, Powers::kFirst}},
      {"unsqueeze2", {Unsqueeze, Powers::kFirst}},
      {"unstack", {Apart("X"), Powers::kFirst}},
      {"warpctc", {Ctc, Powers::kNone, "Logits"}},
      {"write_to_array", {First, Powers::kFirst}},
      {"yolo_box", {Rows({"X", "ImgSize"})}},
      {"yolov3_loss", {Rows({"X", "GTBox", "GTLabel", "GTScore"})}},
  });
  return *rules;
}

}  // namespace

const BatchRule* FindBatchRule(absl::string_view type) {
  const auto found = Rules().find(type);
  return found == Rules().end() ? nullptr : &found->second;
}

}  // namespace weft
