#include "tests/replay/values.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::testing {

ValueTable::ValueTable() { Named("nothing"); }

ValueId ValueTable::Named(const std::string& text) {
  const auto [it, is_new] = ids_.emplace(text, texts_.size());
  if (is_new) texts_.push_back(text);
  return it->second;
}

ValueId ValueTable::Number(double number) {
  const ValueId id = Named(absl::StrCat("number ", number));
  numbers_.emplace(id, number);
  return id;
}

absl::optional<double> ValueTable::NumberOf(ValueId value) const {
  const auto found = numbers_.find(value);
  if (found == numbers_.end()) return absl::nullopt;
  return found->second;
}

ValueId ValueTable::Linear(const std::vector<std::pair<ValueId, double>>& terms) {
  std::map<ValueId, double> sum;
  for (const auto& [value, factor] : terms) {
    if (NumberOf(value) == 0.0) continue;
    const auto found = sums_.find(value);
    if (found == sums_.end()) {
      sum[value] += factor;
      continue;
    }
    for (const auto& [inner, by] : found->second) sum[inner] += by * factor;
  }
  std::vector<std::pair<ValueId, double>> flat;
  for (const auto& [value, factor] : sum) {
    if (std::abs(factor) > 1e-9) flat.emplace_back(value, factor);
  }
  if (flat.empty()) return Number(0);
  if (flat.size() == 1 && std::abs(flat[0].second - 1) < 1e-9) return flat[0].first;
  const ValueId id = Named(absl::StrCat(
      "sum ", absl::StrJoin(flat, " ", [](std::string* out, const std::pair<ValueId, double>& t) {
        absl::StrAppend(out, static_cast<float>(t.second), "*", t.first);
      })));
  sums_.emplace(id, std::move(flat));
  return id;
}

std::pair<double, ValueId> ValueTable::Factored(ValueId value) const {
  const auto found = sums_.find(value);
  if (found == sums_.end() || found->second.size() != 1) return {1, value};
  return {found->second[0].second, found->second[0].first};
}

ValueId ValueTable::Concat(const std::vector<ValueId>& parts) {
  const int n = static_cast<int>(parts.size());
  bool is_whole = true;
  for (int i = 0; i < n && is_whole; ++i) {
    const auto found = parts_.find(parts[i]);
    is_whole = found != parts_.end() && found->second.i == i && found->second.n == n &&
               found->second.whole == parts_.at(parts[0]).whole;
  }
  if (is_whole && n > 0) return parts_.at(parts[0]).whole;
  const ValueId id = Named(absl::StrCat("concat ", absl::StrJoin(parts, " ")));
  concats_.emplace(id, parts);
  return id;
}

ValueId ValueTable::Part(ValueId whole, int i, int n) {
  const std::vector<ValueId>* parts = PartsOf(whole);
  if (parts != nullptr && static_cast<int>(parts->size()) == n) return (*parts)[i];
  const ValueId id = Named(absl::StrCat("part ", i, " of ", n, " of ", whole));
  parts_.emplace(id, Whole{whole, i, n});
  return id;
}

const std::vector<ValueId>* ValueTable::PartsOf(ValueId value) const {
  const auto found = concats_.find(value);
  return found == concats_.end() ? nullptr : &found->second;
}

}  // namespace weft::testing
