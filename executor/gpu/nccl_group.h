// The ends of a group of NCCL, and what they share. See nccl_communicator.h.
#ifndef WEFT_EXECUTOR_GPU_NCCL_GROUP_H_
#define WEFT_EXECUTOR_GPU_NCCL_GROUP_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/communicators/communicator.h"
#include "executor/gpu/gpu_api.h"
#include "executor/gpu/nccl_communicator.h"
#include "executor/gpu/nccl_ids.h"
#include "executor/gpu/nccl_library.h"

namespace weft {

class NcclGroup;

// Enqueued calls, between two marks in their stream: one call, or a group.
struct PendingCall {
  std::unique_ptr<GpuApi::Mark> begin, end;
  int64_t number = 0;  // of the first call
  // Of the first call, for messages. Strings of calls that have ended are used again.
  CollectiveDesc desc;
  std::string op, variable;
  Dims dims;
  bool has_begun = false, was_reported = false;
  std::chrono::steady_clock::time_point start;  // when that was observed
};

// The mutex of the group guards its members.
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(NcclGroup* group, int rank, int nranks, const RingKey& ring)
      : group_(group), rank_(rank), nranks_(nranks), ring_(ring) {}

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

  absl::Status TryRun(std::unique_lock<std::mutex>* lock, const CollectiveCall& call,
                      const void* in, void* out);
  absl::Status Begin(const CollectiveCall& call);
  absl::Status End(std::unique_lock<std::mutex>* lock, void* stream, absl::Status status);
  // After End: returns when all ranks of this process have launched the call, or have failed.
  absl::Status Leave(std::unique_lock<std::mutex>* lock, absl::Status status);
  absl::Status AbortStatus() const;

  absl::Status Enqueue(const CollectiveCall& call, const void* in, void* out);

  absl::Status CheckRanks(const CollectiveDesc& desc) const;

  // All ranks except the root get a copy of their own input; NCCL leaves that to the caller.
  absl::Status Reduce(const CollectiveCall& call, const void* in, void* out, nccl::DataType type,
                      nccl::RedOp operation);

  absl::Status AllToAll(const CollectiveCall& call, const void* in, void* out, nccl::DataType type);

  absl::Status SendOne(const CollectiveCall& call, const void* in, void* out, nccl::DataType type);

  absl::StatusOr<PendingCall> NewCall();

  // An error that the peers or the network have caused after calls were enqueued.
  absl::Status AsyncStatus() const;
  std::string TextOf(absl::string_view op, const CollectiveDesc& desc, int64_t number,
                     absl::string_view variable, const Dims& dims) const;
  std::string TextOf(const PendingCall& call) const {
    return TextOf(call.op, call.desc, call.number, call.variable, call.dims);
  }

  void ForgetFinished();

  NcclGroup* const group_;
  const int rank_, nranks_;  // in the ring
  const RingKey ring_;
  nccl::Communicator* comm_ = nullptr;  // null: aborted
  int64_t number_ = 0;                  // calls enqueued
  int64_t arrived_ = 0;                 // calls made
  int64_t launched_ = 0;                // calls that are on the device, or have failed
  bool was_cut_off_ = false;            // calls were in flight when the run was aborted
  std::deque<PendingCall> pending_;     // in the order of the stream
  std::deque<PendingCall> unused_;      // with their marks
  bool in_group_ = false;
  bool is_polled_ = false;  // by its thread, without the mutex
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
  absl::Status ShareIds();

  ~NcclGroup() override;

  bool is_of_several_processes() const { return options_.link != nullptr; }

  absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) override;

  void Abort(const absl::Status& status) override;

  const NcclLibrary& library() const { return *library_; }
  GpuApi& gpu() const { return *nccl_.gpu; }

 private:
  friend class NcclCommunicator;

  // Unavailable without CUDA or NCCL.
  absl::Status Load();

  absl::StatusOr<nccl::UniqueId> NewId() const;

  absl::Status SetUp(std::unique_lock<std::mutex>* lock, NcclCommunicator* communicator);

  // Waits, without holding the lock, until a host-side NCCL call completes: it may depend on other
  // ranks.
  absl::Status Finish(std::unique_lock<std::mutex>* lock, NcclCommunicator* communicator,
                      absl::string_view what);
  // The state of the communicator, once it has one or when a moment has passed.
  absl::StatusOr<int> Poll(std::unique_lock<std::mutex>* lock, NcclCommunicator* communicator,
                           absl::string_view what);

  // After the last call: frees the communicators of a run without errors.
  absl::Status Close(std::unique_lock<std::mutex>* lock);

  // From now on, all calls fail. The thread that watches ends those on devices. The first call
  // counts.
  void AbortAll(const absl::Status& status);
  // Ends what runs on devices: streams continue without results. Does not wait for other ranks,
  // which may be gone. Not of communicators that their threads use right now; returns whether it
  // was any.
  bool AbortCommunicators(std::unique_lock<std::mutex>* lock);

  // Aborts, or warns once, if `what` is late since `start`; then true. `missing`: see Missing.
  bool CheckLate(std::unique_lock<std::mutex>* lock, std::chrono::steady_clock::time_point start,
                 absl::string_view what, absl::string_view missing, bool* was_reported);

  // How far a rank is: arrived_ or launched_.
  using Counter = int64_t NcclCommunicator::*;

  // Returns when all ranks of this process are as far as `communicator` by the counter: before and
  // after a launch. Otherwise, the device of one would wait for another while that, or the first
  // one itself, allocates memory; in a process whose devices reach each other's memory, allocating
  // waits for all of them. `what` describes the call.
  absl::Status AwaitRanksHere(std::unique_lock<std::mutex>* lock,
                              const NcclCommunicator& communicator, Counter counter,
                              const std::function<std::string()>& what);

  // Lists the ranks of this process that are not as far as `count`, if any.
  std::string Missing(const RingKey& ring, Counter counter, int64_t count) const;

  // Of ranks on the current device of the calling thread, among others.
  absl::Status StartWatcher();

  // The host does not see calls that wait on the device for a late rank.
  void Watch();

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
  int device_ = 0;  // of a rank here, for threads that have none
  std::thread watcher_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_NCCL_GROUP_H_
