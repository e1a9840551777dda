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
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
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

// The ops that run, each once.
std::vector<Op> OpsThatRun(const Program& program) {
  std::vector<Op> ops;
  absl::flat_hash_set<OpId> seen;
  for (OpId id : program.block(0).ops()) {
    ops.push_back(program.op(id));
    for (const Op& inner : OpsInside(program.op(id))) {
      if (seen.insert(inner.id()).second) ops.push_back(inner);
    }
  }
  return ops;
}

// Of one broadcast, on a rank whose ops have the names `used`: false if the names do not
// correspond.
bool Match(const Op& op, const Op& of_owner, const absl::flat_hash_set<Symbol>& used,
           Owned* owned) {
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
  if (!own.valid() || program.var(own).persistable() || !var.valid() ||
      used.contains(program.FindSymbol(of_other))) {
    return false;
  }
  const auto [known, is_new] = owned->emplace(name, of_owner.program().var(var));
  return is_new || known->second.name() == of_other;
}

// Whether no rank means another variable by a name under which one receives, in any block: all
// blocks and attributes can then name the owner's.
bool HaveOneMeaning(absl::Span<const ConstProgramPair> ranks, const std::vector<Owned>& owned,
                    const std::vector<absl::flat_hash_set<Symbol>>& used) {
  const auto declares_inside = [](const Program& program, absl::string_view name) {
    for (int block = 1; block < program.num_blocks(); ++block) {
      if (program.block(block).FindVar(program.FindSymbol(name)).valid()) return true;
    }
    return false;
  };
  for (size_t receiver = 0; receiver < ranks.size(); ++receiver) {
    for (const auto& [name, var] : owned[receiver]) {
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const Program& program = *ranks[rank].main;
        if (declares_inside(program, name) || declares_inside(program, var.name())) return false;
        const auto found = owned[rank].find(name);
        const Symbol symbol = program.FindSymbol(name);
        const bool has_other =
            found == owned[rank].end()
                ? used[rank].contains(symbol) || program.block(0).FindVar(symbol).valid()
                : found->second.name() != var.name();
        if (has_other) return false;
      }
    }
  }
  return true;
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

// What the owner of a variable does to it between broadcasts: for each of its broadcasts, the n-th
// of block 0, whether the owner has written it since the one before.
std::vector<bool> AreNew(const Program& program, const std::vector<Op>& broadcasts) {
  const Storage storage(program);
  absl::flat_hash_set<uint64_t> written;  // classes
  std::vector<bool> are_new;
  absl::flat_hash_set<uint64_t> sent;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (are_new.size() < broadcasts.size() && broadcasts[are_new.size()].id() == id) {
      const uint64_t key = storage.ClassOf(0, FindCollectiveOp(op)->Inputs(op)[0]);
      const bool is_changed = written.erase(key) > 0;
      are_new.push_back(sent.insert(key).second || is_changed);
      continue;
    }
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema != nullptr && schema->Has(Trait::kStreamSync)) continue;
    for (Symbol name : op.output_args()) written.insert(storage.ClassOf(0, name));
    for (const Op& inner : OpsInside(op)) {
      for (Symbol name : inner.output_args()) written.insert(storage.ClassOf(inner.block(), name));
    }
  }
  return are_new;
}

// Whether a rank reads each name under which it receives a variable of another after a broadcast
// of the same step, and, of several names for one variable, while it has the last value that the
// rank has received; it writes none of several.
// `are_new`: of the n-th broadcast.
bool ReadsLastReceived(const Program& program, const std::vector<Op>& broadcasts,
                       const std::vector<bool>& are_new, const Owned& owned,
                       const std::set<OpId>& makes_room) {
  std::map<std::string, std::set<std::string>> names_of;  // by name of the owner
  for (const auto& [name, var] : owned) names_of[std::string(var.name())].insert(name);
  std::map<std::string, std::set<std::string>> last;
  size_t next = 0;
  const auto is_right = [&](Symbol symbol, bool writes) {
    const std::string name(program.name(symbol));
    const auto found = owned.find(name);
    if (found == owned.end()) return true;
    const std::string of(found->second.name());
    return writes ? names_of[of].size() == 1 : last[of].count(name) > 0;
  };
  const auto is_op_right = [&](const Op& op) {
    const auto reads = [&](Symbol name) { return is_right(name, /*writes=*/false); };
    const auto writes = [&](Symbol name) { return is_right(name, /*writes=*/true); };
    return absl::c_all_of(op.input_args(), reads) && absl::c_all_of(op.output_args(), writes);
  };
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (next < broadcasts.size() && broadcasts[next].id() == id) {
      const std::string name(program.name(FindCollectiveOp(op)->Inputs(op)[0]));
      const auto found = owned.find(name);
      if (found != owned.end()) {
        std::set<std::string>& names = last[std::string(found->second.name())];
        if (are_new[next]) names.clear();
        names.insert(name);
      }
      ++next;
      continue;
    }
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema != nullptr && schema->Has(Trait::kStreamSync)) continue;
    if (makes_room.count(id) > 0) {
      const std::string name(program.name(op.output_args()[0]));
      last[std::string(owned.at(name).name())].erase(name);
      continue;
    }
    if (!is_op_right(op) || !absl::c_all_of(OpsInside(op), is_op_right)) return false;
  }
  return true;
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
  std::vector<absl::flat_hash_set<Symbol>> used(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Op& op : OpsThatRun(*ranks[rank].main)) {
      used[rank].insert(op.args().begin(), op.args().end());
    }
  }
  std::vector<size_t> owners;
  for (size_t i = 0; i < broadcasts[0].size(); ++i) {
    const CollectiveOp& collective = *FindCollectiveOp(broadcasts[0][i]);
    const int64_t owner = broadcasts[0][i].IntAttr(collective.root_attr).value_or(0);
    if (owner < 0 || owner >= static_cast<int64_t>(ranks.size())) return absl::nullopt;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const Op& op = broadcasts[rank][i];
      if (op.IntAttr(collective.root_attr).value_or(0) != owner ||
          !Match(op, broadcasts[owner][i], used[rank], &owned[rank])) {
        return absl::nullopt;
      }
    }
    owners.push_back(static_cast<size_t>(owner));
  }
  if (absl::c_all_of(owned, [](const Owned& of_rank) { return of_rank.empty(); })) {
    return absl::nullopt;
  }
  if (!HaveOneMeaning(ranks, owned, used)) return absl::nullopt;
  std::vector<std::vector<bool>> are_new_of;  // by owner
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    are_new_of.push_back(AreNew(*ranks[rank].main, broadcasts[rank]));
  }
  std::vector<bool> are_new;
  for (size_t i = 0; i < owners.size(); ++i) are_new.push_back(are_new_of[owners[i]][i]);
  std::vector<RenamedProgram> renamed;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Program& main = *ranks[rank].main;
    std::set<OpId> makes_room = FindMakesRoom(main, owned[rank]);
    if (!ReadsLastReceived(main, broadcasts[rank], are_new, owned[rank], makes_room)) {
      return absl::nullopt;
    }
    absl::optional<Program> program = Rename(main, owned[rank]);
    if (!program.has_value()) return absl::nullopt;
    renamed.push_back({*std::move(program), std::move(makes_room)});
  }
  return renamed;
}

}  // namespace weft
