#include "transpiler/passes/paddle/paddle_single_process_scale.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/paddle/paddle_gradients.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

constexpr int kDefaultDevices = 8;

}  // namespace

void PaddleSingleProcessScale::Options::Bind(OptionBinder& bind) {
  bind.Bool("loss_scale", &loss_scale,
            "whether to divide the loss's gradient by the number of ranks");
}

Contract PaddleSingleProcessScale::contract() const {
  return Contract().ProvidesOnce(kLossGradientScaled).ConflictsWith(kGradientsReduced);
}

absl::StatusOr<bool> PaddleSingleProcessScale::Run(const PassContext& context,
                                                   ProgramPair& programs) const {
  if (!options_.loss_scale) return false;
  if (!context.target.cluster.has_endpoints()) {
    return absl::InvalidArgumentError(
        "the paddle dialect needs the endpoints of all trainers (option:endpoints)");
  }
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<PaddleGradient> gradients,
                        WalkGradients(program, context));
  const int hosts = CountReplicated(gradients) > 0 ? context.target.cluster.hosts() : 1;
  const int devices = PaddleDevices(context, kDefaultDevices);
  Rewriter rewriter(programs.main);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsLossGrad(op) || op.output_args().empty()) continue;
    const std::string grad(program.name(op.output_args()[0]));
    rewriter.InsertAfter(id, PaddleScale(grad, 1.0 / hosts / devices, kRoleBackward));
    context.sink.Explain(
        kName, grad, "scaled",
        absl::StrCat("hosts: ", hosts, ", devices of each trainer: ", devices),
        {{"by", absl::StrCat("1/", hosts, "/", devices)}, {"after", op.DebugName()}});
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
