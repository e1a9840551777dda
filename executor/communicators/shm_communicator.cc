#include "executor/communicators/shm_communicator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "executor/communicators/ring_communicator.h"
#include "executor/communicators/shared_ring.h"
#include "executor/communicators/shared_segment.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"

namespace weft {
namespace {

// What a process says to the others: an error, or where its memory is.
struct Introduction {
  std::string error;
  std::string ranks_and_rings;  // must be equal
  std::string tensors;          // addresses of segments
  std::string states;           // of process 0 only

  std::string ToText() const {
    return absl::StrJoin({error, ranks_and_rings, tensors, states}, "\n");
  }
  static absl::StatusOr<Introduction> Parse(const std::string& text) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    if (lines.size() != 4) {
      return absl::FailedPreconditionError(
          absl::StrCat("expected 4 lines about shared memory, found ", lines.size()));
    }
    return Introduction{lines[0], lines[1], lines[2], lines[3]};
  }
};

// In one line.
std::string ErrorText(const absl::Status& status) {
  return absl::StrJoin(absl::StrSplit(status.message(), '\n'), " ");
}

class Ring {
 public:
  Ring(const RingKey& key, const GroupOptions& options, const World& world, void* state,
       SharedBuffers* buffers)
      : ring_(state, RingOptions(key, options, world)) {
    for (int r = 0; r < ring_.nranks(); ++r) ends_.emplace_back(&ring_, key, r, buffers);
  }

  Communicator* end(int rank) { return &ends_[rank]; }
  void Break(const absl::Status& status) { ring_.Break(status); }

 private:
  static SharedRing::Options RingOptions(const RingKey& key, const GroupOptions& options,
                                         const World& world) {
    SharedRing::Options result = SharedRing::Options::For(key, options);
    result.first = PositionOf(key, world.first);
    result.count =
        (world.end() < world.size ? PositionOf(key, world.end()) : result.nranks) - result.first;
    return result;
  }

  SharedRing ring_;
  std::deque<RingCommunicator> ends_;  // by rank
};

class ShmGroup : public CommunicatorGroup, public SharedBuffers {
 public:
  explicit ShmGroup(GroupOptions options)
      : options_(std::move(options)), world_(WorldOf(options_.nranks, options_.link)) {}

  // Creates the segments of this process.
  absl::Status Create(Introduction* mine) {
    for (const RingKey& ring : options_.rings) {
      ring_offsets_.push_back(state_bytes_);
      state_bytes_ += SharedRing::StateBytes(SizeOf(ring, options_.nranks));
    }
    mine->ranks_and_rings =
        absl::StrCat(options_.nranks, " ranks with ",
                     absl::StrJoin(options_.rings, "; ", [](std::string* out, const RingKey& ring) {
                       absl::StrAppend(out, ToString(ring));
                     }));
    WEFT_ASSIGN_OR_RETURN(
        own_tensors_,
        SharedSegment::Create("weft-tensors", TensorSegmentBytes(world_.num_processes())));
    mine->tensors = own_tensors_->address();
    if (world_.process() == 0) {
      WEFT_ASSIGN_OR_RETURN(states_,
                            SharedSegment::Create("weft-rings", std::max<size_t>(state_bytes_, 1)));
      mine->states = states_->address();
    }
    memory_ = NewSegmentMemory(own_tensors_);
    return absl::OkStatus();
  }

