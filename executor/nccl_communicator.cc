#include "executor/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/job_link.h"
#include "executor/nccl_ids.h"
#include "executor/nccl_library.h"
#include "executor/world.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// Polling interval for calls on the device.
constexpr std::chrono::milliseconds kWatchEvery(20);

absl::StatusOr<nccl::DataType> TypeOf(DType dtype) {
  static constexpr std::pair<DType, nccl::DataType> kTypes[] = {
      {DType::kInt8, nccl::kInt8},       {DType::kUint8, nccl::kUint8},
      {DType::kInt32, nccl::kInt32},     {DType::kInt64, nccl::kInt64},
      {DType::kFloat16, nccl::kFloat16}, {DType::kBFloat16, nccl::kBfloat16},
      {DType::kFloat32, nccl::kFloat32}, {DType::kFloat64, nccl::kFloat64},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == dtype) return type;
  }
  return absl::UnimplementedError(absl::StrCat("NCCL has no element type ", DTypeName(dtype)));
}

nccl::RedOp OperationOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return nccl::kSum;
    case Reduction::kMax:
      return nccl::kMax;
    case Reduction::kMin:
      return nccl::kMin;
    case Reduction::kProd:
      return nccl::kProd;
    case Reduction::kAvg:
      return nccl::kAvg;
  }
  return nccl::kSum;
}

class NcclGroup;

// Enqueued calls, between two marks in their stream: one call, or a group.
struct PendingCall {
  std::unique_ptr<GpuApi::Mark> begin, end;
  int64_t number = 0;  // of the first call
  std::string text;
  bool has_begun = false, was_reported = false;
  Clock::time_point start;  // when that was observed
};

