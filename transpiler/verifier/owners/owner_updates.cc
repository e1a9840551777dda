#include "transpiler/verifier/owners/owner_updates.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/training/losses.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/verifier/owners/received_names.h"

namespace weft {
namespace {

// An op of block 0, and the ranks that run it, ascending.
struct OwnedOp {
  Op op;
  std::vector<size_t> owners;
  // Of an op that all ranks run, each for the gradients that it owns: by rank. Else empty.
  std::vector<Op> of_ranks;

  const Op& On(size_t rank) const { return of_ranks.empty() ? op : of_ranks[rank]; }
};

// Scales lists of gradients, tensor by tensor.
bool ScalesLists(const Op& op) {
  return UnscalesGradients(op.type()) || UpdatesLossScale(op.type());
}

// Of an op that scales lists: without these.
std::string BytesWithoutLists(const Op& op) {
  pb::OpDesc desc = op.ToProto();
  for (auto* slots : {desc.mutable_inputs(), desc.mutable_outputs()}) {
    for (pb::OpDesc::Var& slot : *slots) {
      if (slot.parameter() == "X" || slot.parameter() == "Out") slot.clear_arguments();
    }
  }
  return desc.SerializeAsString();
}

// With the lists of all ranks.
pb::OpDesc JoinedLists(const OwnedOp& owned) {
  pb::OpDesc joined = owned.op.ToProto();
  std::vector<std::string> from, to;
  for (const Op& op : owned.of_ranks) {
    const absl::Span<const Symbol> x = op.Input("X"), out = op.Output("Out");
    for (size_t i = 0; i < std::min(x.size(), out.size()); ++i) {
      std::string name(op.program().name(x[i]));
      if (absl::c_linear_search(from, name)) continue;
      from.push_back(std::move(name));
      to.emplace_back(op.program().name(out[i]));
    }
  }
  const auto set = [](const char* slot, const std::vector<std::string>& names, auto* slots) {
    for (pb::OpDesc::Var& var : *slots) {
      if (var.parameter() == slot) *var.mutable_arguments() = {names.begin(), names.end()};
    }
  };
  set("X", from, joined.mutable_inputs());
  set("Out", to, joined.mutable_outputs());
  return joined;
}

bool TouchesNoData(const Op& op) {
  const OpSchema* const schema = FindOpSchema(op.type());
  return schema != nullptr && schema->Has(Trait::kStreamSync);
}

// The ops of all programs, each of which keeps its order; none: they do not fit together. An op
// belongs to the ranks that have it next, if no other rank has it later. Without ops that order
// streams, and without `makes_room`, by rank, if it is not empty.
absl::optional<std::vector<OwnedOp>> Merge(absl::Span<const ConstProgramPair> ranks,
                                           const std::vector<std::set<OpId>>& makes_room) {
  std::vector<std::vector<OpId>> merges(ranks.size());
  std::vector<absl::Span<const OpId>> rest;
  std::vector<absl::flat_hash_map<absl::string_view, int>> left;  // by rank and key
  std::vector<std::map<OpId, std::string>> list_keys(ranks.size());
  const auto key_of = [&](size_t rank, OpId id) -> absl::string_view {
    const auto found = list_keys[rank].find(id);
    return found == list_keys[rank].end() ? ranks[rank].main->op(id).bytes() : found->second;
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Program& main = *ranks[rank].main;
    auto& counts = left.emplace_back();
    for (OpId id : main.block(0).ops()) {
      if (!makes_room.empty() && makes_room[rank].count(id) > 0) continue;
      if (TouchesNoData(main.op(id))) continue;
      merges[rank].push_back(id);
      if (ScalesLists(main.op(id))) {
        list_keys[rank].emplace(id, BytesWithoutLists(main.op(id)));
      }
      ++counts[key_of(rank, id)];
    }
    rest.push_back(merges[rank]);
  }
  const auto next = [&](size_t rank) { return key_of(rank, rest[rank][0]); };
  std::vector<OwnedOp> merged;
  while (true) {
    absl::optional<OwnedOp> found;
    bool is_done = true;
    for (size_t first = 0; first < ranks.size() && !found.has_value(); ++first) {
      if (rest[first].empty()) continue;
      is_done = false;
      const absl::string_view bytes = next(first);
      std::vector<size_t> owners;
      bool comes_later = false;
      for (size_t rank = 0; rank < ranks.size() && !comes_later; ++rank) {
        const bool has_next = !rest[rank].empty() && next(rank) == bytes;
        if (has_next) owners.push_back(rank);
        const auto count = left[rank].find(bytes);
        comes_later = !has_next && count != left[rank].end() && count->second > 0;
      }
      if (comes_later) continue;
      found = OwnedOp{ranks[first].main->op(rest[first][0]), std::move(owners), {}};
    }
    if (is_done) return merged;
    if (!found.has_value()) return absl::nullopt;
    bool have_own_lists = false;
    for (size_t rank : found->owners) {
      const Op op = ranks[rank].main->op(rest[rank][0]);
      have_own_lists |= op.bytes() != found->op.bytes();
      found->of_ranks.push_back(op);
    }
    if (!have_own_lists) found->of_ranks.clear();
    if (have_own_lists && found->owners.size() < ranks.size()) return absl::nullopt;
    for (size_t rank : found->owners) {
      --left[rank][next(rank)];
      rest[rank].remove_prefix(1);
    }
    merged.push_back(*std::move(found));
  }
}

// Whether the programs have the same blocks but for block 0, and those that no op runs.
bool HaveSameBlocks(const Program& a, const Program& b) {
  if (a.num_blocks() != b.num_blocks()) return false;
  std::set<int> run;
  for (const Program* program : {&a, &b}) {
    for (const Op& op : AllOps(*program)) {
      for (int block : op.SubBlocks()) run.insert(block);
    }
  }
  for (int block : run) {
    const auto is_same = [&](OpId x, OpId y) { return a.op(x).bytes() == b.op(y).bytes(); };
    if (!absl::c_equal(a.block(block).ops(), b.block(block).ops(), is_same)) return false;
  }
  return true;
}

std::string RanksText(const std::vector<size_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// Adds the variables that it lacks. False: it has one of that name that is another.
bool AddVars(const Program& from, pb::BlockDesc* to) {
  std::map<absl::string_view, const pb::VarDesc*> known;
  for (const pb::VarDesc& var : to->vars()) known.emplace(var.name(), &var);
  std::vector<pb::VarDesc> added;
  for (VarId id : from.block(0).vars()) {
    pb::VarDesc var = from.var(id).ToProto();
    const auto found = known.find(var.name());
    if (found == known.end()) {
      added.push_back(std::move(var));
    } else if (found->second->SerializeAsString() != var.SerializeAsString()) {
      return false;
    }
  }
  for (pb::VarDesc& var : added) *to->add_vars() = std::move(var);
  return true;
}

// An op that reduces to one rank, as one that reduces to all.
void ReduceToAll(const Op& op, pb::OpDesc* desc) {
  const CollectiveOp* const collective = FindCollectiveOp(op);
  if (collective == nullptr || collective->kind != CollectiveKind::kReduce) return;
  const CollectiveOp& sum = *FindCollectiveOp(kMergedBySum);
  desc->set_type(std::string(collective->in == sum.in ? sum.type : InPaddle3(sum)->type));
  auto* const attrs = desc->mutable_attrs();
  const auto is_root = [&](const pb::OpDesc::Attr& attr) {
    return attr.name() == collective->root_attr;
  };
  attrs->erase(std::remove_if(attrs->begin(), attrs->end(), is_root), attrs->end());
}

// An all-reduce over what each rank has of its own under one name: its own op has written it.
struct PartialSum {
  size_t reduce;              // into the merged ops
  std::vector<size_t> parts;  // by rank: the op, into the merged ops
  std::string name;
};

// Sums, such as of the squares of the gradients that ranks own.
std::vector<PartialSum> FindPartialSums(const std::vector<OwnedOp>& ops, size_t num_ranks) {
  struct Parts {
    std::map<size_t, size_t> by_rank;
    bool is_read = false;  // before the sum
  };
  std::map<std::string, Parts> parts_of;
  std::vector<PartialSum> sums;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i].op;
    const CollectiveOp* const collective = FindCollectiveOp(op);
    const auto name_of = [&](Symbol name) { return std::string(op.program().name(name)); };
    if (collective != nullptr && collective->kind == CollectiveKind::kAllReduce &&
        collective->reduction == Reduction::kSum && collective->in == "X" &&
        op.input_args() == op.output_args() && op.input_args().size() == 1) {
      const auto found = parts_of.find(name_of(op.input_args()[0]));
      if (found != parts_of.end() && !found->second.is_read &&
          found->second.by_rank.size() == num_ranks && ops[i].owners.size() == num_ranks) {
        PartialSum sum{i, {}, found->first};
        for (const auto& [rank, part] : found->second.by_rank) sum.parts.push_back(part);
        sums.push_back(std::move(sum));
      }
    }
    for (Symbol name : op.input_args()) parts_of[name_of(name)].is_read = true;
    for (Symbol name : op.output_args()) {
      Parts& parts = parts_of[name_of(name)];
      const bool is_own = ops[i].owners.size() == 1 && collective == nullptr &&
                          op.output_args().size() == 1 && op.SubBlocks().empty();
      if (!is_own || parts.is_read) parts = Parts();
      if (is_own) parts.by_rank[ops[i].owners[0]] = i;
    }
  }
  return sums;
}

// Whether nobody reads what a rank has found in the gradients that it owns before an all-reduce has
// found the same of all, but for casts; nor what the search has left in gradients before they are
// zero wherever any of all is not finite.
bool TellEachOther(const std::vector<OwnedOp>& ops, size_t num_ranks) {
  std::set<std::string> own;                    // flags
  std::map<std::string, std::string> unscaled;  // gradients, and the flag of their search
  for (const OwnedOp& owned : ops) {
    const Op& op = owned.op;
    if ((!own.empty() || !unscaled.empty()) && !op.SubBlocks().empty()) return false;
    const auto name_of = [&](Symbol name) { return std::string(op.program().name(name)); };
    const CollectiveOp* const collective = FindCollectiveOp(op);
    const bool is_alike = owned.owners.size() == num_ranks && owned.of_ranks.empty() &&
                          op.input_args().size() == 1 && op.output_args().size() == 1;
    const bool casts = is_alike && own.count(name_of(op.input_args()[0])) > 0 &&
                       AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kCast;
    const bool tells = is_alike && collective != nullptr &&
                       collective->kind == CollectiveKind::kAllReduce &&
                       collective->reduction == Reduction::kMax;
    const std::vector<Op> runs = owned.of_ranks.empty() ? std::vector<Op>{op} : owned.of_ranks;
    for (const Op& run : runs) {
      for (Symbol in : run.input_args()) {
        const std::string name(run.program().name(in));
        if (own.count(name) > 0 && !casts && !tells) return false;
        const auto found = unscaled.find(name);
        if (found == unscaled.end()) continue;
        const absl::Span<const Symbol> flag = run.Input("FoundInfinite");
        const bool makes_zero = UpdatesLossScale(run.type()) && flag.size() == 1 &&
                                run.program().name(flag[0]) == found->second;
        if (!makes_zero) return false;
      }
    }
    for (const Op& run : runs) {
      for (Symbol out : run.output_args()) {
        own.erase(std::string(run.program().name(out)));
        unscaled.erase(std::string(run.program().name(out)));
      }
    }
    if (casts) own.insert(name_of(op.output_args()[0]));
    if (owned.of_ranks.empty() || !UnscalesGradients(op.type())) continue;
    const absl::Span<const Symbol> flag = op.Output("FoundInfinite");
    if (flag.size() != 1) return false;
    own.insert(name_of(flag[0]));
    for (const Op& run : runs) {
      for (Symbol out : run.Output("Out")) {
        unscaled[std::string(run.program().name(out))] = name_of(flag[0]);
      }
    }
  }
  return own.empty() && unscaled.empty();
}

// Follows on which ranks a variable lacks the value that the owners of its last op have.
class Reads {
 public:
  Reads(absl::Span<const ConstProgramPair> ranks, const std::vector<OwnedOp>& ops,
        const std::vector<PartialSum>& sums, OwnerUpdates* updates)
      : ranks_(ranks),
        ops_(ops),
        merged_(updates->main),
        storage_(updates->main),
        findings_(updates->findings),
        unkept_(updates->unkept) {
    lacks_.resize(ranks.size());
    for (const PartialSum& sum : sums) parts_of_sums_.insert(sum.parts.begin(), sum.parts.end());
  }

