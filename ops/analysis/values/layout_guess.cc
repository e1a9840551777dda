#include "ops/analysis/values/layout_guess.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

struct DataVariable {
  std::string name;
  Dims dims;
};

std::vector<DataVariable> DataVariables(const Program& program) {
  const absl::flat_hash_set<VarId> data = FindData(program);
  std::vector<DataVariable> variables;
  for (const Var& var : AllVars(program)) {
    if (!data.contains(var.id())) continue;
    const absl::optional<TensorType> type = DeclaredType(var);
    variables.push_back({std::string(var.name()), type.has_value() ? type->dims : Dims()});
  }
  return variables;
}

bool HasUnknown(const Dims& dims) { return NumElements(dims) < 0; }

// Data with one unknown dimension after larger ones has time first: [T, -1, features]. After ones
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

// Sequences that a recurrent layer takes as [time, batch, ...].
class TimeMajorFinder {
 public:
  // `open`: data of which dimension 1 may be the batch, although that is not its layout so far.
  TimeMajorFinder(const Program& program, std::vector<std::string> open, FeedLayouts* layouts)
      : program_(program), open_(std::move(open)), layouts_(*layouts) {}

  void Run() {
    if (open_.empty()) return;
    FindSequences();
    if (!sequences_.empty()) TurnSequences();
    // What goes with them: labels, first states.
    for (const std::string& name : open_) together_.push_back({name});
    std::vector<std::string> whole;  // first states
    absl::c_copy_if(open_, std::back_inserter(whole),
                    [&](const std::string& name) { return !layouts_[name].axis.has_value(); });
    if (whole.size() > 1) together_.push_back(std::move(whole));
    size_t lost = NumUnrelated(Walk());
    for (bool has_changed = true; has_changed && lost > 0;) {
      has_changed = false;
      for (const std::vector<std::string>& names : together_) {
        const FeedLayouts before = layouts_;
        Turn(names);
        const size_t now = NumUnrelated(Walk());
        if (now >= lost) layouts_ = before;
        has_changed = has_changed || now < lost;
        lost = std::min(lost, now);
      }
    }
  }

 private:
  void FindSequences() {
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      if (IsBackward(op) || IsOptimize(op)) continue;
      for (Symbol name : op.output_args()) {
        const VarId var = program_.block(0).FindVar(name);
        const bool is_state = var.valid() && program_.var(var).persistable();
        if (var.valid() && !is_state) writers_.try_emplace(var, id);
      }
      const absl::string_view slot = TimeMajorSlot(op.type());
      if (slot.empty()) continue;
      for (Symbol name : op.Input(slot)) {
        const VarId var = program_.block(0).FindVar(name);
        if (var.valid()) sequences_.push_back(var);
      }
      std::vector<std::string> states;
      for (Symbol name : op.input_args()) {
        const std::string input(program_.name(name));
        const bool is_sequence = absl::c_linear_search(op.Input(slot), name);
        if (!is_sequence && absl::c_linear_search(open_, input)) states.push_back(input);
      }
      if (states.size() > 1) together_.push_back(std::move(states));
    }
  }

  // Splits them along dimension 1, or along 0 if they are already.
  void Turn(const std::vector<std::string>& names) {
    const bool are_turned =
        absl::c_all_of(names, [&](const std::string& name) { return layouts_[name].axis == 1; });
    for (const std::string& name : names) layouts_[name].axis = are_turned ? 0 : 1;
  }

  // Splits the data of which layers would get parts of all times along dimension 1.
  void TurnSequences() {
    const FeedLayouts before = layouts_;
    const BatchFlow flow = Walk();
    std::vector<VarId> wrong;
    for (VarId sequence : sequences_) {
      if (flow.AtEnd(sequence).relation == BatchRelation::Sharded(0)) wrong.push_back(sequence);
    }
    for (const std::string& name : SourcesOf(wrong)) layouts_[name].axis = 1;
    const BatchFlow turned = Walk();
    const bool are_right = absl::c_all_of(wrong, [&](VarId sequence) {
      return turned.AtEnd(sequence).relation == BatchRelation::Sharded(1);
    });
    if (!are_right) layouts_ = before;
  }

  BatchFlow Walk() const {
    BatchFlowOptions options;
    options.setting.feeds = layouts_;
    options.extent = BatchFlowOptions::Extent::kOneStep;
    return BatchFlow::Of(program_, options);
  }

  size_t NumUnrelated(const BatchFlow& flow) const {
    size_t count = 0;
    for (size_t i = 0; i < program_.var_id_limit(); ++i) {
      count += flow.AtEnd(VarId(static_cast<uint32_t>(i))).relation.IsUnrelated() ? 1 : 0;
    }
    return count;
  }

  // The open data that is split along dimension 0, and from which the variables are computed.
  std::vector<std::string> SourcesOf(std::vector<VarId> variables) const {
    absl::flat_hash_set<VarId> seen(variables.begin(), variables.end());
    std::vector<std::string> sources;
    while (!variables.empty()) {
      const VarId var = variables.back();
      variables.pop_back();
      const std::string name(program_.var(var).name());
      const bool is_open = absl::c_linear_search(open_, name);
      if (is_open && layouts_[name].axis == 0) sources.push_back(name);
      const auto writer = writers_.find(var);
      if (writer == writers_.end()) continue;
      for (Symbol in : program_.op(writer->second).input_args()) {
        const VarId read = program_.block(0).FindVar(in);
        if (read.valid() && seen.insert(read).second) variables.push_back(read);
      }
    }
    return sources;
  }

  const Program& program_;
  const std::vector<std::string> open_;
  FeedLayouts& layouts_;
  std::vector<VarId> sequences_;
  // What is turned at once: the first states of a layer, and each variable alone.
  std::vector<std::vector<std::string>> together_;
  absl::flat_hash_map<VarId, OpId> writers_;  // the first of each
};

}  // namespace

absl::StatusOr<FeedLayouts> FeedLayoutsOf(absl::Span<const Program* const> ranks,
                                          const FeedLayouts& given, const FeedLayouts& of_file) {
  FeedLayouts layouts, unknown = given;
  for (const Program* program : ranks) {
    FeedLayouts of_program;
    for (const DataVariable& variable : DataVariables(*program)) {
      for (const FeedLayouts* said : {&given, &of_file}) {
        const auto found = said->find(variable.name);
        if (found != said->end()) of_program.insert(*found);
      }
      unknown.erase(variable.name);
    }
    WEFT_ASSIGN_OR_RETURN(FeedLayouts own, FeedLayoutsOf(*program, of_program));
    layouts.merge(own);
  }
  // Reports the first.
  if (!unknown.empty()) return FeedLayoutsOf(*ranks[0], unknown);
  return layouts;
}

absl::StatusOr<FeedLayouts> FeedLayoutsOf(const Program& program, const FeedLayouts& given) {
  FeedLayouts layouts;
  const std::vector<DataVariable> variables = DataVariables(program);
  bool all_fixed = true;
  for (const DataVariable& variable : variables) all_fixed &= !HasUnknown(variable.dims);
  std::vector<std::string> open;
  for (const auto& [name, dims] : variables) {
    layouts[name] = GuessOf(dims, all_fixed);
    const auto found = given.find(name);
    if (found == given.end()) {
      const bool is_open = dims.size() > 1 && dims[1] == -1 && layouts[name].axis.value_or(0) == 0;
      if (is_open) open.push_back(name);
      continue;
    }
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
  TimeMajorFinder(program, std::move(open), &layouts).Run();
  return layouts;
}

}  // namespace weft
