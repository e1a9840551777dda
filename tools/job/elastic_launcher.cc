#include "tools/job/elastic_launcher.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/jobs/process_state.h"

namespace weft {
namespace {

// The others of the job take a process that is stopped for lost after kMaxStoppedLooks; they should
// come first, as they then say why they wait.
constexpr int kMaxLooks = kMaxStoppedLooks + 1;
// The least time that a process has to leave a generation: it may be in the middle of a long op.
constexpr std::chrono::steady_clock::duration kLeaveWithin = std::chrono::seconds(10);

}  // namespace

ElasticLauncher::~ElasticLauncher() { CloseAll(); }

void ElasticLauncher::CloseAll() {
  for (Member& member : members_) {
    if (member.control >= 0) close(std::exchange(member.control, -1));
  }
  if (controls_ >= 0) close(std::exchange(controls_, -1));
}

absl::Status ElasticLauncher::OnAttempt(const LaunchOptions& options) {
  CloseAll();
  members_.assign(options.processes, Member());
  generations_.emplace(
      options.processes, min_processes_, [this](int p, const ControlMessage& message) {
        const std::string text = message.Encode();
        // One that cannot be told has ended.
        send(members_[p].control, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      });
  look_stopped_at_ = Clock::now();
  waiting_since_ = absl::nullopt;
  controls_ = epoll_create1(EPOLL_CLOEXEC);
  return controls_ >= 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "epoll_create");
}

absl::StatusOr<int> ElasticLauncher::FileOf(int rank, std::vector<std::string>* variables) {
  std::array<int, 2> fds;  // they keep the borders of messages
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  members_[rank].control = fds[0];
  epoll_event event = {};
  event.events = EPOLLIN;
  const absl::StatusOr<std::string> text = DescribeControl(fds[1]);
  if (!text.ok() || epoll_ctl(controls_, EPOLL_CTL_ADD, fds[0], &event) != 0) {
    const absl::Status status = text.ok() ? absl::ErrnoToStatus(errno, "epoll_ctl") : text.status();
    close(fds[1]);
    return status;
  }
  variables->push_back(absl::StrCat(kControlVariable, "=", *text));
  if (members_[rank].is_replaced) {
    variables->push_back(absl::StrCat(kGenerationVariable, "=", generations_->number()));
  }
  return fds[1];
}

void ElasticLauncher::ReadControls() {
  for (Process& process : processes()) {
    int& control = members_[process.rank].control;
    while (control >= 0) {
      std::array<char, 256> buffer;
      const ssize_t n = recv(control, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) {
        close(std::exchange(control, -1));
      } else {
        OnMessage(&process, {buffer.data(), static_cast<size_t>(n)});
      }
    }
  }
}

void ElasticLauncher::OnMessage(Process* process, absl::string_view text) {
  if (Generations::IsBegin(text)) {
    // What a script has printed before is no line of the run.
    ReadLines(process);
    members_[process->rank].num_lines_before = process->num_lines;
  }
  if (generations_->OnMessage(process->rank, text) || !Generations::IsBegin(text)) return;
  Note(absl::StrCat(Describe(*process),
                    " begins another run after a loss, which needs a weft launch of its own"));
}

void ElasticLauncher::OnEnd(Process* process) {
  ReadControls();
  const bool is_killed = process->killed_by != 0;
  // Nothing of a process that is lost may write into the next generation. A signal to stop has
  // reached what it has left running; that may be saving what it has.
  if (is_killed && !WasStopped(*process)) kill(-process->pid, SIGKILL);
  if (is_killed && IsElastic()) return OnLoss(process);
  generations_->OnExit(process->rank, process->exit_status);
  // It has taken over nothing.
  if (process->exit_status == 0 && !generations_->TakesPart(process->rank)) FailOfLosses("");
  Launcher::OnEnd(process);
}

void ElasticLauncher::OnLoss(Process* process) {
  generations_->OnKilled(process->rank);
  if (WasStopped(*process)) return;
  process->is_lost = true;
  // All that the job has to do is done, but not what other commands do.
  if (generations_->IsDone())
    return generations_->TakesPart(process->rank) ? void() : OnFailure(process);
  if (generations_->num_left() == 0) return OnFailure(process);
  members_[process->rank].is_replaced = replacements_left_ > 0;
  if (members_[process->rank].is_replaced) {
    --replacements_left_;
    generations_->OnReplaced(process->rank);
  }
  if (!members_[process->rank].is_replaced) NoteLoss(*process, DescribeLeft());
}

void ElasticLauncher::NoteLoss(const Process& process, const std::string& consequence) {
  Note(absl::StrCat(Describe(process), " was killed by ", SignalName(process.killed_by), "; ",
                    consequence));
}

void ElasticLauncher::StartReplacements() {
  for (Process& process : processes()) {
    Member& member = members_[process.rank];
    if (!member.is_replaced || !process.is_reaped) continue;
    const bool is_lost_again = generations_->IsLostAgain(process.rank);
    if (is_lost_again && !generations_->IsAnyWaiting()) continue;
    if (is_lost_again || IsStopping()) {  // the others go on to the end of their step
      member.is_replaced = false;
      generations_->OnKilled(process.rank);
      if (!is_lost_again) {
        NoteLoss(process, DescribeLeft());
        continue;
      }
      process.consequence = ": it is the third in its place that is lost before a further step";
      return OnFailure(&process);
    }
    NoteLoss(process, "a new one takes its place");
    if (member.control >= 0) close(std::exchange(member.control, -1));
    member.num_lines_lost += process.num_lines - member.num_lines_before;
    member.num_lines_before = 0;
    member.stopped_looks = 0;
    member.killed_at = absl::nullopt;
    const absl::Status status = Replace(&process);
    member.is_replaced = false;
    if (status.ok()) continue;
    generations_->OnKilled(process.rank);
    return Fail(absl::StrCat("cannot replace ", Describe(process), ": ", status.message()));
  }
}

void ElasticLauncher::FailOfLosses(const std::string& consequence) {
  for (Process& process : processes()) {
    if (!process.is_lost) continue;
    process.consequence = consequence;
    OnFailure(&process);
  }
}

std::string ElasticLauncher::DescribeLeft() const {
  const int left = generations_->num_left();
  return absl::StrCat(left, left == 1 ? " process is left" : " processes are left");
}

// One that is stopped is lost, if others run and are enough.
void ElasticLauncher::LookForStopped(Time now) {
  if (look_stopped_at_ > now) return;
  look_stopped_at_ = now + kLookForStoppedEvery;
  std::vector<Process*> stopped;
  int num_running = 0;
  for (Process& process : processes()) {
    Member& member = members_[process.rank];
    if (!process.IsRunning() || member.killed_at.has_value()) continue;
    const bool is_stopped = IsStopped(process.pid);
    member.stopped_looks = is_stopped ? member.stopped_looks + 1 : 0;
    if (!is_stopped) ++num_running;
    if (member.stopped_looks >= kMaxLooks) stopped.push_back(&process);
  }
  const bool are_enough = num_running >= std::max(1, min_processes_);
  if (!are_enough && !generations_->IsDone()) return;
  for (Process* process : stopped) {
    Note(absl::StrCat(Describe(*process),
                      " is stopped, and is killed: the others go on without it"));
    Kill(process, now);
  }
}

void ElasticLauncher::Kill(Process* process, Time now) {
  members_[process->rank].killed_at = now;
  kill(-process->pid, SIGKILL);
}

// Kills processes that hold up the others, and gives up those that the system does not end: what
// they have asked it to write could still come.
void ElasticLauncher::EndLateMembers(Time now) {
  if (!generations_->IsAnyWaiting()) waiting_since_ = absl::nullopt;
  if (generations_->IsAnyWaiting() && !waiting_since_.has_value()) waiting_since_ = now;
  const bool is_late =
      waiting_since_.has_value() && now >= *waiting_since_ + std::max(grace(), kLeaveWithin);
  for (Process& process : processes()) {
    const absl::optional<Time>& killed_at = members_[process.rank].killed_at;
    if (!process.IsRunning() || generations_->IsWaiting(process.rank)) continue;
    if (killed_at.has_value() && now >= *killed_at + kGiveUpAfter) {
      generations_->OnKilled(process.rank);
      return Fail(absl::StrCat(Describe(process), " has not ended after SIGKILL"));
    }
    if (!is_late || killed_at.has_value()) continue;
    Note(absl::StrCat(Describe(process),
                      " has not left the generation that has ended, and is killed (--grace_s)"));
    Kill(&process, now);
  }
}

void ElasticLauncher::ReadLines(Process* process) {
  while (process->out.fd >= 0 && Read(process, true)) {
  }
}

// All that they have written counts.
int64_t ElasticLauncher::NumLines() {
  int64_t lines = 0;
  for (Process& process : processes()) {
    ReadLines(&process);
    const Member& member = members_[process.rank];
    lines += member.num_lines_lost + process.num_lines - member.num_lines_before;
  }
  return lines;
}

void ElasticLauncher::OnRound(Time now) {
  ReadControls();
  if (IsElastic()) {
    StartReplacements();
    LookForStopped(now);
    EndLateMembers(now);
  } else {
    look_stopped_at_ = Time::max();
  }
  if (!generations_->IsDue()) return;
  // If the job does not go on, they report their errors, and end.
  const auto decision = generations_->Decide(NumLines(), IsElastic());
  if (decision == Generations::Decision::kHasTooFew) {
    FailOfLosses(absl::StrCat(": ", DescribeLeft(), ", fewer than --min_processes"));
  }
}

}  // namespace weft
