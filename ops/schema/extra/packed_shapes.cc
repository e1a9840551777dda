#include "ops/schema/extra/packed_shapes.h"

#include <cstddef>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace weft {

absl::StatusOr<std::vector<Dims>> PackedShapes(const OpAttrs& attrs) {
  const std::vector<int64_t> ranks = attrs.Ints("concated_ranks");
  const std::vector<int64_t> shapes = attrs.Ints("concated_shapes");
  std::vector<Dims> packed;
  absl::Span<const int64_t> rest = shapes;
  for (int64_t rank : ranks) {
    if (rank < 0 || rank > static_cast<int64_t>(rest.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute concated_ranks: expected ranks that add up to the ",
                       shapes.size(), " numbers of concated_shapes"));
    }
    const absl::Span<const int64_t> dims = rest.first(static_cast<size_t>(rank));
    const int64_t elements = NumElements(dims);
    if (absl::c_any_of(dims, [](int64_t dim) { return dim < 0; }) || elements > kMaxElements) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute concated_shapes: expected dimensions of at least 0 and at most ",
                       kMaxElements, " elements, found ", DimsToString(dims)));
    }
    packed.emplace_back(dims.begin(), dims.end());
    rest.remove_prefix(static_cast<size_t>(rank));
  }
  if (rest.empty()) return packed;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute concated_ranks: expected ranks that add up to the ", shapes.size(),
                   " numbers of concated_shapes"));
}

}  // namespace weft
