#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
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
#include "base/status_macros.h"
#include "executor/job_link.h"
#include "executor/nccl_communicator.h"
#include "executor/world.h"
#include "ops/gpu/cuda_status.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// Polling interval for calls on the device.
constexpr std::chrono::milliseconds kWatchEvery(20);

// Communicators are non-blocking: ncclInProgress counts as success, see NcclGroup::Finish.
absl::Status NcclStatus(ncclResult_t error, absl::string_view call) {
  if (error == ncclSuccess || error == ncclInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", ncclGetErrorString(error)));
}

absl::StatusOr<ncclDataType_t> TypeOf(DType dtype) {
  static constexpr std::pair<DType, ncclDataType_t> kTypes[] = {
      {DType::kInt8, ncclInt8},       {DType::kUint8, ncclUint8},
      {DType::kInt32, ncclInt32},     {DType::kInt64, ncclInt64},
      {DType::kFloat16, ncclFloat16}, {DType::kBFloat16, ncclBfloat16},
      {DType::kFloat32, ncclFloat32}, {DType::kFloat64, ncclFloat64},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == dtype) return type;
  }
  return absl::UnimplementedError(absl::StrCat("NCCL has no element type ", DTypeName(dtype)));
}

ncclRedOp_t OperationOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kProd:
      return ncclProd;
    case Reduction::kAvg:
      return ncclAvg;
  }
  return ncclSum;
}

class NcclGroup;

// An enqueued call, between two events of its stream.
struct PendingCall {
  cudaEvent_t begin = nullptr, end = nullptr;
  int64_t number = 0;
  std::string text;
  bool has_begun = false, was_reported = false;
  Clock::time_point start;  // when that was observed
};

// Whether the device has passed the event, or has failed: then the error is that of the stream.
bool HasPassed(cudaEvent_t event) {
  if (cudaEventQuery(event) != cudaErrorNotReady) return true;
  (void)cudaGetLastError();  // or a later check of this thread would find it
  return false;
}

// The mutex of the group guards its members.
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(NcclGroup* group, int rank, int nranks, const RingKey& ring)
      : group_(group), rank_(rank), nranks_(nranks), ring_(ring) {}
  ~NcclCommunicator() override {
    Abort();  // frees idle resources; does not wait for other ranks, which may be gone
    for (std::deque<PendingCall>* calls : {&pending_, &unused_}) {
      for (PendingCall& call : *calls) {
        if (call.begin != nullptr) (void)cudaEventDestroy(call.begin);
        if (call.end != nullptr) (void)cudaEventDestroy(call.end);
      }
    }
  }

  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }
  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override;
  absl::Status Check() override;

 private:
  friend class NcclGroup;

  // Ends what runs on the device: the stream continues without a result.
  void Abort() {
    if (comm_ != nullptr) (void)ncclCommAbort(comm_);
    comm_ = nullptr;
  }

  absl::Status TryRun(Lock* lock, const CollectiveCall& call, const void* in, void* out);

  absl::Status Enqueue(const CollectiveCall& call, const void* in, void* out) {
    const CollectiveDesc& desc = call.desc;
    if (desc.root < 0 || desc.root >= nranks_) {
      return absl::InvalidArgumentError(
          absl::StrCat("root ", desc.root, ": expected 0 to ", nranks_ - 1));
    }
    WEFT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(desc.dtype));
    const ncclRedOp_t operation = OperationOf(desc.reduction);
    const auto stream = static_cast<cudaStream_t>(call.stream);
    const auto count = static_cast<size_t>(desc.count);
    switch (desc.kind) {
      case CollectiveKind::kAllReduce:
        return NcclStatus(ncclAllReduce(in, out, count, type, operation, comm_, stream),
                          "ncclAllReduce");
      case CollectiveKind::kReduce:
        return Reduce(desc, in, out, type, operation, stream);
      case CollectiveKind::kReduceScatter:
        return NcclStatus(
            ncclReduceScatter(in, out, count / nranks_, type, operation, comm_, stream),
            "ncclReduceScatter");
      case CollectiveKind::kAllGather:
        return NcclStatus(ncclAllGather(in, out, count, type, comm_, stream), "ncclAllGather");
      case CollectiveKind::kBroadcast:
        return NcclStatus(ncclBroadcast(in, out, count, type, desc.root, comm_, stream),
                          "ncclBroadcast");
    }
    return absl::InternalError("no such collective");
  }

  // All ranks except the root get a copy of their own input; NCCL leaves that to the caller.
  absl::Status Reduce(const CollectiveDesc& desc, const void* in, void* out, ncclDataType_t type,
                      ncclRedOp_t operation, cudaStream_t stream) {
    if (rank_ != desc.root && in != out) {
      WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(out, in, desc.count * SizeOf(desc.dtype),
                                                      cudaMemcpyDeviceToDevice, stream),
                                      "cudaMemcpyAsync"));
    }
    return NcclStatus(ncclReduce(in, out, desc.count, type, operation, desc.root, comm_, stream),
                      "ncclReduce");
  }

  absl::StatusOr<PendingCall> NewCall() {
    if (unused_.empty()) {
      PendingCall& call = unused_.emplace_back();
      for (cudaEvent_t* event : {&call.begin, &call.end}) {
        WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                                        "cudaEventCreateWithFlags"));
      }
    }
    PendingCall call = std::move(unused_.front());
    unused_.pop_front();
    call.has_begun = call.was_reported = false;
    return call;
  }

  // An error that the peers or the network have caused after calls were enqueued.
  absl::Status AsyncStatus() const {
    if (comm_ == nullptr) return absl::OkStatus();
    ncclResult_t state = ncclSuccess;
    (void)ncclCommGetAsyncError(comm_, &state);
    if (state == ncclSuccess || state == ncclInProgress) return absl::OkStatus();
    return NcclStatus(state, ToString(ring_));
  }

  void ForgetFinished() {
    while (!pending_.empty() && HasPassed(pending_.front().end)) {
      unused_.push_back(std::move(pending_.front()));
      pending_.pop_front();
    }
  }

  NcclGroup* const group_;
  const int rank_, nranks_;  // in the ring
  const RingKey ring_;
  ncclComm_t comm_ = nullptr;  // null: aborted
  int64_t number_ = 0;
  bool was_cut_off_ = false;         // calls were in flight when the run was aborted
  std::deque<PendingCall> pending_;  // in the order of the stream
  std::deque<PendingCall> unused_;   // with their events
};

