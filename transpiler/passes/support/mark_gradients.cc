#include "transpiler/passes/support/mark_gradients.h"

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/gradient_names.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"

namespace weft {
namespace {

// What an op gets.
struct Marks {
  bool is_loss = false;
  std::vector<std::string> role_vars;
};

bool FillsOnes(const Op& op) {
  const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
  return (algebra == Algebra::kFill || algebra == Algebra::kConstant) &&
         op.output_args().size() == 1 && op.FloatAttr("value") == 1.0;
}

// None if the type is not declared, or has not one element.
absl::optional<TensorType> ScalarType(const Program& program, Symbol name) {
  const VarId var = program.block(0).FindVar(name);
  absl::optional<TensorType> type = var.valid() ? DeclaredType(program.var(var)) : absl::nullopt;
  const bool is_scalar = type.has_value() && NumElements(type->dims) == 1;
  return is_scalar ? type : absl::nullopt;
}

// By op; empty: there is nothing to mark.
std::map<OpId, Marks> FindMarks(const Program& program) {
  const OpTraits traits(program);
  absl::flat_hash_set<Symbol> updated;
  for (const Op& op : BlockOps(program, 0)) {
    if (IsLossGrad(op) || (IsBackward(op) && op.has_role_vars())) return {};
    if (!traits.Has(op, Trait::kOptimizer)) continue;
    for (Symbol param : op.Input("Param")) updated.insert(param);
  }
  if (updated.empty()) return {};
  GradientNames names(program, GradSuffix::kLast);
  std::map<OpId, Marks> marks;
  absl::flat_hash_map<Symbol, OpId> computed_by, completed_by;  // a loss, a gradient
  std::vector<Symbol> gradients;                                // in the order of the program
  bool has_loss = false;
  for (const Op& op : BlockOps(program, 0)) {
    for (Symbol out : op.output_args()) {
      if (!IsBackward(op)) {
        computed_by[out] = op.id();
        continue;
      }
      const Symbol of = names.DifferentiatedName(out);
      if (!of.valid()) continue;
      if (FillsOnes(op)) {
        const auto loss = computed_by.find(of);
        if (loss == computed_by.end() || !ScalarType(program, of).has_value() ||
            !ScalarType(program, out).has_value()) {
          return {};
        }
        marks[op.id()].is_loss = marks[loss->second].is_loss = has_loss = true;
      }
      if (!updated.contains(of)) continue;
      if (completed_by.find(out) == completed_by.end()) gradients.push_back(out);
      completed_by[out] = op.id();
    }
  }
  if (!has_loss || gradients.empty()) return {};
  for (Symbol gradient : gradients) {
    std::vector<std::string>& vars = marks[completed_by.at(gradient)].role_vars;
    vars.emplace_back(program.name(names.DifferentiatedName(gradient)));
    vars.emplace_back(program.name(gradient));
  }
  return marks;
}

}  // namespace

absl::StatusOr<bool> MarkGradients(Program* program) {
  const std::map<OpId, Marks> marks = FindMarks(*program);
  if (marks.empty()) return false;
  Rewriter rewriter(program);
  for (const auto& [id, mark] : marks) {
    const Op op = program->op(id);
    pb::OpDesc desc = op.ToProto();
    if (mark.is_loss) SetIntAttr(&desc, kOpRoleAttr, op.role() | kRoleLoss);
    // Ones for every rank, whatever the loss.
    if (mark.is_loss && IsBackward(op)) {
      const Symbol out = op.output_args()[0];
      const TensorType type = *ScalarType(*program, out);
      desc = BuildOp(FillOp(std::string(program->name(out)), type.dtype, type.dims, 1.0,
                            kRoleBackward | kRoleLoss));
    }
    if (!mark.role_vars.empty()) SetStringsAttr(&desc, kOpRoleVarAttr, mark.role_vars);
    rewriter.Replace(id, desc);
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
