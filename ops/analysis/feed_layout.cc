#include "ops/analysis/feed_layout.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

struct DataVariable {
  std::string name;
  Dims dims;
};

std::vector<DataVariable> DataVariables(const Program& program) {
  const absl::flat_hash_set<VarId> data = FindData(program);
  std::vector<DataVariable> variables;
  for (VarId id : program.block(0).vars()) {
    if (!data.contains(id)) continue;
    const Var var = program.var(id);
    const absl::optional<TensorType> type = DeclaredType(var);
    variables.push_back({std::string(var.name()), type.has_value() ? type->dims : Dims()});
  }
  return variables;
}

bool HasUnknown(const Dims& dims) { return NumElements(dims) < 0; }

// Data with one unknown dimension behind larger ones has time first: [T, -1, features]. Behind ones
// only, it may be a row for all samples: [1, -1].
FeedLayout GuessOf(const Dims& dims, bool all_fixed) {
  if (dims.empty()) return FeedLayout::Whole();
  if (dims[0] == -1 || (all_fixed && dims[0] > 1)) return FeedLayout();
  const auto unknown = std::find(dims.begin(), dims.end(), -1);
  const bool has_one =
      unknown != dims.end() && std::find(unknown + 1, dims.end(), -1) == dims.end();
  const bool is_behind = std::any_of(dims.begin(), unknown, [](int64_t d) { return d > 1; });
  if (!has_one || !is_behind) return FeedLayout::Whole();
  FeedLayout layout;
  layout.axis = static_cast<int>(unknown - dims.begin());
  return layout;
}

}  // namespace

absl::flat_hash_set<VarId> FindData(const Program& program) {
  absl::flat_hash_set<VarId> data;
  const Block& root = program.block(0);
  for (VarId id : root.vars()) {
    if (program.var(id).need_check_feed()) data.insert(id);
  }
  for (OpId id : root.ops()) {
    const Op op = program.op(id);
    if (!IsFeed(op.type())) continue;
    for (Symbol name : op.output_args()) {
      const VarId var = root.FindVar(name);
      if (var.valid()) data.insert(var);
    }
  }
  if (!data.empty()) return data;
  // A program that says nothing of data reads it.
  absl::flat_hash_set<Symbol> written;
  for (OpId id : root.ops()) {
    const Op op = program.op(id);
    for (Symbol name : op.input_args()) {
      const VarId var = root.FindVar(name);
      if (!var.valid() || written.contains(name) || program.var(var).persistable()) continue;
      if (program.var(var).type() == pb::VarType::LOD_TENSOR) data.insert(var);
    }
    written.insert(op.output_args().begin(), op.output_args().end());
  }
  return data;
}

std::string ToString(const FeedLayout& layout) {
  return layout.axis.has_value() ? absl::StrCat("axis:", *layout.axis) : "whole";
}

absl::StatusOr<FeedLayouts> ParseFeedLayouts(absl::string_view text) {
  FeedLayouts layouts;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    // The last '=': names of variables may hold others.
    const size_t equals = entry.rfind('=');
    absl::string_view value = equals == absl::string_view::npos ? "" : entry.substr(equals + 1);
    FeedLayout layout = FeedLayout::Whole();
    int axis = 0;
    if (absl::ConsumePrefix(&value, "axis:") && absl::SimpleAtoi(value, &axis) && axis >= 0) {
      layout.axis = axis;
    } else if (value != "whole") {
      return absl::InvalidArgumentError(
          absl::StrCat("feed layout: expected VARIABLE=whole or VARIABLE=axis:N, found ", entry));
    }
    const std::string name(entry.substr(0, equals));
    if (!layouts.emplace(name, layout).second) {
      return absl::InvalidArgumentError(absl::StrCat("feed layout: ", name, " is named twice"));
    }
  }
  return layouts;
}

absl::StatusOr<FeedLayouts> FeedLayoutsOf(const Program& program, const FeedLayouts& given) {
  FeedLayouts layouts;
  const std::vector<DataVariable> variables = DataVariables(program);
  bool all_fixed = true;
  for (const DataVariable& variable : variables) all_fixed &= !HasUnknown(variable.dims);
  for (const auto& [name, dims] : variables) {
    layouts[name] = GuessOf(dims, all_fixed);
    const auto found = given.find(name);
    if (found == given.end()) continue;
    if (found->second.axis.has_value() && *found->second.axis >= static_cast<int>(dims.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("feed layout: ", name, " has dimensions ", DimsToString(dims),
                       ", expected an axis below ", dims.size(), ", found ", *found->second.axis));
    }
    layouts[name] = found->second;
  }
  for (const auto& [name, layout] : given) {
    if (layouts.count(name) > 0) continue;
    std::vector<std::string> names;
    for (const DataVariable& variable : variables) names.push_back(variable.name);
    return absl::InvalidArgumentError(
        absl::StrCat("feed layout: ", name, " is no data variable of the program, which has: ",
                     names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  return layouts;
}

}  // namespace weft
