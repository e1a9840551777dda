#include "transpiler/passes/paddle_grad_all_reduce.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_names.h"
#include "transpiler/passes/paddle_gradients.h"
#include "transpiler/passes/paddle_ops.h"
#include "transpiler/passes/paddle_warnings.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
void PaddleGradAllReduce::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Choice("skip", &skip, "when to change nothing",
              {{"never", Skip::kNever},
               {"no_gradient", Skip::kNoGradient},
               {"one_device", Skip::kOneDevice}});
}

const Contract& PaddleGradAllReduce::contract() const {
  static const auto* contract =
      new Contract{{kGradientsReduced}, {}, {kGradientsReduced, kParametersAveraged}};
  return *contract;
}

absl::StatusOr<bool> PaddleGradAllReduce::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<PaddleGradient> gradients,
                        WalkGradients(program, context));
  if (options_.skip == Skip::kOneDevice) {
    WEFT_RETURN_IF_ERROR(RequireDevices(context));
    if (PaddleDevices(context, 0) == 1) return false;
  }
  if (options_.skip == Skip::kNoGradient && CountReplicated(gradients) == 0) return false;
  WEFT_RETURN_IF_ERROR(RequireGradients(gradients));
  WEFT_RETURN_IF_ERROR(WarnOfReduction(kName, program, context));
  Rewriter rewriter(programs.main);
  absl::optional<OpNames> op_name;
  if (context.notes != nullptr) op_name.emplace(program);
  InsertCollectives(
      program, gradients, options_.nrings,
      [&](const PaddleGradient& gradient, int ring) {
        if (context.notes != nullptr) {
          context.notes->push_back(
              {std::string(kName),
               gradient.grad,
               "reduced",
               absl::StrCat("gradient of replicated parameter ", gradient.param),
               {{"ring", absl::StrCat(ring)}, {"after", (*op_name)(gradient.op)}}});
        }
        return PaddleAllReduceSum(gradient.grad, ring, kRoleBackward);
      },
      &rewriter);
  if (rewriter.empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
