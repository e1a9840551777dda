#include "executor/local_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/local_collective.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Below this many bytes a second rendezvous costs more than parallel work saves.
constexpr size_t kSmallBytes = 16 << 10;

Clock::duration Seconds(double s) {
  constexpr double kNever = 1e9;  // decades
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(s, 0.0, kNever)));
}

// A ring: the rendezvous of its ranks. A call has two phases: it starts when all ranks have
// arrived, and is done when all parts are done. Ranks leave a call when it is done, so at most one
// call is in flight.
class LocalRing {
 public:
  LocalRing(const RingKey& key, const GroupOptions& options)
      : key_(key),
        options_(options),
        nranks_(SizeOf(key, options.nranks)),
        ranks_(nranks_),
        in_(nranks_),
        out_(nranks_) {
    for (int rank = 0; rank < nranks_; ++rank) ends_.emplace_back(this, rank);
  }

  Communicator* end(int rank) { return &ends_[rank]; }

  // No call starts any more. The first error counts.
  void Break(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    BreakLocked(status);
  }

 private:
  class End : public Communicator {
   public:
    End(LocalRing* ring, int rank) : ring_(ring), rank_(rank) {}
    int rank() const override { return rank_; }
    int nranks() const override { return ring_->nranks_; }
    absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
      return ring_->Run(rank_, call, in, out);
    }

