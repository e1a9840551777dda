#include "transpiler/passes/servers/served_parameters.h"

#include <functional>
#include <map>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"
#include "ops/schema/beta_powers.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

constexpr char kLearningRate[] = "LearningRate";

class ServedFinder {
 public:
  ServedFinder(const Program& program, const ParamAttrsByName& attrs) : program_(program) {
    for (const auto& [name, attr] : attrs) {
      if (attr.parameter_server) given_.insert(name);
    }
  }

  absl::StatusOr<std::vector<ServedParameter>> Find() {
    if (!given_.empty()) WEFT_RETURN_IF_ERROR(FindOpsOfUpdates());
    for (const ParamUpdate& update : FindUpdates(program_)) {
      if (given_.count(program_.name(update.param)) > 0) WEFT_RETURN_IF_ERROR(Add(update));
    }
    for (const std::string& name : given_) {
      if (of_param_.count(program_.FindSymbol(name)) > 0) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "parameter ", name, ": expected an optimizer that servers can run, found none"));
    }
    WEFT_RETURN_IF_ERROR(FindUses());
    return std::move(found_);
  }

 private:
  std::string Name(Symbol symbol) const { return std::string(program_.name(symbol)); }

  absl::Status Refuse(const Op& op, Symbol variable, absl::string_view expected) const {
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), ": variable ", Name(variable), ": ", expected));
  }

  absl::StatusOr<TensorType> TypeOf(const Op& op, Symbol variable) const {
    const absl::optional<TensorType> type = DeclaredType(program_, variable);
    if (type.has_value() && !absl::c_linear_search(type->dims, -1)) return *type;
    return Refuse(op, variable, "expected a tensor of known dimensions, as servers hold it");
  }

  absl::Status Add(const ParamUpdate& update) {
    const Op op = program_.op(update.op);
    if (op.block() != 0) {
      return Refuse(op, update.param,
                    "expected an update in the root block, which all workers run in every step");
    }
    if (op.Input("Param").size() != 1) {
      return Refuse(op, update.param, "expected an op that updates this parameter alone");
    }
    if (!of_param_.emplace(update.param, found_.size()).second) {
      return Refuse(op, update.param, "expected one optimizer, found another one, too");
    }
    of_update_.emplace(update.op, found_.size());
    ServedParameter served;
    served.param = update.param;
    served.update = update.op;
    WEFT_ASSIGN_OR_RETURN(served.type, TypeOf(op, update.param));
    if (op.Input("Grad").size() != 1) return Refuse(op, update.param, "expected a gradient");
    served.grad = op.Input("Grad")[0];
    AddOutputs(op, &served);
    AddOpsBefore(&served);
    WEFT_ASSIGN_OR_RETURN(const TensorType grad, TypeOf(op, served.grad));
    served.grad_is_sparse = grad.kind == TensorType::Kind::kSelectedRows;
    for (const auto* own : {&served.states, &served.temporaries}) {
      for (Symbol variable : *own) {
        if (owner_.emplace(variable, update.op).second) continue;
        return Refuse(op, variable, "expected state of one optimizer, found the state of two");
      }
    }
    owner_.emplace(served.param, update.op);
    for (OpId id : served.before_update) AddInputs(program_.op(id), &served);
    AddInputs(op, &served);
    found_.push_back(std::move(served));
    return absl::OkStatus();
  }

  // All that the update itself writes is state.
  void AddOutputs(const Op& op, ServedParameter* served) const {
    for (const OpSignature::Slot& slot : op.signature().outputs) {
      for (Symbol out : op.args(slot)) {
        if (LeavesBetaPower(op, out)) continue;
        const bool is_state = op.id() == served->update || IsKept(out);
        std::vector<Symbol>& own = is_state ? served->states : served->temporaries;
        const bool is_new = out != served->param && out != served->grad &&
                            program_.name(out) != kEmptyVarName && !absl::c_linear_search(own, out);
        if (is_new) own.push_back(out);
      }
    }
  }

  void AddInputs(const Op& op, ServedParameter* served) const {
    for (const OpSignature::Slot& slot : op.signature().inputs) {
      for (Symbol in : op.args(slot)) {
        const auto is_in = [in](const auto& other) { return other.second == in; };
        const bool is_known = in == served->param || in == served->grad ||
                              absl::c_linear_search(served->states, in) ||
                              absl::c_linear_search(served->temporaries, in) ||
                              absl::c_any_of(served->others, is_in) ||
                              program_.name(in) == kEmptyVarName;
        if (is_known) continue;
        if (program_.name(slot.name) == kLearningRate && !served->learning_rate.valid()) {
          served->learning_rate = in;
        } else {
          served->others.emplace_back(program_.name(slot.name), in);
        }
      }
    }
  }

  // If ops before the update keep state, or read its state, servers run all of them: on workers,
  // the state would differ from rank to rank.
  void AddOpsBefore(ServedParameter* served) {
    const auto ops = ops_of_updates_.find(program_.name(served->param));
    if (ops == ops_of_updates_.end()) return;
    std::vector<OpId> before;
    for (OpId id : ops->second.ops) {
      if (program_.op(id).position() < program_.op(served->update).position()) before.push_back(id);
    }
    const bool keep_state = absl::c_any_of(before, [&](OpId id) {
      const Op op = program_.op(id);
      return absl::c_any_of(op.output_args(), [this](Symbol s) { return IsKept(s); }) ||
             absl::c_any_of(op.input_args(),
                            [&](Symbol s) { return absl::c_linear_search(served->states, s); });
    });
    if (!keep_state || !ops->second.grad.valid()) return;
    served->grad = ops->second.grad;
    for (OpId id : before) {
      AddOutputs(program_.op(id), served);
      part_of_.emplace(id, served->update);
    }
    served->before_update = std::move(before);
  }

  bool IsKept(Symbol variable) const {
    const VarId id = program_.block(0).Resolve(variable);
    return id.valid() && program_.var(id).persistable();
  }

  // The ops of role optimize that name a parameter in op_role_var, and are no updates themselves.
  absl::Status FindOpsOfUpdates() {
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      if (!op.has_role_vars() || !IsOptimize(op) || op.Input("Param").size() > 0) continue;
      WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
      if (pairs.size() != 1) continue;
      OpsOfUpdate& of = ops_of_updates_[pairs[0].param];
      of.ops.push_back(id);
      of.grad = program_.FindSymbol(pairs[0].grad);
    }
    return absl::OkStatus();
  }

  // Visits the variables of an op and of the ops of its blocks.
  template <typename Visit>
  void ForEachArg(const Op& op, const Visit& visit) const {
    for (size_t i = 0; i < op.args().size(); ++i) {
      visit(op.args()[i], /*is_output=*/i >= op.signature().num_input_args);
    }
    for (int block : op.SubBlocks()) {
      for (OpId id : program_.block(block).ops()) ForEachArg(program_.op(id), visit);
    }
  }

  absl::Status FindUses() {
    std::vector<bool> only_lookups(found_.size(), true);
    std::vector<bool> is_updated(found_.size(), false);
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      absl::Status status;
      std::vector<size_t> uses;
      const auto part_of = part_of_.find(id);
      const OpId self = part_of != part_of_.end() ? part_of->second : id;
      ForEachArg(op, [&](Symbol variable, bool is_output) {
        const auto owner = owner_.find(variable);
        if (owner == owner_.end() || owner->second == self || !status.ok()) return;
        const auto param = of_param_.find(variable);
        if (param == of_param_.end()) {
          status = Refuse(op, variable,
                          absl::StrCat("expected an optimizer's state that only ",
                                       program_.op(owner->second).DebugName(), " uses"));
        } else if (is_output) {
          status = Refuse(op, variable, "expected a parameter that only its optimizer writes");
        } else if (is_updated[param->second]) {
          status = Refuse(op, variable,
                          "expected no use after the update, whose result workers get in the next "
                          "step");
        } else {
          uses.push_back(param->second);
        }
      });
      WEFT_RETURN_IF_ERROR(status);
      for (size_t use : uses) {
        if (!AddUse(op, &found_[use])) only_lookups[use] = false;
      }
      const auto updated = of_update_.find(id);
      if (updated != of_update_.end()) is_updated[updated->second] = true;
    }
    for (size_t i = 0; i < found_.size(); ++i) {
      if (only_lookups[i] && CanBeCut(found_[i])) continue;
      found_[i].lookups.clear();
      found_[i].lookup_grads.clear();
    }
    return absl::OkStatus();
  }

  // Whether servers can update some rows alone, and send them alone.
  bool CanBeCut(const ServedParameter& served) const {
    return served.grad_is_sparse && served.type.dims.size() == 2 && served.type.dims[0] > 1 &&
           served.before_update.empty() &&
           HasTrait(program_.op(served.update), Trait::kElementwise);
  }

  // Whether the use needs some rows alone.
  static bool AddUse(const Op& op, ServedParameter* served) {
    if (!served->first_use.valid()) served->first_use = op.id();
    const auto is_of = [&](absl::string_view suffix) {
      return op.type() == absl::StrCat(kLookupOfIds, suffix) ||
             op.type() == absl::StrCat(kLookupOfColumns, suffix);
    };
    if (is_of("")) {
      served->lookups.push_back(op.id());
      return true;
    }
    if (!is_of(kGradOpSuffix) || !op.BoolAttr("is_sparse").value_or(false)) return false;
    served->lookup_grads.push_back(op.id());
    return true;
  }

  struct OpsOfUpdate {
    std::vector<OpId> ops;
    Symbol grad;
  };

  const Program& program_;
  std::set<std::string, std::less<>> given_;
  std::map<std::string, OpsOfUpdate, std::less<>> ops_of_updates_;  // by parameter
  std::map<OpId, OpId> part_of_;  // ServedParameter::before_update
  std::vector<ServedParameter> found_;
  std::map<Symbol, size_t> of_param_;  // into found_
  std::map<OpId, size_t> of_update_;   // the same
  std::map<Symbol, OpId> owner_;       // of parameters and states: the update
};

}  // namespace

absl::StatusOr<std::vector<ServedParameter>> FindServedParameters(const Program& program,
                                                                  const ParamAttrsByName& attrs) {
  return ServedFinder(program, attrs).Find();
}

}  // namespace weft
