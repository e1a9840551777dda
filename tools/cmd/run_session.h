// A run inside a process that is not that of weft run: its steps come one by one.
#ifndef WEFT_TOOLS_CMD_RUN_SESSION_H_
#define WEFT_TOOLS_CMD_RUN_SESSION_H_

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/files/checkpoint.h"
#include "executor/run/result_queue.h"
#include "executor/run/run_control.h"
#include "executor/run/runner.h"
#include "ops/tensor.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/flags/said.h"
#include "tools/schedules/plateau_schedule.h"

namespace weft {

// What weft run does with its flags, programs and parameters; the caller gives batches, and takes
// results and states. Ranks are threads of this process, or of the processes of a job, and begin
// with the first step or state. One thread at a time uses a session.
//
// In a job, each process has flags.run.nranks ranks, and makes the same calls in the same order,
// with the batch of all ranks; all get the results. Process 0 writes files. One session of a
// process can join.
//
// The first error of a step ends the run: later calls return it again. ResourceExhausted if the
// thread of the run cannot start, which a later call tries again. Errors are those of weft
// run, under the names that the flags give to the programs. FailedPrecondition in a process that
// has been forked from one where a session had begun: threads do not survive that.
class RunSession {
 public:
  // `given` has the programs, and the parameters if there are any that are not in a file. Verifies
  // the programs as weft run does. `in_job`: joins the job of a launcher, if there is one.
  static absl::StatusOr<std::unique_ptr<RunSession>> Create(RunFlags flags, RunFiles given,
                                                            bool in_job = false);
  // Ends the run after the current step. In a child of a fork, use Free.
  ~RunSession();

  // Deletes a session. One whose threads are in another process is left as it is: what they wait
  // for cannot be destroyed.
  static void Free(std::unique_ptr<RunSession> session);

  // Runs a step with the batch of all ranks: as many tensors as names, which may be in memory of
  // the caller until this returns. Every step has the variables of the first, or, after a state,
  // the data variables that the program reads.
  // The results by rank are valid until the next call.
  absl::StatusOr<absl::Span<const StepResult>> Step(absl::Span<const std::string> names,
                                                    std::vector<Tensor> batch);

  // Of the state before the next step, what --save writes: the persistable variables, as on rank 0,
  // or on the first rank of a group that keeps them equal. Copies.
  absl::StatusOr<std::map<std::string, Tensor>> Persistables();
  // As --checkpoint and --save write it.
  absl::Status WriteCheckpoint(const std::string& path);
  absl::Status Save(const std::string& path);

  // Sets persistable variables on all ranks, before the next step; `values` may be those of
  // Persistables. InvalidArgument, which leaves the run as it is, for a name that the program does
  // not have, for another type than declared, and for a parameter without its master weight, or,
  // where an outer optimizer keeps more of the parameters, without all of the others.
  // FailedPrecondition, which does so, too, for a variable of which ranks have values of their own:
  // one value is not the state of all. Running statistics of the data, and what the ranks of a
  // group keep equal, are no such variables.
  absl::Status SetPersistables(const std::map<std::string, Tensor>& values);

  // Ends the run, and waits for its threads; a run that has not begun cannot begin any more. The
  // error of the run, if it has failed.
  absl::Status End();

  // The next one.
  int64_t step() const { return step_; }
  int nranks() const { return flags_.run.nranks; }  // of all processes
  int num_processes() const { return job_->num_processes(); }
  // The number of this one; 0 without a job.
  int process() const { return job_->link() == nullptr ? 0 : job_->link()->process(); }
  // The fetched variables, in the order of StepResult::values. Empty before the first step.
  const std::vector<std::string>& fetch() const { return fetch_; }
  // Of these, those of which ranks have partial sums.
  const std::set<std::string>& sums() const { return files_->sums; }

  // The schedule that follows a metric, as it is before the next step; none: there is none.
  absl::optional<PlateauSchedule> Plateau();

  // BestMetric::text of the run, with its earlier parts: checkpoints have it.
  const std::string& best() const { return best_; }
  void set_best(std::string best) { best_ = std::move(best); }
  // The program that it trains.
  const Program& main() const { return *files_->main; }
  void Say(Said said);

  // What is said since the last call.
  std::vector<Said> TakeSaid();

 private:
  explicit RunSession(RunFlags flags) : flags_(std::move(flags)) {}
  absl::Status Join(bool in_job);
  absl::Status Prepare();
  absl::Status Leave(const absl::Status& status);
  absl::Status Read(std::vector<std::string> names);
  absl::Status Begin();
  absl::Status CheckProcess() const;
  void Run();
  // Puts a batch of the variables of this run into their order; false if it has others.
  bool Reorder(absl::Span<const std::string> names, std::vector<Tensor>* batch) const;
  absl::Status CheckValues(const std::map<std::string, Tensor>& values) const;
  absl::Status CheckAreShared(const std::map<std::string, Tensor>& values);
  // Compares the batch with the one of process 0. The errors of Hear.
  absl::Status SetBatch(std::vector<Tensor> batch);
  void SayLoneRows(absl::Span<const Tensor> batch);
  absl::Status WaitForResults();
  // The state before the next step, in process 0; in others, an empty one at once.
  absl::StatusOr<Checkpoint> State();
  absl::StatusOr<Checkpoint> WaitForState();
  // Process 0 tells the others, which wait to hear it in order.
  void Tell(const std::string& message);
  absl::StatusOr<std::string> Hear();
  absl::Status Share(const absl::Status& status);  // that of process 0
  absl::Status AddCheckpoint(const Checkpoint& checkpoint);
  absl::Status Fail();

  RunFlags flags_;
  RunFiles given_;
  std::unique_ptr<JobSession> job_;
  bool has_left_ = false;
  bool has_told_names_ = false;  // of fetch_
  bool has_told_rows_ = false;   // LoneRowsText
  absl::optional<Checkpoint> resume_;
  absl::optional<RunFiles> files_;
  std::vector<std::string> names_;  // of the batches
  int64_t step_ = 0;
  std::vector<std::string> fetch_;
  pid_t process_ = 0;  // that has the threads; 0: none has

  RunControl control_;
  std::thread thread_;
  // Of the step that is ordered; an error, if process 0 has another, which the run then ends with.
  absl::StatusOr<std::vector<Tensor>> batch_ = std::vector<Tensor>();
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<StepResult> results_;  // of the last step
  std::atomic<bool> is_done_{
      false};  // results_ has those of all ranks; read without the mutex, too
  std::deque<std::string> heard_;
  absl::optional<PlateauSchedule> plateau_;
  absl::optional<Checkpoint> checkpoint_;  // that was ordered
  // Else checkpoint_ only says that the order is carried out. Written while there is no order.
  bool copies_state_ = true;
  std::set<std::string> own_;         // of which ranks have values of their own, in the last state
  std::string best_;                  // written while there is no order
  absl::optional<absl::Status> end_;  // of the run
  std::vector<Said> said_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_RUN_SESSION_H_
