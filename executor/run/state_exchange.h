// Brings the states of all ranks to process 0, which writes checkpoints.
#ifndef WEFT_EXECUTOR_RUN_STATE_EXCHANGE_H_
#define WEFT_EXECUTOR_RUN_STATE_EXCHANGE_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"
#include "executor/run/run_state.h"
#include "executor/run/step_gate.h"

namespace weft {

class StateExchange {
 public:
  // `use` is called in process 0, with the states of all ranks of the run. The link must outlive
  // this.
  StateExchange(const World& world, JobLink* link, StateGate::Use use);
  ~StateExchange();

  // Adds the states of this process, by rank, and waits until process 0 has used those of all.
  // Process 0 says which values rank 0 has, by hashes of 128 bits; the others send what differs.
  // All processes call it equally often, each from one thread at a time. Returns the error of `use`
  // in every process; Aborted after Stop; the error of a device.
  absl::Status Exchange(std::vector<RankState> states);

  // Releases the thread that waits, now and later. Thread-safe.
  void Stop();

 private:
  absl::Status UseAll(std::vector<RankState> states);
  // Waits for the next message of a process. Aborted after Stop.
  absl::StatusOr<std::string> Take(int process);
  void Receive(int process, std::string message);

  const World world_;
  JobLink* const link_;
  const StateGate::Use use_;
  std::mutex mutex_;
  std::condition_variable has_changed_;
  // By process: states; from 0: hashes, then the status.
  std::vector<std::deque<std::string>> received_;
  bool is_stopped_ = false;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_STATE_EXCHANGE_H_
