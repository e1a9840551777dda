#include "tools/files/params_input.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/files/params_file.h"
#include "executor/plan/run_checks.h"
#include "executor/run/shared_states.h"
#include "proto/all_ops.h"
#include "proto/formats/pt2/importer.h"

namespace weft {
namespace {

using Programs = absl::Span<const Program* const>;

// A program, and the whole tensors of which ranks have parts.
struct States {
  const Program* program;
  SharedStates shares;

  bool Has(const std::string& name) const {
    const VarId id = program->block(0).FindVar(name);
    return shares.Replaces(name) || (id.valid() && program->var(id).persistable());
  }
  absl::Status Check(const std::string& name, const TensorType& type) const {
    return shares.Replaces(name) ? shares.CheckParam(*program, name, type)
                                 : CheckParam(*program, name, type);
  }
};

// Whoever reads the setting of a program reports what is wrong with it.
std::vector<States> StatesOf(Programs programs) {
  std::vector<States> states;
  for (const Program* program : programs) {
    absl::StatusOr<SharedStates> shares = SharedStates::Of(*program);
    states.push_back({program, shares.ok() ? *std::move(shares) : SharedStates()});
  }
  return states;
}

// The first program with a state of that name; null: none.
const States* FindState(const std::vector<States>& states, const std::string& name) {
  for (const States& of_program : states) {
    if (of_program.Has(name)) return &of_program;
  }
  return nullptr;
}

TensorCheck CheckOf(const std::vector<States>& states) {
  return [&states](const std::string& name, const TensorType& type) {
    const States* const found = FindState(states, name);
    return found != nullptr ? found->Check(name, type) : absl::OkStatus();
  };
}

// The variables that Paddle's save_vars writes, sorted as it sorts them.
std::vector<std::string> SavedNames(const std::vector<States>& states, bool parameters_only) {
  std::set<std::string> names;
  for (const auto& [program, shares] : states) {
    for (const Var& var : AllVars(*program)) {
      const std::string name(var.name());
      const bool is_state =
          (var.persistable() && shares.shares().count(name) == 0) || shares.Replaces(name);
      if (!is_state || var.type() != pb::VarType::LOD_TENSOR) continue;
      if (!parameters_only || var.is_parameter()) names.insert(name);
    }
    const std::set<std::string>& whole = parameters_only ? shares.parameters() : shares.whole();
    names.insert(whole.begin(), whole.end());
  }
  return {names.begin(), names.end()};
}

// A save_combine stream has no names; the program says which variables Paddle would have written.
absl::StatusOr<std::map<std::string, Tensor>> ReadUnnamed(const std::string& path,
                                                          const std::vector<States>& states,
                                                          const TensorCheck& check) {
  const std::vector<std::string> all = SavedNames(states, /*parameters_only=*/false);
  const std::vector<std::string> parameters = SavedNames(states, /*parameters_only=*/true);
  absl::StatusOr<std::map<std::string, Tensor>> arrays = ReadSaveCombine(path, all, check);
  if (arrays.ok() || absl::IsNotFound(arrays.status())) return arrays;
  absl::StatusOr<std::map<std::string, Tensor>> fewer = ReadSaveCombine(path, parameters, check);
  if (fewer.ok()) return fewer;
  return absl::InvalidArgumentError(
      absl::StrCat(arrays.status().message(), " (the ", all.size(),
                   " persistable variables of the program, or its ", parameters.size(),
                   " parameters, sorted); --params_names says which they are"));
}

// What a training step of PyTorch begins with.
absl::StatusOr<std::map<std::string, Tensor>> ReadPyTorch(const std::string& path, FileBytes file,
                                                          const TensorCheck& check) {
  const auto values = pt2::ReadStartValues(std::move(file));
  WEFT_RETURN_IF_ERROR(Annotate(path, values.status()));
  std::map<std::string, Tensor> arrays;
  for (const auto& [name, value] : *values) {
    const absl::optional<DType> dtype = DTypeFromProto(value.meta.dtype);
    if (!dtype.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, ": element type"));
    }
    const Dims dims(value.meta.dims.begin(), value.meta.dims.end());
    WEFT_RETURN_IF_ERROR(Annotate(path, check(name, {*dtype, dims})));
    Tensor& tensor = arrays[name];
    tensor.Resize(*dtype, dims);
    std::copy(value.bytes.begin(), value.bytes.end(), static_cast<char*>(tensor.raw()));
  }
  return arrays;
}

}  // namespace

absl::StatusOr<ParamsInput> SplitParams(std::map<std::string, Tensor> arrays, Programs programs) {
  const std::vector<States> states = StatesOf(programs);
  ParamsInput input;
  for (auto& [name, tensor] : arrays) {
    const bool is_wanted = FindState(states, name) != nullptr;
    auto* const into = is_wanted ? &input.params : &input.others;
    into->emplace(name, std::move(tensor));
  }
  if (!input.params.empty() || input.others.empty()) return input;
  return absl::InvalidArgumentError(
      absl::StrCat("none of the ", input.others.size(),
                   " arrays is a persistable variable of the program; the first is ",
                   input.others.begin()->first));
}

absl::StatusOr<ParamsInput> ReadParams(const std::string& path, const std::string& names_path,
                                       Programs programs) {
  const std::vector<States> states = StatesOf(programs);
  const TensorCheck check = CheckOf(states);
  std::set<std::string> of_pdopt;
  std::map<std::string, Tensor> arrays;
  if (absl::EndsWith(path, ".pt2")) {
    absl::StatusOr<FileBytes> file = ReadFile(path);
    WEFT_RETURN_IF_ERROR(Annotate(path, file.status()));
    WEFT_ASSIGN_OR_RETURN(arrays, ReadPyTorch(path, *std::move(file), check));
  } else if (!HasNames(path) && names_path.empty()) {
    WEFT_ASSIGN_OR_RETURN(arrays, ReadUnnamed(path, states, check));
  } else {
    WEFT_ASSIGN_OR_RETURN(arrays, LoadParams(path, names_path, check, &of_pdopt));
  }
  absl::StatusOr<ParamsInput> input = SplitParams(std::move(arrays), programs);
  WEFT_RETURN_IF_ERROR(Annotate(path, input.status()));
  if (PdoptBeside(path).empty()) return input;
  for (const auto& [name, tensor] : input->others) {
    if (of_pdopt.count(name) == 0) input->others_of_pdparams.push_back(name);
  }
  return input;
}

absl::StatusOr<absl::optional<ParamsInput>> StartParamsOf(const std::string& path,
                                                          const Program& program) {
  const pt2::Import* const step = pt2::ImportOf(program);
  if (step == nullptr) return absl::nullopt;
  const std::vector<States> states = StatesOf({&program});
  WEFT_ASSIGN_OR_RETURN(auto arrays, ReadPyTorch(path, step->file, CheckOf(states)));
  absl::StatusOr<ParamsInput> input = SplitParams(std::move(arrays), {&program});
  WEFT_RETURN_IF_ERROR(Annotate(path, input.status()));
  return *std::move(input);
}

std::string OthersText(const ParamsInput& input) {
  if (input.others.empty()) return "";
  constexpr size_t kShown = 3;
  std::vector<std::string> shown;
  for (const auto& [name, tensor] : input.others) {
    if (shown.size() == kShown) {
      shown.push_back("...");
      break;
    }
    shown.push_back(name);
  }
  return absl::StrCat(input.others.size(), " of ", input.params.size() + input.others.size(),
                      " arrays are no persistable variables of the program (",
                      absl::StrJoin(shown, ", "), ")");
}

}  // namespace weft
