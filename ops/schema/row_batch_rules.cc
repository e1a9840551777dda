// Rows, and other dimensions of which each is computed alone; reductions.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"

namespace weft {
namespace batch {

void Elementwise(BatchContext& c) {
  if (c.num_outputs() == 0) return;
  const absl::optional<Dims> out = c.DimsOfOutput(0);
  if (!out.has_value()) return;
  const int rank = static_cast<int>(out->size());
  const int64_t attr = c.attrs().Has("axis") ? c.attrs().Int("axis") : -1;
  // Of each input: where its dimension 0 is among those of the output.
  const auto offset = [&](const Dims& dims) {
    const int missing = rank - static_cast<int>(dims.size());
    return missing > 0 && attr >= 0 ? static_cast<int>(attr) : missing;
  };
  int axis = -1;
  for (size_t i = 0; i < c.inputs().size(); ++i) {
    if (!c.inputs()[i].IsSharded()) continue;
    const absl::optional<Dims> dims = c.DimsOfInput(i);
    if (!dims.has_value() || dims->size() > out->size()) return;
    const int here = c.inputs()[i].axis + offset(*dims);
    if (axis >= 0 && axis != here) return;
    axis = here;
  }
  if (axis < 0 || axis >= rank) return;
  // A replicated input must be broadcast along the batch: as long as the batch, it would have the
  // size of one device's.
  for (size_t i = 0; i < c.inputs().size(); ++i) {
    if (!c.inputs()[i].IsReplicated()) continue;
    const absl::optional<Dims> dims = c.DimsOfInput(i);
    if (!dims.has_value()) return;
    const int at = axis - offset(*dims);
    if (at >= 0 && at < static_cast<int>(dims->size()) && (*dims)[at] != 1) return;
  }
  c.SetAll(BatchRelation::Sharded(axis));
}

// Of arrays, too, which have no dimensions of their own.
void Sum(BatchContext& c) {
  if (c.OutDims("Out").has_value()) return Elementwise(c);
  const BatchRelation first = c.inputs()[0];
  if (std::all_of(c.inputs().begin(), c.inputs().end(),
                  [&](BatchRelation in) { return in == first; })) {
    c.SetAll(first);
  }
}

BatchRun Rows(std::vector<absl::string_view> data) {
  return [data](BatchContext& c) {
    for (absl::string_view slot : data) {
      for (const BatchRelation& in : c.AllIn(slot)) {
        if (in != BatchRelation::Sharded(0)) return;
      }
    }
    if (c.OthersAreReplicated(data)) c.SetAll(BatchRelation::Sharded(0));
  };
}

BatchRun Planes(std::vector<absl::string_view> data) {
  return [data](BatchContext& c) {
    const BatchRelation first = c.In(data[0]);
    for (absl::string_view slot : data) {
      for (const BatchRelation& in : c.AllIn(slot)) {
        if (in != first || !in.IsSharded() || in.axis > 1) return;
      }
    }
    if (c.OthersAreReplicated(data)) c.SetAll(first);
  };
}

BatchRun Along(absl::string_view slot, const char* attr, const char* flatten, const char* keep) {
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

BatchRun NotLast(absl::string_view slot, int num_dims) {
  return [=](BatchContext& c) {
    const BatchRelation in = c.In(slot);
    const absl::optional<Dims> dims = c.InDims(slot);
    if (in.IsSharded() && dims.has_value() && in.axis + num_dims < static_cast<int>(dims->size()) &&
        c.OthersAreReplicated({slot})) {
      c.SetAll(in);
    }
  };
}

void Frame(BatchContext& c) {
  const BatchRelation x = c.In("X");
  const absl::optional<Dims> dims = c.InDims("X");
  if (!x.IsSharded() || !dims.has_value()) return;
  const bool first = c.attrs().Int("axis") == 0;
  if (x.axis == (first ? 0 : static_cast<int>(dims->size()) - 1)) return;
  c.SetAll(BatchRelation::Sharded(x.axis + (first ? 1 : 0)));
}

BatchRun Apart(absl::string_view slot) {
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

BatchRun NotAlong(absl::string_view slot, const char* attr) {
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

BatchRun SlicesAlong(const char* attr) {
  return [=](BatchContext& c) {
    const absl::optional<Dims> dims = c.InDims("X");
    if (dims.has_value() && c.Axis(attr, dims->size()) == c.In("X").axis) c.SetAll(c.In("X"));
  };
}

bool IsRepeatedOrShared(BatchRelation value, const Dims& dims, int behind) {
  const int at = static_cast<int>(dims.size()) - behind;
  if (value.IsSharded()) return value.axis == at;
  return value.IsReplicated() && (at < 0 || dims[at] == 1);
}

BatchRun Reduced(Reduces what, const char* dims_attr, const char* all_attr, const char* keep_attr) {
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
    // Multiples of numbers that become whole before they are added up are no multiples of the sum.
    if (c.IsFloatIn() && !c.IsFloatOut()) return;
    // A mean of integers is rounded.
    if (what == Reduces::kMean && c.IsFloatOut()) c.SetAll(BatchRelation::Partial());
    if (what == Reduces::kSum) c.SetAll(BatchRelation::PartialSum());
    if (what == Reduces::kMax) c.SetAll(BatchRelation::PartialMax());
    if (what == Reduces::kMin) c.SetAll(BatchRelation::PartialMin());
    if (what == Reduces::kProd) c.SetAll(BatchRelation::PartialProd());
  };
}

BatchRun Whole(BatchRelation of_shards) {
  return [=](BatchContext& c) {
    // A mean of integers is rounded.
    if (of_shards == BatchRelation::Partial() && !c.IsFloatOut()) return;
    if (c.OthersAreReplicated({"X", "Input"})) c.SetAll(of_shards);
  };
}

}  // namespace batch
}  // namespace weft
