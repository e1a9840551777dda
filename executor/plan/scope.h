// The variables of a rank, and their values.
#ifndef WEFT_EXECUTOR_PLAN_SCOPE_H_
#define WEFT_EXECUTOR_PLAN_SCOPE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/tensor.h"

namespace weft {

// A tensor, unallocated until something is written; or an array of tensors (LOD_TENSOR_ARRAY),
// whose elements are written one by one in any order; or the iterations of a loop for its gradient
// (STEP_SCOPES), each with the values of that iteration. Copies share buffers, like copies of a
// tensor.
struct Value {
  Tensor tensor;
  std::vector<Value> elements;
};

// Variables by name. Pointers stay valid as long as the scope. O(log variables).
class Scope {
 public:
  Value* FindOrCreate(absl::string_view name) { return &variables_[std::string(name)]; }
  // nullptr: none.
  Value* Find(absl::string_view name) {
    const auto it = variables_.find(name);
    return it == variables_.end() ? nullptr : &it->second;
  }

 private:
  std::map<std::string, Value, std::less<>> variables_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_SCOPE_H_
