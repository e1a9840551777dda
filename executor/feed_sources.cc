#include "executor/feed_sources.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

template <typename T>
bool Fill(double value, Tensor* tensor) {
  if (std::numeric_limits<T>::is_integer) {
    // For 64-bit T, the largest integer is not representable as double, but its successor is.
    const double limit = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
    if (!(value >= static_cast<double>(std::numeric_limits<T>::lowest()) && value < limit)) {
      return false;
    }
    if (static_cast<double>(static_cast<T>(value)) != value) return false;
  }
  std::fill_n(tensor->data<T>(), tensor->size(), static_cast<T>(value));
  return true;
}

bool FillAny(double value, Tensor* tensor) {
  switch (tensor->dtype()) {
    case DType::kInt8:
      return Fill<int8_t>(value, tensor);
    case DType::kUint8:
      return Fill<uint8_t>(value, tensor);
    case DType::kInt16:
      return Fill<int16_t>(value, tensor);
    case DType::kInt32:
      return Fill<int32_t>(value, tensor);
    case DType::kInt64:
      return Fill<int64_t>(value, tensor);
    case DType::kFloat32:
      return Fill<float>(value, tensor);
    case DType::kFloat64:
      return Fill<double>(value, tensor);
    default:
      return false;
  }
}

// The op that writes the variable, in any block; invalid if there is none.
OpId FindWriter(const Program& program, Symbol var) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const absl::Span<const Symbol> outputs = program.op(id).output_args();
      if (std::find(outputs.begin(), outputs.end(), var) != outputs.end()) return id;
    }
  }
  return OpId();
}

absl::StatusOr<TensorType> TypeOfHostValue(const Program& main, const std::string& name) {
  const VarId id = main.block(0).FindVar(name);
  if (!id.valid()) return absl::InvalidArgumentError("the program has no such variable");
  const Var var = main.var(id);
  if (!var.persistable()) {
    return absl::InvalidArgumentError("expected a persistable variable");
  }
  const OpId writer = FindWriter(main, var.name_symbol());
  if (writer.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a variable that no op writes, but ",
                                                   main.op(writer).DebugName(), " does"));
  }
  const absl::optional<TensorType> type = DeclaredType(var);
  if (!type.has_value() || type->kind != TensorType::Kind::kDense || NumElements(type->dims) < 0) {
    return absl::InvalidArgumentError("expected a tensor of fixed dimensions");
  }
  return *type;
}

absl::StatusOr<Tensor> ValueOfStep(const HostValue& value, const TensorType& type, int64_t step) {
  Tensor tensor;
  tensor.Resize(type.dtype, type.dims);
  const double number = value.at(step);
  if (FillAny(number, &tensor)) return tensor;
  return absl::InvalidArgumentError(
      absl::StrCat("set ", value.name, ": ", DTypeName(type.dtype), " cannot hold ", number));
}

}  // namespace

FeedSource FeedsFrom(std::shared_ptr<const FeedFile> file) {
  FeedSource source;
  source.name = file->path();
  source.variables = file->variables();
  source.num_steps = file->num_steps();
  source.types = [file](int64_t step) { return file->Types(step); };
  source.read = [file](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(auto arrays, file->Read(step));
    std::vector<Tensor> tensors;
    for (auto& [name, tensor] : arrays) tensors.push_back(std::move(tensor));
    return tensors;
  };
  return source;
}

HostValue SameAtAllSteps(std::string name, double value) {
  return {std::move(name), [value](int64_t) { return value; }};
}

absl::StatusOr<FeedSource> WithHostValues(FeedSource source, const Program& main,
                                          absl::Span<const HostValue> values) {
  if (values.empty()) return source;
  FeedSource all;
  all.name = source.name;
  all.variables = source.variables;
  std::vector<TensorType> value_types;
  for (const HostValue& value : values) {
    const bool exists = std::count(all.variables.begin(), all.variables.end(), value.name) > 0;
    absl::StatusOr<TensorType> type = exists
                                          ? absl::InvalidArgumentError("it is already fed or set")
                                          : TypeOfHostValue(main, value.name);
    if (!type.ok()) return Annotate(absl::StrCat("set ", value.name), type.status());
    WEFT_RETURN_IF_ERROR(ValueOfStep(value, *type, 0).status());
    all.variables.push_back(value.name);
    value_types.push_back(*std::move(type));
  }
  if (source.types) {
    all.num_steps = source.num_steps;
    all.types = [types = std::move(source.types),
                 value_types](int64_t step) -> absl::StatusOr<std::vector<TensorType>> {
      WEFT_ASSIGN_OR_RETURN(std::vector<TensorType> all_types, types(step));
      all_types.insert(all_types.end(), value_types.begin(), value_types.end());
      return all_types;
    };
  }
  all.read = [read = std::move(source.read),
              values = std::vector<HostValue>(values.begin(), values.end()),
              value_types](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> batch;
    if (read) {
      WEFT_ASSIGN_OR_RETURN(batch, read(step));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(Tensor value, ValueOfStep(values[i], value_types[i], step));
      batch.push_back(std::move(value));
    }
    return batch;
  };
  return all;
}

}  // namespace weft