  void Check() {
    for (int step = 0; step < 2 && !findings_.HasErrors(); ++step) {
      for (size_t i = 0; i < ops_.size() && !findings_.HasErrors(); ++i) Visit(i);
      if (!findings_.HasErrors()) CheckLosses();
      for (Lacks& lacks : lacks_) {
        absl::erase_if(lacks, [](const auto& entry) { return !entry.second.is_kept; });
      }
    }
    if (!findings_.HasErrors()) NoteStates();
  }

 private:
  struct Lack {
    size_t made_by;  // into ops_
    bool is_kept;    // persistable
    std::string name;
  };
  using Lacks = absl::flat_hash_map<uint64_t, Lack>;  // by class of Storage

  uint64_t ClassOf(absl::string_view name) const {
    return storage_.ClassOf(0, merged_.FindSymbol(name));
  }

  void Visit(size_t i) {
    const OwnedOp& owned = ops_[i];
    const Op& op = owned.op;
    const OpSchema* const schema = FindOpSchema(op.type());
    const CollectiveOp* const collective = FindCollectiveOp(op);
    const bool has_root = collective != nullptr && HasRoot(collective->kind);
    const size_t root =
        has_root ? static_cast<size_t>(op.IntAttr(collective->root_attr).value_or(0)) : 0;
    const bool sends = has_root && collective->kind == CollectiveKind::kBroadcast;
    const bool keeps = schema != nullptr && schema->Has(Trait::kKeepsOutputs);
    for (size_t rank : owned.owners) {
      if (sends && rank != root) continue;  // what it has is overwritten
      const Op& own = owned.On(rank);
      for (Symbol name : NamesOf(own, /*reads=*/true)) Read(i, rank, own.program().name(name));
      if (!keeps) continue;
      for (Symbol name : NamesOf(own, /*reads=*/false)) Read(i, rank, own.program().name(name));
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const bool has =
          parts_of_sums_.count(i) > 0 ||
          (has_root && !sends ? rank == root : absl::c_binary_search(owned.owners, rank));
      for (Symbol name : NamesOf(op, /*reads=*/false)) {
        Write(i, rank, op.program().name(name), has && owned.of_ranks.empty());
      }
      if (owned.of_ranks.empty()) continue;
      // What another rank owns, it lacks.
      for (const Op& other : owned.of_ranks) {
        for (Symbol name : other.output_args()) Write(i, rank, other.program().name(name), false);
      }
      const Op& own = owned.On(rank);
      for (Symbol name : own.output_args()) Write(i, rank, own.program().name(name), true);
    }
  }