// The mutex of the group guards its members.
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(NcclGroup* group, int rank, int nranks, const RingKey& ring)
      : group_(group), rank_(rank), nranks_(nranks), ring_(ring) {}
  // Frees idle resources; does not wait for other ranks, which may be gone.
  ~NcclCommunicator() override { Abort(); }

  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }
  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override;
  absl::Status BeginGroup() override;
  absl::Status EndGroup() override;
  absl::Status Barrier(void* stream) override;
  absl::Status Register(void* buffer, size_t bytes) override;
  absl::Status Unregister(void* buffer) override;
  absl::Status Check() override;

 private:
  friend class NcclGroup;

  const NcclLibrary& library() const;
  GpuApi& gpu() const;

  // Ends what runs on the device: the stream continues without a result.
  void Abort() {
    if (comm_ != nullptr) (void)library().CommAbort(comm_);
    comm_ = nullptr;
    registered_.clear();
  }

  absl::Status TryRun(Lock* lock, const CollectiveCall& call, const void* in, void* out);
  absl::Status Begin(const CollectiveCall& call);
  absl::Status End(Lock* lock, void* stream, absl::Status status);
  absl::Status AbortStatus() const;

  absl::Status Enqueue(const CollectiveCall& call, const void* in, void* out) {
    const CollectiveDesc& desc = call.desc;
    WEFT_RETURN_IF_ERROR(CheckRanks(desc));
    WEFT_ASSIGN_OR_RETURN(const nccl::DataType type, TypeOf(desc.dtype));
    const nccl::RedOp operation = OperationOf(desc.reduction);
    const auto count = static_cast<size_t>(desc.count);
    const NcclLibrary& nccl = library();
    switch (desc.kind) {
      case CollectiveKind::kAllReduce:
        return nccl.StatusOf(nccl.AllReduce(in, out, count, type, operation, comm_, call.stream),
                             "ncclAllReduce");
      case CollectiveKind::kReduce:
        return Reduce(call, in, out, type, operation);
      case CollectiveKind::kReduceScatter:
        return nccl.StatusOf(
            nccl.ReduceScatter(in, out, count / nranks_, type, operation, comm_, call.stream),
            "ncclReduceScatter");
      case CollectiveKind::kAllGather:
        return nccl.StatusOf(nccl.AllGather(in, out, count, type, comm_, call.stream),
                             "ncclAllGather");
      case CollectiveKind::kBroadcast:
        return nccl.StatusOf(nccl.Broadcast(in, out, count, type, desc.root, comm_, call.stream),
                             "ncclBroadcast");
      case CollectiveKind::kAllToAll:
        return AllToAll(call, in, out, type);
      case CollectiveKind::kSend:
        return SendOne(call, in, out, type);
    }
    return absl::InternalError("no such collective");
  }

  absl::Status CheckRanks(const CollectiveDesc& desc) const {
    if (HasRoot(desc.kind) && (desc.root < 0 || desc.root >= nranks_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("root ", desc.root, ": expected 0 to ", nranks_ - 1));
    }
    if (desc.kind == CollectiveKind::kSend && (desc.peer < 0 || desc.peer >= nranks_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("peer ", desc.peer, ": expected 0 to ", nranks_ - 1));
    }
    if (SplitsInput(desc.kind) && desc.count % nranks_ != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(desc.count, " elements cannot be split evenly over ", nranks_, " ranks"));
    }
    return absl::OkStatus();
  }

  // All ranks except the root get a copy of their own input; NCCL leaves that to the caller.
  absl::Status Reduce(const CollectiveCall& call, const void* in, void* out, nccl::DataType type,
                      nccl::RedOp operation) {
    const CollectiveDesc& desc = call.desc;
    if (rank_ != desc.root) {
      WEFT_RETURN_IF_ERROR(gpu().Copy(in, desc.count * SizeOf(desc.dtype), out, call.stream));
    }
    return library().StatusOf(library().Reduce(in, out, static_cast<size_t>(desc.count), type,
                                               operation, desc.root, comm_, call.stream),
                              "ncclReduce");
  }

  absl::Status AllToAll(const CollectiveCall& call, const void* in, void* out,
                        nccl::DataType type) {
    const auto share = static_cast<size_t>(call.desc.count / nranks_);
    const size_t bytes = share * SizeOf(call.desc.dtype);
    const NcclLibrary& nccl = library();
    absl::Status status = nccl.StatusOf(nccl.GroupStart(), "ncclGroupStart");
    for (int r = 0; r < nranks_; ++r) {
      const char* const mine = static_cast<const char*>(in) + r * bytes;
      status.Update(nccl.StatusOf(nccl.Send(mine, share, type, r, comm_, call.stream), "ncclSend"));
      char* const theirs = static_cast<char*>(out) + r * bytes;
      status.Update(
          nccl.StatusOf(nccl.Recv(theirs, share, type, r, comm_, call.stream), "ncclRecv"));
    }
    status.Update(nccl.StatusOf(nccl.GroupEnd(), "ncclGroupEnd"));
    return status;
  }

  absl::Status SendOne(const CollectiveCall& call, const void* in, void* out, nccl::DataType type) {
    const CollectiveDesc& desc = call.desc;
    const auto count = static_cast<size_t>(desc.count);
    const NcclLibrary& nccl = library();
    if (desc.root == desc.peer) {
      return rank_ != desc.root ? absl::OkStatus()
                                : gpu().Copy(in, count * SizeOf(desc.dtype), out, call.stream);
    }
    if (rank_ == desc.root) {
      return nccl.StatusOf(nccl.Send(in, count, type, desc.peer, comm_, call.stream), "ncclSend");
    }
    if (rank_ != desc.peer) return absl::OkStatus();
    return nccl.StatusOf(nccl.Recv(out, count, type, desc.root, comm_, call.stream), "ncclRecv");
  }

  absl::StatusOr<PendingCall> NewCall() {
    PendingCall call;
    if (!unused_.empty()) {
      call = std::move(unused_.front());
      unused_.pop_front();
    } else {
      WEFT_ASSIGN_OR_RETURN(call.begin, gpu().NewMark());
      WEFT_ASSIGN_OR_RETURN(call.end, gpu().NewMark());
    }
    call.has_begun = call.was_reported = false;
    return call;
  }

  // An error that the peers or the network have caused after calls were enqueued.
  absl::Status AsyncStatus() const {
    if (comm_ == nullptr) return absl::OkStatus();
    int state = nccl::kSuccess;
    (void)library().CommGetAsyncError(comm_, &state);
    return library().StatusOf(state, ToString(ring_));
  }

  void ForgetFinished() {
    while (!pending_.empty() && gpu().HasPassed(pending_.front().end.get())) {
      unused_.push_back(std::move(pending_.front()));
      pending_.pop_front();
    }
  }

  NcclGroup* const group_;
  const int rank_, nranks_;  // in the ring
  const RingKey ring_;
  nccl::Communicator* comm_ = nullptr;  // null: aborted
  int64_t number_ = 0;
  bool was_cut_off_ = false;         // calls were in flight when the run was aborted
  std::deque<PendingCall> pending_;  // in the order of the stream
  std::deque<PendingCall> unused_;   // with their marks
  bool in_group_ = false;
  // Of the group: the calls since BeginGroup, whose first has a stream; and its first error.
  absl::optional<PendingCall> current_;
  void* group_stream_ = nullptr;
  absl::Status group_status_;
  std::map<void*, void*> registered_;  // buffers, with NCCL's handles
  std::shared_ptr<void> barrier_;      // an element for Barrier
};

