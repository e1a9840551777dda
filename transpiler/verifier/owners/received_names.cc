#include "transpiler/verifier/owners/received_names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

std::vector<Op> BroadcastsOf(const Program& program) {
  std::vector<Op> broadcasts;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const CollectiveOp* const collective = FindCollectiveOp(op);
    if (collective != nullptr && collective->kind == CollectiveKind::kBroadcast) {
      broadcasts.push_back(op);
    }
  }
  return broadcasts;
}

// By name on a rank: the owner's declaration.
using Owned = std::map<std::string, Var>;

// Of one broadcast, on a rank: false if the names do not correspond.
bool Match(const Op& op, const Op& of_owner, Owned* owned) {
  const CollectiveOp& collective = *FindCollectiveOp(op);
  const auto name_of = [&](const Op& one) -> absl::optional<Symbol> {
    const auto in = collective.Inputs(one), out = collective.Outputs(one);
    if (in.size() != 1 || out.size() != 1 || in[0] != out[0]) return absl::nullopt;
    return in[0];
  };
  const absl::optional<Symbol> here = name_of(op), there = name_of(of_owner);
  if (!here.has_value() || !there.has_value()) return false;
  const Program& program = op.program();
  const std::string name(program.name(*here));
  const absl::string_view of_other = of_owner.program().name(*there);
  if (name == of_other) return owned->count(name) == 0;
  const VarId own = program.block(0).FindVar(*here);
  const VarId var = of_owner.program().block(0).FindVar(*there);
  const Symbol taken = program.FindSymbol(of_other);
  const auto names_it = [&](const Op& one) { return absl::c_linear_search(one.args(), taken); };
  if (!own.valid() || program.var(own).persistable() || !var.valid() ||
      (taken.valid() && absl::c_any_of(AllOps(program), names_it))) {
    return false;
  }
  const auto [known, is_new] = owned->emplace(name, of_owner.program().var(var));
  return is_new || known->second.name() == of_other;
}

absl::optional<Program> Rename(const Program& program, const Owned& owned) {
  pb::ProgramDesc desc = program.ToProto();
  const auto rename = [&](std::string* name) {
    const auto found = owned.find(*name);
    if (found != owned.end()) *name = std::string(found->second.name());
  };
  for (pb::BlockDesc& block : *desc.mutable_blocks()) {
    for (pb::OpDesc& op : *block.mutable_ops()) {
      for (auto* slots : {op.mutable_inputs(), op.mutable_outputs()}) {
        for (pb::OpDesc::Var& slot : *slots) {
          for (std::string& arg : *slot.mutable_arguments()) rename(&arg);
        }
      }
      for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
        if (attr.name() != kOpRoleVarAttr) continue;
        for (std::string& name : *attr.mutable_strings()) rename(&name);
      }
    }
  }
  absl::flat_hash_set<std::string> taken;
  for (const auto& [name, var] : owned) taken.emplace(var.name());
  auto* const vars = desc.mutable_blocks(0)->mutable_vars();
  vars->erase(std::remove_if(vars->begin(), vars->end(),
                             [&](const pb::VarDesc& var) {
                               return owned.count(var.name()) > 0 || taken.contains(var.name());
                             }),
              vars->end());
  std::set<absl::string_view> added;
  for (const auto& [name, var] : owned) {
    if (added.insert(var.name()).second) *vars->Add() = var.ToProto();
  }
  absl::StatusOr<Program> renamed = Program::FromProto(desc);
  if (!renamed.ok()) return absl::nullopt;
  return *std::move(renamed);
}

// The ops that write received variables only, and read nothing, before the broadcast that is the
// next op to name them.
std::set<OpId> FindMakesRoom(const Program& program, const Owned& owned) {
  std::set<OpId> found;
  std::map<Symbol, OpId> made_by;  // for which the broadcast is still to come
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema != nullptr && schema->Has(Trait::kStreamSync)) continue;
    const CollectiveOp* const collective = FindCollectiveOp(op);
    const bool receives = collective != nullptr && collective->kind == CollectiveKind::kBroadcast;
    const auto is_owned = [&](Symbol name) {
      return owned.count(std::string(program.name(name))) > 0;
    };
    for (Symbol name : op.args()) {
      const auto made = made_by.find(name);
      if (made == made_by.end()) continue;
      if (receives) found.insert(made->second);
      made_by.erase(made);
    }
    const bool makes = op.output_args().size() == 1 && op.input_args().empty() &&
                       is_owned(op.output_args()[0]) && op.SubBlocks().empty();
    if (makes) made_by[op.output_args()[0]] = id;
  }
  return found;
}

}  // namespace

absl::optional<std::vector<RenamedProgram>> WithNamesOfOwners(
    absl::Span<const ConstProgramPair> ranks) {
  std::vector<std::vector<Op>> broadcasts;
  for (const ConstProgramPair& programs : ranks) {
    broadcasts.push_back(BroadcastsOf(*programs.main));
    if (broadcasts.back().size() != broadcasts[0].size()) return absl::nullopt;
  }
  std::vector<Owned> owned(ranks.size());
  for (size_t i = 0; i < broadcasts[0].size(); ++i) {
    const CollectiveOp& collective = *FindCollectiveOp(broadcasts[0][i]);
    const int64_t owner = broadcasts[0][i].IntAttr(collective.root_attr).value_or(0);
    if (owner < 0 || owner >= static_cast<int64_t>(ranks.size())) return absl::nullopt;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const Op& op = broadcasts[rank][i];
      if (op.IntAttr(collective.root_attr).value_or(0) != owner ||
          !Match(op, broadcasts[owner][i], &owned[rank])) {
        return absl::nullopt;
      }
    }
  }
  if (absl::c_all_of(owned, [](const Owned& of_rank) { return of_rank.empty(); })) {
    return absl::nullopt;
  }
  std::vector<RenamedProgram> renamed;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Program& main = *ranks[rank].main;
    absl::optional<Program> program = Rename(main, owned[rank]);
    if (!program.has_value()) return absl::nullopt;
    renamed.push_back({*std::move(program), FindMakesRoom(main, owned[rank])});
  }
  return renamed;
}

}  // namespace weft
