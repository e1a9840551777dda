// Ops that compute from the examples of all ranks, though they are no collectives.
#ifndef WEFT_OPS_SCHEMA_ACROSS_RANKS_H_
#define WEFT_OPS_SCHEMA_ACROSS_RANKS_H_

#include "absl/strings/string_view.h"
#include "ops/schema/op_attrs.h"

namespace weft {

// Whether the op takes moments over the batches of all ranks: sync_batch_norm and its gradient, but
// where they normalize by running moments. On one rank such an op is that of a single batch.
bool ComputesAcrossRanks(absl::string_view type, const OpAttrs& attrs);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ACROSS_RANKS_H_
