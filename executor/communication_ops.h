// The op types that the executor runs itself: collectives and stream synchronization.
#ifndef WEFT_EXECUTOR_COMMUNICATION_OPS_H_
#define WEFT_EXECUTOR_COMMUNICATION_OPS_H_

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/communicator.h"

namespace weft {

// A collective from slot X to slot Out.
struct CollectiveOp {
  absl::string_view type;
  CollectiveKind kind;
  Reduction reduction;
  absl::string_view root_attr;  // empty: has no root
};

// Whether the executor runs it on SelectedRows (executor/rows_all_reduce.h).
bool TakesRows(const CollectiveOp& op);

// nullptr for a type that is no collective, or one that the executor cannot run.
const CollectiveOp* FindCollectiveOp(absl::string_view type);

// What an op of trait kStreamSync orders. The first two wait for one stream on one other. The
// others, in Paddle, block the host until a stream is idle: whatever comes later in the program
// waits for it.
enum class StreamSync {
  kRingWaitsForCompute,
  kComputeWaitsForRing,
  kAllWaitForCompute,
  kAllWaitForRing,
};

// None for a type that is no stream synchronization.
absl::optional<StreamSync> FindStreamSyncOp(absl::string_view type);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATION_OPS_H_