class NcclGroup : public CommunicatorGroup {
 public:
  NcclGroup(GroupOptions options, NcclOptions nccl)
      : options_(std::move(options)), nccl_(std::move(nccl)) {}

  // Between several processes.
  absl::Status ShareIds() {
    const auto new_id = [this]() -> absl::StatusOr<nccl::UniqueId> {
      WEFT_RETURN_IF_ERROR(Load());
      return NewId();
    };
    WEFT_ASSIGN_OR_RETURN(ids_, ShareNcclIds(options_, nccl_.id_file, new_id));
    return absl::OkStatus();
  }

  ~NcclGroup() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    if (watcher_.joinable()) watcher_.join();
  }

  bool is_of_several_processes() const { return options_.link != nullptr; }

  absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) override {
    Lock lock(mutex_);
    WEFT_RETURN_IF_ERROR(abort_status_);
    WEFT_RETURN_IF_ERROR(Annotate(ToString(ring), Load()));
    std::unique_ptr<NcclCommunicator>& communicator = communicators_[{ring, rank}];
    if (communicator != nullptr) return communicator.get();
    WEFT_RETURN_IF_ERROR(StartWatcher());
    communicator = std::make_unique<NcclCommunicator>(this, PositionOf(ring, rank),
                                                      SizeOf(ring, options_.nranks), ring);
    const absl::Status status = SetUp(&lock, communicator.get());
    if (!status.ok()) {
      AbortAll(status);  // a ring that lacks a rank cannot be used
      return status;
    }
    return communicator.get();
  }

  void Abort(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    AbortAll(absl::AbortedError(status.message()));
  }

  const NcclLibrary& library() const { return *library_; }
  GpuApi& gpu() const { return *nccl_.gpu; }

 private:
  friend class NcclCommunicator;

  // Unavailable without CUDA or NCCL.
  absl::Status Load() {
    if (nccl_.gpu == nullptr) return absl::UnavailableError("built without CUDA");
    if (library_ != nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(library_, LoadNccl(nccl_.library));
    return absl::OkStatus();
  }

  absl::StatusOr<nccl::UniqueId> NewId() const {
    nccl::UniqueId id;
    WEFT_RETURN_IF_ERROR(library_->StatusOf(library_->GetUniqueId(&id), "ncclGetUniqueId"));
    return id;
  }

  absl::Status SetUp(Lock* lock, NcclCommunicator* communicator) {
    const auto [id, is_new] = ids_.try_emplace(communicator->ring_);
    if (is_new && options_.link != nullptr) {
      return absl::InternalError(
          absl::StrCat(ToString(communicator->ring_), " is none of the rings of the run"));
    }
    if (is_new) {
      WEFT_ASSIGN_OR_RETURN(id->second, NewId());
    }
    nccl::Config config;
    const int rank = communicator->rank_;
    const std::string what = absl::StrCat(ToString(communicator->ring_), ": set-up of rank ",
                                          RankAt(communicator->ring_, rank));
    WEFT_RETURN_IF_ERROR(
        library_->StatusOf(library_->CommInitRankConfig(&communicator->comm_, communicator->nranks_,
                                                        id->second, rank, &config),
                           what));
    return Finish(lock, *communicator, what);
  }

  // Waits, without holding the lock, until a host-side NCCL call completes: it may depend on other
  // ranks.
  absl::Status Finish(Lock* lock, const NcclCommunicator& communicator, absl::string_view what) {
    const Clock::time_point start = Clock::now();
    std::chrono::microseconds pause(10);
    bool was_reported = false;
    for (;;) {
      WEFT_RETURN_IF_ERROR(abort_status_);
      int state = nccl::kSuccess;
      WEFT_RETURN_IF_ERROR(
          library_->StatusOf(library_->CommGetAsyncError(communicator.comm_, &state), what));
      if (state != nccl::kInProgress) return library_->StatusOf(state, what);
      if (CheckLate(lock, start, what, "", &was_reported)) continue;
      changed_.wait_for(*lock, pause);
      pause = std::min<std::chrono::microseconds>(2 * pause, kWatchEvery);
    }
  }

  // The first call counts.
  void AbortAll(const absl::Status& status) {
    if (!abort_status_.ok()) return;
    abort_status_ = status;
    for (auto& [key, communicator] : communicators_) {
      if (communicator == nullptr) continue;
      communicator->ForgetFinished();
      communicator->was_cut_off_ = !communicator->pending_.empty();
      // NCCL still has the calls of an open group: its thread aborts in EndGroup.
      if (!communicator->in_group_) communicator->Abort();
    }
    changed_.notify_all();
  }

  // Aborts, or warns once, if `what` is late since `start`; then true. `missing`: see Missing.
  bool CheckLate(Lock* lock, Clock::time_point start, absl::string_view what,
                 absl::string_view missing, bool* was_reported) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto text = [&](double limit) {
      return absl::StrCat(what, ": not complete after ", limit, " s", missing);
    };
    if (seconds > options_.timeout_s) {
      AbortAll(absl::DeadlineExceededError(text(options_.timeout_s)));
      return true;
    }
    if (*was_reported || seconds <= options_.warn_after_s) return false;
    *was_reported = true;
    if (!options_.warn) return true;
    const std::string message = text(options_.warn_after_s);
    lock->unlock();
    options_.warn(message);
    lock->lock();
    return true;
  }

  // Lists the ranks of this process that have not made the call yet, if any.
  std::string Missing(const RingKey& ring, int64_t number) const {
    std::vector<int> missing;
    const World world = WorldOf(options_.nranks, options_.link);
    for (int rank = world.first; rank < world.end(); ++rank) {
      if (!ring.Has(rank)) continue;
      const auto found = communicators_.find({ring, rank});
      const bool has_called = found != communicators_.end() && found->second != nullptr &&
                              found->second->number_ > number;
      if (!has_called) missing.push_back(rank);
    }
    if (missing.empty()) return "";
    return absl::StrCat("; not arrived: rank ", absl::StrJoin(missing, ", "));
  }

  absl::Status StartWatcher() {
    if (watcher_.joinable()) return absl::OkStatus();
    try {
      watcher_ = std::thread([this] { Watch(); });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot start the thread that watches collectives: ", error.what()));
    }
    return absl::OkStatus();
  }

  // The host does not see calls that wait on the device for a late rank.
  void Watch() {
    Lock lock(mutex_);
    while (!is_over_) {
      if (has_pending_) {
        changed_.wait_for(lock, kWatchEvery);
      } else {
        changed_.wait(lock);
      }
      if (!abort_status_.ok()) continue;
      has_pending_ = false;
      for (auto& [key, communicator] : communicators_) {
        if (communicator == nullptr) continue;
        communicator->ForgetFinished();
        const absl::Status status = communicator->AsyncStatus();
        if (!status.ok()) {
          AbortAll(status);
          break;
        }
        if (communicator->pending_.empty()) continue;
        has_pending_ = true;
        PendingCall& call = communicator->pending_.front();
        if (!call.has_begun) {
          call.has_begun = gpu().HasPassed(call.begin.get());
          call.start = Clock::now();
          continue;
        }
        // Warning releases the lock, so the loop cannot continue.
        if (CheckLate(&lock, call.start, call.text, Missing(key.first, call.number),
                      &call.was_reported)) {
          break;
        }
      }
    }
  }

  const GroupOptions options_;
  const NcclOptions nccl_;
  const NcclLibrary* library_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  NcclIds ids_;
  std::map<std::pair<RingKey, int>, std::unique_ptr<NcclCommunicator>> communicators_;
  // By rank of the run: its last call, of any ring.
  struct LastCall {
    const NcclCommunicator* communicator = nullptr;
    GpuApi::Mark* end = nullptr;
  };
  std::map<int, LastCall> last_calls_;
  absl::Status abort_status_;
  bool has_pending_ = false;
  bool is_over_ = false;
  std::thread watcher_;
};

