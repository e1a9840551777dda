// Where the backward part of a training program begins.
#ifndef WEFT_PROTO_FORMATS_PIR_LOSSES_H_
#define WEFT_PROTO_FORMATS_PIR_LOSSES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/document.h"

namespace weft::pir {

// The gradients of losses: 1.full_like of one element with 1.0, which the gradient op of what it
// resembles reads, at once or scaled. Such gradients from which another loss is computed (of a
// gradient penalty) are none. Ascending. O(bytes).
absl::StatusOr<std::vector<uint32_t>> FindSeeds(const Document& document);

// Ops of one operand whose gradient is an op of the same name, or which scale a gradient.
bool IsLinear(absl::string_view base_name);

// The gradient of 1.add_n is such an op for each summand: a 1.scale by 1.
absl::StatusOr<bool> IsScaleByOne(const Document& document, uint32_t op);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_LOSSES_H_
