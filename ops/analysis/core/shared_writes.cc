#include "ops/analysis/core/shared_writes.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Follows the program as it runs: an op, then its blocks, twice where they may run again, and the
// next step, if memory is shared beyond the end.
class Finder {
 public:
  using Copies = absl::flat_hash_map<OpId, std::vector<SharedMemory>>;

  // `copies`: that the program is taken to have.
  Finder(const Program& program, const Storage& storage, const Copies& copies)
      : program_(program),
        storage_(storage),
        copies_(copies),
        runs_(program.num_blocks()),
        num_visits_(program.op_id_limit(), 0) {
    for (const Storage::Buffer& buffer : storage_.buffers()) {
      const uint64_t whole = storage_.KeyOf(buffer.block, buffer.name);
      for (Symbol name : buffer.parts) {
        const uint64_t part = storage_.KeyOf(buffer.block, name);
        parts_[whole].push_back(part);
        buffers_[part].push_back(whole);
      }
    }
  }

  std::vector<StaleCopy> Find() {
    RunStep();
    if (ForgetValues()) RunStep();
    return std::move(found_);
  }

  // After Find: the copies that the program can have.
  Copies PossibleCopies() const {
    Copies copies;
    for (const auto& [at, num] : possible_) {
      const auto& [op, in, out] = at;
      // An op that writes under both names has written what came last.
      if (num == num_visits_[op.value()] && possible_.count({op, out, in}) == 0) {
        copies[op].push_back({in, out});
      }
    }
    return copies;
  }

 private:
  // A variable that shares memory.
  struct Name {
    Symbol symbol;
    VarId var;
    size_t group = 0;  // into groups_
    OpId shares;       // that has put it, or another one, into the group
    OpId writes;       // valid: what it was before that op, in a copy
  };
  struct Group {
    std::vector<uint64_t> members;
    // Whole tensors share memory, and do so in every run of the program that comes here.
    bool is_plain = true;
  };
  // At a name, on the way to all that have memory of one that is written.
  struct Reached {
    uint64_t name;
    bool is_part;    // a part of it is written: other parts are not
    bool is_shared;  // only Paddle writes it
  };

  // A block has few ways into it that show something new, but their number may be exponential.
  static constexpr int kMaxRuns = 4;

  void RunStep() {
    absl::c_fill(runs_, 0);
    Run(0);
    for (const Group& group : groups_) {
      for (uint64_t member : group.members) {
        Name& name = names_.at(member);
        if (IsKept(name) && name.writes.valid()) Report(&name, OpId());
      }
    }
  }

  void Run(int block) {
    if (runs_[block]++ == kMaxRuns) return;
    const int outer = std::exchange(block_, block);
    for (OpId id : program_.block(block).ops()) Visit(program_.op(id));
    block_ = outer;
  }

  void Visit(const Op& op) {
    ++num_visits_[op.id().value()];
    const absl::Span<const SharedMemory> shared = storage_.SharedBy(op.id());
    if (!shared.empty()) {
      for (Symbol name : op.input_args()) Read(op.id(), name);
      for (const SharedMemory& pair : shared) Share(op, pair.in, pair.out);
      return;
    }
    if (FindStreamSyncOp(op.type()).has_value()) return;  // touches no data
    for (Symbol name : op.input_args()) Read(op.id(), name);
    const std::vector<int> blocks = op.SubBlocks();
    if (blocks.empty()) {
      for (Symbol name : op.output_args()) Write(op.id(), name);
      return;
    }
    const OpSchema* const schema = FindOpSchema(op.type());
    const int turns = schema != nullptr && schema->Has(Trait::kBranch) ? 1 : 2;
    const std::vector<Symbol> outer_written = std::exchange(written_, {});
    ++num_unsure_;
    for (int turn = 0; turn < turns; ++turn) {
      for (int block : std::set<int>(blocks.begin(), blocks.end())) Run(block);
    }
    // What ops of the block write under these names, they have written.
    const std::vector<Symbol> written = std::exchange(written_, outer_written);
    for (Symbol name : op.output_args()) {
      if (!absl::c_linear_search(written, name)) Write(op.id(), name);
    }
    --num_unsure_;
    written_.insert(written_.end(), written.begin(), written.end());
  }

  uint64_t KeyOf(Symbol name) const { return storage_.KeyOf(block_, name); }
  bool IsKept(const Name& name) const {
    return name.var.valid() && program_.var(name.var).persistable();
  }

