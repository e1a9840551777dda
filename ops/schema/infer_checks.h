// Checks that inference functions of the op families share. Each is OK where the type of the input
// is not known.
#ifndef WEFT_OPS_SCHEMA_INFER_CHECKS_H_
#define WEFT_OPS_SCHEMA_INFER_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// int32 or int64.
bool IsIndex(DType dtype);

// The dims of the (first) variable of an input slot fit these.
absl::Status CheckDims(const InferContext& context, const char* slot, const Dims& dims);
// Vectors of that size.
absl::Status CheckVector(const InferContext& context, const char* slot, int64_t size);
absl::Status CheckVectors(const InferContext& context, std::initializer_list<const char*> slots,
                          int64_t size);
// Variable i has one element, whatever its rank.
absl::Status CheckOneElement(const InferContext& context, const char* slot, size_t i);
// [batch, channels, height, width].
absl::Status CheckImage(const InferContext& context, const char* slot);

// Integer attributes are in [1, kMaxElements].
absl::Status CheckPositive(const InferContext& context, std::initializer_list<const char*> attrs);
// A list has one number for each of so many axes.
absl::Status CheckSameLength(const InferContext& context, const char* attr, size_t length);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_CHECKS_H_
