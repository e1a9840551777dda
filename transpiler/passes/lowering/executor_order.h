// Ops on fused buffers, in an order that Paddle's executors see.
#ifndef WEFT_TRANSPILER_PASSES_LOWERING_EXECUTOR_ORDER_H_
#define WEFT_TRANSPILER_PASSES_LOWERING_EXECUTOR_ORDER_H_

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

// Paddle runs a ProgramDesc on several threads, too, and orders ops by the names of what they read
// and write. A fused buffer and its parts are one memory under several names; of these it knows
// that ops that access a part wait for the first op after coalesce_tensor that reads the buffer,
// and for the ops that communicate right after that one. An op on the buffer after these, such as
// a division after an all-reduce, would run beside the optimizer:
//
//   out=[f] = all_reduce(x=[f])           out=[f] = all_reduce(x=[f])
//   Out=[f] = scale(X=[f])                Out=[a] = scale(X=[a])
//   ParamOut=[..] = sgd(Grad=[a])         Out=[b] = scale(X=[b])
//                                         ParamOut=[..] = sgd(Grad=[a])
//
// So an op that scales, clips or casts a buffer becomes one for each part if an op accesses a part
// after it, and nothing orders the two: no op that names the buffer and the parts. If that is a
// collective, the ops between coalesce_tensor and it become so instead. Waits for a collective name
// the parts that such ops read. Other ops in that place stay: the verifier warns of them (W412).
// O(arguments).
absl::StatusOr<bool> OrderPartsOfBuffers(Program* program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_LOWERING_EXECUTOR_ORDER_H_