  // Those of its blocks, too.
  static std::vector<Symbol> NamesOf(const Op& op, bool reads) {
    const auto args = reads ? op.input_args() : op.output_args();
    std::vector<Symbol> names(args.begin(), args.end());
    std::vector<int> blocks = op.SubBlocks();
    std::set<int> seen(blocks.begin(), blocks.end());
    while (!blocks.empty()) {
      const int block = blocks.back();
      blocks.pop_back();
      if (block < 0 || block >= op.program().num_blocks()) continue;  // layer 1 says it
      for (OpId id : op.program().block(block).ops()) {
        const Op inner = op.program().op(id);
        const auto more = reads ? inner.input_args() : inner.output_args();
        names.insert(names.end(), more.begin(), more.end());
        for (int next : inner.SubBlocks()) {
          if (seen.insert(next).second) blocks.push_back(next);
        }
      }
    }
    return names;
  }

  // Why a rank lacks it.
  std::string Where(const Lack& lack) const {
    const OwnedOp& writer = ops_[lack.made_by];
    const CollectiveOp* const collective = FindCollectiveOp(writer.op);
    if (collective != nullptr) {
      return absl::StrCat(writer.op.DebugName(), " reduces it to rank ",
                          writer.op.IntAttr(collective->root_attr).value_or(0), " alone");
    }
    return absl::StrCat("of which ", RanksText(writer.owners), " alone ",
                        writer.owners.size() == 1 ? "runs " : "run ", writer.op.DebugName());
  }

