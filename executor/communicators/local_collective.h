// The arithmetic of collectives whose ranks share memory.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_LOCAL_COLLECTIVE_H_
#define WEFT_EXECUTOR_COMMUNICATORS_LOCAL_COLLECTIVE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"

namespace weft {

// InvalidArgument if the root or the peer is no rank, or if kReduceScatter or kAllToAll does not
// divide; Unimplemented for element types other than fp32, fp64, fp16, bf16, int8, uint8, int32 and
// int64 in a reduction.
absl::Status CheckLocalCollective(const CollectiveDesc& desc, int nranks);

// Computes part `part` of `num_parts` of a collective: reads from the `in` of all ranks and writes
// to the `out` of all ranks, in rank order, without intermediate copies. Parts touch disjoint
// elements, so threads may compute them concurrently. `in` and `out` as for Communicator::Run.
//
// A reduction is a left fold in rank order, ((in0 + in1) + in2) + ..., in the element type. The
// result depends neither on the number of parts nor on the threads that compute them. Integers wrap
// around. kAvg divides the sum by the number of ranks. kMax and kMin propagate NaN.
void RunLocalCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                        absl::Span<void* const> out, int part, int num_parts);

// Computes the `out` of one rank alone.
void RunLocalCollectiveFor(const CollectiveDesc& desc, absl::Span<const void* const> in, int rank,
                           void* out);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_LOCAL_COLLECTIVE_H_
