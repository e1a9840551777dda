// The arithmetic of collectives whose ranks share one memory.
#ifndef WEFT_EXECUTOR_LOCAL_COLLECTIVE_H_
#define WEFT_EXECUTOR_LOCAL_COLLECTIVE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "executor/communicator.h"

namespace weft {

// InvalidArgument where `root` is no rank or kReduceScatter does not divide; Unimplemented where
// the element type cannot be reduced: fp32, fp64, fp16, bf16, int32, int64 can.
absl::Status CheckLocalCollective(const CollectiveDesc& desc, int nranks);

// Does part `part` of `num_parts` of a collective: reads from the `in` of all ranks and writes to
// the `out` of all ranks, in rank order; nothing is copied in between. Parts touch disjoint
// elements, so that threads may do them side by side. `in` and `out` as for Communicator::Run.
//
// A reduction is a left fold in rank order, ((in0 + in1) + in2) + ..., in the element type: the
// result depends neither on the number of parts nor on who does them. Integers wrap around. kAvg
// divides the sum by the number of ranks. kMax and kMin give NaN where an element is NaN.
void RunLocalCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                        absl::Span<void* const> out, int part, int num_parts);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOCAL_COLLECTIVE_H_
