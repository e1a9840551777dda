#include "transpiler/passes/averaging/averaging_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/gradients.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/no_updates.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

// The ops of a startup program that initialize the states.
class Initializers {
 public:
  // `startup` may be null. O(arguments).
  explicit Initializers(const Program* startup) : startup_(startup) {
    if (startup == nullptr) return;
    for (OpId id : startup->block(0).ops()) {
      for (Symbol name : startup->op(id).output_args()) writers_[name].push_back(id);
    }
  }

  // That of one state, for use in the main program.
  absl::StatusOr<pb::OpDesc> Of(const std::string& state) const;
  // FailedPrecondition if there is none.
  absl::Status CheckHas(const std::string& param) const;

 private:
  const Program* startup_;
  absl::flat_hash_map<Symbol, std::vector<OpId>> writers_;
};

absl::StatusOr<pb::OpDesc> Initializers::Of(const std::string& state) const {
  if (startup_ == nullptr) {
    return absl::FailedPreconditionError(
        "state reset needs the startup program, which initializes the states");
  }
  const auto refuse = [&](absl::string_view found) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state ", state,
        ": expected one startup op without inputs that initializes it alone, found ", found));
  };
  const auto writers = writers_.find(startup_->FindSymbol(state));
  if (writers == writers_.end()) return refuse("none");
  if (writers->second.size() > 1) return refuse("several");
  const Op op = startup_->op(writers->second[0]);
  if (!op.input_args().empty() || op.output_args().size() != 1) return refuse(op.DebugName());
  pb::OpDesc desc = op.ToProto();
  for (pb::OpDesc::Attr& attr : *desc.mutable_attrs()) {
    if (attr.name() == kOpRoleAttr) attr.set_i(kRoleOptimize);
  }
  return desc;
}

absl::Status Initializers::CheckHas(const std::string& param) const {
  if (startup_ == nullptr) {
    return absl::FailedPreconditionError(
        "option outer needs the startup program, which initializes the state of the outer "
        "optimizer; give it");
  }
  if (writers_.contains(startup_->FindSymbol(param))) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter ", param,
      ": expected an op of the startup program that initializes it, as option outer keeps its last "
      "synchronized value; found none"));
}

class AveragingPlanner {
 public:
  AveragingPlanner(const ProgramPair& programs, const PassContext& context,
                   const AveragingChoices& choices)
      : facts_(*programs.main),
        main_(*programs.main),
        names_(programs),
        initializers_(programs.startup),
        distributed_params_(context.setting.distributed_params),
        has_groups_(!context.target.groups.empty()),
        choices_(choices) {}

  absl::StatusOr<AveragingPlan> Plan() {
    for (const ParamUpdate& update : facts_.Get(FindUpdates)) {
      if (IsDistributed(update.param)) continue;
      WEFT_RETURN_IF_ERROR(AddUpdate(update));
    }
    for (Symbol param : facts_.Get(FindManuallyUpdatedParams)) {
      if (IsDistributed(param)) continue;
      WEFT_RETURN_IF_ERROR(Synchronize(param, /*update=*/nullptr));
    }
    if (groups_.empty() && !(choices_.has_groups && has_groups_)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no op updates a replicated parameter: there is nothing to average; ", kNoUpdatesHint));
    }
    if (choices_.statistics) {
      for (Symbol symbol : facts_.Get(FindRunningStatistics)) {
        WEFT_RETURN_IF_ERROR(Average(symbol));
      }
    }
    for (auto& [key, group] : groups_) {
      if (std::get<bool>(key)) {
        plan_.outer.emplace(plan_.averaged.size(), OuterOf(group, std::get<std::string>(key)));
      }
      plan_.averaged.push_back(std::move(group));
    }
    return std::move(plan_);
  }

 private:
  // What shares a buffer: the element type, whether an outer optimizer moves it, and by which rate;
  // a number for what is alone.
  using Key = std::tuple<DType, bool, std::string, size_t>;

  bool IsDistributed(Symbol param) const {
    return distributed_params_.count(std::string(main_.name(param))) > 0;
  }

