#include "transpiler/passes/updates/set_optimizer.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/updates/existing_updates.h"
#include "transpiler/passes/updates/optimizer_writer.h"

namespace weft {
namespace {

// Marks the ops that the pass writes.
constexpr char kScopeAttr[] = "op_namescope";

std::string ScopeOf(const OptimizerSettings& settings) {
  return absl::StrCat("/", SetOptimizer::kName, ToString(settings));
}
bool IsWrittenBySetOptimizer(const Op& op) {
  return absl::StartsWith(op.StringAttr(kScopeAttr).value_or(""),
                          absl::StrCat("/", SetOptimizer::kName, "{"));
}

// The updates of a program that has none, in the order of the gradients.
absl::StatusOr<std::vector<OldUpdate>> UpdatesToAdd(const Program& program) {
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis, AnalyzeGradients(program, {}));
  if (!analysis.unclear.empty()) {
    const SkippedGradient& unclear = analysis.unclear.front();
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", program.name(unclear.grad),
                     " is accumulated over several steps, and no op updates by it: expected update "
                     "ops to replace; ",
                     unclear.why));
  }
  std::vector<OldUpdate> updates;
  std::map<Symbol, size_t> index;  // of parameters
  for (const Gradient& gradient : analysis.gradients) {
    const auto [at, is_new] = index.emplace(gradient.param, updates.size());
    if (is_new) {
      updates.push_back({OpId(), gradient.param, gradient.grad, Symbol()});
    } else if (updates[at->second].grad != gradient.grad) {
      return absl::FailedPreconditionError(absl::StrCat(
          "parameter ", program.name(gradient.param), ": expected one gradient, found ",
          program.name(updates[at->second].grad), " and ", program.name(gradient.grad)));
    }
  }
  for (const Op& op : BlockOps(program, 0)) {
    if (!op.has_role_vars() || !IsOptimize(op)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
    for (const ParamGrad& pair : pairs) {
      const auto at = index.find(program.FindSymbol(pair.param));
      const Symbol grad = program.FindSymbol(pair.grad);
      if (at != index.end() && grad.valid()) updates[at->second].grad = grad;
    }
  }
  return updates;
}

// The updates, and where they stand.
struct Site {
  std::vector<OldUpdate> updates;
  bool replaces = false;  // else the updates are new, and have no ops
  int block = 0;
  OpId owner;    // the op that runs the block; invalid: it is the root block
  OpId last_op;  // new updates come after it; invalid: at the end of the block
};

absl::Status FindOwner(const Program& program, Site* site) {
  site->block = program.op(site->updates.front().op).block();
  for (const OldUpdate& update : site->updates) {
    const Op op = program.op(update.op);
    if (op.block() == site->block) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), " updates ", program.name(update.param),
                     ": expected all updates in the block of ",
                     program.op(site->updates.front().op).DebugName()));
  }
  if (site->block == 0) return absl::OkStatus();
  OpTraits traits(program);
  for (const Op& op : BlockOps(program, 0)) {
    if (!absl::c_linear_search(op.SubBlocks(), site->block)) continue;
    if (!traits.Has(op, Trait::kBranch)) break;
    site->owner = op.id();
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(program.op(site->updates.front().op).DebugName(),
                   ": expected updates in the root block, or in one that a branch of the root "
                   "block runs"));
}

absl::StatusOr<Site> FindSite(const Program& program) {
  Site site;
  WEFT_ASSIGN_OR_RETURN(site.updates, FindOldUpdates(program, IsWrittenBySetOptimizer));
  site.replaces = !site.updates.empty();
  if (site.replaces) {
    WEFT_RETURN_IF_ERROR(FindOwner(program, &site));
    return site;
  }
  WEFT_ASSIGN_OR_RETURN(site.updates, UpdatesToAdd(program));
  if (site.updates.empty()) {
    return absl::FailedPreconditionError(
        "nothing to update: the program has no update ops, and no op of backward role names pairs "
        "of parameter and gradient in op_role_var");
  }
  for (OpId id : program.block(0).ops()) {
    if (IsBackward(program.op(id)) || IsOptimize(program.op(id))) site.last_op = id;
  }
  return site;
}

absl::Status CheckSkip(const Program& program, const OldUpdate& update,
                       const OptimizerSettings& settings) {
  if (!update.skip.valid() || OptimizerWriter::CanSkip(settings)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      program.op(update.op).DebugName(), " input SkipUpdate: ", program.name(update.skip),
      " says whether ", program.name(update.param),
      " is updated; expected type adam or adamw, which can skip updates, found settings ",
      ToString(settings)));
}

