#include "ops/analysis/rank_memory.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace weft {

void RankMemory::StartWalk(const std::vector<RankValue>& values) {
  values_ = values;
  is_held_.assign(program_.var_id_limit(), false);
  std::fill(fused_.begin(), fused_.end(), -1);
  groups_.clear();
  logs_.clear();
}

RankValue RankMemory::Read(Symbol name) const {
  const VarId var = Resolve(name);
  if (var.valid()) return Read(var);
  RankValue nothing;
  if (table_ != nullptr) nothing.expr = table_->Initial(kEmptyVarName);
  return nothing;
}

void RankMemory::Write(VarId var, const RankValue& value) {
  if (!var.valid()) return;
  RankValue& held = values_[var.value()];
  if (!logs_.empty()) logs_.back().push_back({var, held, is_held_[var.value()]});
  is_held_[var.value()] = true;
  is_written_[var.value()] = true;
  held = value;
}

void RankMemory::Fuse(VarId buffer, Group members) {
  fused_[buffer.value()] = static_cast<int>(groups_.size());
  groups_.push_back(std::move(members));
}

std::vector<RankMemory::LogEntry> RankMemory::EndLog() {
  const std::vector<LogEntry> log = std::move(logs_.back());
  logs_.pop_back();
  std::vector<LogEntry> first_writes;
  absl::flat_hash_set<VarId> seen;
  for (const LogEntry& entry : log) {
    if (seen.insert(entry.var).second) first_writes.push_back(entry);
  }
  return first_writes;
}

RankValue RankMemory::TakeBack(const LogEntry& entry) {
  return std::exchange(values_[entry.var.value()], entry.held);
}

}  // namespace weft
