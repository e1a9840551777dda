// Starts the processes of an elastic job (docs/reliability.md).
#ifndef WEFT_TOOLS_JOB_ELASTIC_LAUNCHER_H_
#define WEFT_TOOLS_JOB_ELASTIC_LAUNCHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "tools/job/controlled_launcher.h"
#include "tools/job/generations.h"

namespace weft {

// A job that goes on without processes that are killed, as its next generation, if so many are
// left. Kills those that are stopped, and those that do not leave a generation in time. A line of
// standard output that such a process has not finished is left out.
//
// That holds for commands that take over what is lost, as weft run does; a loss ends others.
//
// On several hosts, this is the launcher of the first one, which decides for all: the others are
// HostLaunchers. One that is lost is so with its processes. When no process of the first host is
// left, the job ends: process 0, which reports and writes, is always there.
class ElasticLauncher : public ControlledLauncher {
 public:
  // `max_replacements`: so many new processes take the places of lost ones, each on its host,
  // before the next generation forms. The third loss in one place before a further step ends the
  // job.
  explicit ElasticLauncher(int min_processes, int max_replacements = 0)
      : min_processes_(min_processes), replacements_left_(max_replacements) {}

 protected:
  absl::Status OnAttempt(const LaunchOptions& options) override;
  Time NextRound() const override { return look_stopped_at_; }
  void OnRound(Time now) override;
  void OnStop(int signal) override;
  bool HaveOthersEnded() const override;
  void OnEnd(Process* process) override;
  void OnMessage(int rank, absl::string_view text) override;

 private:
  struct Member {
    int host = 0;
    bool has_ended = false, is_lost = false;  // on another host
    bool is_ordered =
        false;          // its launcher is to start another there, and has not said that it runs
    int killed_by = 0;  // signal
    int stopped_looks = 0;
    absl::optional<Time> killed_at;  // by the launcher, as it would hold up the others
    int64_t num_lines_before = 0;    // of standard output, before its part has begun
    int64_t num_lines_lost = 0;      // of those whose place it has taken
    bool is_replaced = false;        // a new process takes its place
  };

  // Whether the job goes on without a process.
  bool IsElastic() const {
    return !HasFailed() && (!generations_->HasEnded() || generations_->IsDone());
  }
  // Null: the process is on another host.
  Process* LocalOf(int rank);
  bool IsRunning(int rank);
  std::string DescribeRank(int rank);
  void OnLoss(Process* process);
  // What other launchers say.
  void TakeEvents();
  // Of a process of another host: killed by a signal, if it is not 0.
  void OnOtherEnd(int rank, int signal, int exit_status);
  void OnHostLoss(int host, absl::string_view reason);
  // Whether another process takes the place of one that is lost.
  bool TakesReplacement(int rank);
  // Nobody does.
  void DropPlace(int rank);
  // Whether the job ends, as no process of the first host is left.
  bool IsFirstHostMissed(Process* lost);
  void NoteLoss(int rank, const std::string& consequence);
  // The loss of a process ends the job; those of all that are lost do.
  void FailOfLoss(int rank, const std::string& consequence);
  void FailOfLosses(const std::string& consequence);
  void LookForStopped(Time now);
  void EndLateMembers(Time now);
  void ReadLines(Process* process);
  int64_t NumLines();  // of the run
  // "3 processes are left".
  std::string DescribeLeft() const;
  void Kill(int rank, Time now);

  // Starts those that take the places of lost ones, when these are reaped.
  void StartReplacements();

  const int min_processes_;
  int replacements_left_;
  // Of the attempt that is running.
  std::vector<Member> members_;  // by rank
  absl::optional<Generations> generations_;
  Time look_stopped_at_;
  absl::optional<Time> waiting_since_;  // when the first process has ended its part
  bool has_told_failure_ = false;       // the other launchers
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_ELASTIC_LAUNCHER_H_
