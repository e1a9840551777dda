#include "transpiler/passes/broadcast_params.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/facts.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/rings.h"
#include "transpiler/passes/startup_parameters.h"

namespace weft {
namespace {

NewOp Sync(const std::string& type, const std::vector<std::string>& vars, int ring) {
  return {type, {{"X", vars}}, {{"Out", vars}}, {{"ring_id", ring}}, kRoleForward};
}

}  // namespace

void BroadcastParams::Options::Bind(OptionBinder& bind) { BindRings(bind, &nrings); }

Contract BroadcastParams::contract() const {
  return Contract().Needs(kRingsSetUp).Provides(kParametersEqual).ConflictsWith(kParametersEqual);
}

absl::StatusOr<bool> BroadcastParams::Run(PassContext& context, ProgramPair& programs) const {
  if (programs.startup == nullptr) return false;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, StartupParameters(programs));
  std::vector<std::string> params;
  for (const std::string& name : all) {
    if (context.distributed_params.count(name) == 0) params.push_back(name);
  }
  const bool weft = context.dialect == Dialect::kWeft;
  if (weft ? params.empty() : all.empty()) return false;

  std::vector<std::vector<std::string>> of_ring(options_.nrings);
  for (size_t i = 0; i < params.size(); ++i) of_ring[i % options_.nrings].push_back(params[i]);

  Rewriter rewriter(programs.startup);
  const auto append = [&](const NewOp& op) { rewriter.Append(0, BuildOp(op, context.dialect)); };
  for (int ring = 0; weft && ring < options_.nrings; ++ring) {
    if (!of_ring[ring].empty()) append(Sync("c_wait_compute", of_ring[ring], ring));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const int ring = static_cast<int>(i % options_.nrings);
    append({"c_broadcast",
            {{"X", {params[i]}}},
            {{"Out", {params[i]}}},
            {{"ring_id", ring}, {"root", 0}, {"use_calc_stream", false}},
            kRoleForward});
    if (context.notes != nullptr) {
      context.notes->push_back({std::string(kName),
                                params[i],
                                "broadcast",
                                "all ranks start from the values of rank 0",
                                {{"ring", absl::StrCat(ring)}}});
    }
  }
  for (int ring = 0; ring < options_.nrings; ++ring) {
    if (!weft) {
      append(Sync("c_sync_comm_stream", {all.back()}, ring));
    } else if (!of_ring[ring].empty()) {
      append(Sync("c_wait_comm", of_ring[ring], ring));
    }
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
