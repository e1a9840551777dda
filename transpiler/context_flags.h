// The flags that describe a job: passes read them from their context, not from options.
#ifndef WEFT_TRANSPILER_CONTEXT_FLAGS_H_
#define WEFT_TRANSPILER_CONTEXT_FLAGS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "transpiler/transpile_plan.h"

namespace weft {

struct ContextFlag {
  const char* name;           // "nranks"
  const char* expected;       // "an integer"
  const char* default_value;  // "unknown"
  const char* help;
  bool (*is_given)(const TranspileOptions& options);
  // Returns the first word that is not as expected; nullopt if there is none.
  absl::optional<absl::string_view> (*set)(absl::string_view text, TranspileOptions* options);
};

// All of them, in the order of the manual: the fields of ClusterSpec, what the result is for, and
// the distributed parameters.
const std::vector<ContextFlag>& ContextFlags();

// The names of those that are given: {"nranks", "devices"}.
std::vector<std::string> ContextFlagsGiven(const TranspileOptions& options);

}  // namespace weft

#endif  // WEFT_TRANSPILER_CONTEXT_FLAGS_H_
