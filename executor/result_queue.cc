#include "executor/result_queue.h"

#include "base/status_macros.h"

namespace weft {

absl::Status ResultQueue::Post(StepResult result) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t place = (result.step - begin_step_) * nranks_ + result.rank;
  result.names = &names_;
  waiting_.emplace(place, std::move(result));
  while (status_.ok() && !waiting_.empty() && waiting_.begin()->first == num_delivered_) {
    status_ = Deliver(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    ++num_delivered_;
  }
  return status_;
}

absl::Status ResultQueue::Deliver(const StepResult& result) {
  if (callback_) WEFT_RETURN_IF_ERROR(callback_(result));
  return result.status;
}

}  // namespace weft
