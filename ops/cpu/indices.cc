#include "ops/cpu/indices.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

absl::StatusOr<std::vector<int64_t>> Read(absl::string_view slot, const Tensor& tensor,
                                          int64_t size, int64_t lowest) {
  std::vector<int64_t> indices(tensor.size());
  WEFT_RETURN_IF_ERROR((ForElementType<int64_t, int32_t>(
      absl::StrCat("input ", slot), tensor, [&](auto tag) -> absl::Status {
        const auto* values = tensor.data<typename decltype(tag)::type>();
        for (int64_t i = 0; i < tensor.size(); ++i) {
          if (values[i] < lowest || values[i] >= size) {
            return absl::InvalidArgumentError(absl::StrCat(
                "input ", slot, ": ", values[i], " at position ", i, " is not in [0, ", size, ")"));
          }
          indices[i] = values[i] < 0 ? values[i] + size : values[i];
        }
        return absl::OkStatus();
      })));
  return indices;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ReadIndices(absl::string_view slot, const Tensor& tensor,
                                                 int64_t size) {
  return Read(slot, tensor, size, /*lowest=*/0);
}

absl::StatusOr<std::vector<int64_t>> ReadIndicesFromEnd(absl::string_view slot,
                                                        const Tensor& tensor, int64_t size) {
  return Read(slot, tensor, size, /*lowest=*/-size);
}

}  // namespace weft