  // Each rank shows its own.
  void CheckLosses() {
    for (Symbol loss : FindLosses(merged_)) {
      const absl::string_view name = merged_.name(loss);
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const auto found = lacks_[rank].find(ClassOf(name));
        if (found == lacks_[rank].end()) continue;
        Reporter({static_cast<int>(rank), false}, &findings_)
            .Add("W510", OpId(), name,
                 absl::StrCat("loss ", name, " has no value here, ", Where(found->second),
                              ": expected the op on all ranks"));
      }
    }
  }

  void Read(size_t i, size_t rank, absl::string_view name) {
    const auto found = lacks_[rank].find(ClassOf(name));
    if (found == lacks_[rank].end() || findings_.HasErrors()) return;
    const std::string where = Where(found->second);
    Reporter({static_cast<int>(rank), false}, &findings_)
        .Add("W510", OpIn(rank, ops_[i].On(rank)), name,
             absl::StrCat(ops_[i].op.DebugName(), " reads ", name, " on rank ", rank, ", ", where,
                          ": expected a broadcast from there before, or the op on all ranks"));
  }

  void Write(size_t i, size_t rank, absl::string_view name, bool has) {
    const Symbol symbol = merged_.FindSymbol(name);
    const uint64_t key = storage_.ClassOf(0, symbol);
    if (!has) {
      const VarId var = merged_.block(0).FindVar(symbol);
      const bool is_kept = var.valid() && merged_.var(var).persistable();
      lacks_[rank].insert_or_assign(key, Lack{i, is_kept, std::string(name)});
    } else if (!storage_.SharesMemory(0, symbol) && ops_[i].op.SubBlocks().empty()) {
      lacks_[rank].erase(key);  // of what shares memory, it may be another part
    }
  }

