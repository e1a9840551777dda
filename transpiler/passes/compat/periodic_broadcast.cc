#include "transpiler/passes/compat/periodic_broadcast.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/updates.h"
#include "proto/op_role.h"
#include "transpiler/passes/averaging/averaging_plan.h"
#include "transpiler/passes/averaging/averaging_writer.h"
#include "transpiler/passes/setup/broadcast_params.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/step_condition.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {
namespace {

// The op of the root block before which parameters are broadcast, after the last collective of the
// backward pass: the first of role optimize (weight decay reads parameters, too), or the first that
// updates a parameter, by itself or in a block. With several optimizers, the others have updated by
// then; in a file where data alone orders ops, nothing could order a block that broadcasts and a
// reduction after it. Invalid: there is none, since ops of other roles update parameters.
// O(arguments).
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
  OpTraits traits(main);
  OpId first, before;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (IsBackward(op) && traits.Has(op, Trait::kCollective)) before = OpId();
    const std::vector<int> blocks = op.SubBlocks();
    const bool runs_updates =
        std::any_of(blocks.begin(), blocks.end(), [&](int block) { return has_updates[block]; });
    const bool optimizes = IsOptimize(op) && (op.role() & kRoleLrSched) == 0;
    if (!updates[id.value()] && !runs_updates && !optimizes) continue;
    if (!before.valid()) before = id;
    if (!first.valid()) first = id;
  }
  return before.valid() ? before : first;
}

struct Ring {
  int id;
  const RankGroup* group;  // null: all ranks
  std::vector<std::string> variables;
};

// Variables take rings 0 .. nrings-1 in turn; those of a group of ranks, master weights of its
// parameters too, take its ring (comm_init.h). Without rings that have no variables.
std::vector<Ring> AssignRings(const AveragingPlan& plan, int nrings,
                              const ParamAttrsByName& attrs) {
  absl::flat_hash_map<std::string, std::string> param_of;  // by master weights
  for (const AveragingPlan::Cast& cast : plan.casts) param_of[cast.master] = cast.param;
  std::map<int, Ring> rings;  // by id
  int turn = 0;
  for (const FusedTensors& tensors : plan.averaged) {
    for (const std::string& name : tensors.names) {
      const auto param = param_of.find(name);
      const RankGroup* const group =
          FindGroup(attrs, param == param_of.end() ? name : param->second);
      const int id = group != nullptr ? nrings + group->index : turn++ % nrings;
      rings.try_emplace(id, Ring{id, group, {}}).first->second.variables.push_back(name);
    }
  }
  std::vector<Ring> ordered;
  for (auto& [id, ring] : rings) ordered.push_back(std::move(ring));
  return ordered;
}

}  // namespace

void PeriodicBroadcast::Options::Bind(OptionBinder& bind) {
  BindBroadcastPeriod(bind, &bcast_period);
  BindRings(bind, &nrings);
}

Contract PeriodicBroadcast::contract() const {
  // Local gradients make parameters differ: a broadcast would drop what other ranks learned. And no
  // rank has what others have parts of.
  return Contract()
      .Needs(kGradientsReduced)
      .ConflictsWith(kParametersDivided)
      .ProvidesOnce(kParametersBroadcast);
}

absl::StatusOr<bool> PeriodicBroadcast::Run(const PassContext& context,
                                            ProgramPair& programs) const {
  const int period = options_.bcast_period;
  if (period <= 0) return false;
  AveragingChoices choices;
  choices.has_groups = true;
  WEFT_ASSIGN_OR_RETURN(const AveragingPlan plan, PlanAveraging(programs, context, choices));
  if (plan.averaged.empty()) return false;
  if (period > 1 && programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "counting steps needs the startup program, which sets the counter to 0; give it, or use "
        "bcast_period 1");
  }
  const OpId before = BeforeUpdates(*programs.main);
  ProgramEdits edits(programs);
  int block = 0;
  if (period > 1) {
    StepCounter counter("periodic_broadcast", before, &edits);
    const std::string is_due = counter.IsDue(counter.Remainder(period), 0);
    const std::vector<std::string> variables = VariablesOf(plan).writes;
    block = WriteBranch(is_due, {variables, variables}, "periodic_broadcast_scope", before, &edits);
  }
  const auto write = [&](const pb::OpDesc& op) {
    if (block == 0) return edits.InsertBefore(before, op);
    edits.main.Append(block, op);
  };
  const auto write_wait = [&](const char* type, const Ring& ring) {
    write(BuildOp(InPlaceOp(type, ring.variables, {{"ring_id", ring.id}}, kRoleOptimize)));
  };
  const std::vector<Ring> rings = AssignRings(plan, options_.nrings, context.target.param_attrs);
  for (const Ring& ring : rings) {
    write_wait("c_wait_compute", ring);
    for (const std::string& name : ring.variables) {
      NewOp broadcast =
          InPlaceOp("c_broadcast", {name},
                    {{"ring_id", ring.id}, {"root", 0}, {"use_calc_stream", false}}, kRoleOptimize);
      if (ring.group != nullptr) broadcast.group_ranks = ring.group->ranks;
      write(BuildOp(broadcast));
      context.sink.Explain(
          kName, name, "broadcast",
          ring.group == nullptr
              ? "all ranks go on from the values of rank 0"
              : absl::StrCat("the ranks of group ", ring.group->name,
                             " go on from the values of rank ", ring.group->ranks.front()),
          {{"when", period == 1 ? "every step" : absl::StrCat("every ", period, " steps")},
           {"ring", absl::StrCat(ring.id)}});
    }
  }
  for (const Ring& ring : rings) write_wait("c_wait_comm", ring);
  for (const AveragingPlan::Cast& cast : plan.casts) write(CastOp(cast));
  return edits.Commit();
}

}  // namespace weft
