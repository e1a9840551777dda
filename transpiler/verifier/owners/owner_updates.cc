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
#include "ops/analysis/core/block_args.h"
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

// An op of block 0, or of a block that ranks share out, and the ranks that run it, ascending.
struct OwnedOp {
  Op op;
  std::vector<size_t> owners;
  // Of an op that all ranks run, each for the gradients that it owns: by rank. Else empty.
  std::vector<Op> of_ranks;

  int block() const { return op.block(); }
  const Op& On(size_t rank) const { return of_ranks.empty() ? op : of_ranks[rank]; }
};

// The blocks of which ranks run different parts.
using SharedOut = std::set<int>;

bool RunsSharedOut(const Op& op, const SharedOut& shared_out) {
  return absl::c_any_of(op.SubBlocks(), [&](int block) { return shared_out.count(block) > 0; });
}

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

// Adds the ops of a block of all programs, each of which keeps its order; false: they do not fit
// together. An op belongs to the ranks that have it next, if no other rank has it later. After an
// op that runs a block of `shared_out`, the ops of that. Without ops that order streams, and
// without `makes_room`, by rank, if it is not empty.
bool MergeBlock(absl::Span<const ConstProgramPair> ranks, int block, const SharedOut& shared_out,
                const std::vector<std::set<OpId>>& makes_room, std::vector<OwnedOp>* merged) {
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
    for (OpId id : main.block(block).ops()) {
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
    if (is_done) return true;
    if (!found.has_value()) return false;
    bool have_own_lists = false;
    for (size_t rank : found->owners) {
      const Op op = ranks[rank].main->op(rest[rank][0]);
      have_own_lists |= op.bytes() != found->op.bytes();
      found->of_ranks.push_back(op);
    }
    if (!have_own_lists) found->of_ranks.clear();
    if (have_own_lists && found->owners.size() < ranks.size()) return false;
    for (size_t rank : found->owners) {
      --left[rank][next(rank)];
      rest[rank].remove_prefix(1);
    }
    const std::vector<int> blocks =
        RunsSharedOut(found->op, shared_out) ? found->op.SubBlocks() : std::vector<int>();
    if (!blocks.empty() && found->owners.size() < ranks.size()) return false;
    merged->push_back(*std::move(found));
    for (int inner : blocks) {
      if (!MergeBlock(ranks, inner, shared_out, makes_room, merged)) return false;
    }
  }
}

// Whether one op alone runs the block, a branch of block 0, and no op in it has blocks.
bool IsOfOneBranch(const Program& program, int block) {
  int branches = 0;
  for (const Op& op : AllOps(program)) {
    if (op.block() == block && !op.SubBlocks().empty()) return false;
    const int runs = static_cast<int>(absl::c_count(op.SubBlocks(), block));
    const OpSchema* const schema = FindOpSchema(op.type());
    const bool is_branch = schema != nullptr && schema->Has(Trait::kBranch) && op.block() == 0;
    if (runs > 0 && !is_branch) return false;
    branches += runs;
  }
  return branches == 1;
}

// None: blocks differ that ranks cannot share out. Those that no op runs count for nothing.
absl::optional<SharedOut> FindSharedOut(absl::Span<const ConstProgramPair> ranks) {
  const Program& first = *ranks[0].main;
  std::set<int> run;
  for (const ConstProgramPair& programs : ranks) {
    if (programs.main->num_blocks() != first.num_blocks()) return absl::nullopt;
    for (const Op& op : AllOps(*programs.main)) {
      for (int block : op.SubBlocks()) run.insert(block);
    }
  }
  SharedOut shared_out;
  for (int block : run) {
    const auto is_same = [&](const ConstProgramPair& programs) {
      return absl::c_equal(
          first.block(block).ops(), programs.main->block(block).ops(),
          [&](OpId x, OpId y) { return first.op(x).bytes() == programs.main->op(y).bytes(); });
    };
    if (absl::c_all_of(ranks, is_same)) continue;
    const auto is_of_branch = [&](const ConstProgramPair& programs) {
      return IsOfOneBranch(*programs.main, block);
    };
    if (!absl::c_all_of(ranks, is_of_branch)) return absl::nullopt;
    shared_out.insert(block);
  }
  return shared_out;
}

