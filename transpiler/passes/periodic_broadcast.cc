#include "transpiler/passes/periodic_broadcast.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/updates.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/averaging_plan.h"
#include "transpiler/passes/averaging_writer.h"
#include "transpiler/passes/broadcast_params.h"
#include "transpiler/passes/facts.h"
#include "transpiler/passes/new_variables.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/rings.h"
#include "transpiler/passes/step_condition.h"

namespace weft {
namespace {

// The op of the root block before which parameters are broadcast: the first of role optimize
// (weight decay reads parameters, too), or the first that updates a parameter, by itself or in a
// block. Invalid: there is none, since ops of other roles update parameters. O(arguments).
OpId BeforeUpdates(const Program& main) {
  std::vector<bool> updates(main.op_id_limit(), false);
  std::vector<bool> has_updates(main.num_blocks(), false);
  for (const ParamUpdate& update : FindUpdates(main)) {
    updates[update.op.value()] = true;
    for (int block = main.op(update.op).block(); block > 0;
         block = main.block(block).parent_idx()) {
      has_updates[block] = true;
    }
  }
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    const std::vector<int> blocks = op.SubBlocks();
    const bool runs_updates =
        std::any_of(blocks.begin(), blocks.end(), [&](int block) { return has_updates[block]; });
    const bool optimizes = IsOptimize(op) && (op.role() & kRoleLrSched) == 0;
    if (updates[id.value()] || runs_updates || optimizes) return id;
  }
  return OpId();
}

}  // namespace

void PeriodicBroadcast::Options::Bind(OptionBinder& bind) {
  BindBroadcastPeriod(bind, &bcast_period);
  BindRings(bind, &nrings);
}

Contract PeriodicBroadcast::contract() const {
  // Local gradients make parameters differ: a broadcast would drop what other ranks learned.
  return Contract().Needs(kGradientsReduced).ProvidesOnce(kParametersBroadcast);
}

absl::StatusOr<bool> PeriodicBroadcast::Run(PassContext& context, ProgramPair& programs) const {
  const int period = options_.bcast_period;
  if (period <= 0) return false;
  WEFT_ASSIGN_OR_RETURN(const AveragingPlan plan, PlanAveraging(programs, context, {}));
  if (period > 1 && programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "counting steps needs the startup program, which sets the counter to 0; give it, or use "
        "bcast_period 1");
  }
  const OpId before = BeforeUpdates(*programs.main);
  Rewriter rewriter(programs.main);
  UniqueNames names(programs);
  absl::optional<Rewriter> startup;
  int block = 0;
  if (period > 1) {
    startup.emplace(programs.startup);
    StepCounter counter("periodic_broadcast", before, &names, &rewriter, &*startup);
    const std::string is_due = counter.IsDue(counter.Remainder(period), 0);
    block = WriteBranch(is_due, VariablesOf(plan), "periodic_broadcast_scope", before, &names,
                        &rewriter);
  }
  const auto write = [&](const pb::OpDesc& op) {
    if (block == 0 && before.valid()) {
      rewriter.InsertBefore(before, op);
    } else {
      rewriter.Append(block, op);
    }
  };
  const auto write_in_place = [&](const char* type, const std::vector<std::string>& variables,
                                  NewAttrs attrs) {
    write(BuildOp(InPlaceOp(type, variables, std::move(attrs), kRoleOptimize), Dialect::kWeft));
  };
  std::vector<std::vector<std::string>> of_ring(options_.nrings);
  size_t number = 0;
  for (const FusedTensors& tensors : plan.averaged) {
    for (const std::string& name : tensors.names) {
      of_ring[number++ % options_.nrings].push_back(name);
    }
  }
  for (int ring = 0; ring < options_.nrings; ++ring) {
    if (!of_ring[ring].empty()) {
      write_in_place("c_wait_compute", of_ring[ring], {{"ring_id", ring}});
    }
    for (const std::string& name : of_ring[ring]) {
      write_in_place("c_broadcast", {name},
                     {{"ring_id", ring}, {"root", 0}, {"use_calc_stream", false}});
      context.Explain(
          kName, name, "broadcast", "all ranks go on from the values of rank 0",
          {{"when", period == 1 ? "every step" : absl::StrCat("every ", period, " steps")},
           {"ring", absl::StrCat(ring)}});
    }
  }
  for (int ring = 0; ring < options_.nrings; ++ring) {
    if (!of_ring[ring].empty()) write_in_place("c_wait_comm", of_ring[ring], {{"ring_id", ring}});
  }
  for (const AveragingPlan::Cast& cast : plan.casts) write(CastOp(cast));
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  if (startup.has_value()) WEFT_RETURN_IF_ERROR(startup->Commit());
  return true;
}

}  // namespace weft
