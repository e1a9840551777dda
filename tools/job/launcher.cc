#include "tools/job/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/jobs/job_token.h"
#include "executor/jobs/process_state.h"
#include "tools/flags/command_line.h"

extern char** environ;

namespace weft {
namespace {

constexpr auto kSameTime = std::chrono::milliseconds(100);
// How often, and after which time, the launcher looks for whom it waits.
constexpr auto kLookEvery = std::chrono::milliseconds(500);
constexpr auto kSayWhomAfter = std::chrono::seconds(10);

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The environment of this process, with other variables of the job.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> result = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, "WEFT_JOB_")) result.emplace_back(*entry);
  }
  return result;
}

// A pipe whose ends close when they go out of scope, or when another program is executed.
class Pipe {
 public:
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (int& fd : fds_) Close(&fd);
  }

  absl::Status Open() {
    return pipe2(fds_.data(), O_CLOEXEC) == 0 ? absl::OkStatus()
                                              : absl::ErrnoToStatus(errno, "pipe");
  }
  void SetWriteEnd(int fd) { fds_[1] = fd; }
  int read_end() const { return fds_[0]; }
  int write_end() const { return fds_[1]; }
  int ReleaseReadEnd() { return std::exchange(fds_[0], -1); }
  void CloseWriteEnd() { Close(&fds_[1]); }

 private:
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  std::array<int, 2> fds_ = {-1, -1};
};

// In the new process: everything up to the program. Returns if something fails.
void BecomeProgram(pid_t parent, int death_signal, const sigset_t& mask, bool ignores_sigpipe,
                   int out, int err, int file, char* const* argv, char* const* environment) {
  setpgid(0, 0);
  // Of the parent's thread; the parent may have died before.
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(1);
  signal(SIGPIPE, ignores_sigpipe ? SIG_IGN : SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);  // ignored since ParseCommandLine
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
      dup2(err, STDERR_FILENO) < 0) {
    return;
  }
  if (null != STDIN_FILENO) close(null);
  if (file >= 0) fcntl(file, F_SETFD, 0);  // stays open
  execvpe(argv[0], argv, environment);
}

}  // namespace

Launcher::Launcher() {
  std::random_device random;
  job_id_ = absl::StrCat(getpid(), "-", absl::Hex(random(), absl::kZeroPad8), "-",
                         absl::Hex(random(), absl::kZeroPad8));
}

absl::Status Launcher::TakeSignals() {
  // Other files must not take the place of streams that the caller has closed.
  int fd = -1;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  // nohup, and shells that start a command in the background, have some ignored.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    if (!IsIgnored(signal)) sigaddset(&mask, signal);
  }
  ignores_sigpipe_ = IsIgnored(SIGPIPE);
  signal(SIGPIPE, SIG_IGN);
  // An ignored SIGCHLD would reap processes unseen.
  signal(SIGCHLD, SIG_DFL);
  if (sigprocmask(SIG_BLOCK, &mask, &former_mask_) != 0) {
    return absl::ErrnoToStatus(errno, "sigprocmask");
  }
  signal_fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  return signal_fd_ >= 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "signalfd");
}

int Launcher::PendingStop() {
  sigset_t pending;
  if (sigpending(&pending) != 0) return 0;
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    if (sigismember(&pending, signal) == 1) return signal == SIGHUP ? SIGTERM : signal;
  }
  return 0;
}

Launcher::~Launcher() {
  if (signal_fd_ >= 0) close(signal_fd_);
}

std::string Launcher::Describe(const Process& process) {
  return absl::StrCat("process ", process.rank, " (pid ", process.pid, ")");
}

std::string Launcher::SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

void Launcher::Error(absl::string_view text) {
  output_.AddErr(absl::StrCat("weft launch: error: ", text, "\n"));
}

void Launcher::Note(absl::string_view text) {
  output_.AddErr(absl::StrCat("weft launch: note: ", text, "\n"));
}

absl::StatusOr<LaunchResult> Launcher::Run(const LaunchOptions& options, int attempt) {
  grace_ =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.grace_s));
  for (Process& process : processes_) Close(&process);
  processes_.clear();
  failed_ = nullptr;
  report_at_ = look_at_ = stopped_at_ = kill_at_ = give_up_at_ = absl::nullopt;
  has_said_whom_ = false;
  WEFT_RETURN_IF_ERROR(OnAttempt(options));
  WEFT_RETURN_IF_ERROR(Start(options, attempt));
  while (!IsDone()) {
    Poll();
    ReadSignals();
    CollectEnded();
    OnDeadlines();
    OnRound(Clock::now());
  }
  OnDone();

  LaunchResult result;
  if (launcher_failure_.has_value()) {
    result.exit_status = *launcher_failure_;
  } else if (failed_ != nullptr) {
    result.exit_status = failed_->exit_status;
    result.may_restart = stop_signals_.empty() && failed_->exit_status != kExitUsage;
  } else if (!stop_signals_.empty() && absl::c_any_of(processes_, [](const Process& p) {
               return p.exit_status != 0 && !p.is_lost;
             })) {
    result.exit_status = 128 + stop_signals_[0];
  }
  return result;
}

