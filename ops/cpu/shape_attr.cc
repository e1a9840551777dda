#include "ops/cpu/shape_attr.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<TensorType> TypeFromAttrs(const KernelSpec& spec) {
  const absl::optional<DType> dtype = DTypeFromProto(spec.attrs.Int("dtype"));
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute dtype: ", spec.attrs.Int("dtype"), " is no element type"));
  }
  TensorType type;
  type.dtype = *dtype;
  // The most elements whose bytes, rounded up, fit an int64.
  int64_t room = std::numeric_limits<int64_t>::max() / 64;
  for (int64_t dim : spec.attrs.Ints("shape")) {
    if (dim < 0 || (dim > 0 && (room /= dim) == 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "attribute shape: no tensor can have dimension ", dim, " at ", type.dims.size()));
    }
    type.dims.push_back(dim);
  }
  return type;
}

}  // namespace weft