  // Where it is not sure that an op runs, what was true before it may be true after it.
  void Share(const Op& op, Symbol in, Symbol out) {
    const uint64_t from = KeyOf(in), to = KeyOf(out);
    if (from == to) return;
    num_unsure_ == 0 ? Leave(to) : written_.push_back(out);
    const auto find = [&](Symbol symbol, uint64_t key) {
      const auto [it, is_new] = names_.try_emplace(key);
      if (is_new) {
        it->second = {symbol, program_.block(block_).Resolve(symbol), groups_.size(), OpId(),
                      OpId()};
        groups_.push_back({{key}});
      }
      return it->second.group;
    };
    size_t group = find(in, from), other = find(out, to);
    if (groups_[group].members.size() < groups_[other].members.size()) std::swap(group, other);
    groups_[group].is_plain &= num_unsure_ == 0 && IsPlain(op, from, to);
    if (group != other) {
      std::vector<uint64_t>& joins = groups_[other].members;
      for (uint64_t member : joins) names_.at(member).group = group;
      groups_[group].members.insert(groups_[group].members.end(), joins.begin(), joins.end());
      groups_[group].is_plain &= groups_[other].is_plain;
      joins.clear();
    }
    names_.at(to).shares = op.id();
    if (!names_.at(from).shares.valid()) names_.at(from).shares = op.id();
  }

  // Whether the op makes one whole tensor of two variables, neither of which is a part of another.
  bool IsPlain(const Op& op, uint64_t from, uint64_t to) const {
    if (AlgebraOf(op, FindOpSchema(op.type())) != Algebra::kCopy) return false;
    for (uint64_t key : {from, to}) {
      const VarId var = names_.at(key).var;
      if (!var.valid() || program_.var(var).type() == pb::VarType::LOD_TENSOR_ARRAY) return false;
      if (parts_.count(key) > 0 || buffers_.count(key) > 0) return false;
    }
    return DeclaredType(program_.var(names_.at(from).var)) ==
           DeclaredType(program_.var(names_.at(to).var));
  }

  void Leave(uint64_t key) {
    const auto found = names_.find(key);
    if (found == names_.end()) return;
    std::vector<uint64_t>& group = groups_[found->second.group].members;
    group.erase(absl::c_find(group, key));
    names_.erase(found);
  }

  void Read(OpId op, Symbol symbol) {
    if (names_.empty()) return;
    const uint64_t key = KeyOf(symbol);
    ReadOne(op, key);
    for (const auto* overlaps : {&parts_, &buffers_}) {
      const auto found = overlaps->find(key);
      if (found == overlaps->end()) continue;
      for (uint64_t other : found->second) ReadOne(op, other);
    }
  }
  void ReadOne(OpId op, uint64_t key) {
    const auto found = names_.find(key);
    if (found != names_.end() && found->second.writes.valid()) Report(&found->second, op);
  }

  void Write(OpId op, Symbol symbol) {
    if (names_.empty()) return;
    if (num_unsure_ > 0) written_.push_back(symbol);
    const uint64_t key = KeyOf(symbol);
    const auto parts = parts_.find(key);
    if (num_unsure_ == 0) {
      ForgetWrite(key);
      if (parts != parts_.end())
        absl::c_for_each(parts->second, [&](uint64_t k) { ForgetWrite(k); });
    }
    NotePossibleCopies(op, symbol, key);
    std::vector<Reached> open = {{key, false, false}};
    absl::flat_hash_set<uint64_t> reached = {key};
    absl::flat_hash_set<size_t> groups;
    const auto reach = [&](uint64_t name, bool is_part, bool is_shared) {
      if (reached.insert(name).second) open.push_back({name, is_part, is_shared});
    };
    while (!open.empty()) {
      const Reached at = open.back();
      open.pop_back();
      const auto found = names_.find(at.name);
      if (found != names_.end()) {
        if (at.is_shared) {
          if (!IsCopied(op, symbol, found->second.symbol)) {
            found->second.writes = op;
          } else if (num_unsure_ == 0) {
            found->second.writes = OpId();
          }
        }
        const size_t group = found->second.group;
        if (groups.insert(2 * group + (at.is_part ? 1 : 0)).second) {
          for (uint64_t member : groups_[group].members) reach(member, at.is_part, true);
        }
      }
      const auto buffers = buffers_.find(at.name);
      if (buffers != buffers_.end()) {
        for (uint64_t buffer : buffers->second) reach(buffer, true, at.is_shared);
      }
      const auto inside = parts_.find(at.name);
      if (inside == parts_.end() || at.is_part) continue;
      for (uint64_t part : inside->second) reach(part, false, at.is_shared);
    }
  }
  void NotePossibleCopies(OpId id, Symbol symbol, uint64_t key) {
    const auto found = names_.find(key);
    if (found == names_.end() || !groups_[found->second.group].is_plain) return;
    const Op op = program_.op(id);
    const bool is_on_other_stream =
        op.HasAttr("ring_id") && !op.BoolAttr("use_calc_stream").value_or(false);
    if (is_on_other_stream || !op.SubBlocks().empty()) return;
    for (uint64_t member : groups_[found->second.group].members) {
      const Symbol name = names_.at(member).symbol;
      if (member != key && KeyOf(name) == member) ++possible_[{id, symbol, name}];
    }
  }
  bool IsCopied(OpId op, Symbol in, Symbol out) const {
    const auto found = copies_.find(op);
    return found != copies_.end() && absl::c_any_of(found->second, [&](const SharedMemory& copy) {
             return copy.in == in && copy.out == out;
           });
  }
  void ForgetWrite(uint64_t key) {
    const auto found = names_.find(key);
    if (found != names_.end()) found->second.writes = OpId();
  }