std::string RanksText(const std::vector<size_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// Adds the variables of a block that it lacks. False: it has one of that name that is another.
bool AddVars(const Program& from, int block, pb::BlockDesc* to) {
  std::map<absl::string_view, const pb::VarDesc*> known;
  for (const pb::VarDesc& var : to->vars()) known.emplace(var.name(), &var);
  std::vector<pb::VarDesc> added;
  for (VarId id : from.block(block).vars()) {
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

enum class Args { kReads, kWrites };

// Those of its blocks, too. Of an op that runs a block that ranks share out, its condition alone:
// the ops of the block come after it.
std::vector<Symbol> NamesOf(const Op& op, Args which, const SharedOut& shared_out) {
  const auto args_of = [&](const Op& one) {
    return which == Args::kReads ? one.input_args() : one.output_args();
  };
  if (RunsSharedOut(op, shared_out)) {
    const auto condition = op.Input("Cond");
    return which == Args::kReads ? std::vector<Symbol>(condition.begin(), condition.end())
                                 : std::vector<Symbol>();
  }
  std::vector<Symbol> names(args_of(op).begin(), args_of(op).end());
  for (const Op& inner : OpsInside(op)) {
    names.insert(names.end(), args_of(inner).begin(), args_of(inner).end());
  }
  return names;
}

// An all-reduce over what each rank has of its own under one name: its own op has written it.
struct PartialSum {
  size_t reduce;              // into the merged ops
  std::vector<size_t> parts;  // by rank: the op, into the merged ops
  std::string name;
};

// Sums, such as of the squares of the gradients that ranks own.
std::vector<PartialSum> FindPartialSums(const std::vector<OwnedOp>& ops,
                                        const SharedOut& shared_out, size_t num_ranks) {
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
      const auto runs_with_it = [&](const auto& part) {
        return ops[part.second].block() == op.block();
      };
      if (found != parts_of.end() && !found->second.is_read &&
          absl::c_all_of(found->second.by_rank, runs_with_it) &&
          found->second.by_rank.size() == num_ranks && ops[i].owners.size() == num_ranks) {
        PartialSum sum{i, {}, found->first};
        for (const auto& [rank, part] : found->second.by_rank) sum.parts.push_back(part);
        sums.push_back(std::move(sum));
      }
    }
    for (Symbol name : NamesOf(op, Args::kReads, shared_out))
      parts_of[name_of(name)].is_read = true;
    for (Symbol name : NamesOf(op, Args::kWrites, shared_out)) {
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
        const SharedOut& shared_out, const std::vector<PartialSum>& sums, OwnerUpdates* updates)
      : ranks_(ranks),
        ops_(ops),
        shared_out_(shared_out),
        merged_(updates->main),
        storage_(updates->main),
        findings_(updates->findings),
        unkept_(updates->unkept) {
    lacks_.resize(ranks.size());
    for (const PartialSum& sum : sums) parts_of_sums_.insert(sum.parts.begin(), sum.parts.end());
  }

  void Check() {
    for (int step = 0; step < 2 && !findings_.HasErrors(); ++step) {
      for (size_t i = 0; i < ops_.size() && !findings_.HasErrors(); ++i) {
        // From a branch to the next, too.
        if (ops_[i].block() == 0) ++part_of_step_;
        Visit(i);
      }
      if (!findings_.HasErrors()) CheckLosses();
      for (Lacks& lacks : lacks_) {
        absl::erase_if(lacks, [](const auto& entry) { return !entry.second.is_kept; });
      }
    }
    if (!findings_.HasErrors()) NoteStates();
  }

 private:
  struct Lack {
    size_t made_by;   // into ops_
    int64_t made_in;  // part_of_step_
    bool is_kept;     // persistable
    std::string name;
  };
  using Lacks = absl::flat_hash_map<uint64_t, Lack>;  // by class of Storage

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
      for (Symbol name : NamesOf(own, Args::kReads, shared_out_)) {
        Read(i, rank, own.program().name(name));
      }
      if (!keeps) continue;
      for (Symbol name : NamesOf(own, Args::kWrites, shared_out_)) {
        Read(i, rank, own.program().name(name));
      }
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const bool has =
          parts_of_sums_.count(i) > 0 ||
          (has_root && !sends ? rank == root : absl::c_binary_search(owned.owners, rank));
      for (Symbol name : NamesOf(op, Args::kWrites, shared_out_)) {
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
        const auto found = lacks_[rank].find(storage_.ClassOf(0, loss));
        if (found == lacks_[rank].end()) continue;
        Reporter({static_cast<int>(rank), false}, &findings_)
            .Add("W510", OpId(), name,
                 absl::StrCat("loss ", name, " has no value here, ", Where(found->second),
                              ": expected the op on all ranks"));
      }
    }
  }

  void Read(size_t i, size_t rank, absl::string_view name) {
    const auto found =
        lacks_[rank].find(storage_.ClassOf(ops_[i].block(), merged_.FindSymbol(name)));
    if (found == lacks_[rank].end() || findings_.HasErrors()) return;
    const std::string where = Where(found->second);
    Reporter({static_cast<int>(rank), false}, &findings_)
        .Add("W510", OpIn(rank, ops_[i].On(rank)), name,
             absl::StrCat(ops_[i].op.DebugName(), " reads ", name, " on rank ", rank, ", ", where,
                          ": expected a broadcast from there before, or the op on all ranks"));
  }

  void Write(size_t i, size_t rank, absl::string_view name, bool has) {
    const int block = ops_[i].block();
    const Symbol symbol = merged_.FindSymbol(name);
    const uint64_t key = storage_.ClassOf(block, symbol);
    const auto found = lacks_[rank].find(key);
    // What the rank has lacked before a branch, it lacks after it: the branch may not run.
    const bool lasts =
        block != 0 && found != lacks_[rank].end() && found->second.made_in != part_of_step_;
    if (lasts) return;
    if (!has) {
      const VarId var = merged_.block(block).Resolve(symbol);
      const bool is_kept = var.valid() && merged_.var(var).persistable();
      lacks_[rank].insert_or_assign(key, Lack{i, part_of_step_, is_kept, std::string(name)});
    } else if (!storage_.SharesMemory(block, symbol) && ops_[i].op.SubBlocks().empty()) {
      lacks_[rank].erase(key);  // of what shares memory, it may be another part
    }
  }

  // The same op in the program of a rank; invalid: it has none.
  OpId OpIn(size_t rank, const Op& op) const {
    for (OpId id : ranks_[rank].main->block(op.block()).ops()) {
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
  const SharedOut& shared_out_;
  const Program& merged_;
  const Storage storage_;
  Findings& findings_;
  std::set<std::string>& unkept_;
  std::vector<Lacks> lacks_;        // by rank
  int64_t part_of_step_ = 0;        // counts ops of block 0, each with the branch that it runs
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
      const VarId var = op.program().block(op.block()).Resolve(name);
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

// Whether the names of all ops in blocks, of each rank, mean there what they mean in the joined
// program: a block may hide a variable on some ranks alone.
bool MeanTheSame(absl::Span<const ConstProgramPair> ranks, const Program& joined) {
  for (const ConstProgramPair& programs : ranks) {
    const Program& main = *programs.main;
    std::set<std::pair<int, Symbol>> seen;
    const auto means_same = [&](int block, Symbol name) {
      if (!seen.insert({block, name}).second) return true;
      const VarId own = main.block(block).Resolve(name);
      const VarId other = joined.block(block).Resolve(joined.FindSymbol(main.name(name)));
      if (!own.valid() || !other.valid()) return own.valid() == other.valid();
      const Var var = main.var(own), in_joined = joined.var(other);
      return var.block() == in_joined.block() &&
             var.ToProto().SerializeAsString() == in_joined.ToProto().SerializeAsString();
    };
    for (OpId id : main.block(0).ops()) {
      for (const Op& op : OpsInside(main.op(id))) {
        const auto is_same = [&](Symbol name) { return means_same(op.block(), name); };
        if (!absl::c_all_of(op.args(), is_same)) return false;
      }
    }
  }
  return true;
}

// The program of all ranks, with the variables of all.
absl::optional<Program> Join(absl::Span<const ConstProgramPair> ranks,
                             const std::vector<OwnedOp>& ops, const SharedOut& shared_out,
                             const std::vector<PartialSum>& sums) {
  pb::ProgramDesc joined = ranks[0].main->ToProto();
  pb::BlockDesc* const root = joined.mutable_blocks(0);
  SharedOut blocks = shared_out;
  blocks.insert(0);
  for (int block : blocks) {
    pb::BlockDesc* const desc = joined.mutable_blocks(block);
    for (const ConstProgramPair& programs : ranks) {
      if (programs.main == ranks[0].main) continue;
      if (!AddVars(*programs.main, block, desc)) return absl::nullopt;
    }
    desc->clear_ops();
  }
  std::vector<pb::OpDesc*> descs;  // stay where they are
  for (const OwnedOp& owned : ops) {
    pb::OpDesc* const added = joined.mutable_blocks(owned.block())->add_ops();
    *added = owned.of_ranks.empty() ? owned.op.ToProto() : JoinedLists(owned);
    ReduceToAll(owned.op, added);
    descs.push_back(added);
  }
  for (const PartialSum& sum : sums) {
    pb::OpDesc add;
    add.set_type(SumSchema().type());
    pb::OpDesc::Var* const in = add.add_inputs();
    in->set_parameter("X");
    for (size_t rank = 0; rank < sum.parts.size(); ++rank) {
      const std::string name = absl::StrCat(sum.name, "@rank", rank);
      const Program& main = *ranks[rank].main;
      const VarId var = main.block(ops[sum.reduce].block()).Resolve(main.FindSymbol(sum.name));
      if (!var.valid()) return absl::nullopt;
      pb::VarDesc desc = main.var(var).ToProto();
      desc.set_name(name);
      *root->add_vars() = std::move(desc);
      in->add_arguments(name);
      pb::OpDesc* const part = descs[sum.parts[rank]];
      for (pb::OpDesc::Var& slot : *part->mutable_outputs()) {
        for (std::string& arg : *slot.mutable_arguments()) arg = name;
      }
    }
    pb::OpDesc* const reduce = descs[sum.reduce];
    *add.mutable_outputs() = reduce->outputs();
    for (const pb::OpDesc::Attr& attr : reduce->attrs()) {
      if (attr.name() == kOpRoleAttr) *add.add_attrs() = attr;
    }
    *reduce = std::move(add);
  }
  absl::StatusOr<Program> program = Program::FromProto(joined);
  if (!program.ok() || !MeanTheSame(ranks, *program)) return absl::nullopt;
  return *std::move(program);
}

// The same for programs that use one name for each variable.
absl::optional<OwnerUpdates> FindUpdates(absl::Span<const ConstProgramPair> ranks,
                                         const std::vector<std::set<OpId>>& makes_room) {
  const absl::optional<SharedOut> found = FindSharedOut(ranks);
  if (!found.has_value()) return absl::nullopt;
  const SharedOut& shared_out = *found;
  std::vector<OwnedOp> ops;
  if (!MergeBlock(ranks, 0, shared_out, makes_room, &ops)) return absl::nullopt;
  if (!HasOwnerUpdates(ops, ranks.size())) return absl::nullopt;
  if (!TellEachOther(ops, ranks.size())) return absl::nullopt;
  const std::vector<PartialSum> sums = FindPartialSums(ops, shared_out, ranks.size());
  absl::optional<Program> main = Join(ranks, ops, shared_out, sums);
  if (!main.has_value()) return absl::nullopt;
  const auto sends = absl::c_find_if(ops, [](const OwnedOp& owned) {
    const CollectiveOp* const collective = FindCollectiveOp(owned.op);
    return collective != nullptr && collective->kind == CollectiveKind::kBroadcast;
  });
  OwnerUpdates updates{*std::move(main), JoinStartup(ranks, sends->op), {}, Findings()};
  Reads(ranks, ops, shared_out, sums, &updates).Check();
  return updates;
}

}  // namespace

absl::optional<OwnerUpdates> FindOwnerUpdates(absl::Span<const ConstProgramPair> ranks) {
  const auto is_first = [&](const ConstProgramPair& programs) {
    return programs.main == ranks[0].main;
  };
  if (ranks.size() < 2 || absl::c_all_of(ranks, is_first)) return absl::nullopt;
  for (const ConstProgramPair& programs : ranks) {
    if (!UsesWholeRings(*programs.main)) return absl::nullopt;
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
