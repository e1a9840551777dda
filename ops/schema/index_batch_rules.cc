// Elements picked and written by indices.
#include <cstdint>

#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"

namespace weft {
namespace batch {
BatchRun Lookup(absl::string_view ids) {
  return [=](BatchContext& c) {
    if (c.In(ids).IsSharded() && c.OthersAreReplicated({ids})) c.SetAll(c.In(ids));
  };
}

BatchRun Gather(const char* attr) {
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
  const BatchRelation x = c.In("X"), in = c.In("Index");
  if (!index.has_value() || index->empty()) return;
  const int last = static_cast<int>(index->size()) - 1;
  if (x.IsReplicated() && in.IsSharded() && in.axis < last) return c.SetAll(in);
  const int64_t depth = index->back();
  if (x.IsSharded() && in.IsReplicated() && depth >= 0 && x.axis >= depth) {
    c.SetAll(BatchRelation::Sharded(last + x.axis - static_cast<int>(depth)));
  }
}

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

void PutAlong(BatchContext& c) {
  if (c.In("Value") == c.In("Index")) TakeAlong(c);
}

BatchRun Scatter(absl::string_view ids, absl::string_view parts, const char* attr) {
  return [=](BatchContext& c) {
    const BatchRelation x = c.In("X");
    const absl::optional<Dims> dims = c.InDims("X"), index = c.InDims(ids);
    if (!x.IsSharded() || !dims.has_value() || !index.has_value() || !c.In(ids).IsReplicated()) {
      return;
    }
    const int axis = attr == nullptr ? 0 : c.Axis(attr, dims->size());
    if (axis < 0 || axis == x.axis) return;
    // A single index names a part without that dimension.
    const int dropped = index->empty() && axis < x.axis ? 1 : 0;
    if (c.In(parts) == BatchRelation::Sharded(x.axis - dropped)) c.SetAll(x);
  };
}

void ScatterNdAdd(BatchContext& c) {
  const absl::optional<Dims> index = c.InDims("Index");
  const BatchRelation x = c.In("X");
  if (!x.IsSharded() || !c.In("Index").IsReplicated() || !index.has_value() || index->empty()) {
    return;
  }
  const int64_t depth = index->back();
  if (depth < 0 || x.axis < depth) return;
  const int added = static_cast<int>(index->size()) - 1 - static_cast<int>(depth);
  if (c.In("Updates") == BatchRelation::Sharded(x.axis + added)) c.SetAll(x);
}

// The indices are along the first dimensions. After them, the value is repeated.
void IndexPut(BatchContext& c) {
  const BatchRelation x = c.In("x");
  const absl::optional<Dims> dims = c.InDims("x"), values = c.InDims("value");
  const int depth = static_cast<int>(c.AllIn("indices").size());
  if (!x.IsSharded() || x.axis < depth || !dims.has_value() || !values.has_value() ||
      !c.OthersAreReplicated({"x", "value"})) {
    return;
  }
  if (IsRepeatedOrShared(c.In("value"), *values, static_cast<int>(dims->size()) - x.axis)) {
    c.SetAll(x);
  }
}

}  // namespace batch
}  // namespace weft
