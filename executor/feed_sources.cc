#include "executor/feed_sources.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

template <typename T>
bool Fill(double value, Tensor* tensor) {
  if (std::numeric_limits<T>::is_integer) {
    // The largest integer is no double where T has 64 bits, its successor is.
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

// The op that writes the variable, in any block; an invalid id where none does.
OpId FindWriter(const Program& program, Symbol var) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const absl::Span<const Symbol> outputs = program.op(id).output_args();
      if (std::find(outputs.begin(), outputs.end(), var) != outputs.end()) return id;
    }
  }
  return OpId();
}

absl::StatusOr<Tensor> MakeFixed(const Program& main, const FixedValue& fixed) {
  const Symbol symbol = main.FindSymbol(fixed.name);
  const VarId id = symbol.valid() ? main.block(0).FindVar(symbol) : VarId();
  if (!id.valid()) return absl::InvalidArgumentError("the program has no such variable");
  const Var var = main.var(id);
  if (!var.persistable()) {
    return absl::InvalidArgumentError("expected a persistable variable, this one is not");
  }
  const OpId writer = FindWriter(main, symbol);
  if (writer.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a variable that no op writes, but ",
                                                   main.op(writer).DebugName(), " does"));
  }
  const absl::optional<TensorType> type = DeclaredType(var);
  if (!type.has_value() || type->layout != TensorType::Layout::kDense ||
      NumElements(type->dims) < 0) {
    return absl::InvalidArgumentError("expected a tensor of fixed dimensions");
  }
  Tensor tensor;
  tensor.Resize(type->dtype, type->dims);
  if (!FillAny(fixed.value, &tensor)) {
    return absl::InvalidArgumentError(
        absl::StrCat(DTypeName(type->dtype), " cannot hold ", fixed.value));
  }
  return tensor;
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

absl::StatusOr<FeedSource> WithFixedValues(FeedSource source, const Program& main,
                                           absl::Span<const FixedValue> values) {
  if (values.empty()) return source;
  FeedSource all;
  all.name = source.name;
  all.variables = source.variables;
  std::vector<Tensor> tensors;
  for (const FixedValue& fixed : values) {
    absl::StatusOr<Tensor> tensor =
        std::count(all.variables.begin(), all.variables.end(), fixed.name) > 0
            ? absl::InvalidArgumentError("it is fed or set already")
            : MakeFixed(main, fixed);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("set ", fixed.name, ": ", tensor.status().message()));
    }
    all.variables.push_back(fixed.name);
    tensors.push_back(*std::move(tensor));
  }
  if (source.types) {
    all.num_steps = source.num_steps;
    all.types = [types = std::move(source.types),
                 tensors](int64_t step) -> absl::StatusOr<std::vector<TensorType>> {
      WEFT_ASSIGN_OR_RETURN(std::vector<TensorType> all_types, types(step));
      for (const Tensor& tensor : tensors) all_types.push_back({tensor.dtype(), tensor.dims()});
      return all_types;
    };
  }
  all.read = [read = std::move(source.read),
              tensors](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> batch;
    if (read) {
      WEFT_ASSIGN_OR_RETURN(batch, read(step));
    }
    batch.insert(batch.end(), tensors.begin(), tensors.end());
    return batch;
  };
  return all;
}

}  // namespace weft
