// Which ops an executor may carry out together with others.
#ifndef WEFT_OPS_SCHEMA_FUSION_H_
#define WEFT_OPS_SCHEMA_FUSION_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// A last step of an op, before it writes its result.
enum class PostOpKind : uint8_t {
  kNone,
  kBias,  // adds a number to each channel
  kAdd,   // adds a tensor
  kRelu,  // max(result, 0)
};

// What an op of the type may be for the op that computes its X. A kAdd adds Y. O(1).
PostOpKind AsPostOp(absl::string_view type);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FUSION_H_
