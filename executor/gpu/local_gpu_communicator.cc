#include "executor/gpu/local_gpu_communicator.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/communicators/shared_ring.h"

namespace weft {
namespace {

// The positions of a rank in its stream. Others wait for them, and the next call moves them only
// when all have done so: Start and End order the host threads.
struct Marks {
  std::unique_ptr<GpuApi::Mark> ready;  // its buffers may be used
  std::unique_ptr<GpuApi::Mark> done;   // its part of the call is done
};

size_t InBytes(const CollectiveDesc& desc) { return desc.count * SizeOf(desc.dtype); }

bool Overlap(const void* a, const void* b, size_t b_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(a), other = reinterpret_cast<uintptr_t>(b);
  return begin >= other && begin < other + b_bytes;
}

class LocalGpuCommunicator : public Communicator {
 public:
  LocalGpuCommunicator(SharedRing* ring, int rank, std::vector<Marks>* marks, GpuApi* gpu)
      : ring_(*ring),
        rank_(rank),
        marks_(*marks),
        gpu_(*gpu),
        in_(ring->nranks()),
        out_(ring->nranks()) {}

  int rank() const override { return rank_; }
  int nranks() const override { return ring_.nranks(); }

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    // A part of the result of a reduce-scatter would overwrite what other parts still read.
    const bool copies_out =
        call.desc.kind == CollectiveKind::kReduceScatter && Overlap(out, in, InBytes(call.desc));
    void* result = out;
    if (copies_out) {
      WEFT_RETURN_IF_ERROR(Reserve(InBytes(call.desc) / nranks()));
      result = scratch_.get();
    }
    WEFT_RETURN_IF_ERROR(gpu_.Record(marks_[rank_].ready.get(), call.stream));
    SharedRing::Buffers mine;
    mine.in = reinterpret_cast<uintptr_t>(in);
    mine.out = reinterpret_cast<uintptr_t>(result);
    WEFT_RETURN_IF_ERROR(ring_.Start(rank_, call, mine));
    // From here on, others count on this rank to end the call.
    absl::Status status = EnqueuePart(call);
    status.Update(ring_.End(rank_, call));
    status.Update(WaitForOthers(&Marks::done, call.stream));
    if (copies_out && status.ok()) {
      status = gpu_.Copy(result, InBytes(call.desc) / nranks(), out, call.stream);
    }
    return status;
  }

  // The ranks meet in a call without elements.
  absl::Status Barrier(void* stream) override {
    CollectiveCall call;
    call.op = "barrier";
    call.variable = "nothing";
    call.dims = {0};
    call.stream = stream;
    return Run(call, nullptr, nullptr);
  }

 private:
  absl::Status EnqueuePart(const CollectiveCall& call) {
    for (int r = 0; r < nranks(); ++r) {
      const SharedRing::Buffers theirs = ring_.BuffersOf(r, rank_);
      in_[r] = reinterpret_cast<const void*>(theirs.in);
      out_[r] = reinterpret_cast<void*>(theirs.out);
    }
    absl::Status status = WaitForOthers(&Marks::ready, call.stream);
    if (status.ok()) {
      status =
          gpu_.RunCollective(call.desc, in_, absl::MakeSpan(out_), rank_, nranks(), call.stream);
    }
    status.Update(gpu_.Record(marks_[rank_].done.get(), call.stream));
    return status;
  }

  absl::Status WaitForOthers(std::unique_ptr<GpuApi::Mark> Marks::*mark, void* stream) {
    for (int r = 0; r < nranks(); ++r) {
      if (r != rank_) WEFT_RETURN_IF_ERROR(gpu_.Wait((marks_[r].*mark).get(), stream));
    }
    return absl::OkStatus();
  }

  absl::Status Reserve(size_t bytes) {
    if (bytes <= scratch_bytes_) return absl::OkStatus();
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    try {
      scratch_ = gpu_.Allocate(bytes);
    } catch (const std::exception& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes of a reduce-scatter: ", error.what()));
    }
    scratch_bytes_ = bytes;
    return absl::OkStatus();
  }

  SharedRing& ring_;
  const int rank_;
  std::vector<Marks>& marks_;  // by rank
  GpuApi& gpu_;
  // Of the current call, by rank.
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::shared_ptr<void> scratch_;
  size_t scratch_bytes_ = 0;
};

class LocalGpuRing {
 public:
  LocalGpuRing(const RingKey& key, const GroupOptions& options)
      : state_(SizeOf(key, options.nranks)), ring_(state_.data(), RingOptions(key, options)) {}

  absl::Status Create(GpuApi* gpu) {
    marks_.resize(ring_.nranks());
    for (Marks& marks : marks_) {
      WEFT_ASSIGN_OR_RETURN(marks.ready, gpu->NewMark());
      WEFT_ASSIGN_OR_RETURN(marks.done, gpu->NewMark());
    }
    for (int r = 0; r < ring_.nranks(); ++r) ends_.emplace_back(&ring_, r, &marks_, gpu);
    return absl::OkStatus();
  }

  Communicator* end(int rank) { return &ends_[rank]; }
  void Break(const absl::Status& status) { ring_.Break(status); }

 private:
  static SharedRing::Options RingOptions(const RingKey& key, const GroupOptions& options) {
    SharedRing::Options result = SharedRing::Options::For(key, options);
    result.copies = false;  // the host does not read inputs
    return result;
  }

  PrivateRingState state_;
  SharedRing ring_;
  std::vector<Marks> marks_;
  std::deque<LocalGpuCommunicator> ends_;  // by rank
};

class LocalGpuGroup : public CommunicatorGroup {
 public:
  LocalGpuGroup(GroupOptions options, GpuApi* gpu) : options_(std::move(options)), gpu_(gpu) {}

  // All threads have the same current device, on which the first one makes the marks.
  absl::StatusOr<Communicator*> Get(const RingKey& key, int rank) override {
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<LocalGpuRing>& ring = rings_[key];
    if (ring == nullptr) {
      auto made = std::make_unique<LocalGpuRing>(key, options_);
      WEFT_RETURN_IF_ERROR(made->Create(gpu_));
      if (!aborted_.ok()) made->Break(aborted_);
      ring = std::move(made);
    }
    return ring->end(PositionOf(key, rank));
  }

  void Abort(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = absl::AbortedError(status.message());
    for (auto& [key, ring] : rings_) {
      if (ring != nullptr) ring->Break(aborted_);
    }
  }

 private:
  const GroupOptions options_;
  GpuApi* const gpu_;
  std::mutex mutex_;
  std::map<RingKey, std::unique_ptr<LocalGpuRing>> rings_;
  absl::Status aborted_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewLocalGpuGroup(GroupOptions options,
                                                                    GpuApi* gpu) {
  if (gpu == nullptr) return absl::UnavailableError("built without CUDA");
  return std::make_unique<LocalGpuGroup>(std::move(options), gpu);
}

}  // namespace weft