  void Report(Name* name, OpId reads) {
    if (reported_.emplace(name->shares, name->writes, reads, name->symbol).second) {
      found_.push_back({name->shares, name->writes, reads, name->symbol});
    }
    name->writes = OpId();
  }

  // Variables that are not persistable are others in the next step. False: no memory is shared
  // then.
  bool ForgetValues() {
    bool is_any_shared = false;
    for (Group& group : groups_) {
      std::vector<uint64_t> kept;
      for (uint64_t member : group.members) {
        IsKept(names_.at(member)) ? kept.push_back(member) : (void)names_.erase(member);
      }
      group.members = std::move(kept);
      is_any_shared |= group.members.size() > 1;
    }
    return is_any_shared;
  }

  const Program& program_;
  const Storage& storage_;
  const Copies& copies_;
  absl::flat_hash_map<uint64_t, std::vector<uint64_t>> parts_, buffers_;  // by buffer, by part
  std::vector<int> runs_;                                                 // by block
  std::vector<int> num_visits_;                                           // by OpId
  // Numbers of visits of an op that writes under the first name, in which the second one takes it.
  std::map<std::tuple<OpId, Symbol, Symbol>, int> possible_;
  int block_ = 0;
  int num_unsure_ = 0;  // ops around this one whose blocks may not run
  absl::flat_hash_map<uint64_t, Name> names_;
  std::vector<Group> groups_;    // of names that share memory
  std::vector<Symbol> written_;  // in blocks of the op around this one
  absl::flat_hash_set<std::tuple<OpId, OpId, OpId, Symbol>> reported_;
  std::vector<StaleCopy> found_;
};

}  // namespace

std::string ToString(const Program& program, const StaleCopy& copy) {
  const std::string name = absl::CEscape(program.name(copy.name));
  const std::string reads = copy.reads.valid()
                                ? absl::StrCat(program.op(copy.reads).DebugName(), " reads ", name)
                                : absl::StrCat(name, " is kept");
  return absl::StrCat(program.op(copy.writes).DebugName(), " writes memory that ", name,
                      " shares by ", program.op(copy.shares).DebugName(), ", and ", reads,
                      " afterwards: expected the read before the write; in Paddle ", name,
                      " has what is written, in Weft what it had before");
}

SharedWrites FindSharedWrites(const Program& program) {
  SharedWrites writes;
  const Storage storage(program);
  if (!storage.SharesMemory()) return writes;
  Finder without(program, storage, writes.copies);
  writes.stale = without.Find();
  writes.copies = without.PossibleCopies();
  if (writes.copies.empty()) return writes;
  for (const StaleCopy& stale : writes.stale) {
    const auto copies = writes.copies.find(stale.writes);
    const auto is_of_name = [&](const SharedMemory& copy) { return copy.out == stale.name; };
    if (!stale.reads.valid() || copies == writes.copies.end()) continue;
    if (absl::c_any_of(copies->second, is_of_name)) writes.followed.push_back(stale);
  }
  writes.stale = Finder(program, storage, writes.copies).Find();
  return writes;
}

}  // namespace weft
