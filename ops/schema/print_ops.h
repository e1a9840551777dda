// Ops that show values to the user.
#ifndef WEFT_OPS_SCHEMA_PRINT_OPS_H_
#define WEFT_OPS_SCHEMA_PRINT_OPS_H_

#include "absl/strings/string_view.h"

namespace weft {

// Whether ops of the type write values to standard error.
inline bool PrintsValues(absl::string_view op_type) { return op_type == "print"; }

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_PRINT_OPS_H_
