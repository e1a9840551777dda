// Ops whose outputs have the memory of an input.
#ifndef WEFT_OPS_SCHEMA_VIEW_OPS_H_
#define WEFT_OPS_SCHEMA_VIEW_OPS_H_

#include "absl/strings/string_view.h"

namespace weft {

// Out is X, in one memory.
inline constexpr absl::string_view kShareDataType = "share_data";

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_VIEW_OPS_H_
