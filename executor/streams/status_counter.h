// A counter with the status of the thread that advances it.
#ifndef WEFT_EXECUTOR_STREAMS_STATUS_COUNTER_H_
#define WEFT_EXECUTOR_STREAMS_STATUS_COUNTER_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "executor/streams/progress_counter.h"

namespace weft {

// A ProgressCounter whose first error stays: that stream is poisoned for good.
class StatusCounter {
 public:
  // By one thread at a time.
  void AdvanceTo(uint32_t count, const absl::Status& status) {
    if (!status.ok() && !is_poisoned_.load(std::memory_order_relaxed)) {
      status_ = status;
      is_poisoned_.store(true, std::memory_order_release);
    }
    counter_.AdvanceTo(count);
  }
  // Sleeps until the counter has reached `count`. Returns the error, if there is one by then.
  absl::Status WaitFor(uint32_t count) {
    counter_.WaitFor(count);
    return is_poisoned_.load(std::memory_order_acquire) ? status_ : absl::OkStatus();
  }

 private:
  ProgressCounter counter_;
  std::atomic<bool> is_poisoned_{false};
  absl::Status status_;  // written once, before is_poisoned_
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_STATUS_COUNTER_H_
