#include "transpiler/passes/setup/broadcast_params.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/core/updates.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/startup_parameters.h"

namespace weft {
namespace {

// Parameters take rings in turn, those of a group its ring. Those that share memory, as slices of a
// fused buffer, share a ring, and therefore have the same group.
absl::StatusOr<std::vector<int>> AssignRings(const Program& startup,
                                             const std::vector<std::string>& params, int nrings,
                                             const ParamAttrsByName& attrs) {
  const Storage storage(startup);
  std::vector<int> rings;
  absl::flat_hash_map<uint64_t, int> ring_of;  // by class
  int turn = 0;
  for (const std::string& param : params) {
    const RankGroup* const group = FindGroup(attrs, param);
    const bool has_group = group != nullptr;
    const int next = has_group ? nrings + group->index : turn % nrings;
    const auto [ring, is_new] =
        ring_of.emplace(storage.ClassOf(0, startup.FindSymbol(param)), next);
    if (is_new && !has_group) ++turn;
    rings.push_back(ring->second);
    const bool is_of_group = ring->second >= nrings;
    if (is_of_group == has_group && (!has_group || ring->second == next)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter ", param, ": the startup program makes it share its memory with a parameter of ",
        "other ranks: expected one group for all of them"));
  }
  return rings;
}

// The parameters of master weights and of other states of optimizers.
absl::flat_hash_map<std::string, std::string> ParamsOfStates(const Program& main) {
  absl::flat_hash_map<std::string, std::string> param_of;
  for (const ParamUpdate& update : FindUpdates(main)) {
    const std::string param(main.name(update.param));
    if (update.master.valid()) param_of[std::string(main.name(update.master))] = param;
    for (Symbol state : update.states) param_of[std::string(main.name(state))] = param;
  }
  return param_of;
}

// Weights that no one marked as parameters, and states. `attrs`: gives states the group of their
// parameter.
void AddDrawnStates(const PassContext& context, const ProgramPair& programs,
                    std::vector<std::string>* params, ParamAttrsByName* attrs) {
  const absl::flat_hash_set<std::string> known(params->begin(), params->end());
  absl::flat_hash_map<std::string, std::string> param_of;
  if (!context.setting.distributed_params.empty() || !attrs->empty()) {
    param_of = ParamsOfStates(*programs.main);
  }
  for (std::string& name : StatesThatRanksDraw(programs)) {
    if (known.contains(name)) continue;
    const auto found = param_of.find(name);
    const std::string& param = found == param_of.end() ? name : found->second;
    if (context.setting.distributed_params.count(param) > 0) continue;
    const auto of_param = attrs->find(param);
    if (of_param != attrs->end()) attrs->emplace(name, of_param->second);
    params->push_back(std::move(name));
  }
}

// Paddle broadcasts no tensors without elements, such as the state of dropout of a recurrent layer.
bool HasElements(const Program& startup, const std::string& name) {
  const absl::optional<TensorType> type = DeclaredType(startup, startup.FindSymbol(name));
  return !type.has_value() || NumElements(type->dims) != 0;
}

}  // namespace

void BindBroadcastPeriod(OptionBinder& bind, int* period) {
  bind.Int("bcast_period", period,
           "when rank 0 broadcasts the parameters: 0 when training begins, N > 0 also before the "
           "updates of every N-th step, -1 never",
           /*min=*/-1);
}

void BroadcastParams::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  BindBroadcastPeriod(bind, &bcast_period);
}

Contract BroadcastParams::contract() const {
  if (options_.bcast_period < 0) return Contract();
  return Contract().Needs(kRingsSetUp).Provides(kParametersEqual).ConflictsWith(kParametersEqual);
}

absl::StatusOr<bool> BroadcastParams::Run(const PassContext& context, ProgramPair& programs) const {
  if (programs.startup == nullptr || options_.bcast_period < 0) return false;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, StartupParameters(programs));
  std::vector<std::string> params;
  const bool weft = context.target.dialect == Dialect::kWeft;
  for (const std::string& name : all) {
    if (context.setting.distributed_params.count(name) > 0) continue;
    if (!weft || HasElements(*programs.startup, name)) params.push_back(name);
  }
  ParamAttrsByName attrs = context.target.param_attrs;
  if (weft) AddDrawnStates(context, programs, &params, &attrs);
  if (weft ? params.empty() : all.empty()) return false;

  std::map<int, RankGroup> groups;  // by ring
  for (const RankGroup& group : GroupsOf(context.target.param_attrs)) {
    groups.emplace(options_.nrings + group.index, group);
  }
  const int all_rings = groups.empty() ? options_.nrings : groups.rbegin()->first + 1;
  std::vector<int> rings;
  if (weft) {
    WEFT_ASSIGN_OR_RETURN(rings, AssignRings(*programs.startup, params, options_.nrings, attrs));
  }
  std::vector<std::vector<std::string>> of_ring(all_rings);
  for (size_t i = 0; i < params.size(); ++i) {
    if (!weft) rings.push_back(static_cast<int>(i % options_.nrings));
    of_ring[rings[i]].push_back(params[i]);
  }

  Rewriter rewriter(programs.startup);
  const auto append = [&](const char* type, const std::vector<std::string>& vars, NewAttrs attrs,
                          const std::vector<int>& group_ranks = {}) {
    NewOp op = InPlaceOp(type, vars, std::move(attrs), kRoleForward);
    op.group_ranks = group_ranks;
    rewriter.Append(0, BuildOp(op, context.target.dialect));
  };
  for (int ring = 0; weft && ring < all_rings; ++ring) {
    if (!of_ring[ring].empty()) append("c_wait_compute", of_ring[ring], {{"ring_id", ring}});
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const RankGroup* const group = rings[i] < options_.nrings ? nullptr : &groups.at(rings[i]);
    append("c_broadcast", {params[i]},
           {{"ring_id", rings[i]}, {"root", 0}, {"use_calc_stream", false}},
           group == nullptr ? std::vector<int>() : group->ranks);
    context.sink.Explain(
        kName, params[i], "broadcast",
        group == nullptr ? "all ranks start from the values of rank 0"
                         : absl::StrCat("the ranks of group ", group->name,
                                        " start from the values of rank ", group->ranks.front()),
        {{"ring", absl::StrCat(rings[i])}});
  }
  for (int ring = 0; ring < all_rings; ++ring) {
    if (!weft) {
      append("c_sync_comm_stream", {all.back()}, {{"ring_id", ring}});
    } else if (!of_ring[ring].empty()) {
      append("c_wait_comm", of_ring[ring], {{"ring_id", ring}});
    }
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
