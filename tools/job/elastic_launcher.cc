#include "tools/job/elastic_launcher.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "executor/jobs/process_state.h"

namespace weft {
namespace {

// The least time that a process has to leave a generation: it may be in the middle of a long op.
constexpr std::chrono::steady_clock::duration kLeaveWithin = std::chrono::seconds(10);

}  // namespace

absl::Status ElasticLauncher::OnAttempt(const LaunchOptions& options) {
  WEFT_RETURN_IF_ERROR(ControlledLauncher::OnAttempt(options));
  members_.assign(options.hosts.hosts * options.processes, Member());
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    members_[rank].host = static_cast<int>(rank) / options.processes;
  }
  generations_.emplace(static_cast<int>(members_.size()), min_processes_,
                       [this](int p, const ControlMessage& message) {
                         const std::string text = message.Encode();
                         if (members_[p].host == 0) return SayTo(p, text);
                         links()->Send(members_[p].host, absl::StrCat("say ", p, " ", text));
                       });
  has_told_failure_ = false;
  look_stopped_at_ = Clock::now();
  waiting_since_ = absl::nullopt;
  return absl::OkStatus();
}

ElasticLauncher::Process* ElasticLauncher::LocalOf(int rank) {
  return members_[rank].host == 0 ? &processes()[rank] : nullptr;
}

bool ElasticLauncher::IsRunning(int rank) {
  const Process* const local = LocalOf(rank);
  return local == nullptr ? !members_[rank].has_ended : local->IsRunning();
}

std::string ElasticLauncher::DescribeRank(int rank) {
  const Process* const local = LocalOf(rank);
  return local == nullptr ? absl::StrCat("process ", rank, " of host ", members_[rank].host)
                          : Describe(*local);
}

void ElasticLauncher::OnMessage(int rank, absl::string_view text) {
  Process* const local = LocalOf(rank);
  if (local != nullptr && Generations::IsBegin(text)) {
    // What a script has printed before is no line of the run.
    ReadLines(local);
    members_[rank].num_lines_before = local->num_lines;
  }
  if (generations_->OnMessage(rank, text) || !Generations::IsBegin(text)) return;
  Note(absl::StrCat(DescribeRank(rank),
                    " begins another run after a loss, which needs a weft launch of its own"));
}

void ElasticLauncher::OnStop(int signal) {
  for (int host = 1; links() != nullptr && host <= members_.back().host; ++host) {
    SendStop(host, signal);
  }
}

bool ElasticLauncher::HaveOthersEnded() const {
  return absl::c_all_of(members_, [](const Member& m) {
    return m.host == 0 || (m.has_ended && !m.is_replaced && !m.is_ordered);
  });
}

void ElasticLauncher::TakeEvents() {
  if (links() == nullptr) return;
  for (const HostLinks::Event& event : links()->Take()) {
    if (!event.end.ok()) {
      OnHostLoss(event.host, event.end.message());
      continue;
    }
    if (TakeStop(event.text)) continue;
    const std::vector<std::string> words = absl::StrSplit(event.text, absl::MaxSplits(' ', 2));
    int rank = 0, number = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &rank) || rank < 0 ||
        rank >= static_cast<int>(members_.size()) || members_[rank].host != event.host) {
      continue;
    }
    if (words[0] == "stopped") members_[rank].stopped_looks = kMaxLooks;
    if (words[0] == "runs") {
      members_[rank].stopped_looks = 0;
      if (std::exchange(members_[rank].is_ordered, false)) members_[rank].has_ended = false;
    }
    if (words.size() < 3) continue;
    if (words[0] == "say") OnMessage(rank, words[2]);
    if (!absl::SimpleAtoi(words[2], &number)) continue;
    if (words[0] == "killed") OnOtherEnd(rank, number, 128 + number);
    if (words[0] == "exited") OnOtherEnd(rank, 0, number);
  }
}

void ElasticLauncher::OnOtherEnd(int rank, int signal, int exit_status) {
  Member& member = members_[rank];
  const bool was_ordered = std::exchange(member.is_ordered, false);
  if (std::exchange(member.has_ended, true) && !was_ordered) return;
  member.killed_by = signal;
  if (signal != 0 && IsElastic()) {
    generations_->OnKilled(rank);
    if (WasStopped(exit_status) || (was_ordered && IsStopping())) return DropPlace(rank);
    member.is_lost = true;
    if (!generations_->IsDone() && TakesReplacement(rank)) return;
    DropPlace(rank);
    if (!generations_->IsDone()) {
      NoteLoss(rank, DescribeLeft());
      if (generations_->num_left() == 0) FailOfLosses("");
      return;
    }
    if (generations_->TakesPart(rank)) return;
  } else if (signal != 0) {
    DropPlace(rank);
  }
  generations_->OnExit(rank, exit_status);
  // It has taken over nothing.
  if (exit_status == 0 && !generations_->TakesPart(rank)) FailOfLosses("");
  if (exit_status == 0 || HasFailed() || WasStopped(exit_status)) return;
  Fail(absl::StrCat(DescribeRank(rank), " exited with status ", exit_status), exit_status);
}

