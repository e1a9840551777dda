// What startup programs leave in variables.
#ifndef WEFT_TRANSPILER_VERIFY_STARTUP_VALUES_H_
#define WEFT_TRANSPILER_VERIFY_STARTUP_VALUES_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "transpiler/verify/compared_variables.h"
#include "transpiler/verify/finding.h"

namespace weft {

// By name.
using StartupValues = absl::flat_hash_map<std::string, RankValue>;

// Of the variables that the startup program writes. `options`: as for RankValues::Of of the main
// program; start, observer and is_startup are ignored. O(arguments).
StartupValues ReadStartupValues(const Program& startup, RankValuesOptions options);

// Checks that every persistable variable begins as `original`, the startup program on one device,
// makes it (W606). `table`: that of the values that were found. O(arguments).
void CheckStartupValues(const Program& original, const StartupValues& found,
                        const ComparedVariables& variables, ExpressionTable* table,
                        Reporter* reporter);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_STARTUP_VALUES_H_
