#include "executor/communicators/ring_communicator.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/communicators/local_collective.h"
#include "ops/memory.h"

namespace weft {
namespace {

class Threads : public SharedBuffers {
 public:
  std::optional<uint64_t> PlaceOf(const void* buffer, size_t /*bytes*/) const override {
    return reinterpret_cast<uintptr_t>(buffer);
  }
  void* At(int /*rank*/, uint64_t place) const override {
    return reinterpret_cast<void*>(place);  // NOLINT: PlaceOf made it of a pointer
  }
  std::shared_ptr<void> Allocate(size_t bytes) override { return HostMemory()->Allocate(bytes); }
};

size_t BytesOf(const CollectiveDesc& desc) { return desc.count * SizeOf(desc.dtype); }

size_t OutBytesOf(const CollectiveDesc& desc, int nranks) {
  if (desc.kind == CollectiveKind::kAllGather) return BytesOf(desc) * nranks;
  if (desc.kind == CollectiveKind::kReduceScatter) return BytesOf(desc) / nranks;
  return BytesOf(desc);
}

bool IsRead(const CollectiveDesc& desc, int rank) {
  const bool is_from_root =
      desc.kind == CollectiveKind::kBroadcast || desc.kind == CollectiveKind::kSend;
  return !is_from_root || desc.root == rank;
}

bool IsWritten(const CollectiveDesc& desc, int rank) {
  return desc.kind != CollectiveKind::kSend || desc.peer == rank;
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a), b_begin = reinterpret_cast<uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

}  // namespace

SharedBuffers* BuffersOfThreads() {
  static Threads threads;
  return &threads;
}

RingCommunicator::RingCommunicator(SharedRing* ring, const RingKey& key, int rank,
                                   SharedBuffers* buffers)
    : ring_(ring),
      key_(key),
      rank_(rank),
      buffers_(buffers),
      in_(ring->nranks()),
      out_(ring->nranks()) {}

absl::Status RingCommunicator::Run(const CollectiveCall& call, const void* in, void* out) {
  return ring_->IsSmall(BytesOf(call.desc)) ? RunSmall(call, in, out) : RunLarge(call, in, out);
}

absl::Status RingCommunicator::RunSmall(const CollectiveCall& call, const void* in, void* out) {
  SharedRing::Buffers mine;
  mine.copied = in;
  mine.copied_bytes = IsRead(call.desc, rank_) ? BytesOf(call.desc) : 0;
  WEFT_RETURN_IF_ERROR(ring_->Start(rank_, call, mine));
  for (int r = 0; r < nranks(); ++r) in_[r] = r == rank_ ? in : ring_->BuffersOf(r, rank_).copied;
  RunLocalCollectiveFor(call.desc, in_, rank_, out);
  return ring_->End(rank_, call);
}

absl::Status RingCommunicator::RunLarge(const CollectiveCall& call, const void* in, void* out) {
  const size_t in_bytes = BytesOf(call.desc), out_bytes = OutBytesOf(call.desc, nranks());
  SharedRing::Buffers mine;
  if (IsRead(call.desc, rank_)) {
    std::optional<uint64_t> place = buffers_->PlaceOf(in, in_bytes);
    if (!place.has_value()) {
      WEFT_RETURN_IF_ERROR(Reserve(call, in_bytes, &in_scratch_));
      std::memcpy(in_scratch_.memory.get(), in, in_bytes);
      place = buffers_->PlaceOf(in_scratch_.memory.get(), in_bytes);
    }
    mine.in = *place;
  }
  bool copies_out = false;
  if (IsWritten(call.desc, rank_)) {
    std::optional<uint64_t> place = buffers_->PlaceOf(out, out_bytes);
    // A part of the result of a reduce-scatter would overwrite what other parts still read.
    copies_out = !place.has_value() || (call.desc.kind == CollectiveKind::kReduceScatter &&
                                        Overlap(in, in_bytes, out, out_bytes));
    if (copies_out) {
      WEFT_RETURN_IF_ERROR(Reserve(call, out_bytes, &out_scratch_));
      place = buffers_->PlaceOf(out_scratch_.memory.get(), out_bytes);
    }
    mine.out = *place;
  }
  WEFT_RETURN_IF_ERROR(ring_->Start(rank_, call, mine));
  for (int r = 0; r < nranks(); ++r) {
    const SharedRing::Buffers theirs = ring_->BuffersOf(r, rank_);
    in_[r] = buffers_->At(RankAt(key_, r), theirs.in);
    out_[r] = buffers_->At(RankAt(key_, r), theirs.out);
  }
  RunLocalCollective(call.desc, in_, absl::MakeSpan(out_), rank_, nranks());
  WEFT_RETURN_IF_ERROR(ring_->End(rank_, call));
  if (copies_out) std::memcpy(out, out_scratch_.memory.get(), out_bytes);
  return absl::OkStatus();
}

absl::Status RingCommunicator::Reserve(const CollectiveCall& call, size_t bytes,
                                       Scratch* scratch) const {
  if (scratch->bytes >= bytes) return absl::OkStatus();
  scratch->memory = nullptr;
  scratch->bytes = 0;
  try {
    scratch->memory = buffers_->Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(key_), ", ", CollectiveKindName(call.desc.kind), " of ",
                     call.variable, ": no memory to copy ", bytes, " bytes for other ranks"));
  }
  scratch->bytes = bytes;
  return absl::OkStatus();
}

}  // namespace weft
