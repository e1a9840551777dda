// What to do about a loss that is no mean and no sum over the batch, for the message that says so.
#ifndef WEFT_TRANSPILER_VERIFIER_BATCH_LOSS_ADVICE_H_
#define WEFT_TRANSPILER_VERIFIER_BATCH_LOSS_ADVICE_H_

#include <string>

#include "ops/analysis/values/batch_flow.h"
#include "proto/program.h"

namespace weft {

// "; ..." of a loss that no option of transpile mends. `cause`: the op that made a value unrelated
// to that of one device, or a partial maximum, minimum or product; may be invalid. O(lost
// relations).
std::string LossAdvice(const Program& main, const BatchFlow& flow, OpId cause);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_BATCH_LOSS_ADVICE_H_
