#include "transpiler/passes/gradients/gradient_reduction.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/no_updates.h"

namespace weft {
namespace {

// From a format that has no op_role_var: proto/formats/pir finds what is a gradient.
bool IsTranslated(const Program& program) { return program.origin() != nullptr; }

// Why the gradient of a parameter that an optimizer updates is not reduced.
std::string WhyNotReduced(const Program& program, const GradientAnalysis& analysis, Symbol param) {
  for (const SkippedGradient& skipped : analysis.skipped) {
    if (skipped.param != param) continue;
    return absl::StrCat("gradient ", program.name(skipped.grad),
                        IsTranslated(program) ? "" : ", which op_role_var names,",
                        " is not reduced: ", skipped.why);
  }
  return IsTranslated(program) ? "no gradient of it was found that depends on a loss"
                               : "no backward op names its gradient in op_role_var";
}

// An unregistered op of role optimize with slot Param is an optimizer, too.
bool IsUpdate(const OpTraits& traits, const Op& op) {
  return traits.Has(op, Trait::kOptimizer) || (!traits.IsRegistered(op) && IsOptimize(op));
}

absl::Status CheckAllReducible(const Program& program, const GradientAnalysis& analysis) {
  for (const Gradient& gradient : analysis.gradients) {
    const Var var = program.var(program.block(0).Resolve(gradient.grad));
    const absl::optional<TensorType> type = DeclaredType(var);
    if (type.has_value() && IsFloating(type->dtype)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", var.name(), " of parameter ", program.name(gradient.param), ", completed by ",
        program.op(gradient.completed_by).DebugName(), ": expected a ",
        type.has_value() ? absl::StrCat("floating-point tensor, found ", DTypeName(type->dtype))
                         : "tensor of a known element type"));
  }
  for (const SkippedGradient& unclear : analysis.unclear) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", program.name(unclear.grad), " of parameter ", program.name(unclear.param),
        " is persistable: accumulated over several steps (gradient merge), so a reduction in every "
        "step would add values that are already summed; ",
        unclear.why));
  }
  return absl::OkStatus();
}

// A replicated parameter would diverge if each rank updated it by its local gradient.
absl::Status CheckUpdates(const Program& program, const GradientAnalysis& analysis,
                          const std::set<std::string>& distributed_params) {
  std::vector<bool> reduced(program.symbols().size(), false);
  for (const Gradient& gradient : analysis.gradients) reduced[gradient.param.value()] = true;
  OpTraits traits(program);
  for (const Op& op : AllOps(program)) {
    if (!IsUpdate(traits, op)) continue;
    for (Symbol param : op.Input("Param")) {
      if (reduced[param.value()]) continue;
      const std::string name(program.name(param));
      if (distributed_params.count(name) > 0) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(), " input Param: ", name, " is updated, but ",
                       WhyNotReduced(program, analysis, param),
                       ", so each rank would update it by its local gradient; if that is intended, "
                       "name it a distributed parameter"));
    }
  }
  return absl::OkStatus();
}