// "op 17 (adam): parameter w", or without the op where there is none.
std::string ParamOf(const Program& program, const OldUpdate& update) {
  return absl::StrCat(
      update.op.valid() ? absl::StrCat(program.op(update.op).DebugName(), ": ") : "", "parameter ",
      program.name(update.param));
}

// What the writer writes for an update.
absl::StatusOr<NewUpdate> Plan(const Program& program, int block, const OldUpdate& update,
                               const OptimizerSettings& settings) {
  const std::string param(program.name(update.param)), grad(program.name(update.grad));
  const absl::optional<TensorType> type = DeclaredType(program, update.param, block);
  const absl::optional<TensorType> grad_type = DeclaredType(program, update.grad, block);
  // A master weight would keep what the parameter loses.
  const bool has_master =
      update.op.valid() && program.op(update.op).Input("MasterParam").size() > 0;
  if (!type.has_value() || type->kind != TensorType::Kind::kDense ||
      !OptimizerWriter::Supports(settings, type->dtype) || has_master ||
      NumElements(type->dims) < 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        ParamOf(program, update), ": expected an fp32 tensor of known dimensions",
        OptimizerWriter::Supports(settings, DType::kFloat16) ? ", or an fp16 one" : "", ", found ",
        type.has_value() ? ToString(*type) : "none", has_master ? " with a master weight" : ""));
  }
  const auto is_dim = [](int64_t found, int64_t known) { return found == known || found < 0; };
  if (!grad_type.has_value() || grad_type->dtype != type->dtype ||
      !absl::c_equal(grad_type->dims, type->dims, is_dim)) {
    return absl::FailedPreconditionError(
        absl::StrCat(ParamOf(program, update), ", gradient ", grad, ": expected ", ToString(*type),
                     ", found ", grad_type.has_value() ? ToString(*grad_type) : "none"));
  }
  const bool has_rows = grad_type->kind != TensorType::Kind::kDense;
  NewUpdate planned{param, grad, type->dtype, type->dims, has_rows, ""};
  if (update.skip.valid()) planned.skip = std::string(program.name(update.skip));
  return planned;
}

// A second update beside that by other ops would be wrong.
absl::Status CheckNoOtherUpdates(const Program& program, const Site& site) {
  if (site.replaces) return absl::OkStatus();
  const std::vector<Symbol> others = FindManuallyUpdatedParams(program);
  for (const OldUpdate& update : site.updates) {
    if (!absl::c_linear_search(others, update.param)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", program.name(update.param),
                     " is updated by ops that are no optimizers: expected update ops to replace, "
                     "or none"));
  }
  return absl::OkStatus();
}

using Names = absl::flat_hash_set<std::string>;

// Removes `gone` from the slots of an op that runs a block, and adds `more`.
void EditSlots(const Names& gone, const std::vector<std::string>& more, const std::string& slot,
               google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* slots) {
  for (pb::OpDesc::Var& var : *slots) {
    std::vector<std::string> args;
    for (const std::string& arg : var.arguments()) {
      if (!gone.contains(arg)) args.push_back(arg);
    }
    if (var.parameter() == slot) args.insert(args.end(), more.begin(), more.end());
    var.clear_arguments();
    for (std::string& arg : args) *var.add_arguments() = std::move(arg);
  }
}

// Erases the variables of these names where only ops that write nothing else name them, and these
// ops.
void EraseFromStartup(const Program& startup, const Names& gone, Rewriter* rewriter) {
  Names kept;
  for (const Op& op : AllOps(startup)) {
    const bool goes =
        !op.output_args().empty() && absl::c_all_of(op.output_args(), [&](Symbol symbol) {
          return gone.contains(std::string(startup.name(symbol)));
        });
    if (goes) {
      rewriter->Erase(op.id());
      continue;
    }
    for (Symbol symbol : op.args()) kept.emplace(startup.name(symbol));
  }
  for (VarId id : startup.block(0).vars()) {
    const std::string name(startup.var(id).name());
    if (gone.contains(name) && !kept.contains(name)) rewriter->EraseVar(id);
  }
}

class Replacement {
 public:
  Replacement(const OptimizerSettings& settings, const Site& site, const PassContext* context,
              ProgramPair* programs)
      : settings_(settings),
        site_(site),
        context_(*context),
        programs_(*programs),
        main_(*programs->main),
        edits_(*programs),
        writer_(settings, ScopeOf(settings), site.block, &edits_) {}

