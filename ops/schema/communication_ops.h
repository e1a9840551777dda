// The meaning of communication ops: collectives, and ops that order streams.
#ifndef WEFT_OPS_SCHEMA_COMMUNICATION_OPS_H_
#define WEFT_OPS_SCHEMA_COMMUNICATION_OPS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// INTS, ascending: the ranks of a ring that connects some of the ranks only. Weft's own attribute,
// on every collective on such a ring and on the op that sets it up; absent: all ranks. A rank that
// is not listed does not take part: the op leaves its variables as they are. Roots count positions
// in the list.
inline constexpr absl::string_view kGroupRanksAttr = "group_ranks";

enum class CollectiveKind : uint8_t {
  kAllReduce,      // out on every rank: the reduction over the ranks' in
  kReduce,         // the same on rank `root`; on other ranks a copy of in
  kReduceScatter,  // out on rank r: part r of n equal parts of the reduction
  kAllGather,      // out on every rank: the ranks' in, one after the other
  kBroadcast,      // out on every rank: in of rank `root`
  kAllToAll,       // out on rank r: part r of n equal parts of every rank's in, one after the other
  kSend,           // out on one rank: in of rank `root`. Ops are halves of it: see MessageOp.
};

// With the numbers of attribute reduce_type.
enum class Reduction : uint8_t { kSum, kMax, kMin, kProd, kAvg };
inline constexpr int kNumReductions = 5;

// INT: the reduction of all_reduce and reduce, for which Paddle 3 has one op each. Up to
// Paddle 2.6, the type of an op says it.
inline constexpr absl::string_view kReduceTypeAttr = "reduce_type";

absl::string_view CollectiveKindName(CollectiveKind kind);  // "all-reduce"
absl::string_view ReductionName(Reduction reduction);       // "sum"

// Whether it has a reduction, has a root, splits in into one part for each rank.
bool Reduces(CollectiveKind kind);
bool HasRoot(CollectiveKind kind);
bool SplitsInput(CollectiveKind kind);

// A collective from slot `in` to slot `out`.
struct CollectiveOp {
  absl::string_view type;
  CollectiveKind kind;
  Reduction reduction;          // of the reducing kinds
  absl::string_view root_attr;  // empty: has no root
  bool takes_several = false;   // the slots hold any number of variables
  // Of the ops that only Paddle 3 has: "x" and "out".
  absl::string_view in = "X", out = "Out";

  absl::Span<const Symbol> Inputs(const Op& op) const { return op.Input(in); }
  absl::Span<const Symbol> Outputs(const Op& op) const { return op.Output(out); }
};

// nullptr if the op is not a collective. An unknown reduce_type, which inference reports, counts as
// a sum.
const CollectiveOp* FindCollectiveOp(const Op& op);
// nullptr if the type is not a collective. Of a type that attribute reduce_type completes: the sum.
const CollectiveOp* FindCollectiveOp(absl::string_view type);
// What Paddle 3 has for a collective; nullptr: nothing.
const CollectiveOp* InPaddle3(const CollectiveOp& collective);

// An op that sends to one other rank of its ring, or receives from it: attribute peer, a position
// in the ring. It is no collective: other ranks do not call it.
enum class MessageOp : uint8_t { kSend, kReceive };

// None if the type is no such op. Some of them are unregistered.
absl::optional<MessageOp> FindMessageOp(absl::string_view type);

// All ranks of a ring wait for each other. In Paddle, it is a sum of X over them, after which the
// host waits.
inline constexpr absl::string_view kBarrierType = "barrier";

// The order that an op of trait kStreamSync establishes. The first two make one stream wait for
// another. In Paddle, the next two block the host until a stream is idle: all later ops wait for
// it. The last one names two streams of a program on two devices (ops/schema/device_ops.h).
enum class StreamSync {
  kRingWaitsForCompute,
  kComputeWaitsForRing,
  kAllWaitForCompute,
  kAllWaitForRing,
  kStreamWaitsForStream,
};

// None if the type is not a stream synchronization.
absl::optional<StreamSync> FindStreamSyncOp(absl::string_view type);
// The op type of a stream synchronization.
absl::string_view StreamSyncOpType(StreamSync sync);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_COMMUNICATION_OPS_H_
