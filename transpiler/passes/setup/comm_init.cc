#include "transpiler/passes/setup/comm_init.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

// `group`: the ranks that the ring connects; null: all.
void AddRingOverEndpoints(const PassContext& context, int ring, const RankGroup* group,
                          const std::string& id, Rewriter* rewriter) {
  const Cluster& who = context.target.cluster;
  int nranks = 0, rank = who.rank();
  std::vector<std::string> others = who.other_endpoints();
  std::vector<int> group_ranks;
  if (group != nullptr) {
    group_ranks = group->ranks;
    nranks = static_cast<int>(group_ranks.size());
    rank = static_cast<int>(absl::c_lower_bound(group_ranks, who.rank()) - group_ranks.begin());
    others.clear();
    for (int other : group_ranks) {
      if (other != who.rank()) others.push_back(who.endpoints()[other]);
    }
  }
  rewriter->AddVar(0, RingIdVar(id));
  const NewOp gen{"c_gen_nccl_id",
                  {},
                  {{"Out", {id}}},
                  {{"rank", rank},
                   {"endpoint", who.current_endpoint()},
                   {"other_endpoints", others},
                   {"ring_id", ring}},
                  kRoleForward};
  rewriter->Append(0, BuildOp(gen, context.target.dialect));
  NewOp join{"c_comm_init", {{"X", {id}}}, {}, {{"ring_id", ring}}, kRoleForward};
  if (who.devices().has_value()) {
    join.type = "c_comm_init_multitrainer";
    join.attrs.push_back({"devices", *who.devices()});
    join.attrs.push_back({"ntrainers", *who.trainers()});
    join.attrs.push_back({"trainer_id", rank});
    join.nranks = who.nranks();
  } else {
    join.attrs.push_back({"nranks", group == nullptr ? *who.nranks() : nranks});
    join.attrs.push_back({"rank", rank});
    join.group_ranks = std::move(group_ranks);
  }
  rewriter->Append(0, BuildOp(join, context.target.dialect));
}

// All ranks of the run, or those of a group, or all devices of the only trainer.
void AddRingOverAll(const PassContext& context, int ring, std::vector<int> group_ranks,
                    Rewriter* rewriter) {
  const Cluster& who = context.target.cluster;
  NewOp op{"c_comm_init_all", {}, {}, {{"ring_id", ring}}, kRoleForward, who.nranks()};
  op.group_ranks = std::move(group_ranks);
  if (who.devices().has_value()) op.attrs.push_back({"devices", *who.devices()});
  rewriter->Append(0, BuildOp(op, context.target.dialect));
}

}  // namespace

void CommInit::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  BindPrefetch(bind, &prefetch);
  BindGroupSize(bind, &group_size);
}

Contract CommInit::contract() const { return Contract().ProvidesOnce(kRingsSetUp); }

absl::StatusOr<bool> CommInit::Run(const PassContext& context, ProgramPair& programs) const {
  const bool over_endpoints =
      context.target.cluster.has_endpoints() && context.target.cluster.trainers() != 1;
  if (programs.startup == nullptr) return false;
  // Paddle connects CPUs outside of programs.
  if (context.target.device_kind == TargetDevice::kCpu) return false;
  std::vector<RankGroup> groups = GroupsOf(context.target.param_attrs);
  if (options_.group_size > 0) {
    WEFT_ASSIGN_OR_RETURN(groups, EqualGroups(context, options_.group_size));
  }
  const int first_ahead = options_.nrings + (groups.empty() ? 0 : groups.back().index + 1);
  const int all_rings = first_ahead + options_.prefetch;
  if (all_rings > kMaxRings) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected at most ", kMaxRings, " rings, found ", options_.nrings + options_.prefetch,
        " over all ranks and ", groups.size(), " of groups"));
  }
  WEFT_RETURN_IF_ERROR(RefuseRingsInUse(*programs.startup, all_rings));
  Rewriter rewriter(programs.startup);
  UniqueNames names(*programs.startup);
  const auto add_over_all = [&](int ring) {
    if (over_endpoints) {
      AddRingOverEndpoints(context, ring, nullptr, names.Next("nccl_id"), &rewriter);
    } else {
      AddRingOverAll(context, ring, {}, &rewriter);
    }
    context.sink.Explain(kName, absl::StrCat("ring ", ring), "set up",
                         over_endpoints ? "over the endpoints" : "over all ranks of the run");
  };
  for (int ring = 0; ring < options_.nrings; ++ring) add_over_all(ring);
  for (const RankGroup& group : groups) {
    const int ring = options_.nrings + group.index;
    if (over_endpoints) {
      AddRingOverEndpoints(context, ring, &group, names.Next("nccl_id"), &rewriter);
    } else {
      AddRingOverAll(context, ring, group.ranks, &rewriter);
    }
    context.sink.Explain(kName, absl::StrCat("ring ", ring), "set up",
                         absl::StrCat("over the ranks of group ", group.name),
                         {{"ranks", absl::StrJoin(group.ranks, ", ")}});
  }
  for (int ring = first_ahead; ring < all_rings; ++ring) add_over_all(ring);
  return CommitEdits(&rewriter);
}

}  // namespace weft
