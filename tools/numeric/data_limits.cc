#include "tools/numeric/data_limits.h"

#include <algorithm>

namespace weft {

DataLimits::DataLimits(const Program& program) : program_(program) {
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    sources_[var.name_symbol()] = {var.name_symbol()};
  }
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) Visit(program.op(id));
  }
}

absl::optional<int64_t> DataLimits::Of(absl::string_view name) const {
  const auto it = limits_.find(program_.FindSymbol(name));
  if (it == limits_.end()) return absl::nullopt;
  return it->second;
}

void DataLimits::Visit(const Op& op) {
  const absl::Span<const Symbol> ids = op.Input("Ids"), table = op.Input("W");
  if (!ids.empty() && !table.empty()) Limit(ids, DimOf(op, table[0], 0));
  const absl::Span<const Symbol> labels = op.Input("Label"), logits = op.Input("Logits");
  if (!labels.empty()) {
    // Labels that are not class indices are 0 or 1, or probabilities.
    const bool are_classes = !logits.empty() && !op.BoolAttr("soft_label").value_or(false);
    Limit(labels, are_classes ? DimOf(op, logits[0], op.IntAttr("axis").value_or(-1)) : 2);
  }
  // Integers computed from integers: reshaped, concatenated, cast.
  for (Symbol out : op.output_args()) {
    const absl::optional<TensorType> type = TypeOf(op, out);
    if (!type.has_value() || IsFloating(type->dtype)) continue;
    std::set<Symbol>& of_out = sources_[out];
    for (Symbol in : op.input_args()) {
      const auto it = sources_.find(in);
      if (it == sources_.end() || in == out) continue;
      of_out.insert(it->second.begin(), it->second.end());
    }
  }
}

void DataLimits::Limit(absl::Span<const Symbol> names, int64_t below) {
  if (below <= 0) return;
  for (Symbol name : names) {
    for (Symbol source : sources_[name]) {
      const auto [it, is_new] = limits_.emplace(source, below);
      if (!is_new) it->second = std::min(it->second, below);
    }
  }
}

absl::optional<TensorType> DataLimits::TypeOf(const Op& op, Symbol name) const {
  const VarId var = program_.block(op.block()).Resolve(name);
  return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
}

int64_t DataLimits::DimOf(const Op& op, Symbol name, int64_t axis) const {
  const absl::optional<TensorType> type = TypeOf(op, name);
  if (!type.has_value()) return -1;
  const int64_t rank = static_cast<int64_t>(type->dims.size());
  if (axis < 0) axis += rank;
  return axis >= 0 && axis < rank ? type->dims[axis] : -1;
}

}  // namespace weft
