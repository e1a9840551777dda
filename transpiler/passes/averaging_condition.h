// The steps after which LocalSGD averages, as ops.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_CONDITION_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_CONDITION_H_

#include <string>

#include "proto/rewriter.h"
#include "transpiler/passes/unique_names.h"
#include "transpiler/pipeline/claims.h"

namespace weft {

// Appends to the main program a counter that every step increments, and the condition
//
//   counter % period == 0 and counter >= first_step
//
// whose name it returns; and to the startup program what sets the counter to 0.
std::string WriteAveragingCondition(const AveragingSchedule& schedule, UniqueNames* names,
                                    Rewriter* main, Rewriter* startup);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_CONDITION_H_