  absl::Status AddUpdate(const ParamUpdate& update) {
    WEFT_RETURN_IF_ERROR(
        Synchronize(update.master.valid() ? update.master : update.param, &update));
    if (update.master.valid()) {
      WEFT_ASSIGN_OR_RETURN(const TensorType master, TypeOf(update.master));
      WEFT_ASSIGN_OR_RETURN(const TensorType param, TypeOf(update.param));
      plan_.casts.push_back({std::string(main_.name(update.master)),
                             std::string(main_.name(update.param)), master.dtype, param.dtype});
    }
    for (Symbol state : update.states) {
      if (choices_.state == OptimizerState::kAverage) {
        WEFT_RETURN_IF_ERROR(Average(state));
      } else if (choices_.state == OptimizerState::kReset) {
        const std::string name(main_.name(state));
        WEFT_ASSIGN_OR_RETURN(pb::OpDesc op, initializers_.Of(name));
        plan_.resets.push_back({name, std::move(op)});
      }
    }
    return absl::OkStatus();
  }

  // A parameter, or its master weight, that `update` or, if null, another op updates.
  absl::Status Synchronize(Symbol symbol, const ParamUpdate* update) {
    if (!choices_.outer.HasState()) return Average(symbol);
    const std::string name(main_.name(symbol));
    std::string rate;
    if (choices_.outer.rule == OuterOptimizer::Rule::kSlowMo) {
      WEFT_ASSIGN_OR_RETURN(rate, RateOf(name, update));
    }
    const auto [known, is_new] = rate_of_.emplace(name, rate);
    if (!is_new && known->second != rate) {
      return absl::FailedPreconditionError(
          absl::StrCat("parameter ", name,
                       ": outer optimizer slowmo expects one learning rate, "
                       "found ",
                       known->second, " and ", rate));
    }
    WEFT_RETURN_IF_ERROR(initializers_.CheckHas(name));
    return Add(symbol, /*is_outer=*/true, rate);
  }

  absl::StatusOr<std::string> RateOf(const std::string& param, const ParamUpdate* update) {
    std::string found = "an update by other ops";
    if (update != nullptr) {
      const Op op = main_.op(update->op);
      found = op.DebugName();
      const absl::Span<const Symbol> rates = op.Input("LearningRate");
      const VarId rate = rates.empty() ? VarId() : main_.block(0).FindVar(rates[0]);
      if (rate.valid()) return std::string(main_.var(rate).name());
    }
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", param,
                     ": outer optimizer slowmo divides by the learning rate of the "
                     "parameter: expected an optimizer with one in the root block, found ",
                     found, "; option outer nesterov needs none"));
  }

  AveragingPlan::Outer OuterOf(const FusedTensors& tensors, const std::string& rate) {
    AveragingPlan::Outer outer;
    outer.last = outer.velocity = outer.gradient = outer.error = {tensors.dtype, {}, tensors.dims};
    const bool is_rounded = tensors.dtype == DType::kFloat32 && choices_.sent != DType::kFloat32;
    outer.sent = outer.gradient.dtype = is_rounded ? choices_.sent : tensors.dtype;
    for (const std::string& name : tensors.names) {
      outer.last.names.push_back(names_.Of(absl::StrCat(name, "_outer_param")));
      if (choices_.has_delay) {
        outer.gradient.names.push_back(names_.Of(absl::StrCat(name, "_outer_gradient")));
      }
      if (is_rounded) outer.error.names.push_back(names_.Of(absl::StrCat(name, "_outer_error")));
      if (!choices_.outer.HasMomentum()) continue;
      outer.velocity.names.push_back(names_.Of(absl::StrCat(name, "_outer_velocity")));
    }
    outer.rate = rate;
    const absl::optional<TensorType> type =
        rate.empty() ? absl::nullopt : DeclaredType(main_, main_.FindSymbol(rate));
    if (type.has_value()) outer.rate_type = type->dtype;
    return outer;
  }

  absl::Status Average(Symbol symbol) { return Add(symbol, /*is_outer=*/false, ""); }

  absl::Status Add(Symbol symbol, bool is_outer, const std::string& rate) {
    const std::string name(main_.name(symbol));
    if (!seen_.insert(name).second) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeOf(symbol));
    // PIR has no form for an op from several buffers of states.
    const bool is_alone = is_outer && main_.origin() != nullptr;
    FusedTensors& group = groups_[{type.dtype, is_outer, rate, is_alone ? seen_.size() : 0}];
    group.dtype = type.dtype;
    group.names.push_back(name);
    group.dims.push_back(type.dims);
    return absl::OkStatus();
  }

  absl::StatusOr<TensorType> TypeOf(Symbol symbol) const {
    const absl::optional<TensorType> type = DeclaredType(main_, symbol);
    if (type.has_value() && type->kind == TensorType::Kind::kDense && IsFloating(type->dtype) &&
        NumElements(type->dims) >= 0) {
      return *type;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("variable ", main_.name(symbol),
                     ": expected a dense floating-point tensor of a known shape, found ",
                     type.has_value() ? ToString(*type) : "none"));
  }

  const ProgramFacts facts_;
  const Program& main_;
  UniqueNames names_;
  const Initializers initializers_;
  const std::set<std::string>& distributed_params_;
  const bool has_groups_;
  const AveragingChoices& choices_;
  std::set<std::string> seen_;
  std::map<std::string, std::string> rate_of_;  // by name, with an outer optimizer
  std::map<Key, FusedTensors> groups_;
  AveragingPlan plan_;
};

