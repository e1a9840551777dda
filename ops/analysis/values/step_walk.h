// What the abstract interpretations of a step (rank_values.h, batch_flow.h) have in common: which
// variable a name means, the values of variables on the way, buffers, and what a block changes.
#ifndef WEFT_OPS_ANALYSIS_VALUES_STEP_WALK_H_
#define WEFT_OPS_ANALYSIS_VALUES_STEP_WALK_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/core/unguarded_reads.h"
#include "ops/analysis/values/signature_facts.h"
#include "proto/op_role.h"
#include "proto/program.h"

namespace weft {

// A state may hand its value to another in each walk. For states that still change after the first
// of these walks the least is assumed; after the second, for all that the step writes.
constexpr int kWalksOfShortChains = 8;
constexpr int kMaxWalks = 64;

// A walk over a program, which keeps one value for each variable.
template <typename Value>
class StepWalk {
 public:
  // The value of a variable before the first write of a block.
  struct LogEntry {
    VarId var;
    Value value;
    bool is_held;  // from an earlier write
  };

  explicit StepWalk(const Program& program)
      : program_(program),
        empty_(program.FindSymbol(kEmptyVarName)),
        facts_(program.num_signatures()),
        storage_(program),
        buffers_(program.var_id_limit(), nullptr) {
    for (const UnguardedRead& read : FindUnguardedReads(program)) unguarded_.insert(read.var);
  }

  // Starts with `values`, by VarId, no buffers and no writes.
  void Start(std::vector<Value> values) {
    values_ = std::move(values);
    is_held_.assign(values_.size(), false);
    std::fill(buffers_.begin(), buffers_.end(), nullptr);
    logs_.clear();
  }

  // Visits the ops of a block, in order; meanwhile, names are looked up there.
  template <typename Visit>
  void Over(int block, const Visit& visit) {
    const int around = std::exchange(block_, block);
    for (OpId id : program_.block(block).ops()) visit(program_.op(id));
    block_ = around;
  }
  int block() const { return block_; }

  // Derived once for each signature.
  const SignatureFacts& FactsOf(const Op& op) {
    SignatureFacts& facts = facts_[op.signature_id()];
    if (!facts.is_made) facts = MakeSignatureFacts(op);
    return facts;
  }

  // Invalid for an empty argument. Blocks of gradients see the variables of those that they
  // differentiate.
  VarId Resolve(Symbol name) const {
    if (name == empty_) return VarId();
    if (block_ == 0) return program_.block(0).FindVar(name);
    for (int b = block_; b != -1; b = program_.block(b).parent_idx()) {
      const Block& block = program_.block(b);
      VarId var = block.FindVar(name);
      const int forward = block.forward_block_idx();
      if (!var.valid() && forward >= 0 && forward < program_.num_blocks()) {
        var = program_.block(forward).FindVar(name);
      }
      if (var.valid()) return var;
    }
    return VarId();
  }

  const Value& at(VarId var) const { return values_[var.value()]; }
  Value& at(VarId var) { return values_[var.value()]; }
  const std::vector<Value>& values() const { return values_; }  // by VarId
  std::vector<Value> TakeValues() { return std::move(values_); }
  void Write(VarId var, const Value& value) {
    Value& held = values_[var.value()];
    if (!logs_.empty()) logs_.back().push_back({var, held, is_held_[var.value()]});
    is_held_[var.value()] = true;
    held = value;
  }
  // Written in this walk.
  bool IsHeld(VarId var) const { return is_held_[var.value()]; }
  const std::vector<bool>& is_held() const { return is_held_; }  // by VarId

  // Whether ops may read what an earlier step has left in the variable: it is persistable, or only
  // blocks write it that may not run.
  bool OutlivesStep(VarId var) const {
    return program_.var(var).persistable() || unguarded_.contains(var);
  }

  const Storage& storage() const { return storage_; }
  // From now on the buffer consists of its parts.
  void Fuse(const Storage::Buffer& buffer) {
    if (buffer.var.valid()) buffers_[buffer.var.value()] = &buffer;
  }
  // Null: the variable is no buffer.
  const Storage::Buffer* BufferOf(VarId var) const {
    return var.valid() ? buffers_[var.value()] : nullptr;
  }

  // EndLog returns the values at BeginLog of all variables that were written since, in the order of
  // their first writes. Logs nest; writes after the end of one belong to the one around it.
  void BeginLog() { logs_.emplace_back(); }
  std::vector<LogEntry> EndLog() {
    std::vector<LogEntry> log = std::move(logs_.back());
    logs_.pop_back();
    absl::flat_hash_set<VarId> seen;
    log.erase(std::remove_if(log.begin(), log.end(),
                             [&](const LogEntry& entry) { return !seen.insert(entry.var).second; }),
              log.end());
    return log;
  }
  // Restores the value before the write; returns the present one.
  Value TakeBack(const LogEntry& entry) {
    is_held_[entry.var.value()] = entry.is_held;
    return std::exchange(values_[entry.var.value()], entry.value);
  }

 protected:
  const Program& program_;

 private:
  const Symbol empty_;
  int block_ = 0;
  std::vector<SignatureFacts> facts_;  // by signature
  std::vector<Value> values_;          // by VarId
  std::vector<bool> is_held_;          // by VarId
  const Storage storage_;
  absl::flat_hash_set<VarId> unguarded_;         // hardly ever any
  std::vector<const Storage::Buffer*> buffers_;  // by VarId; null: no buffer
  // Of the blocks that enclose the current op.
  std::vector<std::vector<LogEntry>> logs_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_STEP_WALK_H_
