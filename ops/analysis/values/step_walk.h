// What the abstract interpretations of a step (rank_values.h, batch_flow.h) have in common: the
// walk over steps, ops, blocks and buffers, which variable a name means, and the values of
// variables on the way.
#ifndef WEFT_OPS_ANALYSIS_VALUES_STEP_WALK_H_
#define WEFT_OPS_ANALYSIS_VALUES_STEP_WALK_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/shared_writes.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/core/unguarded_reads.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/schema/communication_ops.h"
#include "proto/op_role.h"
#include "proto/program.h"

namespace weft {

// Which states begin the next step with a value of which least is known, so that walks end.
enum class Widening : uint8_t {
  kNone,
  kChanged,  // those that the step changes
  kAll,      // those that the step writes
};

// A walk over a program, which keeps one value for each variable. A subclass knows what ops make of
// values.
template <typename Value>
class StepWalk {
 public:
  // The value of a variable before the first write of a block.
  struct LogEntry {
    VarId var;
    Value value;
    bool is_held;  // from an earlier write
  };

  explicit StepWalk(const ProgramFacts& facts)
      : program_(facts.program()),
        facts_(facts),
        empty_(program_.FindSymbol(kEmptyVarName)),
        signatures_(facts.Get<SignatureTable>()),
        storage_(facts.Get<Storage>()),
        copies_(facts.Get(FindSharedWrites).copies) {
    for (const UnguardedRead& read : facts.Get(FindUnguardedReads)) unguarded_.insert(read.var);
  }
  virtual ~StepWalk() = default;

  const SignatureFacts& FactsOf(const Op& op) const { return signatures_.Of(op); }

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
  // Null: the variable is no buffer.
  const Storage::Buffer* BufferOf(VarId var) const {
    return var.valid() ? buffers_[var.value()] : nullptr;
  }
  // Of a buffer, in order; empty for another variable.
  absl::Span<const VarId> PartsOf(VarId var) const {
    const Storage::Buffer* const buffer = BufferOf(var);
    return buffer == nullptr ? absl::Span<const VarId>() : buffer->part_vars;
  }

 protected:
  // Sets the values at the start of a step, by VarId, and forgets what the last walk has met.
  virtual void BeginStep(std::vector<Value>* values) = 0;
  virtual void WalkStep() { Walk(0); }
  // Has the next step begin with what this one leaves. Returns whether that changes anything.
  virtual bool CarryOver(Widening widening) = 0;

  virtual void VisitIgnored(const Op& op) = 0;
  virtual void VisitFeed(const Op& op) = 0;
  // Of a buffer that the op makes. `source`: what it copies there; invalid: nothing.
  virtual void VisitPart(const Op& op, const Storage::Buffer& buffer, VarId part,
                         Symbol source) = 0;
  virtual void VisitCollective(const Op& op, const CollectiveOp& collective) = 0;
  virtual void VisitBranch(const Op& op) = 0;
  virtual void VisitLoop(const Op& op, const SignatureFacts& facts) = 0;  // or an unknown op
  virtual void VisitBlockGrad(const Op& op, const SignatureFacts& facts) = 0;
  virtual void VisitFunction(const Op& op, const SignatureFacts& facts) = 0;

  // Walks until a step leaves to the next what it found, or once.
  void WalkSteps(bool is_once) {
    // A state may hand its value to another in each walk.
    constexpr int kWalksOfShortChains = 8, kMaxWalks = 65;
    for (int walk = 1; walk <= kMaxWalks; ++walk) {
      BeginStep(&values_);
      is_held_.assign(values_.size(), false);
      buffers_.assign(values_.size(), nullptr);
      visits_.assign(program_.num_blocks(), {});
      WalkStep();
      const Widening widening = walk + 1 >= kMaxWalks        ? Widening::kAll
                                : walk > kWalksOfShortChains ? Widening::kChanged
                                                             : Widening::kNone;
      if (is_once || !CarryOver(widening)) return;
    }
  }

  // Visits the ops of a block, in order; meanwhile, names are looked up there.
  void Walk(int block) {
    const int around = std::exchange(block_, block);
    WalkOps(program_.block(block).ops());
    block_ = around;
  }
  void WalkOps(absl::Span<const OpId> ops) {
    for (OpId id : ops) {
      Visit(program_.op(id));
      if (!copies_.empty()) CopyShared(id);
    }
  }
  int block() const { return block_; }
  std::vector<Value> TakeValues() { return std::move(values_); }

