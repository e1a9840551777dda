// Starts the processes of a job on this host, passes on their output, and ends them together.
#ifndef WEFT_TOOLS_JOB_LAUNCHER_H_
#define WEFT_TOOLS_JOB_LAUNCHER_H_

#include <signal.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "tools/job/generations.h"
#include "tools/job/line_prefixer.h"
#include "tools/job/output_queue.h"

namespace weft {

struct LaunchOptions {
  std::vector<std::string> command;  // command[0] is searched for in PATH
  int processes = 1;
  int max_restarts = 0;  // for WEFT_JOB_RESTARTS
  // How long processes have to end after a signal, before they are killed; and to end their part of
  // a generation of an elastic job.
  double grace_s = 30;
  // Processes that are killed, or stopped, are lost: the others go on as the next generation of the
  // job (tools/job/generations.h), unless there are fewer than so many. 0: the job is not elastic.
  int min_processes = 0;
};

// How an attempt has ended.
struct LaunchResult {
  // 0: all processes ended with 0. Otherwise the status of the process that failed first, or that
  // of the signal that stopped the launcher; 128 + the signal that ended a process.
  int exit_status = 0;
  // A process failed, not by wrong usage, and nobody has asked the launcher to stop.
  bool may_restart = false;
};

// Errors and notes go to standard error as lines that begin with "weft launch: ".
//
// An elastic job goes on without processes that are killed, and kills those that are stopped. A
// line of standard output that such a process has not finished is left out.
//
// That holds for commands that take over what is lost, as weft run does; a loss ends others.
//
// Every process has a process group of its own, an empty standard input, and an environment with
// WEFT_JOB_RANK, WEFT_JOB_SIZE, WEFT_JOB_ADDRESS, WEFT_JOB_ID, WEFT_JOB_TOKEN and
// WEFT_JOB_ATTEMPT (tools/job/job_environment.h). Every line of its output begins with "[RANK] ".
//
// When a process fails, the others get SIGTERM. The failure is that of the process that ended
// first, but a signal that killed another one at the same time (100 ms) is the better reason.
// SIGINT and SIGTERM to this process go to all processes; so does SIGHUP, as SIGTERM. What a
// process leaves running in its group gets SIGTERM when it ends. All that is left after the time of
// grace is killed; so are processes that are stopped while all others have ended. When others have
// ended a while ago, a note says for which processes the launcher still waits.
//
// If this process is killed, the system sends SIGTERM to the processes; not to what they have
// started.
class Launcher {
 public:
  // Takes over the signals of this process, which must have one thread.
  static absl::StatusOr<Launcher> Create();

  Launcher(Launcher&& other) noexcept;
  Launcher& operator=(Launcher&&) = delete;
  ~Launcher();

  // Runs the processes to their end. NotFound and PermissionDenied if the command cannot be
  // started, or another error of the system; none of them runs then.
  absl::StatusOr<LaunchResult> Run(const LaunchOptions& options, int attempt);

  // The same in all attempts: WEFT_JOB_ID.
  const std::string& job_id() const { return job_id_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Stream {
    explicit Stream(int rank) : lines(absl::StrCat("[", rank, "] ")) {}

    int fd = -1;  // -1: at its end
    LinePrefixer lines;
  };

  struct Process {
    explicit Process(int r) : rank(r), out(r), err(r) {}

    int rank;
    pid_t pid = 0;
    Stream out, err;
    int control = -1;  // of an elastic job: the socket to the process
    int stopped_looks = 0;
    bool is_lost = false;
    bool is_killed = false;  // by the launcher, as it would hold up the others
    int64_t num_lines = 0;   // of standard output
    // Ended, but not reaped yet: so the system does not give its number to another process group.
    bool has_ended = false;
    bool is_reaped = false;
    int exit_status = 0;  // 128 + signal
    int killed_by = 0;    // signal
    Time drain_until;     // the end of the time of grace for what it has left running

    bool IsRunning() const { return !has_ended; }
  };

  Launcher() = default;

  absl::Status Start(const LaunchOptions& options, int attempt);
  absl::Status StartProcess(const std::vector<std::string>& command,
                            std::vector<std::string> variables, Process* process);
  bool IsDone() const;
  bool MayDrain(const Process& process) const;
  Time NextDeadline() const;
  void Poll();
  // Whether there was something.
  bool Read(Process* process, bool is_out);
  void Close(Process* process);
  bool ReadControl(Process* process);  // the same
  void ReadSignals();
  void OnStopSignal(int signal);
  void CollectEnded();
  void OnEnd(Process* process);
  void OnFailure(Process* process);
  // Of an elastic job.
  bool IsElastic() const;
  void OnLoss(Process* process);
  void LookForStopped(Time now);
  void Kill(Process* process);
  int64_t NumLines() const;  // of the run
  void Decide(Time now);
  void OnDeadlines();
  // Of processes that go on, or are stopped, after all others have ended well.
  void OnLastProcesses(Time now);
  void ReportFailure();
  void GiveUp();
  void SignalAll(int signal);
  void Finish(Process* process);
  void Fail(absl::string_view text);
  void Error(absl::string_view text);
  void Note(absl::string_view text);

  std::string job_id_;
  int signal_fd_ = -1;
  sigset_t former_mask_ = {};
  bool ignores_sigpipe_ = false;
  OutputQueue output_;

  // Of the attempt that is running.
  Clock::duration grace_ = {};
  std::deque<Process> processes_;
  absl::optional<Generations> generations_;  // of an elastic job
  absl::optional<Time> look_stopped_at_;
  absl::optional<Time> waiting_since_;  // when the first process has ended its part
  std::string too_few_;                 // why the loss of failed_ ends the job
  Process* failed_ = nullptr;           // the first
  absl::optional<Time> report_at_;      // failed_ is not reported yet
  absl::optional<Time> look_at_;        // the last processes
  Time last_since_;                     // since when others have ended
  absl::optional<Time> stopped_at_;     // since when all of these are
  bool has_said_whom_ = false;          // it waits for
  absl::optional<Time> kill_at_;        // the time of grace ends
  absl::optional<Time> give_up_at_;     // killed processes should have ended
  bool gave_up_ = false;
  const char* sent_ = "";                 // the signal with which the time of grace began
  std::vector<int> stop_signals_;         // that this process has received
  absl::optional<int> launcher_failure_;  // exit status
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_LAUNCHER_H_
