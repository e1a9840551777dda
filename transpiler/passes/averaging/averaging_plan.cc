#include "transpiler/passes/averaging/averaging_plan.h"

#include <map>
#include <set>
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

class AveragingPlanner {
 public:
  AveragingPlanner(const ProgramPair& programs, const PassContext& context,
                   const AveragingChoices& choices)
      : facts_(*programs.main),
        main_(*programs.main),
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
      WEFT_RETURN_IF_ERROR(Average(param));
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
    for (auto& [dtype, group] : groups_) plan_.averaged.push_back(std::move(group));
    return std::move(plan_);
  }

 private:
  bool IsDistributed(Symbol param) const {
    return distributed_params_.count(std::string(main_.name(param))) > 0;
  }

  absl::Status AddUpdate(const ParamUpdate& update) {
    WEFT_RETURN_IF_ERROR(Average(update.master.valid() ? update.master : update.param));
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

  absl::Status Average(Symbol symbol) {
    const std::string name(main_.name(symbol));
    if (!seen_.insert(name).second) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeOf(symbol));
    FusedTensors& group = groups_[type.dtype];
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
  const Initializers initializers_;
  const std::set<std::string>& distributed_params_;
  const bool has_groups_;
  const AveragingChoices& choices_;
  std::set<std::string> seen_;
  std::map<DType, FusedTensors> groups_;
  AveragingPlan plan_;
};

}  // namespace

absl::StatusOr<AveragingPlan> PlanAveraging(const ProgramPair& programs, const PassContext& context,
                                            const AveragingChoices& choices) {
  if (!choices.has_groups) WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(*programs.main, context.setting.distributed_params));
  return AveragingPlanner(programs, context, choices).Plan();
}

}  // namespace weft
