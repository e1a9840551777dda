// Attention: the ops that programs write it with, and the ops that a plan runs in their place
// (executor/rewrites/fuse_attention.h). Programs do not have the latter.
#ifndef WEFT_OPS_SCHEMA_ATTENTION_OPS_H_
#define WEFT_OPS_SCHEMA_ATTENTION_OPS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"

namespace weft {

// What an op of a program may be in attention. The gradient of a kScale is a kScale.
enum class AttentionPart : uint8_t {
  kNone,
  kProduct,
  kProductGrad,
  kScale,
  kAdd,
  kAddGrad,
  kSoftmax,
  kSoftmaxGrad,
  kDropout,
  kDropoutGrad,
};
AttentionPart AttentionPartOf(absl::string_view op_type);

inline constexpr char kAttention[] = "attention";
inline constexpr char kAttentionGrad[] = "attention_grad";

// Out = dropout(softmax(alpha Q Kᵀ + Mask)) V, for every matrix of a batch. Mask is broadcast to
// the scores. Kept has the dimensions of the scores: 1 where dropout keeps an element. The
// attributes are alpha and those of dropout.
const OpSchema& AttentionSchema();
// The gradients of Q, K and V.
const OpSchema& AttentionGradSchema();

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ATTENTION_OPS_H_
