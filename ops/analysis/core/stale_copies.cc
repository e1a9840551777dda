#include "ops/analysis/core/stale_copies.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_kinds.h"

namespace weft {
namespace {

bool HasShares(const Program& program, int block) {
  return absl::c_any_of(program.block(block).ops(),
                        [&](OpId id) { return SharesMemory(program.op(id).type()); });
}

class Finder {
 public:
  explicit Finder(const Program& program) : program_(program), storage_(program), args_(program) {}

  std::vector<StaleCopy> Find() {
    for (block_ = 0; block_ < program_.num_blocks(); ++block_) {
      if (!HasShares(program_, block_)) continue;
      names_.clear();
      groups_.clear();
      for (OpId id : program_.block(block_).ops()) Visit(program_.op(id));
      CheckEnd();
    }
    return std::move(found_);
  }

 private:
  // A variable, or several in one buffer.
  struct Name {
    Symbol symbol;
    size_t group = 0;  // into groups_
    OpId shares;       // that has put it, or another one, into the group
    OpId writes;       // valid: what it was before that op, in a copy
  };

  void Visit(const Op& op) {
    if (SharesMemory(op.type()) && op.Input("X").size() == 1 && op.Output("Out").size() == 1) {
      Read(op.id(), op.Input("X")[0]);
      return Share(op, op.Input("X")[0], op.Output("Out")[0]);
    }
    if (FindStreamSyncOp(op.type()).has_value()) return;  // touches no data
    reads_.clear();
    writes_.clear();
    args_.Append(op, &reads_, &writes_);
    for (Symbol name : reads_) Read(op.id(), name);
    for (Symbol name : writes_) Write(op.id(), name);
  }

  uint64_t ClassOf(Symbol name) const { return storage_.ClassOf(block_, name); }

  void Share(const Op& op, Symbol in, Symbol out) {
    const uint64_t from = ClassOf(in), to = ClassOf(out);
    if (from == to) return;
    Leave(to);
    const auto [it, is_new] = names_.try_emplace(from);
    if (is_new) {
      it->second = {in, groups_.size(), op.id(), OpId()};
      groups_.push_back({from});
    }
    const size_t group = it->second.group;
    groups_[group].push_back(to);
    names_[to] = {out, group, op.id(), OpId()};
  }

  void Leave(uint64_t name) {
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    std::vector<uint64_t>& group = groups_[found->second.group];
    group.erase(absl::c_find(group, name));
    names_.erase(found);
  }

  void Read(OpId op, Symbol name) {
    const auto found = names_.find(ClassOf(name));
    if (found == names_.end() || !found->second.writes.valid()) return;
    Report(&found->second, op);
  }

  void Write(OpId op, Symbol name) {
    const uint64_t written = ClassOf(name);
    const auto found = names_.find(written);
    if (found == names_.end()) return;
    found->second.writes = OpId();
    for (uint64_t other : groups_[found->second.group]) {
      if (other != written) names_.at(other).writes = op;
    }
  }

  void Report(Name* name, OpId reads) {
    found_.push_back({name->shares, name->writes, reads, name->symbol});
    name->writes = OpId();
  }

  // Values that are kept. Names of outer blocks are kept after an inner one.
  void CheckEnd() {
    for (const std::vector<uint64_t>& group : groups_) {
      for (uint64_t member : group) {
        Name& name = names_.at(member);
        const VarId var = program_.block(block_).Resolve(name.symbol);
        const bool is_kept =
            var.valid() && (program_.var(var).persistable() || program_.var(var).block() != block_);
        if (is_kept && name.writes.valid()) Report(&name, OpId());
      }
    }
  }

  const Program& program_;
  const Storage storage_;
  BlockArgs args_;
  int block_ = 0;
  absl::flat_hash_map<uint64_t, Name> names_;  // by class of storage
  std::vector<std::vector<uint64_t>> groups_;  // of names that share memory
  std::vector<Symbol> reads_, writes_;
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

std::vector<StaleCopy> FindStaleCopies(const Program& program) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    if (HasShares(program, block)) return Finder(program).Find();
  }
  return {};
}

}  // namespace weft
