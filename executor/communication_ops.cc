#include "executor/communication_ops.h"

namespace weft {
namespace {

constexpr CollectiveOp kCollectiveOps[] = {
    {"c_allgather", CollectiveKind::kAllGather, Reduction::kSum, ""},
    {"c_allreduce_avg", CollectiveKind::kAllReduce, Reduction::kAvg, ""},
    {"c_allreduce_max", CollectiveKind::kAllReduce, Reduction::kMax, ""},
    {"c_allreduce_min", CollectiveKind::kAllReduce, Reduction::kMin, ""},
    {"c_allreduce_prod", CollectiveKind::kAllReduce, Reduction::kProd, ""},
    {"c_allreduce_sum", CollectiveKind::kAllReduce, Reduction::kSum, ""},
    {"c_broadcast", CollectiveKind::kBroadcast, Reduction::kSum, "root"},
    {"c_reduce_sum", CollectiveKind::kReduce, Reduction::kSum, "root_id"},
    {"c_reducescatter", CollectiveKind::kReduceScatter, Reduction::kSum, ""},
};

struct StreamSyncOp {
  absl::string_view type;
  StreamSync sync;
};

constexpr StreamSyncOp kStreamSyncOps[] = {
    {"c_sync_calc_stream", StreamSync::kAllWaitForCompute},
    {"c_sync_comm_stream", StreamSync::kAllWaitForRing},
    {"c_wait_comm", StreamSync::kComputeWaitsForRing},
    {"c_wait_compute", StreamSync::kRingWaitsForCompute},
};

}  // namespace

bool TakesRows(const CollectiveOp& op) {
  return op.kind == CollectiveKind::kAllReduce &&
         (op.reduction == Reduction::kSum || op.reduction == Reduction::kAvg);
}

const CollectiveOp* FindCollectiveOp(absl::string_view type) {
  for (const CollectiveOp& op : kCollectiveOps) {
    if (op.type == type) return &op;
  }
  return nullptr;
}

absl::optional<StreamSync> FindStreamSyncOp(absl::string_view type) {
  for (const StreamSyncOp& op : kStreamSyncOps) {
    if (op.type == type) return op.sync;
  }
  return absl::nullopt;
}

}  // namespace weft