   private:
    LocalRing* ring_;
    int rank_;
  };

  struct Rank {
    int64_t num_calls = 0;
    // The last call. The strings keep their memory from call to call.
    CollectiveDesc desc;
    std::string op;
    std::string variable;
    Dims dims;
  };

  absl::Status Run(int rank, const CollectiveCall& call, const void* in, void* out) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t number = ranks_[rank].num_calls;
    if (!broken_.ok()) return BrokenStatus(call, number);
    Arrive(rank, call, in, out);
    if (num_arrived_ == nranks_) {
      Start(number);
    } else {
      WaitForStart(number, &lock);
    }
    if (!HasStarted(number)) return BrokenStatus(call, number);
    if (!IsSmall(call.desc)) {
      lock.unlock();
      RunLocalCollective(call.desc, in_, out_, rank, nranks_);
      lock.lock();
      if (--num_working_ == 0) {
        num_done_ = number + 1;
        changed_.notify_all();
      }
    }
    // Other ranks may still read and write our buffers. They wait for nobody, so this wait needs,
    // and allows, neither a timeout nor an abort.
    changed_.wait(lock, [&] { return num_done_ > number; });
    return absl::OkStatus();
  }

  void Arrive(int rank, const CollectiveCall& call, const void* in, void* out) {
    Rank& me = ranks_[rank];
    me.desc = call.desc;
    me.op.assign(call.op.data(), call.op.size());
    me.variable.assign(call.variable.data(), call.variable.size());
    me.dims = call.dims;
    in_[rank] = in;
    out_[rank] = out;
    ++me.num_calls;
    ++num_arrived_;
  }

  // Called by the last rank to arrive.
  void Start(int64_t number) {
    num_arrived_ = 0;
    const absl::Status status = CheckCalls(number);
    if (!status.ok()) return BreakLocked(status);
    const CollectiveDesc& desc = ranks_[0].desc;
    num_started_ = number + 1;
    if (IsSmall(desc)) {
      RunLocalCollective(desc, in_, out_, 0, 1);
      num_done_ = number + 1;
    } else {
      num_working_ = nranks_;
    }
    changed_.notify_all();
  }

  // Waits until the call has started or the ring is broken.
  void WaitForStart(int64_t number, std::unique_lock<std::mutex>* lock) {
    const auto over = [&] { return HasStarted(number) || !broken_.ok(); };
    const Clock::time_point arrived = Clock::now();
    const Clock::time_point fail_at = arrived + Seconds(options_.timeout_s);
    const Clock::time_point warn_at = arrived + Seconds(options_.warn_after_s);
    if (warn_at < fail_at && !changed_.wait_until(*lock, warn_at, over) && last_warning_ < number) {
      last_warning_ = number;
      if (options_.warn) {
        const std::string message = DescribeMissing(number, options_.warn_after_s);
        lock->unlock();
        options_.warn(message);
        lock->lock();
      }
    }
    if (!changed_.wait_until(*lock, fail_at, over)) {
      BreakLocked(absl::DeadlineExceededError(DescribeMissing(number, options_.timeout_s)));
    }
  }

  bool HasStarted(int64_t number) const { return num_started_ > number; }
  bool IsSmall(const CollectiveDesc& desc) const {
    return desc.count * SizeOf(desc.dtype) <= kSmallBytes;
  }

  void BreakLocked(const absl::Status& status) {
    if (broken_.ok()) broken_ = status;
    changed_.notify_all();
  }
  absl::Status CheckCalls(int64_t number) const {
    for (int r = 1; r < nranks_; ++r) {
      if (ranks_[r].desc == ranks_[0].desc) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(ToString(key_), ": ranks call different collectives: rank ", RankAt(key_, 0),
                       " calls ", Describe(0), " in ", ranks_[0].op, ", rank ", RankAt(key_, r),
                       " calls ", Describe(r), " in ", ranks_[r].op));
    }
    const absl::Status status = CheckLocalCollective(ranks_[0].desc, nranks_);
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat(ToString(key_), ", ", Describe(0), ": ", status.message()));
  }

  // If the ring was aborted, the call adds which call it was; other errors belong to the ring.
  absl::Status BrokenStatus(const CollectiveCall& call, int64_t number) const {
    if (!absl::IsAborted(broken_)) return broken_;
    return absl::AbortedError(absl::StrCat(
        ToString(key_), ", ", DescribeCollective(call.desc, number, call.variable, call.dims),
        ": aborted: ", broken_.message()));
  }

  std::string Describe(int rank) const {
    const Rank& r = ranks_[rank];
    return DescribeCollective(r.desc, r.num_calls - 1, r.variable, r.dims);
  }

  std::string DescribeMissing(int64_t number, double seconds) const {
    std::vector<int> waiting, missing;
    for (int r = 0; r < nranks_; ++r) {
      (ranks_[r].num_calls > number ? waiting : missing).push_back(r);
    }
    const auto name = [&](std::string* out, int r) { absl::StrAppend(out, RankAt(key_, r)); };
    std::string text = absl::StrCat(
        ToString(key_), ", ", Describe(waiting[0]), ": rank ", absl::StrJoin(missing, ", ", name),
        missing.size() == 1 ? " has" : " have", " not arrived after ", seconds,
        " s; waiting: rank ", absl::StrJoin(waiting, ", ", name));
    for (int r : missing) {
      absl::StrAppend(&text, "; rank ", RankAt(key_, r),
                      ranks_[r].num_calls == 0 ? std::string(" has never arrived")
                                               : " last arrived at " + Describe(r));
    }
    return text;
  }

  const RingKey key_;
  const GroupOptions& options_;
  const int nranks_;       // of the ring; its ranks are 0 .. nranks_ - 1 here
  std::vector<End> ends_;  // by rank
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_; while a call is in flight, in_ and out_ do not change.
  std::vector<Rank> ranks_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  int num_arrived_ = 0;        // at the call that has not started
  int num_working_ = 0;        // on the call that has
  int64_t num_started_ = 0;    // calls
  int64_t num_done_ = 0;       // calls
  int64_t last_warning_ = -1;  // call
  absl::Status broken_;
};

class LocalGroup : public CommunicatorGroup {
 public:
  explicit LocalGroup(GroupOptions options) : options_(std::move(options)) {}

  absl::StatusOr<Communicator*> Get(const RingKey& key, int rank) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto [ring, is_new] = rings_.try_emplace(key, key, options_);
    if (is_new && !aborted_.ok()) ring->second.Break(aborted_);
    return ring->second.end(PositionOf(key, rank));
  }

  void Abort(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = absl::AbortedError(status.message());
    for (auto& [key, ring] : rings_) ring.Break(aborted_);
  }

 private:
  const GroupOptions options_;
  std::mutex mutex_;
  std::map<RingKey, LocalRing> rings_;
  absl::Status aborted_;
};

}  // namespace

std::unique_ptr<CommunicatorGroup> NewLocalGroup(GroupOptions options) {
  return std::make_unique<LocalGroup>(std::move(options));
}

}  // namespace weft
