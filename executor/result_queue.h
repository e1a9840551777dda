// Hands out what ranks fetched, in order.
#ifndef WEFT_EXECUTOR_RESULT_QUEUE_H_
#define WEFT_EXECUTOR_RESULT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ops/tensor.h"

namespace weft {

// What one rank fetched in one step.
struct StepResult {
  int64_t step = 0;
  int rank = 0;
  std::vector<Tensor> values;  // in the order of the fetched variables
  // Of the values; set by ResultQueue, valid in the callback.
  const std::vector<std::string>* names = nullptr;
  double ms = 0;  // that the step took: feeding, running, fetching
};

using ResultCallback = std::function<absl::Status(const StepResult&)>;

// Ranks come at different times; results go out by step, and by rank within a step, each as soon as
// all before it are out.
class ResultQueue {
 public:
  // A loss that is not finite is an error. Both vectors are by fetched variable.
  ResultQueue(int nranks, std::vector<std::string> names, std::vector<bool> is_loss,
              ResultCallback callback)
      : nranks_(nranks),
        names_(std::move(names)),
        is_loss_(std::move(is_loss)),
        callback_(std::move(callback)) {}

  // Takes a result, and hands out whatever can be: the callback is called from here, one call at a
  // time. Returns its first error, or FailedPrecondition with step, rank and variable for a loss
  // that is not finite (its result is handed out first). After an error nothing goes out.
  // Thread-safe.
  absl::Status Post(StepResult result);

 private:
  absl::Status Deliver(const StepResult& result);

  const int nranks_;
  const std::vector<std::string> names_;
  const std::vector<bool> is_loss_;
  const ResultCallback callback_;
  std::mutex mutex_;
  int64_t num_delivered_ = 0;
  std::map<int64_t, StepResult> waiting_;  // by place in the order
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RESULT_QUEUE_H_