absl::Status NcclCommunicator::Run(const CollectiveCall& call, const void* in, void* out) {
  Lock lock(group_->mutex_);
  const int64_t number = number_;
  const absl::Status status = TryRun(&lock, call, in, out);
  ++number_;
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(ToString(ring_), ", ",
                                   DescribeCollective(call.desc, number, call.variable, call.dims),
                                   ": ", status.message()));
}

absl::Status NcclCommunicator::Check() {
  std::lock_guard<std::mutex> lock(group_->mutex_);
  return was_cut_off_ ? group_->abort_status_ : absl::OkStatus();
}

const NcclLibrary& NcclCommunicator::library() const { return group_->library(); }
GpuApi& NcclCommunicator::gpu() const { return group_->gpu(); }

absl::Status NcclCommunicator::AbortStatus() const {
  const absl::Status& status = group_->abort_status_;
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("aborted: ", status.message()));
}

absl::Status NcclCommunicator::TryRun(Lock* lock, const CollectiveCall& call, const void* in,
                                      void* out) {
  WEFT_RETURN_IF_ERROR(AbortStatus());
  absl::Status status;
  if (!current_.has_value()) status = Begin(call);
  if (status.ok()) status = Enqueue(call, in, out);
  if (!in_group_) return End(lock, call.stream, status);
  group_status_.Update(status);
  return status;
}