absl::Status Launcher::Start(const LaunchOptions& options, int attempt) {
  const HostOptions& hosts = options.hosts;
  const std::string token = hosts.hosts > 1 ? hosts.token : NewJobToken();
  // Everybody sees the names that are in use. Who knew the next one could take it.
  const std::string address = hosts.hosts > 1 ? hosts.address : "unix:weft-launch-" + NewJobToken();
  command_ = options.command;
  variables_ = {absl::StrCat("WEFT_JOB_SIZE=", hosts.hosts * options.processes),
                "WEFT_JOB_ADDRESS=" + address,
                absl::StrCat("WEFT_JOB_ID=", job_id_),
                absl::StrCat("WEFT_JOB_RESTARTS=", options.max_restarts),
                absl::StrCat("WEFT_JOB_TOKEN=", token),
                absl::StrCat("WEFT_JOB_ATTEMPT=", attempt)};
  first_rank_ = hosts.host * options.processes;
  for (int i = 0; i < options.processes; ++i) {
    Process process(first_rank_ + i);
    const absl::Status status = StartProcess(&process);
    if (!status.ok()) {
      SignalAll(SIGKILL);
      for (Process& started : processes_) Finish(&started);
      return status;
    }
    processes_.push_back(std::move(process));
  }
  return absl::OkStatus();
}

absl::Status Launcher::Replace(Process* process) {
  Process other(process->rank);
  WEFT_RETURN_IF_ERROR(StartProcess(&other));
  *process = std::move(other);
  return absl::OkStatus();
}

absl::Status Launcher::StartProcess(Process* process) {
  std::vector<std::string> variables = variables_;
  variables.push_back(absl::StrCat("WEFT_JOB_RANK=", process->rank));
  variables.push_back(absl::StrCat("WEFT_JOB_LOCAL_RANK=", process->rank - first_rank_));
  Pipe out, err, failure, file;
  WEFT_RETURN_IF_ERROR(out.Open());
  WEFT_RETURN_IF_ERROR(err.Open());
  WEFT_RETURN_IF_ERROR(failure.Open());
  WEFT_ASSIGN_OR_RETURN(const int fd, FileOf(process->rank, &variables));
  file.SetWriteEnd(fd);
  const std::vector<std::string> environment = EnvironmentWith(variables);
  const std::vector<char*> argv = Pointers(command_), environment_pointers = Pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    BecomeProgram(parent, DeathSignal(), former_mask_, ignores_sigpipe_, out.write_end(),
                  err.write_end(), file.write_end(), argv.data(), environment_pointers.data());
    const int error = errno;
    if (write(failure.write_end(), &error, sizeof(error)) < 0) _exit(126);
    _exit(127);
  }
  setpgid(pid, pid);  // as the child does: whoever comes first
  failure.CloseWriteEnd();
  int error = 0;
  ssize_t n;
  do {
    n = read(failure.read_end(), &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n != 0) {
    kill(-pid, SIGKILL);  // it may have started, if the answer could not be read
    waitpid(pid, nullptr, 0);
    return absl::ErrnoToStatus(n == sizeof(error) ? error : EIO,
                               absl::StrCat("cannot start ", command_[0]));
  }
  process->pid = pid;
  for (auto [pipe, stream] : {std::make_pair(&out, &process->out), {&err, &process->err}}) {
    fcntl(pipe->read_end(), F_SETFL, O_NONBLOCK);
    stream->fd = pipe->ReleaseReadEnd();
  }
  return absl::OkStatus();
}

bool Launcher::IsDone() const {
  return !report_at_.has_value() && (gave_up_ || (output_.IsEmpty() && HaveOthersEnded())) &&
         absl::c_all_of(processes_, [](const Process& process) { return process.is_reaped; });
}

Launcher::Time Launcher::NextDeadline() const {
  Time next = NextRound();
  for (const absl::optional<Time>& at : {report_at_, look_at_, kill_at_, give_up_at_}) {
    if (at.has_value()) next = std::min(next, *at);
  }
  for (const Process& process : processes_) {
    if (MayDrain(process)) next = std::min(next, process.drain_until);
  }
  return next;
}

// Whether a process has ended, and may have left something running that has its output open. Its
// time does not run while nobody reads the output of this process.
bool Launcher::MayDrain(const Process& process) const {
  return process.has_ended && !process.is_reaped && (!output_.IsFull() || give_up_at_.has_value());
}

