#include "executor/scope.h"

namespace weft {

ScopeVariable* Scope::FindOrCreate(absl::string_view name) {
  return &variables_[std::string(name)];
}

ScopeVariable* Scope::Find(absl::string_view name) {
  const auto it = variables_.find(name);
  return it == variables_.end() ? nullptr : &it->second;
}

std::vector<std::string> Scope::names() const {
  std::vector<std::string> names;
  names.reserve(variables_.size());
  for (const auto& [name, variable] : variables_) names.push_back(name);
  return names;
}

}  // namespace weft
