#include "transpiler/passes/gradients/scale_loss_grad.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/algebra.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

// How a value depends on the loss gradients that the pass divides, or leaves because the loss is a
// sum over the batch.
enum class Factor : uint8_t {
  kNone,     // not written by backward: parameters, activations
  kZero,     // zeros: any factor is right
  kWithout,  // computed from none of them
  kDivided,  // computed from one: right
  kMixed,    // a sum of both
};

// Such as the gradient of an output that no op reads.
bool IsZeros(const Op& op, Algebra algebra) {
  if (algebra == Algebra::kZeros) return true;
  return op.FloatAttr("value") == 0.0 && (op.input_args().empty() || algebra == Algebra::kFill);
}

Factor FactorOf(const Op& op, bool is_linear, const std::vector<Factor>& factors) {
  if (IsLossGrad(op)) return Factor::kDivided;
  const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
  if (IsZeros(op, algebra)) return Factor::kZero;
  bool without = false, divided = false, mixed = false, zero = false,
       only_zeros = !op.input_args().empty();
  for (Symbol symbol : op.input_args()) {
    const Factor factor = factors[symbol.value()];
    without |= factor == Factor::kWithout;
    divided |= factor == Factor::kDivided;
    mixed |= factor == Factor::kMixed;
    zero |= factor == Factor::kZero;
    only_zeros &= factor == Factor::kZero;
  }
  if (mixed || (is_linear && without && divided)) return Factor::kMixed;
  if (divided) return Factor::kDivided;
  // A gradient op is linear in the gradients that it reads.
  if (algebra == Algebra::kBackward && zero && !without) return Factor::kZero;
  return only_zeros && is_linear ? Factor::kZero : Factor::kWithout;
}

absl::Status CheckAllGradientsAreScaled(const Program& program, const PassContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                        AnalyzeGradients(program, context.setting.distributed_params));
  struct Completion {
    uint32_t position;  // of the op that completes the gradient
    Symbol grad;
  };
  std::vector<Completion> completions;
  for (const Gradient& gradient : analysis.gradients) {
    completions.push_back({program.op(gradient.completed_by).position(), gradient.grad});
  }
  absl::c_stable_sort(completions, [](const Completion& a, const Completion& b) {
    return a.position < b.position;
  });
  auto next = completions.begin();
  std::vector<Factor> factors(program.symbols().size(), Factor::kNone);
  OpTraits traits(program);
  for (const Op& op : BlockOps(program, 0)) {
    if (!IsBackward(op)) continue;
    const Factor factor = FactorOf(op, traits.Has(op, Trait::kLinear), factors);
    for (Symbol symbol : op.output_args()) factors[symbol.value()] = factor;
    while (next != completions.end() && next->position < op.position()) ++next;
    for (; next != completions.end() && next->position == op.position(); ++next) {
      const Symbol grad = next->grad;
      if (factors[grad.value()] == Factor::kDivided || factors[grad.value()] == Factor::kZero) {
        continue;
      }
      return absl::FailedPreconditionError(
          absl::StrCat("gradient ", program.name(grad), ", completed by ", op.DebugName(),
                       ", does not come from ",
                       factors[grad.value()] == Factor::kMixed
                           ? "loss gradients that could all be scaled: not all ops that start "
                             "backward have role "
                           : "a loss gradient that could be scaled: no op before it has role ",
                       "backward|loss (0x101); use scale avg, which needs no such op"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void ScaleLossGrad::Options::Bind(OptionBinder& bind) { BindGradientScale(bind, &scale); }

Contract ScaleLossGrad::contract() const {
  return Contract()
      .ProvidesOnce(kLossGradientScaled)
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kParametersAveraged);
}

absl::StatusOr<bool> ScaleLossGrad::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(const GradientScale scale, Resolve(options_.scale, context));
  if (scale != GradientScale::kLossGrad) return false;
  const Program& program = *programs.main;
  const bool paddle = context.target.dialect == Dialect::kPaddle;
  const int nranks = paddle ? *context.target.cluster.trainers() : *context.target.cluster.nranks();
  for (const absl::Status& problem :
       {RefuseScaledLossGradient(program, nranks), CheckAllGradientsAreScaled(program, context)}) {
    WEFT_RETURN_IF_ERROR(context.RefuseOrWarn(kName, problem));
  }
  Rewriter rewriter(programs.main);
  for (const Op& op : BlockOps(program, 0)) {
    if (!(paddle ? IsLossGrad(op) : BeginsBackward(op)) || op.output_args().empty()) continue;
    const std::string grad(program.name(op.output_args()[0]));
    if (options_.scale == GradientScale::kAuto &&
        context.target.forecast.sum_losses.gradients.count(grad) > 0) {
      context.sink.Explain(kName, grad, "not scaled", "the loss is a sum over the batch");
      continue;
    }
    const NewAttrs attrs = {{"scale", static_cast<float>(1.0 / nranks)}};
    rewriter.InsertAfter(op.id(), BuildOp(InPlaceOp("scale", {grad}, attrs, kRoleBackward, nranks),
                                          context.target.dialect));
    context.sink.Explain(
        kName, grad, "scaled",
        absl::StrCat("so that the sum over ", nranks, paddle ? " trainers" : " ranks",
                     " is the gradient of the mean loss"),
        {{"by", absl::StrCat("1/", nranks)}, {"after", op.DebugName()}});
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
