// Whether LocalSGD averages when it should.
#ifndef WEFT_TRANSPILER_VERIFY_LOCAL_SCHEDULE_H_
#define WEFT_TRANSPILER_VERIFY_LOCAL_SCHEDULE_H_

#include <string>

#include "absl/types/optional.h"
#include "ops/analysis/scalar_slice.h"
#include "transpiler/pipeline/claims.h"

namespace weft {

// What is wrong with the steps in which a condition holds, as the rest of a sentence ("which holds
// in step 3, expected every 4 steps"); empty: nothing. With `expected`, it has to hold in those
// steps, as far as 10,000 of them, or the second one; without, again and again, but not always.
// Runs the slice.
std::string ProblemOfSchedule(ScalarSlice* slice,
                              const absl::optional<AveragingSchedule>& expected);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_LOCAL_SCHEDULE_H_
