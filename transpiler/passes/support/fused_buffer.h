// Fused buffers: tensors that share memory, so that one collective covers them.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_FUSED_BUFFER_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_FUSED_BUFFER_H_

#include <string>
#include <vector>

#include "ops/schema/tensor_type.h"
#include "proto/framework.pb.h"
#include "proto/program.h"

namespace weft {

// The alignment of slices, in bytes.
inline constexpr int kSliceAlignment = 256;

// Dense tensors of one element type and known dimensions.
struct FusedTensors {
  DType dtype = DType::kFloat32;
  std::vector<std::string> names;
  std::vector<Dims> dims;
};

// The declaration of a buffer with a slice per tensor, each padded to the alignment, in bytes.
pb::VarDesc FusedBuffer(const std::string& name, const FusedTensors& tensors,
                        int alignment = kSliceAlignment);

// Whether the values of tensors move with them into a buffer.
enum class FusedValues {
  kCopied,
  kDiscarded,  // the tensors may hold no value yet
};

// The coalesce_tensor op that makes the tensors slices of `buffer`.
pb::OpDesc Coalesce(const FusedTensors& tensors, const std::string& buffer, FusedValues values,
                    int role, int alignment = kSliceAlignment);
// As Paddle's transpiler writes it: copies, and leaves the alignment to the default of the op.
pb::OpDesc PaddleCoalesce(const std::vector<std::string>& tensors, pb::VarType::Type dtype,
                          const std::string& buffer, int role);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_FUSED_BUFFER_H_