void ElasticLauncher::OnHostLoss(int host, absl::string_view reason) {
  bool has_lost = false, do_all_take_part = true;
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    Member& member = members_[rank];
    if (member.host != host) continue;
    const bool was_due =
        std::exchange(member.is_replaced, false) || std::exchange(member.is_ordered, false);
    if (std::exchange(member.has_ended, true) && !was_due) continue;
    has_lost = member.is_lost = true;
    do_all_take_part = do_all_take_part && generations_->TakesPart(rank);
    generations_->OnKilled(rank);
  }
  if (!has_lost) return;
  Note(absl::StrCat("host ", host, " is lost: ", reason, "; ", DescribeLeft()));
  const bool is_missed = generations_->IsDone() ? !do_all_take_part : generations_->num_left() == 0;
  if (is_missed && !HasFailed()) FailOfLosses("");
}

void ElasticLauncher::OnEnd(Process* process) {
  ReadControls();
  const bool is_killed = process->killed_by != 0;
  // Nothing of a process that is lost may write into the next generation. A signal to stop has
  // reached what it has left running; that may be saving what it has.
  if (is_killed && !WasStopped(process->exit_status)) kill(-process->pid, SIGKILL);
  if (is_killed && IsElastic()) return OnLoss(process);
  generations_->OnExit(process->rank, process->exit_status);
  // It has taken over nothing.
  if (process->exit_status == 0 && !generations_->TakesPart(process->rank)) FailOfLosses("");
  Launcher::OnEnd(process);
}

void ElasticLauncher::OnLoss(Process* process) {
  generations_->OnKilled(process->rank);
  if (WasStopped(process->exit_status)) return;
  process->is_lost = true;
  // All that the job has to do is done, but not what other commands do.
  if (generations_->IsDone())
    return generations_->TakesPart(process->rank) ? void() : OnFailure(process);
  if (generations_->num_left() == 0) return OnFailure(process);
  members_[process->rank].killed_by = process->killed_by;
  if (TakesReplacement(process->rank)) return;
  if (IsFirstHostMissed(process)) return OnFailure(process);
  NoteLoss(process->rank, DescribeLeft());
}

bool ElasticLauncher::TakesReplacement(int rank) {
  if (replacements_left_ == 0 || generations_->num_left() == 0) return false;
  --replacements_left_;
  members_[rank].is_replaced = true;
  generations_->OnReplaced(rank);
  return true;
}

void ElasticLauncher::DropPlace(int rank) {
  members_[rank].is_replaced = false;
  if (LocalOf(rank) == nullptr) links()->Send(members_[rank].host, absl::StrCat("left ", rank));
}

bool ElasticLauncher::IsFirstHostMissed(Process* lost) {
  const bool is_left = absl::c_any_of(processes(), [this](const Process& process) {
    return process.IsRunning() || members_[process.rank].is_replaced;
  });
  if (links() == nullptr || is_left) return false;
  lost->consequence = ": no process of the first host is left";
  return true;
}

void ElasticLauncher::NoteLoss(int rank, const std::string& consequence) {
  Note(absl::StrCat(DescribeRank(rank), " was killed by ", SignalName(members_[rank].killed_by),
                    "; ", consequence));
}

