// Writes updates on shares in the place of updates of whole parameters.
#ifndef WEFT_TRANSPILER_PASSES_SHARDING_SHARE_WRITER_H_
#define WEFT_TRANSPILER_PASSES_SHARDING_SHARE_WRITER_H_

#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "transpiler/passes/sharding/shared_bucket.h"
#include "transpiler/passes/support/program_edits.h"

namespace weft {

// The element type in which the startup program, if it knows it, makes a tensor: parameters of half
// precision may begin in single precision.
DType TypeAtStart(const UpdateChain::Tensor& tensor, const ProgramPair& programs);

// Each op of the chains of a bucket once, on shares, where the last of them was. The states of
// whole parameters are no longer declared, and parameters no longer last from step to step.
void WriteSharedUpdates(const Program& main, absl::Span<const SharedBucket> buckets,
                        ProgramEdits* edits);

// The sums of `sums` (UpdateChains::sums) add up what ranks have, over a ring.
void WriteSums(const Program& main, absl::Span<const UpdateChains::PartialSum> sums,
               absl::Span<const SharedBucket> buckets, int ring, ProgramEdits* edits);

// The ops of `lists` (UpdateChains::lists) scale shares, too. Whether any element is not finite,
// ranks tell each other, over a ring.
void WriteLists(const Program& main, absl::Span<const OpId> lists,
                absl::Span<const SharedBucket> buckets, int ring, ProgramEdits* edits);

// Initializes shares at the end of the startup program. States that begin with zeros begin so on
// every rank; of others, and of parameters, each rank gets its part from rank 0, on a ring.
void WriteShareInitializers(const ProgramPair& programs, absl::Span<const SharedBucket> buckets,
                            int ring, ProgramEdits* edits);

// What the shares of the buckets hold: Setting::shares and Setting::common, added to `setting`.
void DescribeShares(const Program& main, absl::Span<const SharedBucket> buckets, Setting* setting);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SHARDING_SHARE_WRITER_H_
