// Which dimensions an op reduces, for all devices.
#ifndef WEFT_OPS_CPU_REDUCED_DIMS_H_
#define WEFT_OPS_CPU_REDUCED_DIMS_H_

#include <cstdint>
#include <vector>

#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// The dims of the input with 1 for reduced dimensions. Inference has checked the attributes, whose
// names differ between ops: a flag for all dimensions, and a list of them.
inline Dims KeptDims(const OpAttrs& attrs, const Dims& x) {
  if (attrs.Has("asvector") && attrs.Bool("asvector")) return Dims(x.size(), 1);
  if (attrs.Has("reduce_all") && attrs.Bool("reduce_all")) return Dims(x.size(), 1);
  std::vector<int64_t> reduced;
  if (attrs.Has("porder")) {
    reduced = {attrs.Int("axis")};
  } else if (attrs.Has("dim")) {
    reduced = attrs.Ints("dim");
  } else if (attrs.Has("axis")) {
    reduced = attrs.Ints("axis");
  }
  if (reduced.empty()) return Dims(x.size(), 1);
  Dims kept = x;
  const int64_t rank = x.size();
  for (int64_t d : reduced) {
    if (rank > 0) kept[d < 0 ? d + rank : d] = 1;  // a scalar may have dimensions 0 and -1
  }
  return kept;
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_REDUCED_DIMS_H_