void ElasticLauncher::StartReplacements() {
  const int num_ranks = static_cast<int>(members_.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    Member& member = members_[rank];
    Process* const local = LocalOf(rank);
    if (!member.is_replaced || (local != nullptr && !local->is_reaped)) continue;
    const bool is_lost_again = generations_->IsLostAgain(rank);
    // Whoever runs may tell of a further step.
    bool may_wait = generations_->IsDone();
    for (int other = 0; other < num_ranks; ++other) may_wait = may_wait || IsRunning(other);
    if (is_lost_again && !generations_->IsAnyWaiting() && may_wait) continue;
    if (is_lost_again || IsStopping()) {  // the others go on to the end of their step
      generations_->OnKilled(rank);
      DropPlace(rank);
      if (is_lost_again) {
        return FailOfLoss(rank,
                          ": it is the third with its ranks that is lost before a further step");
      }
      if (local != nullptr && IsFirstHostMissed(local)) return OnFailure(local);
      NoteLoss(rank, DescribeLeft());
      continue;
    }
    NoteLoss(rank, "a new one takes its place");
    member.is_replaced = member.is_lost = false;
    member.stopped_looks = 0;
    member.killed_at = absl::nullopt;
    if (local == nullptr) {
      member.is_ordered = true;
      links()->Send(member.host, absl::StrCat("replace ", rank, " ", generations_->number()));
      continue;
    }
    member.num_lines_lost += local->num_lines - member.num_lines_before;
    member.num_lines_before = 0;
    const absl::Status status = ReplaceAfter(generations_->number(), local);
    if (status.ok()) continue;
    generations_->OnKilled(rank);
    return Fail(absl::StrCat("cannot replace ", Describe(*local), ": ", status.message()));
  }
}

void ElasticLauncher::FailOfLoss(int rank, const std::string& consequence) {
  Process* const local = LocalOf(rank);
  if (local == nullptr) {
    return Fail(absl::StrCat(DescribeRank(rank), " is lost", consequence));
  }
  local->consequence = consequence;
  OnFailure(local);
}

void ElasticLauncher::FailOfLosses(const std::string& consequence) {
  for (const Process& process : processes()) {
    if (process.is_lost) FailOfLoss(process.rank, consequence);
  }
  for (int rank = 0; rank < static_cast<int>(members_.size()) && !HasFailed(); ++rank) {
    if (members_[rank].is_lost) FailOfLoss(rank, consequence);
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
  std::vector<int> stopped;
  int num_running = 0;
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    Member& member = members_[rank];
    if (!IsRunning(rank) || member.killed_at.has_value()) continue;
    const Process* const local = LocalOf(rank);
    if (local != nullptr) {
      member.stopped_looks = IsStopped(local->pid) ? member.stopped_looks + 1 : 0;
    }
    if (member.stopped_looks == 0) ++num_running;
    if (member.stopped_looks >= kMaxLooks) stopped.push_back(rank);
  }
  const bool are_enough = num_running >= std::max(1, min_processes_);
  if (!are_enough && !generations_->IsDone()) return;
  for (const int rank : stopped) {
    Note(absl::StrCat(DescribeRank(rank),
                      " is stopped, and is killed: the others go on without it"));
    Kill(rank, now);
  }
}

void ElasticLauncher::Kill(int rank, Time now) {
  members_[rank].killed_at = now;
  const Process* const local = LocalOf(rank);
  if (local == nullptr) return links()->Send(members_[rank].host, absl::StrCat("kill ", rank));
  kill(-local->pid, SIGKILL);
}

// Kills processes that hold up the others, and gives up those that the system does not end: what
// they have asked it to write could still come.
void ElasticLauncher::EndLateMembers(Time now) {
  if (!generations_->IsAnyWaiting()) waiting_since_ = absl::nullopt;
  if (generations_->IsAnyWaiting() && !waiting_since_.has_value()) waiting_since_ = now;
  const bool is_late =
      waiting_since_.has_value() && now >= *waiting_since_ + std::max(grace(), kLeaveWithin);
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    const absl::optional<Time>& killed_at = members_[rank].killed_at;
    if (!IsRunning(rank) || generations_->IsWaiting(rank)) continue;
    if (killed_at.has_value() && now >= *killed_at + kGiveUpAfter) {
      generations_->OnKilled(rank);
      return Fail(absl::StrCat(DescribeRank(rank), " has not ended after SIGKILL"));
    }
    if (!is_late || killed_at.has_value()) continue;
    Note(absl::StrCat(DescribeRank(rank),
                      " has not left the generation that has ended, and is killed (--grace_s)"));
    Kill(rank, now);
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
  TakeEvents();
  if (HasFailed() && !std::exchange(has_told_failure_, true)) OnStop(SIGTERM);
  if (IsElastic()) {
    StartReplacements();
    LookForStopped(now);
    EndLateMembers(now);
  } else {
    look_stopped_at_ = Time::max();
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
      if (members_[rank].is_replaced) DropPlace(rank);
    }
  }
  if (!generations_->IsDue()) return;
  // If the job does not go on, they report their errors, and end.
  const auto decision = generations_->Decide(NumLines(), IsElastic());
  if (decision == Generations::Decision::kHasTooFew) {
    FailOfLosses(absl::StrCat(": ", DescribeLeft(), ", fewer than --min_processes"));
  }
}

}  // namespace weft