// Waits for something to do; reads and writes.
void Launcher::Poll() {
  std::vector<pollfd> polled = {{signal_fd_, POLLIN, 0}, {PolledFile(), POLLIN, 0}};
  size_t next_polled = polled.size();
  std::vector<std::pair<Process*, bool>> streams;  // of polled, after these
  if (!output_.IsFull()) {
    for (Process& process : processes_) {
      for (const bool is_out : {true, false}) {
        Stream* const stream = is_out ? &process.out : &process.err;
        if (stream->fd < 0) continue;
        polled.push_back({stream->fd, POLLIN, 0});
        streams.emplace_back(&process, is_out);
      }
    }
  }
  output_.AppendTo(&polled);
  const Time next = NextDeadline();
  int timeout = -1;
  if (next != Time::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    timeout = static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(left, 1000000)));
  }
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;
  for (const auto& [process, is_out] : streams) {
    if (polled[next_polled++].revents != 0) Read(process, is_out);
  }
  polled.erase(polled.begin(), polled.begin() + static_cast<ptrdiff_t>(next_polled));
  const absl::Status written = output_.Write(polled);
  if (!written.ok() && !launcher_failure_.has_value()) {
    Fail(written.message());  // as a command whose reader has gone
  }
}

// What the launcher itself cannot do ends the processes, too.
void Launcher::Fail(absl::string_view text, int exit_status) {
  Error(text);
  if (!launcher_failure_.has_value()) launcher_failure_ = exit_status;
  SignalAll(SIGTERM);
}

bool Launcher::Read(Process* process, bool is_out) {
  Stream* const stream = is_out ? &process->out : &process->err;
  char piece[65536];
  const ssize_t n = stream->fd < 0 ? 0 : read(stream->fd, piece, sizeof(piece));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  std::string lines;
  if (n > 0) {
    stream->lines.Add({piece, static_cast<size_t>(n)}, &lines);
    if (is_out) process->num_lines += std::count(piece, piece + n, '\n');
  } else {
    if (n < 0) Fail(absl::StrCat("cannot read output: ", std::strerror(errno)));
    if (stream->fd >= 0) close(std::exchange(stream->fd, -1));
  }
  is_out ? output_.AddOut(lines) : output_.AddErr(lines);
  return n > 0;
}

void Launcher::ReadSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (stops_.AddOwn(Clock::now())) OnStopSignal(signal == SIGHUP ? SIGTERM : signal);
  }
}

void Launcher::OnStopSignal(int signal) {
  // The processes have ended: somebody has stopped to read their output.
  if (HaveOthersEnded() &&
      absl::c_all_of(processes_, [](const Process& p) { return p.is_reaped; })) {
    give_up_at_ = Clock::now();
    launcher_failure_ = 128 + signal;
  }
  stop_signals_.push_back(signal);
  SignalAll(signal);
  OnStop(signal);
}

// To all process groups. After the first time, the time of grace runs.
void Launcher::SignalAll(int signal) {
  for (Process& process : processes_) {
    if (process.is_reaped) continue;
    kill(-process.pid, signal);
    kill(-process.pid, SIGCONT);  // a stopped process could not end
  }
  if (signal == SIGKILL || kill_at_.has_value() || give_up_at_.has_value()) return;
  kill_at_ = Clock::now() + grace_;
  sent_ = signal == SIGINT ? "SIGINT" : "SIGTERM";
}

void Launcher::CollectEnded() {
  for (Process& process : processes_) {
    if (process.has_ended) continue;
    siginfo_t info = {};
    const int result =
        waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (result != 0 || info.si_pid == 0) continue;
    process.has_ended = true;
    process.killed_by = info.si_code == CLD_EXITED ? 0 : info.si_status;
    process.exit_status = process.killed_by == 0 ? info.si_status : 128 + process.killed_by;
    process.drain_until = Clock::now() + grace_;
    OnEnd(&process);
    kill(-process.pid, SIGTERM);  // what it has left running
  }
  for (Process& process : processes_) {
    if (process.has_ended && !process.is_reaped && process.out.fd < 0 && process.err.fd < 0) {
      Finish(&process);
    }
  }
}

void Launcher::OnEnd(Process* process) {
  if (process->exit_status != 0 && !WasStopped(process->exit_status)) OnFailure(process);
}

bool Launcher::WasStopped(int exit_status) const {
  return absl::c_any_of(stop_signals_, [&](int signal) { return exit_status == 128 + signal; });
}

