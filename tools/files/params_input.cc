#include "tools/files/params_input.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/files/params_file.h"
#include "executor/plan/run_checks.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

using Programs = absl::Span<const Program* const>;

// The first program with a persistable variable of that name; null: none.
const Program* FindPersistable(Programs programs, const std::string& name) {
  for (const Program* program : programs) {
    const VarId id = program->block(0).FindVar(name);
    if (id.valid() && program->var(id).persistable()) return program;
  }
  return nullptr;
}

// The variables that Paddle's save_vars writes, sorted as it sorts them.
std::vector<std::string> SavedNames(Programs programs, bool parameters_only) {
  std::set<std::string> names;
  for (const Program* program : programs) {
    for (const Var& var : AllVars(*program)) {
      if (!var.persistable() || var.type() != pb::VarType::LOD_TENSOR) continue;
      if (!parameters_only || var.is_parameter()) names.insert(std::string(var.name()));
    }
  }
  return {names.begin(), names.end()};
}

// A save_combine stream has no names; the program says which variables Paddle would have written.
absl::StatusOr<std::map<std::string, Tensor>> ReadUnnamed(const std::string& path,
                                                          Programs programs,
                                                          const TensorCheck& check) {
  const std::vector<std::string> all = SavedNames(programs, /*parameters_only=*/false);
  const std::vector<std::string> parameters = SavedNames(programs, /*parameters_only=*/true);
  absl::StatusOr<std::map<std::string, Tensor>> arrays = ReadSaveCombine(path, all, check);
  if (arrays.ok() || absl::IsNotFound(arrays.status())) return arrays;
  absl::StatusOr<std::map<std::string, Tensor>> fewer = ReadSaveCombine(path, parameters, check);
  if (fewer.ok()) return fewer;
  return absl::InvalidArgumentError(
      absl::StrCat(arrays.status().message(), " (the ", all.size(),
                   " persistable variables of the program, or its ", parameters.size(),
                   " parameters, sorted); --params_names says which they are"));
}

}  // namespace

absl::StatusOr<ParamsInput> SplitParams(std::map<std::string, Tensor> arrays, Programs programs) {
  ParamsInput input;
  for (auto& [name, tensor] : arrays) {
    const bool is_wanted = FindPersistable(programs, name) != nullptr;
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
  const TensorCheck check = [programs](const std::string& name, const TensorType& type) {
    const Program* const program = FindPersistable(programs, name);
    return program != nullptr ? CheckParam(*program, name, type) : absl::OkStatus();
  };
  const bool is_unnamed = !HasNames(path) && names_path.empty();
  std::set<std::string> of_pdopt;
  WEFT_ASSIGN_OR_RETURN(auto arrays, is_unnamed ? ReadUnnamed(path, programs, check)
                                                : LoadParams(path, names_path, check, &of_pdopt));
  absl::StatusOr<ParamsInput> input = SplitParams(std::move(arrays), programs);
  WEFT_RETURN_IF_ERROR(Annotate(path, input.status()));
  if (PdoptBeside(path).empty()) return input;
  for (const auto& [name, tensor] : input->others) {
    if (of_pdopt.count(name) == 0) input->others_of_pdparams.push_back(name);
  }
  return input;
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
