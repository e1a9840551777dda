// Outputs that ops name in Paddle's programs, and leave as they are.
#ifndef WEFT_OPS_SCHEMA_UNWRITTEN_OUTPUTS_H_
#define WEFT_OPS_SCHEMA_UNWRITTEN_OUTPUTS_H_

#include "absl/strings/string_view.h"

namespace weft {

// Whether variables of that output slot keep their values, whatever the op computes: parameters
// that the op names, of which nothing changes.
bool LeavesOutput(absl::string_view type, absl::string_view slot);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_UNWRITTEN_OUTPUTS_H_
