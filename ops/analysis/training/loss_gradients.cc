#include "ops/analysis/training/loss_gradients.h"

#include "ops/analysis/training/gradient_names.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// A scale, or a product with or a quotient by another variable: X is multiplied. What stands in the
// place of a gradient belongs to the backward pass, whatever its role.
bool IsBackwardScale(const Op& op) {
  if (op.Input("X").size() != 1 || op.output_args().size() != 1) return false;
  if (!IsBackward(op) && op.Input("X")[0] != op.output_args()[0]) return false;
  const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
  if (algebra == Algebra::kScale) return op.input_args().size() == 1;
  return algebra == Algebra::kMultiply || algebra == Algebra::kDivide;
}

// Takes the dims of the loss, as static.gradients has it.
bool FillsLike(const Op& op) { return AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kFill; }

}  // namespace

bool LossGradients::IsScaledBy(const Op& op) {
  if (op.block() != 0 || !IsBackwardScale(op)) return false;
  if (!has_all_) FindAll();
  return is_scaling_[op.id().value()];
}

void LossGradients::FindAll() {
  has_all_ = true;
  is_scaling_.resize(program_.op_id_limit(), false);
  // By symbol: of gradients of losses, and their multiples, how many ops of the forward pass have
  // given the names of their gradients to divisions; -1: any other variable.
  std::vector<int> owed(program_.symbols().size(), -1);
  for (OpId id : program_.block(0).ops()) {
    const Op op = program_.op(id);
    if (IsLossGrad(op) && (op.input_args().empty() || FillsLike(op))) {
      for (Symbol out : op.output_args()) owed[out.value()] = 0;
      continue;
    }
    if (!IsBackwardScale(op) || owed[op.Input("X")[0].value()] < 0) continue;
    const Symbol in = op.Input("X")[0], out = op.output_args()[0];
    // A product with another variable is nothing that differentiation makes of a scale.
    if (op.input_args().size() > 1 && !AreOfOneVariable(in, out)) continue;
    const bool is_declared = op.HasAttr(kNumRanksAttr);
    const bool is_same = AreOfOneVariable(in, out);
    int of_forward = owed[in.value()];
    if (is_declared && !is_same) ++of_forward;
    const bool pays = !is_declared && is_same && of_forward > 0;
    if (pays) --of_forward;
    is_scaling_[id.value()] = is_declared || (is_same && !pays);
    owed[out.value()] = of_forward;
  }
}

bool LossGradients::AreOfOneVariable(Symbol a, Symbol b) const {
  if (a == b) return true;
  const Symbol of = DifferentiatedName(program_, a, GradSuffix::kLast);
  return of.valid() && of == DifferentiatedName(program_, b, GradSuffix::kLast);
}

}  // namespace weft
