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
  int64_t samples = 0;  // rows of the batch that this rank was fed; 0 where it was fed none
  double ms = 0;        // that the step took: feeding, running, fetching
  // Why the run ends with this result: a loss that is not finite.
  absl::Status status;
};

using ResultCallback = std::function<absl::Status(const StepResult&)>;

// Ranks come at different times; results go out by step, and by rank within a step, each as soon as
// all before it are out.
class ResultQueue {
 public:
  // The names of the fetched variables; the first result is that of rank 0 in step `begin_step`.
  ResultQueue(int nranks, std::vector<std::string> names, ResultCallback callback,
              int64_t begin_step = 0)
      : nranks_(nranks),
        begin_step_(begin_step),
        names_(std::move(names)),
        callback_(std::move(callback)) {}

  // Takes a result, and hands out whatever can be: the callback is called from here, one call at a
  // time. Returns the first error, in order of the results: the callback's, or the status of a
  // result, which is handed out first. After an error nothing goes out. Thread-safe.
  absl::Status Post(StepResult result);

 private:
  absl::Status Deliver(const StepResult& result);

  const int nranks_;
  const int64_t begin_step_;
  const std::vector<std::string> names_;
  const ResultCallback callback_;
  std::mutex mutex_;
  int64_t num_delivered_ = 0;
  std::map<int64_t, StepResult> waiting_;  // by place in the order
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RESULT_QUEUE_H_