  // The same op in the program of a rank; invalid: it has none.
  OpId OpIn(size_t rank, const Op& op) const {
    for (OpId id : ranks_[rank].main->block(0).ops()) {
      if (ranks_[rank].main->op(id).bytes() == op.bytes()) return id;
    }
    return OpId();
  }

  void NoteStates() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::set<std::string> names;
      for (const auto& [key, lack] : lacks_[rank]) names.insert(lack.name);
      if (names.empty()) continue;
      unkept_.insert(names.begin(), names.end());
      Reporter({static_cast<int>(rank), false}, &findings_)
          .Add("W521", OpId(), *names.begin(),
               absl::StrCat("rank ", rank, " keeps no value of ", absl::StrJoin(names, ", "),
                            ": only the ranks that update by it do"));
    }
  }

  const absl::Span<const ConstProgramPair> ranks_;
  const std::vector<OwnedOp>& ops_;
  const Program& merged_;
  const Storage storage_;
  Findings& findings_;
  std::set<std::string>& unkept_;
  std::vector<Lacks> lacks_;        // by rank
  std::set<size_t> parts_of_sums_;  // into ops_: ranks have such of their own
};

// Whether some ranks alone update a state, and a rank sends to the others.
bool HasOwnerUpdates(const std::vector<OwnedOp>& ops, size_t num_ranks) {
  bool updates = false, sends = false;
  for (const OwnedOp& owned : ops) {
    const Op& op = owned.op;
    const CollectiveOp* const collective = FindCollectiveOp(op);
    if (owned.owners.size() == num_ranks) {
      sends |= collective != nullptr && collective->kind == CollectiveKind::kBroadcast;
      continue;
    }
    if (collective != nullptr || !op.SubBlocks().empty()) return false;
    updates |= absl::c_any_of(op.output_args(), [&](Symbol name) {
      const VarId var = op.program().block(0).FindVar(name);
      return var.valid() && op.program().var(var).persistable();
    });
  }
  return updates && sends;
}

// Whether ranks exchange values by collectives over all ranks alone.
bool UsesWholeRings(const Program& program) {
  return absl::c_none_of(AllOps(program), [](const Op& op) {
    return FindMessageOp(op.type()).has_value() || FindServerOp(op.type()).has_value() ||
           op.HasAttr(kGroupRanksAttr);
  });
}

