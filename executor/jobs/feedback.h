// A fed variable whose value depends on results of earlier steps, such as a learning rate that
// falls when the loss does not.
#ifndef WEFT_EXECUTOR_JOBS_FEEDBACK_H_
#define WEFT_EXECUTOR_JOBS_FEEDBACK_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/jobs/job_link.h"
#include "executor/run/result_queue.h"

namespace weft {

struct Feedback {
  // Among the fed variables of the run, which give its type; their values are not used.
  std::string variable;
  int64_t every = 1;  // steps; 1 or more
  // The value of a step and of those after it, up to the next multiple of `every`. Called in
  // process 0, for the first step of the run and for each multiple of `every`, in order, by one
  // thread at a time: after all results of earlier steps have been delivered, and before those of
  // this step.
  std::function<double(int64_t step)> value_at;
};

// Where the ranks of a process get the value of a step, the same one on all ranks of all processes.
class FeedbackGate {
 public:
  // The run begins with step `begin`. `results` are those of process 0, which the others do not
  // use. `link`: to the other processes of the run; null: there are none. All must outlive this.
  FeedbackGate(const Feedback& feedback, int64_t begin, ResultQueue* results, JobLink* link);
  ~FeedbackGate();

  // Waits until the results of the steps before are known, if the value may change in this step.
  // Every rank asks for all steps in order, and runs a step that it has asked for. Returns the
  // error that keeps the results from being delivered; Aborted after Stop. Thread-safe.
  absl::StatusOr<double> ValueAt(int64_t step);

  // Releases the ranks that wait, now and later. The caller stops `results`, too. Thread-safe.
  void Stop();

 private:
  static constexpr int64_t kNone = -1;

  // The step that has set the value of `step`.
  int64_t SetAt(int64_t step) const;
  absl::Status Decide(int64_t step);
  void Receive(absl::string_view message);

  const Feedback& feedback_;
  const int64_t begin_;
  ResultQueue* const results_;
  JobLink* const link_;
  std::mutex mutex_;
  std::condition_variable has_changed_;
  // The last value. A later one is only decided when no rank can ask for this one any more.
  int64_t set_at_ = kNone;
  double value_ = 0;
  int64_t deciding_ = kNone;  // a rank waits for the results before this step
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_FEEDBACK_H_