  absl::StatusOr<bool> Run() {
    std::vector<NewUpdate> planned;
    for (const OldUpdate& update : site_.updates) {
      WEFT_RETURN_IF_ERROR(CheckSkip(main_, update, settings_));
      WEFT_ASSIGN_OR_RETURN(NewUpdate plan, Plan(main_, site_.block, update, settings_));
      planned.push_back(std::move(plan));
    }
    writer_.WriteSchedules(EmitAt(site_.updates.front().op));
    for (size_t i = 0; i < planned.size(); ++i) {
      writer_.WriteUpdate(planned[i], EmitAt(site_.updates[i].op));
      Explain(planned[i], site_.updates[i]);
    }
    writer_.WriteStep(EmitAt(site_.updates.back().op));
    EraseLeftovers();
    return edits_.Commit();
  }

 private:
  // Before the op of an old update, which is erased.
  OptimizerWriter::Emit EmitAt(OpId old) {
    return [this, old](const pb::OpDesc& op) {
      if (!old.valid() && site_.last_op.valid()) return edits_.main.InsertAfter(site_.last_op, op);
      edits_.InsertBefore(old, op);
    };
  }

  void EraseLeftovers() {
    if (!site_.replaces) return;
    std::vector<Symbol> kept;
    for (const OldUpdate& update : site_.updates) {
      kept.push_back(update.param);
      kept.push_back(update.grad);
      if (update.skip.valid()) kept.push_back(update.skip);
    }
    const Leftovers leftovers = FindLeftovers(main_, site_.updates, kept);
    for (OpId op : leftovers.ops) edits_.main.Erase(op);
    Names gone;
    for (VarId id : leftovers.vars) {
      edits_.main.EraseVar(id);
      if (main_.var(id).block() == 0) gone.emplace(main_.var(id).name());
    }
    EditOwners(leftovers, gone);
    EraseFromStartup(*programs_.startup, gone, &*edits_.startup);
  }

  // The ops that run blocks list the variables that the ops of these access.
  void EditOwners(const Leftovers& leftovers, const Names& gone) {
    std::vector<OpId> owners = leftovers.owners;
    if (site_.owner.valid() && !absl::c_linear_search(owners, site_.owner)) {
      owners.push_back(site_.owner);
    }
    for (OpId id : owners) {
      const bool runs_updates = id == site_.owner;
      pb::OpDesc op = main_.op(id).ToProto();
      EditSlots(gone, runs_updates ? writer_.reads() : Nothing(), "Input", op.mutable_inputs());
      EditSlots(gone, runs_updates ? writer_.writes() : Nothing(), "Out", op.mutable_outputs());
      edits_.main.Replace(id, op);
    }
  }
  static const std::vector<std::string>& Nothing() {
    static const auto* const nothing = new std::vector<std::string>;
    return *nothing;
  }

  void Explain(const NewUpdate& update, const OldUpdate& old) {
    if (context_.sink.remarks == nullptr) return;
    std::vector<std::pair<std::string, std::string>> details = {{"gradient", update.grad}};
    if (old.op.valid()) details.push_back({"in place of", main_.op(old.op).DebugName()});
    context_.sink.Explain(SetOptimizer::kName, update.param, site_.replaces ? "replaced" : "added",
                          absl::StrCat("set to ", ToString(settings_)), std::move(details));
  }

  const OptimizerSettings& settings_;
  const Site& site_;
  const PassContext& context_;
  ProgramPair& programs_;
  const Program& main_;
  ProgramEdits edits_;
  OptimizerWriter writer_;
};

bool IsSetAlready(const Program& program, const Site& site, const OptimizerSettings& settings) {
  return site.replaces && absl::c_all_of(site.updates, [&](const OldUpdate& update) {
           return program.op(update.op).StringAttr(kScopeAttr) == ScopeOf(settings);
         });
}

}  // namespace

Contract SetOptimizer::contract() const {
  // It runs first, so that the result of later passes can be compared with its own.
  return Contract()
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kParametersAveraged)
      .ConflictsWith(kLossGradientScaled)
      .ConflictsWith(kGradientsAccumulated)
      .ConflictsWith(kRingsSetUp);
}

Claims SetOptimizer::claims(const PassContext& context) const {
  return Claims::Of(Claims::Computation::kChanged);
}

absl::StatusOr<bool> SetOptimizer::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(const OptimizerSettings settings, options_.Resolve());
  if (programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "an optimizer needs the startup program, which initializes its learning rate and states");
  }
  WEFT_RETURN_IF_ERROR(RefuseCompressedGradients(*programs.main));
  WEFT_ASSIGN_OR_RETURN(const Site site, FindSite(*programs.main));
  WEFT_RETURN_IF_ERROR(CheckNoOtherUpdates(*programs.main, site));
  if (IsSetAlready(*programs.main, site, settings)) return false;
  return Replacement(settings, site, &context, &programs).Run();
}

}  // namespace weft