// Whether two startup programs do the same to the variables that both have.
bool StartAlike(const Program& a, const Program& b) {
  const auto common = [](const Program& of, const Program& other) {
    std::vector<absl::string_view> ops;
    for (OpId id : of.block(0).ops()) {
      const Op op = of.op(id);
      const OpSchema* const schema = FindOpSchema(op.type());
      if (schema != nullptr && schema->Has(Trait::kRingSetup)) continue;  // says whose rank it is
      const auto is_common = [&](Symbol name) {
        return other.block(0).FindVar(other.FindSymbol(of.name(name))).valid();
      };
      if (absl::c_any_of(op.output_args(), is_common)) ops.push_back(op.bytes());
    }
    return ops;
  };
  return common(a, b) == common(b, a);
}

// Adds broadcasts, such as this one, of the variables that one rank alone makes: no other rank has
// another value.
void SendFromOwners(absl::Span<const ConstProgramPair> ranks, const Op& broadcast,
                    pb::BlockDesc* root) {
  std::map<std::string, std::set<size_t>> makers;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Program& startup = *ranks[rank].startup;
    for (OpId id : startup.block(0).ops()) {
      for (Symbol name : startup.op(id).output_args()) {
        const VarId var = startup.block(0).FindVar(name);
        const bool is_kept = var.valid() && startup.var(var).persistable() &&
                             DeclaredType(startup.var(var)).has_value();
        if (is_kept) makers[std::string(startup.name(name))].insert(rank);
      }
    }
  }
  const std::string root_attr(FindCollectiveOp(broadcast)->root_attr);
  for (const auto& [name, by] : makers) {
    if (by.size() != 1) continue;
    pb::OpDesc op = broadcast.ToProto();
    for (auto* slots : {op.mutable_inputs(), op.mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        for (std::string& arg : *slot.mutable_arguments()) arg = name;
      }
    }
    for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
      if (attr.name() == root_attr) attr.set_i(static_cast<int32_t>(*by.begin()));
    }
    *root->add_ops() = std::move(op);
  }
}

// With this broadcast of the main program.
absl::optional<Program> JoinStartup(absl::Span<const ConstProgramPair> ranks, const Op& broadcast) {
  for (const ConstProgramPair& programs : ranks) {
    if (programs.startup == nullptr) return absl::nullopt;
  }
  pb::ProgramDesc joined = ranks[0].startup->ToProto();
  pb::BlockDesc* const root = joined.mutable_blocks(0);
  std::set<std::string> known;
  for (const pb::VarDesc& var : root->vars()) known.insert(var.name());
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const Program& startup = *ranks[rank].startup;
    const std::set<std::string> before = known;
    for (OpId id : startup.block(0).ops()) {
      const Op op = startup.op(id);
      const auto is_new = [&](Symbol name) {
        return before.count(std::string(startup.name(name))) == 0;
      };
      const bool is_of_owner =
          !op.output_args().empty() && absl::c_all_of(op.output_args(), is_new);
      if (!is_of_owner || !op.SubBlocks().empty() || FindCollectiveOp(op) != nullptr) continue;
      const OpSchema* const schema = FindOpSchema(op.type());
      if (schema != nullptr && schema->Has(Trait::kRingSetup)) continue;
      for (Symbol name : op.output_args()) {
        const VarId var = startup.block(0).FindVar(name);
        if (var.valid() && known.insert(std::string(startup.name(name))).second) {
          *root->add_vars() = startup.var(var).ToProto();
        }
      }
      *root->add_ops() = op.ToProto();
    }
  }
  SendFromOwners(ranks, broadcast, root);
  absl::StatusOr<Program> program = Program::FromProto(joined);
  if (!program.ok()) return absl::nullopt;
  return *std::move(program);
}

