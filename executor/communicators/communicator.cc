#include "executor/communicators/communicator.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {

bool CanRunOnRows(const CollectiveOp& op) {
  return !op.takes_several && op.kind == CollectiveKind::kAllReduce &&
         (op.reduction == Reduction::kSum || op.reduction == Reduction::kAvg);
}

std::string DescribeCollective(const CollectiveDesc& desc, int64_t number,
                               absl::string_view variable, const Dims& dims) {
  std::string text(CollectiveKindName(desc.kind));
  if (Reduces(desc.kind) && desc.reduction != Reduction::kSum) {
    absl::StrAppend(&text, " ", ReductionName(desc.reduction));
  }
  absl::StrAppend(&text, " #", number);
  if (desc.kind == CollectiveKind::kReduce) absl::StrAppend(&text, " to rank ", desc.root);
  if (desc.kind == CollectiveKind::kBroadcast || desc.kind == CollectiveKind::kSend) {
    absl::StrAppend(&text, " from rank ", desc.root);
  }
  if (desc.kind == CollectiveKind::kSend) absl::StrAppend(&text, " to rank ", desc.peer);
  absl::StrAppend(&text, " of ", variable, " (", DTypeName(desc.dtype), DimsToString(dims), ")");
  return text;
}

absl::Status Communicator::Barrier(void* stream) {
  CollectiveCall call;
  call.desc.count = 1;
  call.op = "barrier";
  call.variable = "nothing";
  call.dims = {1};
  call.stream = stream;
  float zero = 0;
  return Run(call, &zero, &zero);
}

absl::Status AllGatherUnequal(const CollectiveCall& call, absl::Span<const int64_t> counts,
                              const void* in, void* out, Communicator* communicator) {
  const size_t element = SizeOf(call.desc.dtype);
  CollectiveCall part = call;
  part.desc.kind = CollectiveKind::kBroadcast;
  auto* to = static_cast<char*>(out);
  WEFT_RETURN_IF_ERROR(communicator->BeginGroup());
  absl::Status status;
  for (size_t r = 0; r < counts.size() && status.ok(); ++r) {
    part.desc.root = static_cast<int>(r);
    part.desc.count = counts[r];
    part.dims = {counts[r]};
    const bool is_mine = static_cast<int>(r) == communicator->rank();
    status = communicator->Run(part, is_mine ? in : to, to);
    to += counts[r] * element;
  }
  status.Update(communicator->EndGroup());
  return status;
}

std::string ToString(const RingKey& ring) {
  if (ring.ring_id < 0) return "the ring of the self-test";
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
