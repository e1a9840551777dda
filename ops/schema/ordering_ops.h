// Ops of Paddle that order others.
#ifndef WEFT_OPS_SCHEMA_ORDERING_OPS_H_
#define WEFT_OPS_SCHEMA_ORDERING_OPS_H_

#include "absl/strings/string_view.h"

namespace weft {

// Whether the op comes after what writes its other inputs, and leaves X, which is Out, as it is: it
// touches no data.
inline bool OnlyOrders(absl::string_view type) { return type == "depend"; }

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ORDERING_OPS_H_
