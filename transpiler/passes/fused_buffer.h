// Tensors that share a buffer, so that one collective takes them all.
#ifndef WEFT_TRANSPILER_PASSES_FUSED_BUFFER_H_
#define WEFT_TRANSPILER_PASSES_FUSED_BUFFER_H_

#include <string>
#include <vector>

#include "ops/schema/tensor_type.h"
#include "proto/framework.pb.h"
#include "proto/program.h"

namespace weft {

// Slices of a buffer begin at multiples of this many bytes.
inline constexpr int kSliceAlignment = 256;

// Dense tensors of one element type and of known dimensions.
struct FusedTensors {
  DType dtype = DType::kFloat32;
  std::vector<std::string> names;
  std::vector<Dims> dims;
};

// Declares a buffer that holds the tensors one after the other, each padded to the alignment.
pb::VarDesc FusedBuffer(const std::string& name, const FusedTensors& tensors);

// What happens to the values of tensors that move into a buffer.
enum class FusedValues {
  kCopied,     // they move along
  kDiscarded,  // the tensors are about to be written, and may hold nothing yet
};

// Lays the tensors into `buffer` (coalesce_tensor).
pb::OpDesc Coalesce(const FusedTensors& tensors, const std::string& buffer, FusedValues values,
                    int role);
// The same as Paddle's transpiler writes it: copied, with the alignment of the op's default.
pb::OpDesc PaddleCoalesce(const std::vector<std::string>& tensors, pb::VarType::Type dtype,
                          const std::string& buffer, int role);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_FUSED_BUFFER_H_
