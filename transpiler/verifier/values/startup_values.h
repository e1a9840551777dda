// The values that startup programs leave in variables.
#ifndef WEFT_TRANSPILER_VERIFIER_VALUES_STARTUP_VALUES_H_
#define WEFT_TRANSPILER_VERIFIER_VALUES_STARTUP_VALUES_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"

namespace weft {

// By name.
using StartupValues = absl::flat_hash_map<std::string, RankValue>;

// The values of the persistable variables that the startup program writes; others end with it.
// `options`: as for RankValues::Of of the main program; start, observer, is_startup, and lifts,
// which name ops of that, are ignored. O(arguments).
inline StartupValues ReadStartupValues(const Program& startup, RankValuesOptions options) {
  options.start = nullptr;
  options.observer = nullptr;
  options.lifts = nullptr;
  options.is_startup = true;
  const RankValues values = RankValues::Of(startup, options);
  StartupValues read;
  for (VarId var : startup.block(0).vars()) {
    if (!startup.var(var).persistable() || !values.IsWritten(var)) continue;
    read.emplace(startup.var(var).name(), values.AtEnd(var));
  }
  return read;
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_VALUES_STARTUP_VALUES_H_