// The program of all ranks, with the variables of all.
absl::optional<Program> Join(absl::Span<const ConstProgramPair> ranks,
                             const std::vector<OwnedOp>& ops, const std::vector<PartialSum>& sums) {
  pb::ProgramDesc joined = ranks[0].main->ToProto();
  pb::BlockDesc* const root = joined.mutable_blocks(0);
  for (const ConstProgramPair& programs : ranks) {
    if (programs.main != ranks[0].main && !AddVars(*programs.main, root)) return absl::nullopt;
  }
  root->clear_ops();
  for (const OwnedOp& owned : ops) {
    pb::OpDesc* const added = root->add_ops();
    *added = owned.of_ranks.empty() ? owned.op.ToProto() : JoinedLists(owned);
    ReduceToAll(owned.op, added);
  }
  for (const PartialSum& sum : sums) {
    pb::OpDesc add;
    add.set_type(SumSchema().type());
    pb::OpDesc::Var* const in = add.add_inputs();
    in->set_parameter("X");
    for (size_t rank = 0; rank < sum.parts.size(); ++rank) {
      const std::string name = absl::StrCat(sum.name, "@rank", rank);
      const Program& main = *ranks[rank].main;
      const VarId var = main.block(0).FindVar(main.FindSymbol(sum.name));
      if (!var.valid()) return absl::nullopt;
      pb::VarDesc desc = main.var(var).ToProto();
      desc.set_name(name);
      *root->add_vars() = std::move(desc);
      in->add_arguments(name);
      pb::OpDesc* const part = root->mutable_ops(static_cast<int>(sum.parts[rank]));
      for (pb::OpDesc::Var& slot : *part->mutable_outputs()) {
        for (std::string& arg : *slot.mutable_arguments()) arg = name;
      }
    }
    pb::OpDesc* const reduce = root->mutable_ops(static_cast<int>(sum.reduce));
    *add.mutable_outputs() = reduce->outputs();
    for (const pb::OpDesc::Attr& attr : reduce->attrs()) {
      if (attr.name() == kOpRoleAttr) *add.add_attrs() = attr;
    }
    *reduce = std::move(add);
  }
  absl::StatusOr<Program> program = Program::FromProto(joined);
  if (!program.ok()) return absl::nullopt;
  return *std::move(program);
}

// The same for programs that use one name for each variable.
absl::optional<OwnerUpdates> FindUpdates(absl::Span<const ConstProgramPair> ranks,
                                         const std::vector<std::set<OpId>>& makes_room) {
  const absl::optional<std::vector<OwnedOp>> ops = Merge(ranks, makes_room);
  if (!ops.has_value() || !HasOwnerUpdates(*ops, ranks.size())) return absl::nullopt;
  if (!TellEachOther(*ops, ranks.size())) return absl::nullopt;
  const std::vector<PartialSum> sums = FindPartialSums(*ops, ranks.size());
  absl::optional<Program> main = Join(ranks, *ops, sums);
  if (!main.has_value()) return absl::nullopt;
  const auto sends = absl::c_find_if(*ops, [](const OwnedOp& owned) {
    const CollectiveOp* const collective = FindCollectiveOp(owned.op);
    return collective != nullptr && collective->kind == CollectiveKind::kBroadcast;
  });
  OwnerUpdates updates{*std::move(main), JoinStartup(ranks, sends->op), {}, Findings()};
  Reads(ranks, *ops, sums, &updates).Check();
  return updates;
}

}  // namespace

absl::optional<OwnerUpdates> FindOwnerUpdates(absl::Span<const ConstProgramPair> ranks) {
  const auto is_first = [&](const ConstProgramPair& programs) {
    return programs.main == ranks[0].main;
  };
  if (ranks.size() < 2 || absl::c_all_of(ranks, is_first)) return absl::nullopt;
  const Program& first = *ranks[0].main;
  for (const ConstProgramPair& programs : ranks) {
    if (!HaveSameBlocks(first, *programs.main) || !UsesWholeRings(*programs.main)) {
      return absl::nullopt;
    }
  }
  for (const ConstProgramPair& programs : ranks) {
    const Program* const startup = programs.startup;
    if (startup == nullptr || ranks[0].startup == nullptr) continue;
    if (!StartAlike(*ranks[0].startup, *startup)) return absl::nullopt;
  }
  const absl::optional<std::vector<RenamedProgram>> renamed = WithNamesOfOwners(ranks);
  if (!renamed.has_value()) return FindUpdates(ranks, {});
  std::vector<ConstProgramPair> of_owners;
  std::vector<std::set<OpId>> makes_room;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    of_owners.push_back({&(*renamed)[rank].main, ranks[rank].startup});
    makes_room.push_back((*renamed)[rank].makes_room);
  }
  return FindUpdates(of_owners, makes_room);
}

}  // namespace weft
