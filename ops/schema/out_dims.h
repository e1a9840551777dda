// Inference of ops with one output whose dims follow from those of one input.
#ifndef WEFT_OPS_SCHEMA_OUT_DIMS_H_
#define WEFT_OPS_SCHEMA_OUT_DIMS_H_

#include "absl/status/statusor.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// The dims of Out for those of the input.
using DimsFn = absl::StatusOr<Dims> (*)(const InferContext&, const Dims& x);
// Sets Out, of the input's element type, and XShape where the op has that. Sets no dims where an
// input gives attributes.
OpSchema::InferFn OutDims(DimsFn dims_of, const char* x_slot = "X");

// Of an op whose gradient op reads X and Out@GRAD and writes X@GRAD.
GradSlots GradOfX();

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OUT_DIMS_H_
