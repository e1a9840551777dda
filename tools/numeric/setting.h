// What is checked numerically, and how.
#ifndef WEFT_TOOLS_NUMERIC_SETTING_H_
#define WEFT_TOOLS_NUMERIC_SETTING_H_

#include <cstdint>

#include "executor/runner.h"
#include "ops/kernel.h"

namespace weft {

struct NumericOptions {
  const KernelTable* kernels = nullptr;  // required
  int nranks = 2;
  int64_t steps = 2;
  double timeout_s = 60;  // for a rank that does not arrive at a collective
};

inline RunOptions RunOptionsFor(const NumericOptions& options, int nranks) {
  RunOptions run;
  run.kernels = options.kernels;
  run.ranks = nranks;
  run.steps = options.steps;
  run.timeout_s = options.timeout_s;
  // The comparison shows it.
  run.allow_unsynchronized = true;
  return run;
}

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_SETTING_H_
