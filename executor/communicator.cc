#include "executor/communicator.h"

#include "absl/strings/str_cat.h"

namespace weft {

bool CanRunOnRows(const CollectiveOp& op) {
  return !op.takes_several && op.kind == CollectiveKind::kAllReduce &&
         (op.reduction == Reduction::kSum || op.reduction == Reduction::kAvg);
}

std::string DescribeCollective(const CollectiveDesc& desc, int64_t number,
                               absl::string_view variable, const Dims& dims) {
  std::string text(CollectiveKindName(desc.kind));
  const bool reduces =
      desc.kind != CollectiveKind::kAllGather && desc.kind != CollectiveKind::kBroadcast;
  if (reduces && desc.reduction != Reduction::kSum) {
    absl::StrAppend(&text, " ", ReductionName(desc.reduction));
  }
  absl::StrAppend(&text, " #", number);
  if (desc.kind == CollectiveKind::kReduce) absl::StrAppend(&text, " to rank ", desc.root);
  if (desc.kind == CollectiveKind::kBroadcast) absl::StrAppend(&text, " from rank ", desc.root);
  absl::StrAppend(&text, " of ", variable, " (", DTypeName(desc.dtype), DimsToString(dims), ")");
  return text;
}

std::string ToString(RingKey ring) {
  return absl::StrCat("ring ", ring.ring_id, ring.on_compute_stream ? " (compute stream)" : "");
}

}  // namespace weft
