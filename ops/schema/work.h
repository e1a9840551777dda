// How much an op computes.
#ifndef WEFT_OPS_SCHEMA_WORK_H_
#define WEFT_OPS_SCHEMA_WORK_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// Multiplications and additions beyond a few per element.
enum class WorkKind : uint8_t {
  kElements,  // a few per element of arguments
  kProduct,   // matrix products: of X and Y, in a gradient also with Out@GRAD
  // Filter over Input; in a gradient also with Output@GRAD.
  kConvolution,
  kTransposedConvolution,
};

// kElements for types that are not known. O(1).
WorkKind WorkOf(absl::string_view op_type);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_WORK_H_
