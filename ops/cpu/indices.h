// Tensors of indices as kernels read them.
#ifndef WEFT_OPS_CPU_INDICES_H_
#define WEFT_OPS_CPU_INDICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/kernel_util.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// The elements of an int32 or int64 tensor. InvalidArgument, with the slot, unless each is in
// [0, size). FromEnd: -1 to -size count from the end.
absl::StatusOr<std::vector<int64_t>> ReadIndices(absl::string_view slot, const Tensor& tensor,
                                                 int64_t size);
absl::StatusOr<std::vector<int64_t>> ReadIndicesFromEnd(absl::string_view slot,
                                                        const Tensor& tensor, int64_t size);

// Calls visit(row, class) for the labels, one per row; class -1 for ignore_index. InvalidArgument
// unless the others are in [0, classes).
template <typename Visit>
absl::Status ForEachLabel(const Tensor& label, int64_t classes, int64_t ignore_index, Visit visit) {
  return ForElementType<int64_t, int32_t>("input Label", label, [&](auto tag) -> absl::Status {
    const auto* labels = label.data<typename decltype(tag)::type>();
    for (int64_t row = 0; row < label.size(); ++row) {
      const int64_t number = labels[row];
      if (number != ignore_index && (number < 0 || number >= classes)) {
        return absl::InvalidArgumentError(absl::StrCat("input Label: ", number, " at position ",
                                                       row, " is not in [0, ", classes,
                                                       ") and not ignore_index ", ignore_index));
      }
      visit(row, number == ignore_index ? -1 : number);
    }
    return absl::OkStatus();
  });
}

// A negative axis counts from the end.
inline size_t NormalizedAxis(int64_t axis, size_t rank) { return axis < 0 ? axis + rank : axis; }

// The product of the dimensions before, and after, an axis.
inline int64_t CountBefore(const Dims& dims, size_t axis) {
  return NumElements(absl::MakeConstSpan(dims).first(axis));
}
inline int64_t CountAfter(const Dims& dims, size_t axis) {
  return NumElements(absl::MakeConstSpan(dims).subspan(axis + 1));
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_INDICES_H_
