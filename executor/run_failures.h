// Collects the failures of a run.
#ifndef WEFT_EXECUTOR_RUN_FAILURES_H_
#define WEFT_EXECUTOR_RUN_FAILURES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "executor/communicator.h"
#include "executor/job_link.h"

namespace weft {

// Of the ranks of this process, and of other processes. The first one ends the run. Thread-safe.
class RunFailures {
 public:
  // `link` may be null. `stop` releases what ranks wait for besides collectives.
  RunFailures(CommunicatorGroup* group, JobLink* link, std::function<void()> stop)
      : group_(group), link_(link), stop_(std::move(stop)) {}

  // Of a rank of this process. `status` says where it happened.
  void Report(int64_t step, int rank, const absl::Status& status) {
    Add({absl::IsAborted(status) ? Origin::kFollows : Origin::kHere, step, rank}, status);
    if (link_ != nullptr) link_->Abort(rank, status);
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
  absl::Status Cause() {
    std::lock_guard<std::mutex> lock(mutex_);
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
    any_.store(true, std::memory_order_relaxed);
  }

  CommunicatorGroup* const group_;
  JobLink* const link_;
  const std::function<void()> stop_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  absl::Status cause_;
  Key key_of_cause_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_FAILURES_H_