// Calls of different rings must run in the same order on all devices, or each device may wait for
// another. Ranks make them in the same order; the devices follow.
absl::Status NcclCommunicator::Begin(const CollectiveCall& call) {
  WEFT_ASSIGN_OR_RETURN(current_, NewCall());
  group_stream_ = call.stream;
  current_->number = number_;
  current_->text = absl::StrCat(call.op, ": ", ToString(ring_), ", ",
                                DescribeCollective(call.desc, number_, call.variable, call.dims),
                                ", rank ", RankAt(ring_, rank_));
  const NcclGroup::LastCall& last = group_->last_calls_[RankAt(ring_, rank_)];
  if (last.communicator != nullptr && last.communicator != this) {
    WEFT_RETURN_IF_ERROR(gpu().Wait(last.end, call.stream));
  }
  return gpu().Record(current_->begin.get(), call.stream);
}

// After the calls of a group, or one call.
absl::Status NcclCommunicator::End(Lock* lock, void* stream, absl::Status status) {
  if (!current_.has_value()) return status;
  if (status.ok()) status = group_->Finish(lock, *this, "enqueueing");
  if (status.ok()) status = gpu().Record(current_->end.get(), stream);
  std::deque<PendingCall>& calls = status.ok() ? pending_ : unused_;
  calls.push_back(*std::move(current_));
  current_.reset();
  if (!status.ok()) return status;
  group_->last_calls_[RankAt(ring_, rank_)] = {this, pending_.back().end.get()};
  if (!group_->has_pending_) {
    group_->has_pending_ = true;
    group_->changed_.notify_all();
  }
  return status;
}

absl::Status NcclCommunicator::BeginGroup() {
  Lock lock(group_->mutex_);
  WEFT_RETURN_IF_ERROR(AbortStatus());
  in_group_ = true;
  group_status_ = absl::OkStatus();
  return library().StatusOf(library().GroupStart(), "ncclGroupStart");
}

absl::Status NcclCommunicator::EndGroup() {
  Lock lock(group_->mutex_);
  if (!in_group_) return AbortStatus();  // BeginGroup has failed
  in_group_ = false;
  absl::Status status = std::move(group_status_);
  status.Update(library().StatusOf(library().GroupEnd(), "ncclGroupEnd"));
  status.Update(AbortStatus());
  if (!group_->abort_status_.ok()) Abort();
  return End(&lock, group_stream_, status);
}

absl::Status NcclCommunicator::Barrier(void* stream) {
  if (barrier_ == nullptr) {
    try {
      barrier_ = gpu().Allocate(sizeof(float));
    } catch (const std::exception& error) {
      return absl::ResourceExhaustedError(absl::StrCat("barrier: ", error.what()));
    }
  }
  CollectiveCall call;
  call.desc.reduction = Reduction::kMax;  // of any bits
  call.desc.count = 1;
  call.op = "barrier";
  call.variable = "nothing";
  call.dims = {1};
  call.stream = stream;
  return Run(call, barrier_.get(), barrier_.get());
}

absl::Status NcclCommunicator::Register(void* buffer, size_t bytes) {
  Lock lock(group_->mutex_);
  WEFT_RETURN_IF_ERROR(AbortStatus());
  if (library().CommRegister == nullptr || registered_.count(buffer) > 0) return absl::OkStatus();
  void* handle = nullptr;
  WEFT_RETURN_IF_ERROR(library().StatusOf(library().CommRegister(comm_, buffer, bytes, &handle),
                                          "ncclCommRegister"));
  registered_[buffer] = handle;
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Unregister(void* buffer) {
  Lock lock(group_->mutex_);
  const auto found = registered_.find(buffer);
  if (found == registered_.end()) return absl::OkStatus();
  void* const handle = found->second;
  registered_.erase(found);
  return library().StatusOf(library().CommDeregister(comm_, handle), "ncclCommDeregister");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(GroupOptions options,
                                                                NcclOptions nccl) {
  auto group = std::make_unique<NcclGroup>(std::move(options), std::move(nccl));
  if (group->is_of_several_processes()) WEFT_RETURN_IF_ERROR(group->ShareIds());
  return group;
}

}  // namespace weft
