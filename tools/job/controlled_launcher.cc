#include "tools/job/controlled_launcher.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tools/job/generations.h"

namespace weft {
namespace {

// What launcher 0 and another one must agree on.
std::string SizeOf(const LaunchOptions& options) {
  return absl::StrCat(options.hosts.hosts, " hosts with ", options.processes, " processes");
}

}  // namespace

ControlledLauncher::~ControlledLauncher() { CloseAll(); }

void ControlledLauncher::CloseAll() {
  for (int& control : controls_) {
    if (control >= 0) close(std::exchange(control, -1));
  }
  if (polled_ >= 0) close(std::exchange(polled_, -1));
}

absl::Status ControlledLauncher::OnAttempt(const LaunchOptions& options) {
  CloseAll();
  const HostOptions& hosts = options.hosts;
  controls_.assign(hosts.hosts * options.processes, -1);
  polled_ = epoll_create1(EPOLL_CLOEXEC);
  if (polled_ < 0) return absl::ErrnoToStatus(errno, "epoll_create");
  if (hosts.hosts == 1) return absl::OkStatus();
  std::vector<std::string> texts;
  const std::string own = absl::StrCat(SizeOf(options), "\n", job_id());
  absl::StatusOr<std::unique_ptr<HostLinks>> links = HostLinks::Connect(
      hosts, own, [] { return PendingStop() != 0; },
      [](const std::string& note) {
        std::fprintf(stderr, "weft launch: note: %s\n", note.c_str());  // not queued: it waits
      },
      &texts);
  if (!links.ok() && PendingStop() != 0) {
    return absl::CancelledError("stopped before the launchers of all hosts had come");
  }
  WEFT_ASSIGN_OR_RETURN(links_, std::move(links));
  for (int host = 0; host < hosts.hosts; ++host) {
    const std::vector<std::string> lines = absl::StrSplit(texts[host], '\n');
    if (texts[host].empty()) continue;
    if (lines.size() != 2 || lines[0] != SizeOf(options)) {
      return absl::InvalidArgumentError(absl::StrCat("the launcher of host ", host, ": expected ",
                                                     SizeOf(options), ", as here, found ",
                                                     lines[0]));
    }
    if (host == 0) set_job_id(lines[1]);
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  return epoll_ctl(polled_, EPOLL_CTL_ADD, links_->file(), &event) == 0
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::StatusOr<int> ControlledLauncher::FileOf(int rank, std::vector<std::string>* variables) {
  std::array<int, 2> fds;  // they keep the borders of messages
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  controls_[rank] = fds[0];
  epoll_event event = {};
  event.events = EPOLLIN;
  const absl::StatusOr<std::string> text = DescribeControl(fds[1]);
  if (!text.ok() || epoll_ctl(polled_, EPOLL_CTL_ADD, fds[0], &event) != 0) {
    const absl::Status status = text.ok() ? absl::ErrnoToStatus(errno, "epoll_ctl") : text.status();
    close(fds[1]);
    return status;
  }
  variables->push_back(absl::StrCat(kControlVariable, "=", *text));
  if (joins_after_ > 0) {
    variables->push_back(absl::StrCat(kGenerationVariable, "=", joins_after_));
  }
  return fds[1];
}

void ControlledLauncher::OnDone() {
  if (links_ != nullptr && !links_->Finish([] { return PendingStop() != 0; })) ReadSignals();
}

void ControlledLauncher::SayTo(int rank, absl::string_view text) {
  // One that cannot be told has ended.
  send(controls_[rank], text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

absl::Status ControlledLauncher::ReplaceAfter(int generation, Process* process) {
  int& control = controls_[process->rank];
  if (control >= 0) close(std::exchange(control, -1));
  joins_after_ = generation;
  const absl::Status status = Replace(process);
  joins_after_ = 0;
  return status;
}

void ControlledLauncher::ReadControls() {
  for (size_t rank = 0; rank < controls_.size(); ++rank) {
    int& control = controls_[rank];
    while (control >= 0) {
      std::array<char, 256> buffer;
      const ssize_t n = recv(control, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) {
        close(std::exchange(control, -1));
      } else {
        OnMessage(static_cast<int>(rank), {buffer.data(), static_cast<size_t>(n)});
      }
    }
  }
}

void ControlledLauncher::SendStop(int host, int signal) {
  links()->Send(host, absl::StrCat("signal ", signal, " ", std::max(1, num_stops())));
}

bool ControlledLauncher::TakeStop(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  int signal = 0, stops = 0;
  if (words[0] != "signal" || words.size() != 3 || !absl::SimpleAtoi(words[1], &signal) ||
      !absl::SimpleAtoi(words[2], &stops)) {
    return false;
  }
  stops_of_others_ = stops;
  if (stops > num_stops()) OnOtherStop(signal);
  return true;
}

void HostLauncher::OnMessage(int rank, absl::string_view text) {
  links()->Send(0, absl::StrCat("say ", rank, " ", text));
}

void HostLauncher::OnStop(int signal) {
  const bool has_ended =
      lost_.empty() && absl::c_all_of(processes(), [](const Process& p) { return p.is_reaped; });
  if (!has_ended && num_stops() > stops_of_others()) SendStop(0, signal);
}

void HostLauncher::OnEnd(Process* process) {
  ReadControls();
  const bool is_killed = process->killed_by != 0;
  links()->Send(0, absl::StrCat(is_killed ? "killed " : "exited ", process->rank, " ",
                                is_killed ? process->killed_by : process->exit_status));
  if (is_killed && !is_alone_) lost_[process->rank] = absl::nullopt;
  process->is_lost = is_killed && !WasStopped(process->exit_status);
  if (!process->is_lost) return Launcher::OnEnd(process);
  kill(-process->pid, SIGKILL);  // as ElasticLauncher::OnEnd
}

void HostLauncher::TakeEvents() {
  for (const HostLinks::Event& event : links()->Take()) {
    if (!event.end.ok()) {
      is_alone_ = true;
      lost_.clear();
      if (IsStopping()) continue;
      Fail(absl::StrCat("the launcher of host 0 is lost: ", event.end.message()));
      const std::string fails = ControlMessage{ControlMessage::Kind::kFail}.Encode();
      for (const Process& process : processes()) SayTo(process.rank, fails);
      continue;
    }
    if (TakeStop(event.text)) continue;
    const std::vector<std::string> words = absl::StrSplit(event.text, absl::MaxSplits(' ', 2));
    int number = 0, generation = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &number)) continue;
    if (words[0] == "left") lost_.erase(number);
    for (Process& process : processes()) {
      if (process.rank != number) continue;
      if (words[0] == "say" && words.size() == 3) SayTo(number, words[2]);
      if (words[0] == "kill" && process.IsRunning()) kill(-process.pid, SIGKILL);
      if (words[0] == "replace" && words.size() == 3 && absl::SimpleAtoi(words[2], &generation)) {
        lost_[number] = generation;
      }
    }
  }
}

void HostLauncher::StartReplacements() {
  for (Process& process : processes()) {
    const int rank = process.rank;
    const auto lost = lost_.find(rank);
    if (lost == lost_.end() || !lost->second.has_value() || !process.is_reaped) continue;
    const int generation = *lost->second;
    if (HasFailed() || IsStopping()) {  // as if the new one had started, and were lost
      lost->second = absl::nullopt;
      links()->Send(0, absl::StrCat("killed ", rank, " ", SIGKILL));
      continue;
    }
    lost_.erase(lost);
    stopped_looks_.erase(rank);
    const absl::Status status = ReplaceAfter(generation, &process);
    links()->Send(0,
                  status.ok() ? absl::StrCat("runs ", rank) : absl::StrCat("exited ", rank, " 1"));
    if (status.ok()) continue;
    Fail(absl::StrCat("cannot replace ", Describe(process), ": ", status.message()));
  }
}

void HostLauncher::LookForStopped(Time now) {
  if (look_stopped_at_ > now) return;
  look_stopped_at_ = now + kLookForStoppedEvery;
  for (const Process& process : processes()) {
    if (!process.IsRunning()) continue;
    int& looks = stopped_looks_[process.rank];
    const bool was_stopped = looks >= kMaxLooks;
    looks = IsStopped(process.pid) ? looks + 1 : 0;
    const bool is_stopped = looks >= kMaxLooks;
    if (is_stopped == was_stopped) continue;
    links()->Send(0, absl::StrCat(is_stopped ? "stopped " : "runs ", process.rank));
  }
}

void HostLauncher::OnRound(Time now) {
  ReadControls();
  TakeEvents();
  StartReplacements();
  LookForStopped(now);
}

}  // namespace weft