void Launcher::OnFailure(Process* process) {
  if (failed_ == nullptr) {
    // After SIGTERM, processes fail as they like.
    if (launcher_failure_.has_value() || give_up_at_.has_value()) return;
    failed_ = process;
    report_at_ = Clock::now();
    if (process->killed_by == 0) *report_at_ += kSameTime;
  } else if (report_at_.has_value() && failed_->killed_by == 0 && process->killed_by != 0) {
    failed_ = process;
    report_at_ = Clock::now();
  }
}

void Launcher::OnDeadlines() {
  const Time now = Clock::now();
  const bool is_any_running =
      absl::c_any_of(processes_, [](const Process& process) { return process.IsRunning(); });
  if (report_at_.has_value() && (*report_at_ <= now || !is_any_running)) ReportFailure();
  if (kill_at_.has_value() && *kill_at_ <= now) {
    for (Process& process : processes_) {
      if (process.IsRunning()) {
        Note(absl::StrCat(Describe(process), " has not ended after ", sent_,
                          " and is killed (--grace_s)"));
      }
      process.drain_until = std::min(process.drain_until, now);
    }
    SignalAll(SIGKILL);
    kill_at_ = absl::nullopt;
    give_up_at_ = now + kGiveUpAfter;
  }
  for (Process& process : processes_) {
    if (!MayDrain(process) || process.drain_until > now) continue;
    for (const bool is_out : {true, false}) {
      Stream* const stream = is_out ? &process.out : &process.err;
      if (stream->fd >= 0) Read(&process, is_out);
      if (stream->fd >= 0) close(std::exchange(stream->fd, -1));
    }
    Finish(&process);
  }
  OnLastProcesses(now);
  if (give_up_at_.has_value() && *give_up_at_ <= now) GiveUp();
}

void Launcher::OnLastProcesses(Time now) {
  const bool is_ending =
      failed_ != nullptr || launcher_failure_.has_value() || !stop_signals_.empty();
  std::vector<Process*> running;
  bool has_any_ended = false;
  for (Process& process : processes_) {
    if (process.IsRunning()) running.push_back(&process);
    has_any_ended = has_any_ended || (!process.IsRunning() && !process.is_lost);
  }
  if (is_ending || running.empty() || !has_any_ended) {
    look_at_ = absl::nullopt;
    return;
  }
  if (look_at_.has_value() && now < *look_at_) return;
  if (!look_at_.has_value()) last_since_ = now;
  look_at_ = now + kLookEvery;
  const bool are_stopped =
      absl::c_all_of(running, [](const Process* process) { return IsStopped(process->pid); });
  if (!are_stopped) stopped_at_ = absl::nullopt;
  if (are_stopped && !stopped_at_.has_value()) stopped_at_ = now;
  const auto name = [&](absl::string_view what) {
    return absl::StrCat(
        Describe(*running[0]),
        running.size() == 1 ? "" : absl::StrCat(" and ", running.size() - 1, " more"), what);
  };
  if (now >= last_since_ + kSayWhomAfter && !has_said_whom_) {
    has_said_whom_ = true;
    Note(absl::StrCat("waiting for ", name(are_stopped ? ", which is stopped" : ""),
                      "; the others have ended"));
  }
  if (!stopped_at_.has_value() || now < *stopped_at_ + grace_) return;
  Error(name(" is stopped, and all others have ended (--grace_s)"));
  launcher_failure_ = kExitFailed;
  SignalAll(SIGTERM);
}

void Launcher::GiveUp() {
  gave_up_ = true;
  for (Process& process : processes_) {
    if (process.is_reaped) continue;
    PrintError("weft launch", absl::StrCat(Describe(process), " has not ended after SIGKILL"));
    launcher_failure_ = 1;
    process.is_reaped = true;
  }
}

void Launcher::ReportFailure() {
  report_at_ = absl::nullopt;
  // Its last words come first.
  Read(failed_, true);
  Read(failed_, false);
  Error(absl::StrCat(Describe(*failed_),
                     failed_->killed_by == 0
                         ? absl::StrCat(" exited with status ", failed_->exit_status)
                         : absl::StrCat(" was killed by ", SignalName(failed_->killed_by)),
                     failed_->consequence));
  SignalAll(SIGTERM);
}

void Launcher::Close(Process* process) {
  for (int* fd : {&process->out.fd, &process->err.fd}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

// Kills what is left of a process that has ended.
void Launcher::Finish(Process* process) {
  std::string out, err;
  // What is left of a line of a process that is lost comes again, whole, from another one.
  if (!process->is_lost) process->out.lines.Finish(&out);
  process->err.lines.Finish(&err);
  output_.AddOut(out);
  output_.AddErr(err);
  Close(process);
  kill(-process->pid, SIGKILL);
  waitpid(process->pid, nullptr, 0);
  process->is_reaped = true;
}

}  // namespace weft
