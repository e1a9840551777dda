#include "ops/analysis/values/rank_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace weft {

void RankMemory::StartWalk(std::vector<RankValue> values, bool has_expressions) {
  has_expressions_ = has_expressions && table_ != nullptr;
  began_later_ = false;
  values_ = std::move(values);
  is_held_.assign(program_.var_id_limit(), false);
  std::fill(fused_.begin(), fused_.end(), nullptr);
  logs_.clear();
}

RankValue RankMemory::Read(Symbol name) const {
  const VarId var = Resolve(name);
  if (var.valid()) return Read(var);
  RankValue nothing;
  if (has_expressions_) nothing.expr = table_->Initial(kEmptyVarName);
  return nothing;
}

void RankMemory::BeginExpressions(double nranks) {
  has_expressions_ = began_later_ = true;
  for (size_t i = 0; i < values_.size(); ++i) {
    RankValue& value = values_[i];
    const double factor = value.unscaled_sums == 0 ? 1 : std::pow(nranks, value.unscaled_sums);
    // Most have the right value; skipping the write saves memory bandwidth.
    if (value.factor != factor) value.factor = factor;
    if (value.is_zero) value.is_zero = false;
    if (!value.has_unknown_scale) continue;
    const absl::string_view name = program_.var(VarId(static_cast<uint32_t>(i))).name();
    value.expr =
        table_->Call(table_->Operation(absl::StrCat("distorted ", name), "out_of_proportion"), {});
  }
}

void RankMemory::Write(VarId var, const RankValue& value) {
  if (!var.valid()) return;
  RankValue& held = values_[var.value()];
  if (!logs_.empty()) logs_.back().push_back({var, held, is_held_[var.value()]});
  is_held_[var.value()] = true;
  is_written_[var.value()] = true;
  held = value;
}

void RankMemory::Fuse(const Storage::Buffer& buffer) {
  if (buffer.var.valid()) fused_[buffer.var.value()] = &buffer;
}

bool RankMemory::AreLaidOutAlike(Symbol a, Symbol b) const {
  const Storage::Buffer* const first = fused_[Resolve(a).value()];
  const Storage::Buffer* const second = fused_[Resolve(b).value()];
  if (first == second) return true;
  const Storage::Layout of_first = storage_.LayoutOf(*first),
                        of_second = storage_.LayoutOf(*second);
  return of_first.is_known() && of_first.offsets == of_second.offsets &&
         of_first.counts == of_second.counts;
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
