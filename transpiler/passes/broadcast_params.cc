#include "transpiler/passes/broadcast_params.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "ops/analysis/op_traits.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

std::set<std::string> DeclaredParameters(const Program& program) {
  std::set<std::string> names;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (var.is_parameter()) names.insert(std::string(var.name()));
  }
  return names;
}

// For files that do not mark parameters: what backward pairs with a gradient or an optimizer
// updates, if it persists.
absl::StatusOr<std::set<std::string>> TrainedVariables(const Program& main) {
  std::set<std::string> names;
  const auto add = [&](Symbol symbol) {
    const VarId id = main.block(0).FindVar(symbol);
    if (id.valid() && main.var(id).persistable()) names.insert(std::string(main.name(symbol)));
  };
  WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> pairs, FindGradientPairs(main));
  for (const GradientPair& pair : pairs) add(pair.param);
  OpTraits traits(main);
  for (int block = 0; block < main.num_blocks(); ++block) {
    for (OpId id : main.block(block).ops()) {
      const Op op = main.op(id);
      if (!traits.Has(op, Trait::kOptimizer)) continue;
      for (Symbol symbol : op.Input("Param")) add(symbol);
    }
  }
  return names;
}

absl::StatusOr<std::set<std::string>> FindParameters(const ProgramPair& programs) {
  std::set<std::string> names = DeclaredParameters(*programs.main);
  for (const std::string& name : DeclaredParameters(*programs.startup)) names.insert(name);
  if (names.empty()) {
    WEFT_ASSIGN_OR_RETURN(names, TrainedVariables(*programs.main));
  }
  for (const std::string& name : names) {
    const Symbol symbol = programs.startup->FindSymbol(name);
    if (symbol.valid() && programs.startup->block(0).FindVar(symbol).valid()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name,
                     " of the main program is not declared in the startup "
                     "program: the two programs do not belong together"));
  }
  return names;
}

// In the order of the ops that write them first; those that no op writes come last, by name.
std::vector<std::string> InOrderOfInitializers(const Program& startup,
                                               std::set<std::string> names) {
  std::vector<std::string> ordered;
  for (OpId id : startup.block(0).ops()) {
    for (Symbol symbol : startup.op(id).output_args()) {
      const auto it = names.find(std::string(startup.name(symbol)));
      if (it == names.end()) continue;
      ordered.push_back(*it);
      names.erase(it);
    }
  }
  ordered.insert(ordered.end(), names.begin(), names.end());
  return ordered;
}

NewOp Sync(const std::string& type, const std::vector<std::string>& vars, int ring) {
  return {type, {{"X", vars}}, {{"Out", vars}}, {{"ring_id", ring}}, kRoleForward};
}

}  // namespace

void BroadcastParams::Options::Bind(OptionBinder& bind) { BindRings(bind, &nrings); }

const Contract& BroadcastParams::contract() const {
  static const auto* contract = new Contract{{kParametersEqual}, {kRingsSetUp}, {kParametersEqual}};
  return *contract;
}

absl::StatusOr<bool> BroadcastParams::Run(PassContext& context, ProgramPair& programs) const {
  if (programs.startup == nullptr) return false;
  WEFT_ASSIGN_OR_RETURN(std::set<std::string> names, FindParameters(programs));
  const std::vector<std::string> all = InOrderOfInitializers(*programs.startup, std::move(names));
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
