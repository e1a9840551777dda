#include "ops/analysis/loss_gradients.h"

#include "ops/analysis/gradient_names.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft {
namespace {

bool IsBackwardScale(const Op& op) {
  return IsBackward(op) && op.input_args().size() == 1 && op.output_args().size() == 1 &&
         AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kScale;
}

}  // namespace

bool LossGradients::IsScaledBy(const Op& op) {
  if (!IsBackwardScale(op)) return false;
  if (is_multiple_.empty()) FindAll();
  const Symbol in = op.input_args()[0], out = op.output_args()[0];
  if (!is_multiple_[in.value()]) return false;
  if (in == out) return true;
  const Symbol of = DifferentiatedName(program_, in, GradSuffix::kLast);
  return of.valid() && of == DifferentiatedName(program_, out, GradSuffix::kLast);
}

void LossGradients::FindAll() {
  is_multiple_.resize(program_.symbols().size(), false);
  for (OpId id : program_.block(0).ops()) {
    const Op op = program_.op(id);
    const bool fills = IsLossGrad(op) && op.input_args().empty();
    const bool scales = IsBackwardScale(op) && is_multiple_[op.input_args()[0].value()];
    if (!fills && !scales) continue;
    for (Symbol out : op.output_args()) is_multiple_[out.value()] = true;
  }
}

}  // namespace weft
