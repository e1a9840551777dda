// Where the ranks of a run agree: on the step at which a run stops early, and on when the state of
// all of them is read.
#ifndef WEFT_EXECUTOR_RUN_STEP_GATE_H_
#define WEFT_EXECUTOR_RUN_STEP_GATE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "executor/jobs/job_link.h"
#include "executor/run/run_state.h"

namespace weft {

// Ranks may be in different steps. When they shall stop, those in earlier steps go on to the end of
// the last step that any of them has begun; so all stop before the same step.
//
// Over several processes: one that shall stop tells process 0, which asks all processes which steps
// their ranks have begun. Until process 0 has answered with the last of them, no rank begins
// another. Ranks within a step wait for none that has not begun it, so this takes no longer than
// the messages.
class StepGate {
 public:
  // The run has the steps from `begin` on, below `end`. `stops`, which may be empty, is asked
  // before steps begin until it says true. `link`: to the other processes of the run; null: there
  // are none. `on_asked`, which may be empty, is called when any process of the run shall stop.
  StepGate(int64_t begin, int64_t end, std::function<bool()> stops, JobLink* link = nullptr,
           std::function<void()> on_asked = nullptr);
  ~StepGate();

  // Whether a rank runs this step. Every rank asks for all steps in order, until the answer is
  // false. Thread-safe.
  bool Begins(int64_t step);

  // Asks `stops` for a rank that begins no steps, as a parameter server does. Does not wait.
  // Thread-safe.
  void AskToStop();

  // Releases the ranks that wait, now and later: no step begins any more. Thread-safe.
  void Stop();

  // The step before which the run ends, once Begins has been false. Thread-safe.
  int64_t end() const;

 private:
  // The caller has the mutex.
  void AskWhetherToStop();
  void Receive(int process, absl::string_view message);

  const std::function<bool()> stops_;
  const std::function<void()> on_asked_;
  JobLink* const link_;
  mutable std::mutex mutex_;
  std::condition_variable is_decided_;
  int64_t end_;
  int64_t next_;  // after all steps that ranks have begun
  bool has_asked_ = false;
  bool is_frozen_ = false;
  bool is_stopped_ = false;
  // Of process 0.
  bool has_begun_to_ask_ = false;
  int num_answers_ = 0;
  int64_t last_answer_ = 0;
};

// Ranks wait for each other, and go on when the state of all has been dealt with.
class StateGate {
 public:
  using Use = std::function<absl::Status(std::vector<RankState>)>;  // by rank

  StateGate(int nranks, Use use) : use_(std::move(use)), states_(nranks) {}

  // Adds the state of a rank, and waits. The last rank to come calls `use`, while nothing changes;
  // after it, nothing shares the memory of the states. Returns its error on every rank; Aborted
  // after Stop. `rank` counts from 0. Thread-safe.
  absl::Status Pass(int rank, RankState state);

  // Releases the ranks that wait, now and later. Thread-safe.
  void Stop();

 private:
  const Use use_;
  std::mutex mutex_;
  std::condition_variable has_passed_;
  std::vector<RankState> states_;
  size_t num_waiting_ = 0;
  int64_t num_passed_ = 0;  // times that all ranks have
  absl::Status status_;     // of the last time
  bool is_in_use_ = false;  // `use_` is running
  bool is_stopped_ = false;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_STEP_GATE_H_