class NcclGroup : public CommunicatorGroup {
 public:
  explicit NcclGroup(GroupOptions options) : options_(std::move(options)) {}

  // With several processes: the one that has the first rank of a ring makes its id, and tells the
  // others.
  absl::Status ShareIds() {
    const World world = WorldOf(options_.nranks, options_.link);
    const auto first_process = [&](const RingKey& ring) {
      return world.ProcessOf(RankAt(ring, 0));
    };
    std::string own;
    for (const RingKey& ring : options_.rings) {
      if (first_process(ring) != world.process()) continue;
      ncclUniqueId id;
      WEFT_RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id), "ncclGetUniqueId"));
      own.append(id.internal, sizeof(id.internal));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          options_.link->AllGather(std::move(own)));
    std::vector<size_t> used(all.size(), 0);  // bytes, by process
    for (const RingKey& ring : options_.rings) {
      const int process = first_process(ring);
      ncclUniqueId& id = ids_[ring];
      if (all[process].size() < used[process] + sizeof(id.internal)) {
        return absl::InternalError(
            absl::StrCat(ToString(ring), ": process ", process, " has sent no NCCL id"));
      }
      all[process].copy(id.internal, sizeof(id.internal), used[process]);
      used[process] += sizeof(id.internal);
    }
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

 private:
  friend class NcclCommunicator;

  absl::Status SetUp(Lock* lock, NcclCommunicator* communicator) {
    const auto [id, is_new] = ids_.try_emplace(communicator->ring_);
    if (is_new && options_.link != nullptr) {
      return absl::InternalError(
          absl::StrCat(ToString(communicator->ring_), " is none of the rings of the run"));
    }
    if (is_new) WEFT_RETURN_IF_ERROR(NcclStatus(ncclGetUniqueId(&id->second), "ncclGetUniqueId"));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const int rank = communicator->rank_;
    const std::string what = absl::StrCat(ToString(communicator->ring_), ": set-up of rank ",
                                          RankAt(communicator->ring_, rank));
    WEFT_RETURN_IF_ERROR(
        NcclStatus(ncclCommInitRankConfig(&communicator->comm_, communicator->nranks_, id->second,
                                          rank, &config),
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
      ncclResult_t state = ncclSuccess;
      WEFT_RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(communicator.comm_, &state), what));
      if (state != ncclInProgress) return NcclStatus(state, what);
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
      communicator->Abort();
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
          call.has_begun = HasPassed(call.begin);
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RingKey, ncclUniqueId> ids_;
  std::map<std::pair<RingKey, int>, std::unique_ptr<NcclCommunicator>> communicators_;
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

absl::Status NcclCommunicator::TryRun(Lock* lock, const CollectiveCall& call, const void* in,
                                      void* out) {
  const absl::Status& abort_status = group_->abort_status_;
  if (!abort_status.ok()) {
    return absl::Status(abort_status.code(), absl::StrCat("aborted: ", abort_status.message()));
  }
  WEFT_ASSIGN_OR_RETURN(PendingCall pending, NewCall());
  pending.number = number_;
  pending.text = absl::StrCat(call.op, ": ", ToString(ring_), ", ",
                              DescribeCollective(call.desc, number_, call.variable, call.dims),
                              ", rank ", RankAt(ring_, rank_));
  const auto stream = static_cast<cudaStream_t>(call.stream);
  absl::Status status = CudaStatus(cudaEventRecord(pending.begin, stream), "cudaEventRecord");
  if (status.ok()) status = Enqueue(call, in, out);
  if (status.ok()) status = group_->Finish(lock, *this, "enqueueing");
  if (status.ok()) status = CudaStatus(cudaEventRecord(pending.end, stream), "cudaEventRecord");
  std::deque<PendingCall>& calls = status.ok() ? pending_ : unused_;
  calls.push_back(std::move(pending));
  if (status.ok() && !group_->has_pending_) {
    group_->has_pending_ = true;
    group_->changed_.notify_all();
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(GroupOptions options) {
  auto group = std::make_unique<NcclGroup>(std::move(options));
  if (group->is_of_several_processes()) WEFT_RETURN_IF_ERROR(group->ShareIds());
  return group;
}

}  // namespace weft
