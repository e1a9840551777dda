// Shorthands of transpile for tests that rewrite what they build.
#ifndef WEFT_TESTS_SUPPORT_REWRITE_H_
#define WEFT_TESTS_SUPPORT_REWRITE_H_

#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "transpiler/transpile.h"

namespace weft::testing {

// A mode with its flags, for programs that do not know the number of ranks where it is not given.
inline TranspileOptions InMode(const std::string& mode, absl::optional<int> nranks = absl::nullopt,
                               std::map<std::string, std::string> flags = {}) {
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = std::move(flags);
  options.cluster.nranks = nranks;
  return options;
}

inline absl::StatusOr<TranspileResult> Rewrite(const TranspileOptions& options, Program* main,
                                               Program* startup = nullptr) {
  ProgramPair programs{main, startup};
  return Transpile(options, programs);
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_REWRITE_H_
