// Delivers the values that ranks fetched, in order.
#ifndef WEFT_EXECUTOR_RUN_RESULT_QUEUE_H_
#define WEFT_EXECUTOR_RUN_RESULT_QUEUE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/wait_briefly.h"
#include "ops/tensor.h"

namespace weft {

// What one rank fetched in one step.
struct StepResult {
  int64_t step = 0;
  int rank = 0;
  std::vector<Tensor> values;  // in the order of the fetched variables
  // Names of the values; set by ResultQueue, valid in the callback.
  const std::vector<std::string>* names = nullptr;
  int64_t samples = 0;  // rows of the batch that this rank was fed; 0 if none
  double ms = 0;        // duration of the step: feeding, running, fetching
  // Why the run ends with this result: a loss that is not finite.
  absl::Status status;
};

using ResultCallback = std::function<absl::Status(const StepResult&)>;

// Ranks finish at different times. Results are delivered by step, and by rank within a step, each
// as soon as all results before it were delivered.
class ResultQueue {
 public:
  // `names`: the fetched variables. The first result is that of rank 0 in step `begin_step`.
  ResultQueue(int nranks, std::vector<std::string> names, ResultCallback callback,
              int64_t begin_step = 0)
      : nranks_(nranks),
        begin_step_(begin_step),
        names_(std::move(names)),
        callback_(std::move(callback)) {}

  // Adds a result, and delivers all results that are next in order: calls the callback, one call at
  // a time. Returns the first error, in order of the results: the error of the callback, or the
  // status of a result, which is delivered first. After an error nothing is delivered. Thread-safe.
  absl::Status Post(StepResult result) {
    const auto lock = LockBriefly(&mutex_);
    const int64_t position = (result.step - begin_step_) * nranks_ + result.rank;
    result.names = &names_;
    waiting_.emplace(position, std::move(result));
    while (status_.ok() && !waiting_.empty() && waiting_.begin()->first == num_delivered_) {
      const StepResult& next = waiting_.begin()->second;
      if (callback_) status_ = callback_(next);
      status_.Update(next.status);
      waiting_.erase(waiting_.begin());
      ++num_delivered_;
    }
    has_delivered_.notify_all();
    return status_;
  }

  // Waits until the results of all steps below `end_step` are delivered. Returns the error that
  // prevents it: that of Post, or Aborted after Stop. Thread-safe.
  absl::Status WaitUntil(int64_t end_step) {
    const int64_t count = (end_step - begin_step_) * nranks_;
    std::unique_lock<std::mutex> lock(mutex_);
    has_delivered_.wait(lock,
                        [&] { return num_delivered_ >= count || !status_.ok() || is_stopped_; });
    if (num_delivered_ >= count || !status_.ok()) return status_;
    return absl::AbortedError("the run was aborted");
  }

  // Releases the threads that wait, now and later. Thread-safe.
  void Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
    has_delivered_.notify_all();
  }

 private:
  const int nranks_;
  const int64_t begin_step_;
  const std::vector<std::string> names_;
  const ResultCallback callback_;
  std::mutex mutex_;
  std::condition_variable has_delivered_;
  bool is_stopped_ = false;
  int64_t num_delivered_ = 0;
  std::map<int64_t, StepResult> waiting_;  // by position in the order
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RESULT_QUEUE_H_
