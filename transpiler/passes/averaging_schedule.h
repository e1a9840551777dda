// The steps after which LocalSGD averages, as ops.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_SCHEDULE_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_SCHEDULE_H_

#include <string>

#include "proto/rewriter.h"
#include "transpiler/passes/unique_names.h"

namespace weft {

// Steps count from 1.
struct AveragingSteps {
  int period = 1;      // average every so many steps
  int first_step = 1;  // not before this one

  bool IsEveryStep() const { return period == 1 && first_step == 1; }
};

// Appends to the main program a counter that every step increments, and the condition
//
//   counter % period == 0 and counter >= first_step
//
// whose name it returns; and to the startup program what sets the counter to 0.
std::string WriteAveragingCondition(const AveragingSteps& steps, UniqueNames* names, Rewriter* main,
                                    Rewriter* startup);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_SCHEDULE_H_