// The analysis does not see that uses of a buffer use the gradients in it.
absl::Status CheckStorage(const Program& program, const GradientAnalysis& analysis) {
  std::vector<bool> is_gradient(program.symbols().size(), false);
  for (const Gradient& gradient : analysis.gradients) is_gradient[gradient.grad.value()] = true;
  const Storage storage(program);
  for (const Storage::Buffer& buffer : storage.buffers()) {
    const Op op = program.op(buffer.made_by);
    for (Symbol symbol : op.args()) {
      if (!is_gradient[symbol.value()]) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("gradient ", program.name(symbol), ": ", op.DebugName(),
                       " makes it share its storage with other variables; expected gradients "
                       "with separate storage"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string WhyNoGradients(const Program& program) {
  constexpr size_t kMaxNames = 3;
  std::vector<absl::string_view> names;
  size_t num_updates = 0;
  OpTraits traits(program);
  std::vector<bool> is_read(program.var_id_limit());
  OpId writer;
  VarId written;
  for (const Op& op : AllOps(program)) {
    if (!IsUpdate(traits, op)) {
      const auto param_of = [&](Symbol name) {
        const VarId var = program.block(op.block()).Resolve(name);
        return var.valid() && program.var(var).is_parameter() ? var : VarId();
      };
      for (Symbol name : op.input_args()) {
        if (const VarId var = param_of(name); var.valid()) is_read[var.value()] = true;
      }
      for (Symbol name : op.output_args()) {
        // A startup program writes what it has not read.
        const VarId var = param_of(name);
        if (writer.valid() || !var.valid() || !is_read[var.value()]) continue;
        writer = op.id();
        written = var;
      }
      continue;
    }
    for (Symbol param : op.Input("Param")) {
      if (++num_updates <= kMaxNames) names.push_back(program.name(param));
    }
  }
  if (num_updates == 0 && writer.valid()) {
    return absl::StrCat(
        "the program has no gradients that an optimizer reads: ", program.op(writer).DebugName(),
        " updates ", program.var(written).name(),
        " without one; optimizer.apply_gradients updates by gradients that are "
        "found, and option:mode local_sgd averages parameters, whatever updates them");
  }
  if (num_updates == 0) {
    return absl::StrCat(
        "the program has no gradients that an optimizer reads: no op updates a parameter; ",
        kNoUpdatesHint);
  }
  const std::string updated = absl::StrCat(
      "the program has no gradients: ops update ", absl::StrJoin(names, ", "),
      num_updates > kMaxNames ? absl::StrCat(" and ", num_updates - kMaxNames, " more") : "");
  if (!IsTranslated(program)) {
    return absl::StrCat(updated,
                        ", and no op of backward role names pairs of parameter and gradient in "
                        "op_role_var; optimizer.minimize and append_backward name them, "
                        "static.gradients does not");
  }
  return absl::StrCat(
      updated,
      ", and none of them reads a gradient that was found to depend on a loss. A loss is known by "
      "its gradient: 1.full_like of one element with 1.0, read by the gradient op of the op that "
      "made the loss. It is not found after an op such as static.Print between the loss and "
      "minimize(); gradients that the program accumulates in a state of its own are not found "
      "either");
}

absl::StatusOr<GradientReduction> AnalyzeReduction(const Program& program,
                                                   const PassContext& context,
                                                   GradientScale scale) {
  GradientReduction reduction;
  WEFT_ASSIGN_OR_RETURN(reduction.analysis,
                        AnalyzeGradients(program, context.setting.distributed_params));
  if (reduction.analysis.pairs.empty()) {
    return absl::FailedPreconditionError(WhyNoGradients(program));
  }
  for (const absl::Status& problem :
       ReductionBlockers(program, reduction.analysis, context.setting.distributed_params)) {
    WEFT_RETURN_IF_ERROR(problem);
  }
  WEFT_ASSIGN_OR_RETURN(reduction.averages, ReductionAverages(scale, program, context));
  return reduction;
}

absl::Status RefuseCompressedGradients(const Program& program) {
  for (const Op& op : BlockOps(program, 0)) {
    if (!IsBackward(op) || !op.has_role_vars()) continue;
    const absl::Span<const Symbol> encoded = op.Output("EncodeGrad");
    if (encoded.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " compresses gradient ", pairs.empty() ? "" : pairs.front().grad,
        " (deep gradient compression) into ", program.name(encoded.front()),
        ", which no op of the program exchanges, and leaves zeros; expected gradients that are "
        "not compressed"));
  }
  return absl::OkStatus();
}

std::vector<absl::Status> ReductionBlockers(const Program& program,
                                            const GradientAnalysis& analysis,
                                            const std::set<std::string>& distributed_params) {
  std::vector<absl::Status> problems;
  for (absl::Status status :
       {RefuseCompressedGradients(program), CheckAllReducible(program, analysis),
        CheckStorage(program, analysis), CheckUpdates(program, analysis, distributed_params)}) {
    if (!status.ok()) problems.push_back(std::move(status));
  }
  return problems;
}

absl::Status ExplainLocalGradients(absl::string_view pass, const Program& program,
                                   const PassContext& context) {
  if (context.sink.remarks == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> pairs, FindGradientPairs(program));
  for (const GradientPair& pair : pairs) {
    context.sink.Explain(pass, std::string(program.name(pair.grad)), "not reduced",
                         "ranks update by local gradients, and average parameters",
                         {{"parameter", std::string(program.name(pair.param))}});
  }
  return absl::OkStatus();
}

}  // namespace weft
