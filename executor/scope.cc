#include "executor/scope.h"

namespace weft {

Value* Scope::FindOrCreate(absl::string_view name) { return &variables_[std::string(name)]; }

Value* Scope::Find(absl::string_view name) {
  const auto it = variables_.find(name);
  return it == variables_.end() ? nullptr : &it->second;
}

}  // namespace weft
