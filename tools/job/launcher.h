// Starts the processes of a job on this host, passes on their output, and ends them together.
#ifndef WEFT_TOOLS_JOB_LAUNCHER_H_
#define WEFT_TOOLS_JOB_LAUNCHER_H_

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "tools/job/host_links.h"
#include "tools/job/line_prefixer.h"
#include "tools/job/output_queue.h"
#include "tools/job/stop_count.h"

namespace weft {

struct LaunchOptions {
  std::vector<std::string> command;  // command[0] is searched for in PATH
  int processes = 1;
  int max_restarts = 0;  // for WEFT_JOB_RESTARTS
  // How long processes have to end after a signal, before they are killed.
  double grace_s = 30;
  HostOptions hosts;  // of several, this one starts `processes`
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
// Every process has a process group of its own, an empty standard input, and an environment with
// WEFT_JOB_RANK, WEFT_JOB_SIZE, WEFT_JOB_LOCAL_RANK, WEFT_JOB_ADDRESS, WEFT_JOB_ID, WEFT_JOB_TOKEN
// and WEFT_JOB_ATTEMPT (tools/job/job_environment.h). Lines of its output begin with "[RANK] ".
//
// When a process fails, the others get SIGTERM. The failure is that of the process that ended
// first, but a signal that killed another one at the same time (100 ms) is the better reason.
// SIGINT and SIGTERM to this process go to all processes; so does SIGHUP, as SIGTERM. What a
// process leaves running in its group gets SIGTERM when it ends. All that is left after the time of
// grace is killed; so are processes that are stopped while all others have ended. When others have
// ended a while ago, a note says for which processes the launcher still waits.
//
// If this process is killed, the system sends a signal to the processes; not to what they have
// started.
class Launcher {
 public:
  Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  virtual ~Launcher();

  // Takes over the signals of this process, which must have one thread. Before Run.
  absl::Status TakeSignals();

  // Runs the processes to their end. NotFound and PermissionDenied if the command cannot be
  // started, or another error of the system; none of them runs then.
  absl::StatusOr<LaunchResult> Run(const LaunchOptions& options, int attempt);

  // The signal to stop that has come, and that no launcher has read yet; 0: none. SIGTERM stands
  // for SIGHUP, too.
  static int PendingStop();

  // The same in all attempts: WEFT_JOB_ID.
  const std::string& job_id() const { return job_id_; }

 protected:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  static constexpr Clock::duration kGiveUpAfter = std::chrono::seconds(5);

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
    int64_t num_lines = 0;  // of standard output
    // The others do what it has left: its unfinished line is dropped.
    bool is_lost = false;
    std::string consequence;  // why its failure ends the job
    // Ended, but not reaped yet: so the system does not give its number to another process group.
    bool has_ended = false;
    bool is_reaped = false;
    int exit_status = 0;  // 128 + signal
    int killed_by = 0;    // signal
    Time drain_until;     // the end of the time of grace for what it has left running

    bool IsRunning() const { return !has_ended; }
  };

  // What a kind of job adds.
  // An attempt begins.
  virtual absl::Status OnAttempt(const LaunchOptions& /*options*/) { return absl::OkStatus(); }
  // A process starts: adds variables, and returns a file that stays open in it alone; -1: none.
  virtual absl::StatusOr<int> FileOf(int /*rank*/, std::vector<std::string>* /*variables*/) {
    return -1;
  }
  // What the system sends to the processes if this one is killed.
  virtual int DeathSignal() const { return SIGTERM; }
  // A file that calls for a round when it is readable; -1: none.
  virtual int PolledFile() const { return -1; }
  // When the next round is due, at the latest.
  virtual Time NextRound() const { return Time::max(); }
  // Everything that has happened so far is known.
  virtual void OnRound(Time /*now*/) {}
  // Somebody has asked this process to stop.
  virtual void OnStop(int /*signal*/) {}
  // Whether what else belongs to the job has ended, too.
  virtual bool HaveOthersEnded() const { return true; }
  // All has ended.
  virtual void OnDone() {}
  // A process has ended.
  virtual void OnEnd(Process* process);

  std::deque<Process>& processes() { return processes_; }
  // Starts another process in place of one that is reaped. The errors of Run.
  absl::Status Replace(Process* process);
  Clock::duration grace() const { return grace_; }
  // Reads what is there, once. Whether there was something.
  bool Read(Process* process, bool is_out);
  // Deals with the signals that have come.
  void ReadSignals();
  // Whether a signal that this process has passed on has ended one with this status.
  bool WasStopped(int exit_status) const;
  // How often somebody has asked this process to stop.
  int num_stops() const { return stops_.num(); }
  bool IsStopping() const { return num_stops() > 0; }
  void OnFailure(Process* process);
  // Another launcher has passed the signal on.
  void OnOtherStop(int signal) {
    stops_.AddOther(Clock::now());
    OnStopSignal(signal);
  }
  void set_job_id(std::string id) { job_id_ = std::move(id); }
  // Whether all end because of a failure, or are killed.
  bool HasFailed() const {
    return failed_ != nullptr || launcher_failure_.has_value() || give_up_at_.has_value();
  }
  void Fail(absl::string_view text, int exit_status = 1);
  void Note(absl::string_view text);
  static std::string Describe(const Process& process);  // "process 2 (pid 4711)"
  static std::string SignalName(int signal);

 private:
  absl::Status Start(const LaunchOptions& options, int attempt);
  void OnStopSignal(int signal);
  absl::Status StartProcess(Process* process);
  bool IsDone() const;
  bool MayDrain(const Process& process) const;
  Time NextDeadline() const;
  void Poll();
  void Close(Process* process);
  void CollectEnded();
  void OnDeadlines();
  // Of processes that go on, or are stopped, after all others have ended well.
  void OnLastProcesses(Time now);
  void ReportFailure();
  void GiveUp();
  void SignalAll(int signal);
  void Finish(Process* process);
  void Error(absl::string_view text);

  std::string job_id_;
  int signal_fd_ = -1;
  sigset_t former_mask_ = {};
  bool ignores_sigpipe_ = false;
  OutputQueue output_;

  // Of the attempt that is running.
  Clock::duration grace_ = {};
  std::vector<std::string> command_;
  int first_rank_ = 0;                  // on this host
  std::vector<std::string> variables_;  // of all processes
  std::deque<Process> processes_;
  Process* failed_ = nullptr;        // the first
  absl::optional<Time> report_at_;   // failed_ is not reported yet
  absl::optional<Time> look_at_;     // the last processes
  Time last_since_;                  // since when others have ended
  absl::optional<Time> stopped_at_;  // since when all of these are
  bool has_said_whom_ = false;       // it waits for
  absl::optional<Time> kill_at_;     // the time of grace ends
  absl::optional<Time> give_up_at_;  // killed processes should have ended
  bool gave_up_ = false;
  const char* sent_ = "";                 // the signal with which the time of grace began
  std::vector<int> stop_signals_;         // with which the processes were asked to stop
  StopCount stops_;                       // of these
  absl::optional<int> launcher_failure_;  // exit status
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_LAUNCHER_H_
