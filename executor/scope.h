// The variables of a rank.
#ifndef WEFT_EXECUTOR_SCOPE_H_
#define WEFT_EXECUTOR_SCOPE_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "executor/value.h"

namespace weft {

// Variables by name. Pointers stay valid as long as the scope. O(log variables).
class Scope {
 public:
  Value* FindOrCreate(absl::string_view name);
  Value* Find(absl::string_view name);  // nullptr: none

 private:
  std::map<std::string, Value, std::less<>> variables_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SCOPE_H_