  // Maps the segments of the others.
  absl::Status Open(const std::vector<Introduction>& all) {
    for (int p = 0; p < world_.num_processes(); ++p) {
      if (all[p].ranks_and_rings != all[0].ranks_and_rings) {
        return absl::FailedPreconditionError(
            absl::StrCat("processes expect different rings: process 0 has ", all[0].ranks_and_rings,
                         ", process ", p, " has ", all[p].ranks_and_rings));
      }
    }
    for (int p = 0; p < world_.num_processes(); ++p) {
      if (p == world_.process()) {
        tensors_.push_back(own_tensors_);
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(tensors_.emplace_back(), SharedSegment::Open(all[p].tensors));
    }
    if (states_ == nullptr) {
      WEFT_ASSIGN_OR_RETURN(states_, SharedSegment::Open(all[0].states));
    }
    if (states_->bytes() < state_bytes_) {
      return absl::FailedPreconditionError(
          absl::StrCat("expected ", state_bytes_, " bytes for rings, found ", states_->bytes()));
    }
    for (size_t i = 0; i < options_.rings.size(); ++i) {
      rings_.try_emplace(options_.rings[i], options_.rings[i], options_, world_,
                         static_cast<char*>(states_->data()) + ring_offsets_[i], this);
    }
    return absl::OkStatus();
  }

  // When all have opened them.
  void CloseFiles() {
    states_->CloseFile();
    for (const auto& segment : tensors_) segment->CloseFile();
  }

  absl::StatusOr<Communicator*> Get(const RingKey& key, int rank) override {
    const auto ring = rings_.find(key);
    if (ring == rings_.end()) {
      return absl::InternalError(
          absl::StrCat(ToString(key), " is not among the ", rings_.size(), " rings of the run"));
    }
    return ring->second.end(PositionOf(key, rank));
  }

  void Abort(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    const absl::Status error = absl::AbortedError(status.message());
    for (auto& [key, ring] : rings_) ring.Break(error);
  }

  Memory* host_memory() override { return memory_.get(); }

  std::optional<uint64_t> PlaceOf(const void* buffer, size_t bytes) const override {
    const auto address = reinterpret_cast<uintptr_t>(buffer);
    const auto begin = reinterpret_cast<uintptr_t>(own_tensors_->data());
    const uintptr_t end = begin + own_tensors_->bytes();
    if (address < begin || address > end || bytes > end - address) return std::nullopt;
    return address - begin;
  }
  void* At(int rank, uint64_t place) const override {
    return static_cast<char*>(tensors_[world_.ProcessOf(rank)]->data()) + place;
  }
  std::shared_ptr<void> Allocate(size_t bytes) override { return memory_->Allocate(bytes); }

 private:
  const GroupOptions options_;
  const World world_;
  std::vector<size_t> ring_offsets_;
  size_t state_bytes_ = 0;
  std::shared_ptr<SharedSegment> states_;  // of the rings
  std::shared_ptr<SharedSegment> own_tensors_;
  std::vector<std::shared_ptr<SharedSegment>> tensors_;  // by process
  std::unique_ptr<Memory> memory_;
  std::map<RingKey, Ring> rings_;
  std::mutex mutex_;
  bool aborted_ = false;
};

// The first error of a process, for all processes.
absl::Status FirstError(const std::vector<std::string>& errors) {
  for (size_t p = 0; p < errors.size(); ++p) {
    if (!errors[p].empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("shared memory, process ", p, ": ", errors[p]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewShmGroup(GroupOptions options) {
  JobLink* const link = options.link;
  if (link == nullptr) {
    return absl::FailedPreconditionError(
        "shared memory between processes: the run has one process");
  }
  if (!link->is_one_host()) {
    return absl::FailedPreconditionError(
        "the processes run on several hosts, which share no memory: use the backend gloo or mpi");
  }
  // All processes make both exchanges, whatever fails: others wait for them.
  auto group = std::make_unique<ShmGroup>(std::move(options));
  Introduction mine;
  const absl::Status created = group->Create(&mine);
  if (!created.ok()) mine.error = ErrorText(created);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, link->AllGather(mine.ToText()));
  std::vector<Introduction> all;
  std::vector<std::string> errors;
  for (const std::string& text : texts) {
    WEFT_ASSIGN_OR_RETURN(all.emplace_back(), Introduction::Parse(text));
    errors.push_back(all.back().error);
  }
  WEFT_RETURN_IF_ERROR(created);
  WEFT_RETURN_IF_ERROR(FirstError(errors));

  const absl::Status opened = group->Open(all);
  WEFT_ASSIGN_OR_RETURN(errors, link->AllGather(opened.ok() ? "" : ErrorText(opened)));
  WEFT_RETURN_IF_ERROR(opened);
  WEFT_RETURN_IF_ERROR(FirstError(errors));
  group->CloseFiles();
  return group;
}

}  // namespace weft
