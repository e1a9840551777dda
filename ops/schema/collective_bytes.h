// What collectives send.
#ifndef WEFT_OPS_SCHEMA_COLLECTIVE_BYTES_H_
#define WEFT_OPS_SCHEMA_COLLECTIVE_BYTES_H_

#include "ops/schema/communication_ops.h"

namespace weft {

// How many bytes a rank of `nranks` sends for each byte that it passes to a collective, by the
// algorithms on a ring (those of the bus bandwidth in NCCL's tests).
inline double SentPerByte(CollectiveKind kind, double nranks) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (nranks - 1) / nranks;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return (nranks - 1) / nranks;
    case CollectiveKind::kAllGather:
      return nranks - 1;
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
      return 1;
  }
  return 1;
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_COLLECTIVE_BYTES_H_
