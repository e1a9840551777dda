// Layer 3, part 3: do residuals keep what sparsified gradients leave?
#ifndef WEFT_TRANSPILER_VERIFY_RESIDUALS_H_
#define WEFT_TRANSPILER_VERIFY_RESIDUALS_H_

#include "proto/program.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/startup_values.h"

namespace weft {

// Checks the variables in which ops that sparsify gradients keep, from step to step, the elements
// that they did not send (W319): each is persistable, begins with zeros, and belongs to one op, for
// one gradient. `start`: what the startup program leaves; null: unknown. O(arguments).
void CheckResiduals(const Program& main, const StartupValues* start, ProgramRef ref,
                    Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_RESIDUALS_H_
