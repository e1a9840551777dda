#include "transpiler/passes/broadcast_params.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/op_traits.h"
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

// Which variables share memory: those that one op lays into a buffer, and the buffer.
class SharedStorage {
 public:
  explicit SharedStorage(const Program& program) : joined_(program.symbols().size()) {
    std::iota(joined_.begin(), joined_.end(), 0);
    OpTraits traits(program);
    for (OpId id : program.block(0).ops()) {
      const Op op = program.op(id);
      if (!traits.Has(op, Trait::kAlias)) continue;
      for (Symbol arg : op.args()) joined_[Find(arg.value())] = Find(op.args().front().value());
    }
  }

  // Equal for variables that share memory.
  uint32_t Of(Symbol variable) { return Find(variable.value()); }

 private:
  uint32_t Find(uint32_t symbol) {
    while (joined_[symbol] != symbol) symbol = joined_[symbol] = joined_[joined_[symbol]];
    return symbol;
  }

  std::vector<uint32_t> joined_;  // by symbol: itself, or one that shares its memory
};

// The ring of each parameter, in turn. Parameters that share memory travel on one ring, whose
// stream orders them. Paddle's transpiler does not look at what they share.
std::vector<int> AssignRings(const Program& startup, const std::vector<std::string>& params,
                             int nrings, Dialect dialect) {
  std::vector<int> rings;
  if (dialect == Dialect::kPaddle) {
    for (size_t i = 0; i < params.size(); ++i) rings.push_back(static_cast<int>(i % nrings));
    return rings;
  }
  SharedStorage storage(startup);
  absl::flat_hash_map<uint32_t, int> ring_of;
  for (const std::string& param : params) {
    const int next = static_cast<int>(ring_of.size() % nrings);
    rings.push_back(ring_of.emplace(storage.Of(startup.FindSymbol(param)), next).first->second);
  }
  return rings;
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

  const std::vector<int> rings =
      AssignRings(*programs.startup, params, options_.nrings, context.dialect);
  std::vector<std::vector<std::string>> of_ring(options_.nrings);
  for (size_t i = 0; i < params.size(); ++i) of_ring[rings[i]].push_back(params[i]);

  Rewriter rewriter(programs.startup);
  const auto append = [&](const NewOp& op) { rewriter.Append(0, BuildOp(op, context.dialect)); };
  for (int ring = 0; weft && ring < options_.nrings; ++ring) {
    if (!of_ring[ring].empty()) append(Sync("c_wait_compute", of_ring[ring], ring));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    append({"c_broadcast",
            {{"X", {params[i]}}},
            {{"Out", {params[i]}}},
            {{"ring_id", rings[i]}, {"root", 0}, {"use_calc_stream", false}},
            kRoleForward});
    if (context.remarks != nullptr) {
      context.remarks->push_back({std::string(kName),
                                  params[i],
                                  "broadcast",
                                  "all ranks start from the values of rank 0",
                                  {{"ring", absl::StrCat(rings[i])}}});
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
