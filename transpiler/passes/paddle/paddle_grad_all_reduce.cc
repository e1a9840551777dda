#include "transpiler/passes/paddle/paddle_grad_all_reduce.h"

#include <vector>

#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/paddle/paddle_gradients.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

constexpr char kReduced[] = "reduced";

}  // namespace

void PaddleGradAllReduce::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Choice("skip", &skip, "when to change nothing",
              {{"never", Skip::kNever},
               {"no_gradient", Skip::kNoGradient},
               {"one_device", Skip::kOneDevice}});
}

Contract PaddleGradAllReduce::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

Claims PaddleGradAllReduce::claims(const PassContext& context) const {
  return Claims::Of(Claims::Gradients::kAveraged);
}

absl::StatusOr<bool> PaddleGradAllReduce::Run(const PassContext& context,
                                              ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<PaddleGradient> gradients,
                        WalkGradients(program, context));
  if (options_.skip == Skip::kOneDevice) {
    WEFT_RETURN_IF_ERROR(RequireDevices(context));
    if (PaddleDevices(context, 0) == 1) {
      ExplainSkipped(kName, kReduced, gradients,
                     "each trainer drives one device, in which case Paddle does nothing", context);
      return false;
    }
  }
  if (options_.skip == Skip::kNoGradient && CountReplicated(gradients) == 0) {
    ExplainSkipped(kName, kReduced, gradients, /*why=*/"", context);
    return false;
  }
  WEFT_RETURN_IF_ERROR(RequireGradients(gradients));
  WEFT_RETURN_IF_ERROR(WarnAboutReduction(kName, program, PaddleExchange::kOneByOne, context));
  Rewriter rewriter(programs.main);
  ExplainCollectives(kName, kReduced, program, gradients, options_.nrings, context);
  std::vector<OpTemplate> all_reduce;  // by ring
  for (int ring = 0; ring < options_.nrings; ++ring) {
    all_reduce.emplace_back(PaddleAllReduceSum("", ring, kRoleBackward));
  }
  const auto output = [](const PaddleGradient& gradient) { return gradient.grad; };
  InsertCollectives(program, gradients, output, &all_reduce, &rewriter);
  return CommitEdits(&rewriter);
}

}  // namespace weft
