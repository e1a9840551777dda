// The values of variables on ranks during a walk over a program.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_MEMORY_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_MEMORY_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/analysis/core/storage.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/op_role.h"
#include "proto/program.h"

namespace weft {

class RankMemory {
 public:
  // The members of a fused buffer, in order.
  using Group = std::vector<VarId>;
  // The value of a variable before a write.
  struct LogEntry {
    VarId var;
    RankValue held;
    bool is_held;  // from an earlier write
  };

  // Without a table (null), values have no expressions.
  RankMemory(const Program& program, ExpressionTable* table)
      : program_(program),
        table_(table),
        empty_(program.FindSymbol(kEmptyVarName)),
        storage_(program),
        fused_(program.var_id_limit(), nullptr),
        is_written_(program.var_id_limit(), false) {}

  // Starts with `values`, by VarId, no buffers and no writes. Values get expressions if
  // `has_expressions`, or from BeginExpressions on.
  void StartWalk(std::vector<RankValue> values, bool has_expressions);
  // From now on the value of a variable is Initial(name) times its power of `nranks`, whether or
  // not it was written before.
  void BeginExpressions(double nranks);
  bool BeganLater() const { return began_later_; }

  // The block in which names are looked up.
  int block() const { return block_; }
  void set_block(int block) { block_ = block; }

  // Invalid for an empty argument.
  VarId Resolve(Symbol name) const {
    if (name == empty_) return VarId();
    return block_ == 0 ? program_.block(0).FindVar(name) : program_.block(block_).Resolve(name);
  }
  // The value of an argument.
  RankValue Read(Symbol name) const;
  RankValue Read(VarId var) const { return WithExpr(values_[var.value()], var); }
  // Does nothing for an invalid variable.
  void Write(VarId var, const RankValue& value);

  const std::vector<RankValue>& values() const { return values_; }  // by VarId
  std::vector<RankValue> TakeValues() { return std::move(values_); }
  // Written in this walk.
  bool IsHeld(VarId var) const { return is_held_[var.value()]; }
  // By any walk.
  bool IsWritten(VarId var) const { return is_written_[var.value()]; }
  const std::vector<bool>& is_written() const { return is_written_; }  // by VarId

  const Storage& storage() const { return storage_; }
  // From now on the buffer consists of its parts.
  void Fuse(const Storage::Buffer& buffer);
  // The members of a fused buffer; null for other variables.
  const Group* GroupOf(Symbol name) const {
    const VarId var = Resolve(name);
    if (!var.valid() || fused_[var.value()] == nullptr) return nullptr;
    return &fused_[var.value()]->part_vars;
  }
  // Whether the members of two fused buffers are known to lie at the same elements. O(members).
  bool AreLaidOutAlike(Symbol a, Symbol b) const;
  // The members of a fused buffer, or the variable itself.
  Group MembersOf(Symbol name) const {
    const Group* group = GroupOf(name);
    return group == nullptr ? Group{Resolve(name)} : *group;
  }

  // EndLog returns the values at BeginLog of all variables that were written since, in the order of
  // their first writes. Logs nest; writes after the end of one belong to the one around it.
  void BeginLog() { logs_.emplace_back(); }
  std::vector<LogEntry> EndLog();
  // Restores the value before the write; returns the present one.
  RankValue TakeBack(const LogEntry& entry);
  RankValue HeldBefore(const LogEntry& entry) const { return WithExpr(entry.held, entry.var); }

 private:
  RankValue WithExpr(RankValue value, VarId var) const {
    if (has_expressions_ && !value.expr.valid()) {
      value.expr = table_->Initial(program_.var(var).name());
    }
    return value;
  }

  const Program& program_;
  ExpressionTable* const table_;
  bool has_expressions_ = false, began_later_ = false;
  const Symbol empty_;
  int block_ = 0;
  std::vector<RankValue> values_;  // by VarId
  std::vector<bool> is_held_;      // by VarId: written in this walk
  const Storage storage_;
  std::vector<const Storage::Buffer*> fused_;  // by VarId; null: no buffer
  std::vector<bool> is_written_;               // by VarId
  // Of the blocks that enclose the current op.
  std::vector<std::vector<LogEntry>> logs_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_MEMORY_H_