  virtual void Visit(const Op& op) {
    const SignatureFacts& facts = FactsOf(op);
    switch (facts.kind) {
      case SignatureFacts::Kind::kIgnored:
        return VisitIgnored(op);
      case SignatureFacts::Kind::kFeed:
        return VisitFeed(op);
      case SignatureFacts::Kind::kFuse:
        return VisitFuse(op);
      case SignatureFacts::Kind::kCollective:
        return VisitCollective(op, *FindCollectiveOp(op));
      case SignatureFacts::Kind::kBranch:
        return VisitBranch(op);
      case SignatureFacts::Kind::kOpaqueBlock:
        return VisitLoop(op, facts);
      case SignatureFacts::Kind::kBlockGrad:
        return VisitBlockGrad(op, facts);
      case SignatureFacts::Kind::kFunction:
        return VisitFunction(op, facts);
    }
  }

  // Counts a visit of the block. Returns how many came before.
  int CountVisit(int block) {
    BlockVisits& visits = visits_[block];
    if (visits.number > 0) return visits.number++;
    for (OpId id : program_.block(block).ops()) {
      for (Symbol name : program_.op(id).output_args()) {
        const VarId var = program_.block(block).Resolve(name);
        if (var.valid()) visits.written.push_back(var);
      }
    }
    return visits.number++;
  }

  // Walks over a block that may not run. Does not follow it from itself, nor after `max_visits`:
  // the number of ways into a block may be exponential in the size of the program. Has variables
  // hold what they did before, and calls leave(entry, inside, is_followed) for each that the block
  // writes and that outlives it, in the order of the first writes. Returns whether it follows it.
  template <typename Leave>
  bool WalkBlock(int block, int max_visits, const Leave& leave) {
    BlockVisits& visits = visits_[block];
    const bool is_followed = CountVisit(block) < max_visits && !visits.is_open;
    logs_.emplace_back();
    if (is_followed) {
      visits.is_open = true;
      Walk(block);
      visits.is_open = false;
    } else {
      for (VarId var : visits.written) Write(var, at(var));
    }
    const std::vector<LogEntry> log = std::exchange(logs_.back(), {});
    logs_.pop_back();
    absl::flat_hash_set<VarId> seen;
    std::vector<VarId> written;
    for (const LogEntry& entry : log) {
      const Var var = program_.var(entry.var);
      if (!seen.insert(entry.var).second) continue;
      // A persistable variable outlives the run of its block.
      if (var.block() == block && !var.persistable()) continue;
      is_held_[entry.var.value()] = entry.is_held;
      if (is_followed) written.push_back(entry.var);
      leave(entry, std::exchange(at(entry.var), entry.value), is_followed);
    }
    if (is_followed) visits.written = std::move(written);
    return is_followed;
  }

  const Program& program_;
  const ProgramFacts facts_;

 private:
  // Of a block, in this step.
  struct BlockVisits {
    int number = 0;
    bool is_open = false;
    std::vector<VarId> written;  // by its own ops; once it has been left, by all, and outlives it
  };

  // From now on the buffer consists of its parts.
  void VisitFuse(const Op& op) {
    const Storage::Buffer& buffer = *storage_.MadeBy(op.id());
    for (size_t i = 0; i < buffer.parts.size(); ++i) {
      const VarId part = Resolve(buffer.parts[i]);
      const bool is_copied = buffer.copies && i < buffer.sources.size();
      if (part.valid()) VisitPart(op, buffer, part, is_copied ? buffer.sources[i] : Symbol());
    }
    if (buffer.var.valid()) buffers_[buffer.var.value()] = &buffer;
  }

  // What the op has written under one name, it has written under another.
  void CopyShared(OpId op) {
    const auto found = copies_.find(op);
    if (found == copies_.end()) return;
    for (const auto& [in, out] : found->second) Write(Resolve(out), at(Resolve(in)));
  }

  const Symbol empty_;
  int block_ = 0;
  const SignatureTable& signatures_;
  const Storage& storage_;
  const decltype(SharedWrites::copies)& copies_;  // hardly ever any
  std::vector<Value> values_;                     // by VarId
  std::vector<bool> is_held_;                     // by VarId
  absl::flat_hash_set<VarId> unguarded_;          // hardly ever any
  std::vector<const Storage::Buffer*> buffers_;   // by VarId; null: no buffer
  std::vector<BlockVisits> visits_;               // by block
  // Of the blocks that enclose the current op.
  std::vector<std::vector<LogEntry>> logs_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_STEP_WALK_H_
