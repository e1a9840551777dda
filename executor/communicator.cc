#include "executor/communicator.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

std::string ToString(const RingKey& ring) {
  return absl::StrCat(
      "ring ", ring.ring_id,
      ring.ranks.empty() ? "" : absl::StrCat(" of ranks ", absl::StrJoin(ring.ranks, ", ")),
      ring.on_compute_stream ? " (compute stream)" : "");
}

int SizeOf(const RingKey& ring, int nranks) {
  return ring.ranks.empty() ? nranks : static_cast<int>(ring.ranks.size());
}

int PositionOf(const RingKey& ring, int rank) {
  if (ring.ranks.empty()) return rank;
  return static_cast<int>(absl::c_lower_bound(ring.ranks, rank) - ring.ranks.begin());
}

int RankAt(const RingKey& ring, int position) {
  return ring.ranks.empty() ? position : ring.ranks[position];
}

Communicator* OutsideOfRing() {
  class Outside : public Communicator {
   public:
    int rank() const override { return 0; }
    int nranks() const override { return 1; }
    absl::Status Run(const CollectiveCall&, const void*, void*) override {
      return absl::OkStatus();
    }
  };
  static Outside outside;
  return &outside;
}

}  // namespace weft
