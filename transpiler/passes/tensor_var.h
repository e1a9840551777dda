// Declarations of tensors that passes insert.
#ifndef WEFT_TRANSPILER_PASSES_TENSOR_VAR_H_
#define WEFT_TRANSPILER_PASSES_TENSOR_VAR_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

inline pb::VarType::Type ToProto(DType dtype) { return static_cast<pb::VarType::Type>(dtype); }

inline pb::VarType::TensorDesc TensorOf(pb::VarType::Type dtype, absl::Span<const int64_t> dims) {
  pb::VarType::TensorDesc tensor;
  tensor.set_data_type(dtype);
  for (int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

// A dense tensor that does not outlive a step. Set other flags on the result.
inline pb::VarDesc TensorVar(const std::string& name, pb::VarType::TensorDesc tensor) {
  pb::VarDesc var;
  var.set_name(name);
  var.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  *var.mutable_type()->mutable_lod_tensor()->mutable_tensor() = std::move(tensor);
  var.set_persistable(false);
  return var;
}
inline pb::VarDesc TensorVar(const std::string& name, DType dtype, absl::Span<const int64_t> dims) {
  return TensorVar(name, TensorOf(ToProto(dtype), dims));
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_TENSOR_VAR_H_
