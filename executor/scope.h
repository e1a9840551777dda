// The variables of a rank.
#ifndef WEFT_EXECUTOR_SCOPE_H_
#define WEFT_EXECUTOR_SCOPE_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "ops/tensor.h"

namespace weft {

// What a variable holds; a tensor that is not allocated where nothing has been written.
struct ScopeVariable {
  Tensor tensor;
};

// Variables by name. Pointers stay valid as long as the scope. O(log variables).
class Scope {
 public:
  ScopeVariable* FindOrCreate(absl::string_view name);
  ScopeVariable* Find(absl::string_view name);  // nullptr: none

 private:
  std::map<std::string, ScopeVariable, std::less<>> variables_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SCOPE_H_
