#include "executor/run/feed_sources.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/similar_name.h"
#include "base/status_macros.h"
#include "executor/files/npz.h"
#include "ops/kernel_util.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Splits "<step>/<variable>"; the variable's name may contain slashes.
bool ParseFeedName(absl::string_view name, int64_t* step, std::string* variable) {
  const size_t slash = name.find('/');
  if (slash == absl::string_view::npos || slash + 1 == name.size()) return false;
  const absl::string_view digits = name.substr(0, slash);
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit)) return false;
  // "007" would be a second name for step 7.
  if (digits.size() > 1 && digits[0] == '0') return false;
  *variable = std::string(name.substr(slash + 1));
  return absl::SimpleAtoi(digits, step);
}

// Names `source` and its variables, and counts its steps.
absl::Status ReadNames(const NpzFile& npz, FeedSource* source) {
  const std::string& path = npz.path();
  std::map<int64_t, std::set<std::string>> steps;
  std::set<std::string> all;
  for (const std::string& name : npz.names()) {
    int64_t step = 0;
    std::string variable;
    if (!ParseFeedName(name, &step, &variable)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": array '", absl::CHexEscape(name),
                                                     "': expected a name <step>/<variable>"));
    }
    all.insert(variable);
    steps[step].insert(std::move(variable));
  }
  if (steps.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": it has no arrays"));
  int64_t expected_step = 0;
  for (const auto& [step, variables] : steps) {
    if (step != expected_step) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": step ", expected_step, " has no arrays, but step ", step, " has"));
    }
    ++expected_step;
    for (const std::string& variable : all) {
      if (variables.count(variable) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": step ", step, " lacks variable '",
                                                       absl::CHexEscape(variable),
                                                       "', which other steps have"));
      }
    }
  }
  source->name = path;
  source->num_steps = expected_step;
  source->variables.assign(all.begin(), all.end());
  return absl::OkStatus();
}

// Whether T can represent the value; floating-point types round it.
template <typename T>
bool Holds(double value) {
  if (!std::is_integral_v<T>) return true;
  // For 64-bit T, the largest integer is not representable as double, but its successor is.
  const T half_limit = std::numeric_limits<T>::max() / 2 + 1;
  const double limit = 2.0 * static_cast<double>(half_limit);
  return value >= static_cast<double>(std::numeric_limits<T>::lowest()) && value < limit &&
         value == std::trunc(value);
}

// The op that writes the variable, in any block; invalid if there is none.
OpId FindWriter(const Program& program, Symbol var) {
  for (const Op& op : AllOps(program)) {
    const absl::Span<const Symbol> outputs = op.output_args();
    if (std::find(outputs.begin(), outputs.end(), var) != outputs.end()) return op.id();
  }
  return OpId();
}

absl::StatusOr<TensorType> TypeOfHostValue(const Program& main, const std::string& name) {
  const VarId id = main.block(0).FindVar(name);
  if (!id.valid()) {
    std::vector<absl::string_view> names;
    for (VarId var : main.block(0).vars()) {
      if (main.var(var).persistable()) names.push_back(main.var(var).name());
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the program has no such variable", DidYouMean(name, names)));
  }
  const Var var = main.var(id);
  if (!var.persistable()) return absl::InvalidArgumentError("expected a persistable variable");
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
  if (std::isnan(number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("set ", value.name, ": it has no value for step ", step));
  }
  const auto fill = [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (!Holds<T>(number)) return absl::InvalidArgumentError("not representable");
    std::fill_n(tensor.data<T>(), tensor.size(), static_cast<T>(number));
    return absl::OkStatus();
  };
  if (ForElementType<int8_t, uint8_t, int16_t, int32_t, int64_t, float, double>("", tensor, fill)
          .ok()) {
    return tensor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("set ", value.name, ": ", DTypeName(type.dtype), " cannot hold ", number));
}

}  // namespace

absl::StatusOr<FeedSource> FeedsFromFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const NpzFile npz, NpzFile::Open(path));
  FeedSource source;
  WEFT_RETURN_IF_ERROR(ReadNames(npz, &source));
  std::vector<std::string> variables = source.variables;
  const auto array_name = [num_steps = source.num_steps](int64_t step,
                                                         const std::string& variable) {
    return absl::StrCat(step % num_steps, "/", variable);
  };
  source.types = [=](int64_t step) -> absl::StatusOr<std::vector<TensorType>> {
    std::vector<TensorType> types;
    for (const std::string& variable : variables) {
      WEFT_ASSIGN_OR_RETURN(types.emplace_back(), npz.Type(array_name(step, variable)));
    }
    return types;
  };
  source.read = [=](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> tensors;
    for (const std::string& variable : variables) {
      WEFT_ASSIGN_OR_RETURN(tensors.emplace_back(), npz.Read(array_name(step, variable)));
    }
    return tensors;
  };
  return source;
}

absl::StatusOr<FeedSource> WithoutUnevenLastStep(FeedSource source, int nranks) {
  if (source.num_steps <= 1 || !source.types) return source;
  WEFT_ASSIGN_OR_RETURN(const std::vector<TensorType> types, source.types(source.num_steps - 1));
  bool is_even = true;
  for (size_t i = 0; i < types.size(); ++i) {
    const auto found = source.layouts.find(source.variables[i]);
    if (found == source.layouts.end() || !found->second.axis.has_value()) continue;
    const auto axis = static_cast<size_t>(*found->second.axis);
    is_even = is_even && (axis >= types[i].dims.size() || types[i].dims[axis] % nranks == 0);
  }
  if (is_even) return source;
  --source.num_steps;
  source.types = [types = std::move(source.types), steps = source.num_steps](int64_t step) {
    return types(step % steps);
  };
  source.read = [read = std::move(source.read), steps = source.num_steps](int64_t step) {
    return read(step % steps);
  };
  return source;
}

HostValue SameAtAllSteps(std::string name, double value) {
  return {std::move(name), [value](int64_t) { return value; }};
}

absl::StatusOr<FeedSource> WithHostValues(FeedSource source, const Program& main,
                                          absl::Span<const HostValue> values) {
  if (values.empty()) return source;
  FeedSource all = source;
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
      WEFT_ASSIGN_OR_RETURN(batch.emplace_back(), ValueOfStep(values[i], value_types[i], step));
    }
    return batch;
  };
  return all;
}

}  // namespace weft
