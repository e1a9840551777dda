// Collects the failures of a run.
#ifndef WEFT_EXECUTOR_RUN_RUN_FAILURES_H_
#define WEFT_EXECUTOR_RUN_RUN_FAILURES_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "executor/communicators/communicator.h"
#include "executor/jobs/job_link.h"

namespace weft {

// Of the ranks of this process, and of other processes. The first one ends the run. Thread-safe.
class RunFailures {
 public:
  // `link` may be null. `stop` releases what ranks wait for besides collectives.
  RunFailures(CommunicatorGroup* group, JobLink* link, std::function<void()> stop)
      : group_(group), link_(link), stop_(std::move(stop)) {}

  // Of a rank of this process. `status` says where it happened.
  void Report(int64_t step, int rank, const absl::Status& status) {
    // An engine may notice that another process is gone before the link says why. If the link does
    // not, the caller of Cause tells the others.
    const bool follows =
        absl::IsAborted(status) || (link_ != nullptr && absl::IsUnavailable(status));
    Add({follows ? Origin::kFollows : Origin::kHere, step, rank}, status);
    if (link_ != nullptr && !follows) link_->Abort(rank, status);
    group_->Abort(Annotate(absl::StrCat("rank ", rank, " failed"), status));
    stop_();
  }

  // Another process has failed, or is gone (JobLink::OnFailure).
  void ReportElsewhere(const absl::Status& status) {
    Add({Origin::kElsewhere, 0, 0}, status);
    group_->Abort(status);
    stop_();
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }

  // The cause: the earliest failure that does not follow from another rank's. Ok if there is none.
  // Once all ranks have ended.
  absl::Status Cause() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (link_ != nullptr && !cause_.ok()) {
      has_cause_.wait_for(lock, std::chrono::seconds(2),
                          [&] { return std::get<Origin>(key_of_cause_) != Origin::kFollows; });
    }
    return cause_;
  }

 private:
  enum class Origin { kHere, kElsewhere, kFollows };
  // Origin; step; rank.
  using Key = std::tuple<Origin, int64_t, int>;

  void Add(const Key& key, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (cause_.ok() || key < key_of_cause_) {
      key_of_cause_ = key;
      cause_ = status;
    }
    has_cause_.notify_all();
    any_.store(true, std::memory_order_relaxed);
  }

  CommunicatorGroup* const group_;
  JobLink* const link_;
  const std::function<void()> stop_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::condition_variable has_cause_;
  absl::Status cause_;
  Key key_of_cause_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_FAILURES_H_