// The fragment of each of these tensors: in order, of about equal bytes, none empty.
std::vector<int> CutByBytes(const std::vector<int64_t>& bytes, int fragments) {
  const int64_t all = std::max<int64_t>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), 1);
  std::vector<int> fragment_of;
  int64_t before = 0;
  int fragment = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    // The one in which it begins, the next one at most; in time for the tensors that are left.
    const auto left = static_cast<int>(bytes.size() - i);
    const bool begins_later = before * fragments / all > fragment;
    if (i > 0 && (begins_later || left < fragments - fragment) && fragment + 1 < fragments) {
      ++fragment;
    }
    fragment_of.push_back(fragment);
    before += bytes[i];
  }
  return fragment_of;
}

// Tensors begin to end - 1; none if there are none.
FusedTensors Range(const FusedTensors& tensors, int begin, int end) {
  if (tensors.names.empty()) return tensors;
  return {tensors.dtype,
          {tensors.names.begin() + begin, tensors.names.begin() + end},
          {tensors.dims.begin() + begin, tensors.dims.begin() + end}};
}

}  // namespace

absl::StatusOr<AveragingPlan> PlanAveraging(const ProgramPair& programs, const PassContext& context,
                                            const AveragingChoices& choices) {
  if (!choices.has_groups) WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(*programs.main, context.setting.distributed_params));
  return AveragingPlanner(programs, context, choices).Plan();
}

absl::StatusOr<std::vector<AveragingPlan>> CutIntoFragments(const AveragingPlan& plan,
                                                            int fragments) {
  if (!plan.resets.empty()) {
    return absl::FailedPreconditionError(
        "option fragments: expected states of optimizers that stay or are averaged, found option "
        "state=reset");
  }
  std::vector<int64_t> bytes;
  for (const FusedTensors& tensors : plan.averaged) {
    for (const Dims& dims : tensors.dims) {
      bytes.push_back(NumElements(dims) * static_cast<int64_t>(SizeOf(tensors.dtype)));
    }
  }
  if (bytes.size() < static_cast<size_t>(fragments)) {
    return absl::FailedPreconditionError(
        absl::StrCat("option fragments: expected at most ", bytes.size(),
                     ", one for each parameter, found ", fragments));
  }
  const std::vector<int> fragment_of = CutByBytes(bytes, fragments);
  std::vector<AveragingPlan> parts(fragments);
  std::map<std::string, int> part_of;
  auto next = fragment_of.begin();
  for (size_t group = 0; group < plan.averaged.size(); ++group) {
    const FusedTensors& tensors = plan.averaged[group];
    const auto outer = plan.outer.find(group);
    const int num_tensors = static_cast<int>(tensors.names.size());
    for (int begin = 0, end = 0; begin < num_tensors; begin = end) {
      const int fragment = *next;
      for (; end < num_tensors && *next == fragment; ++end, ++next) {
        part_of[tensors.names[end]] = fragment;
      }
      AveragingPlan& part = parts[fragment];
      if (outer != plan.outer.end()) {
        const AveragingPlan::Outer& all = outer->second;
        part.outer[part.averaged.size()] = {Range(all.last, begin, end),
                                            Range(all.velocity, begin, end),
                                            Range(all.gradient, begin, end),
                                            Range(all.error, begin, end),
                                            all.sent,
                                            all.rate,
                                            all.rate_type};
      }
      part.averaged.push_back(Range(tensors, begin, end));
    }
  }
  for (const AveragingPlan::Cast& cast : plan.casts) {
    parts[part_of.at(cast.master)].casts.push_back(cast);
  }
  return parts;
}

}  // namespace weft
