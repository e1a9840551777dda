// Tensors that share a buffer, so that one collective takes them all.
#ifndef WEFT_TRANSPILER_PASSES_FUSED_BUFFER_H_
#define WEFT_TRANSPILER_PASSES_FUSED_BUFFER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "proto/framework.pb.h"
#include "proto/program.h"

namespace weft {

// A slice begins at a multiple of so many bytes.
inline constexpr int kSliceAlignment = 256;

// Dense tensors of one element type, their dims known.
struct FusedTensors {
  DType dtype = DType::kFloat32;
  std::vector<std::string> names;
  std::vector<Dims> dims;
};

// The variable that holds them one behind the other, each padded to the alignment, under a name
// that the program does not have: <prefix>_0, <prefix>_1, ... `next` counts.
pb::VarDesc FusedBuffer(const Program& program, const FusedTensors& tensors,
                        absl::string_view prefix, int* next);

// Lays them into `buffer` (coalesce_tensor). `copy`: with their values; else they are about to be
// written, and need not hold anything yet.
pb::OpDesc Coalesce(const FusedTensors& tensors, const std::string& buffer, bool copy, int role);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_FUSED_BUFFER_H_
