#include "ops/schema/communication_ops.h"

namespace weft {
namespace {

constexpr bool kTakesOne = false;

constexpr CollectiveOp kCollectiveOps[] = {
    {"all_gather", CollectiveKind::kAllGather, Reduction::kSum, "", kTakesOne, "x", "out"},
    {"all_reduce", CollectiveKind::kAllReduce, Reduction::kSum, "", kTakesOne, "x", "out"},
    {"all_reduce", CollectiveKind::kAllReduce, Reduction::kMax, "", kTakesOne, "x", "out"},
    {"all_reduce", CollectiveKind::kAllReduce, Reduction::kMin, "", kTakesOne, "x", "out"},
    {"all_reduce", CollectiveKind::kAllReduce, Reduction::kProd, "", kTakesOne, "x", "out"},
    {"all_reduce", CollectiveKind::kAllReduce, Reduction::kAvg, "", kTakesOne, "x", "out"},
    {"all_to_all", CollectiveKind::kAllToAll, Reduction::kSum, "", kTakesOne, "x", "out"},
    {"alltoall", CollectiveKind::kAllToAll, Reduction::kSum, ""},
    {"broadcast", CollectiveKind::kBroadcast, Reduction::kSum, "root", kTakesOne, "x", "out"},
    {"c_allgather", CollectiveKind::kAllGather, Reduction::kSum, ""},
    {"c_allreduce_avg", CollectiveKind::kAllReduce, Reduction::kAvg, ""},
    {"c_allreduce_max", CollectiveKind::kAllReduce, Reduction::kMax, ""},
    {"c_allreduce_min", CollectiveKind::kAllReduce, Reduction::kMin, ""},
    {"c_allreduce_prod", CollectiveKind::kAllReduce, Reduction::kProd, ""},
    {"c_allreduce_sum", CollectiveKind::kAllReduce, Reduction::kSum, ""},
    {"c_allreduce_xsum", CollectiveKind::kAllReduce, Reduction::kSum, "", /*takes_several=*/true},
    {"c_broadcast", CollectiveKind::kBroadcast, Reduction::kSum, "root"},
    {"c_reduce_sum", CollectiveKind::kReduce, Reduction::kSum, "root_id"},
    {"c_reducescatter", CollectiveKind::kReduceScatter, Reduction::kSum, ""},
    {"reduce", CollectiveKind::kReduce, Reduction::kSum, "root_id", kTakesOne, "x", "out"},
    {"reduce", CollectiveKind::kReduce, Reduction::kMax, "root_id", kTakesOne, "x", "out"},
    {"reduce", CollectiveKind::kReduce, Reduction::kMin, "root_id", kTakesOne, "x", "out"},
    {"reduce", CollectiveKind::kReduce, Reduction::kProd, "root_id", kTakesOne, "x", "out"},
    {"reduce", CollectiveKind::kReduce, Reduction::kAvg, "root_id", kTakesOne, "x", "out"},
    {"reduce_scatter", CollectiveKind::kReduceScatter, Reduction::kSum, "", kTakesOne, "x", "out"},
};

constexpr bool IsOfPaddle3(const CollectiveOp& op) { return op.in == "x"; }

struct NamedMessageOp {
  absl::string_view type;
  MessageOp op;
};

constexpr NamedMessageOp kMessageOps[] = {
    {"p_recv", MessageOp::kReceive},       {"p_send", MessageOp::kSend},
    {"partial_recv", MessageOp::kReceive}, {"partial_send", MessageOp::kSend},
    {"recv_v2", MessageOp::kReceive},      {"send_v2", MessageOp::kSend},
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
    {"stream_wait", StreamSync::kStreamWaitsForStream},
};

}  // namespace

absl::string_view CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all-reduce";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllToAll:
      return "all-to-all";
    case CollectiveKind::kSend:
      return "send";
  }
  return "unknown collective";
}

absl::string_view ReductionName(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
    case Reduction::kProd:
      return "prod";
    case Reduction::kAvg:
      return "avg";
  }
  return "unknown reduction";
}

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

bool HasRoot(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kSend;
}

bool SplitsInput(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}

const CollectiveOp* FindCollectiveOp(const Op& op) {
  const CollectiveOp* const first = FindCollectiveOp(op.type());
  if (first == nullptr || !IsOfPaddle3(*first)) return first;
  const absl::optional<int64_t> reduce_type = op.IntAttr(kReduceTypeAttr);
  if (!reduce_type.has_value()) return first;
  for (const CollectiveOp& candidate : kCollectiveOps) {
    const auto number = static_cast<int64_t>(candidate.reduction);
    if (candidate.type == first->type && number == *reduce_type) return &candidate;
  }
  return first;
}

const CollectiveOp* InPaddle3(const CollectiveOp& collective) {
  if (collective.takes_several) return nullptr;
  for (const CollectiveOp& op : kCollectiveOps) {
    if (!IsOfPaddle3(op) || op.kind != collective.kind) continue;
    if (op.reduction == collective.reduction) return &op;
  }
  return nullptr;
}

const CollectiveOp* FindCollectiveOp(absl::string_view type) {
  for (const CollectiveOp& op : kCollectiveOps) {
    if (op.type == type) return &op;
  }
  return nullptr;
}

absl::optional<MessageOp> FindMessageOp(absl::string_view type) {
  for (const NamedMessageOp& op : kMessageOps) {
    if (op.type == type) return op.op;
  }
  return absl::nullopt;
}

absl::optional<StreamSync> FindStreamSyncOp(absl::string_view type) {
  for (const StreamSyncOp& op : kStreamSyncOps) {
    if (op.type == type) return op.sync;
  }
  return absl::nullopt;
}

absl::string_view StreamSyncOpType(StreamSync sync) {
  for (const StreamSyncOp& op : kStreamSyncOps) {
    if (op.sync == sync) return op.type;
  }
  return "";
}

}  // namespace weft
