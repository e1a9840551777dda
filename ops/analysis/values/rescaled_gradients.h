// Optimizers that multiply their gradients by an attribute before they use them.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RESCALED_GRADIENTS_H_
#define WEFT_OPS_ANALYSIS_VALUES_RESCALED_GRADIENTS_H_

#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// FLOAT.
inline constexpr absl::string_view kRescaleGradAttr = "rescale_grad";

// The factor of the gradients of `op`; 1: its schema, which may be null, has no such attribute.
inline double GradientFactorOf(const Op& op, const OpSchema* schema) {
  const bool rescales = schema != nullptr && schema->FindAttr(kRescaleGradAttr) != nullptr;
  return rescales ? op.FloatAttr(kRescaleGradAttr).value_or(1) : 1;
}

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RESCALED_GRADIENTS_H_
