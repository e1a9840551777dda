#include "tools/job/generations.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// Messages. Of a process: "begins", then "ended GENERATION own" or "ended GENERATION lost", and at
// last "finished". Of the launcher: "over GENERATION", "generation NUMBER PROCESS PROCESSES LINES
// NAME", "done" and "fail".
constexpr absl::string_view kBegins = "begins", kEnded = "ended", kOwn = "own", kLost = "lost",
                            kFinished = "finished", kOver = "over", kGeneration = "generation",
                            kDone = "done", kFail = "fail";

std::string RandomName() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

}  // namespace

absl::StatusOr<absl::optional<GenerationClient>> GenerationClient::Find(const GetEnv& get) {
  const char* const text = get(kControlVariable);
  if (text == nullptr || *text == '\0') return absl::nullopt;
  int fd = -1;
  struct stat info;
  if (!absl::SimpleAtoi(text, &fd) || fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode) ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
      send(fd, kBegins.data(), kBegins.size(), MSG_NOSIGNAL) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kControlVariable, "=", text,
                     ": expected the socket that weft launch --elastic has opened"));
  }
  return absl::optional<GenerationClient>(GenerationClient(fd));
}

GenerationClient::GenerationClient(GenerationClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

GenerationClient::~GenerationClient() {
  if (fd_ >= 0) close(fd_);
}

bool GenerationClient::IsOver() const {
  pollfd polled = {fd_, POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

void GenerationClient::Finish() const {
  // A launcher that has ended needs no word.
  (void)send(fd_, kFinished.data(), kFinished.size(), MSG_NOSIGNAL);
}

GenerationClient::Next GenerationClient::End(bool is_own, Generation* generation) const {
  const std::string ended =
      absl::StrCat(kEnded, " ", generation->number, " ", is_own ? kOwn : kLost);
  if (send(fd_, ended.data(), ended.size(), MSG_NOSIGNAL) < 0) return Next::kFails;
  for (;;) {
    std::array<char, 256> buffer;
    const ssize_t size = recv(fd_, buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Next::kFails;  // the launcher has ended
    const std::vector<absl::string_view> words =
        absl::StrSplit(absl::string_view(buffer.data(), size), ' ');
    if (words[0] == kOver) continue;
    if (words[0] == kDone) return Next::kIsDone;
    Generation next;
    if (words[0] == kGeneration && words.size() == 6 && absl::SimpleAtoi(words[1], &next.number) &&
        absl::SimpleAtoi(words[2], &next.process) &&
        absl::SimpleAtoi(words[3], &next.num_processes) &&
        absl::SimpleAtoi(words[4], &next.num_lines)) {
      next.name = std::string(words[5]);
      *generation = next;
      return Next::kGoesOn;
    }
    return Next::kFails;
  }
}

bool Generations::IsBegin(absl::string_view message) { return message == kBegins; }

bool Generations::OnMessage(int process, absl::string_view message) {
  Member& member = members_[process];
  const auto refuse = [&] {
    say_(process, std::string(kFail));
    return false;
  };
  if (message == kBegins) {
    member.takes_part = true;
    member.has_finished = false;
    return number_ == 1 || refuse();
  }
  if (message == kFinished) {
    member.has_finished = true;
    return true;
  }
  for (const bool is_own : {true, false}) {
    if (message != absl::StrCat(kEnded, " ", number_, " ", is_own ? kOwn : kLost)) continue;
    if (member.state != State::kRuns || has_ended_) return refuse();
    member.state = State::kWaits;
    member.has_failed = is_own;
    SayIsOver();
    return true;
  }
  return refuse();
}

// To those that wait for others before they have met.
void Generations::SayIsOver() const {
  for (size_t p = 0; p < members_.size(); ++p) {
    if (members_[p].state != State::kRuns) continue;
    say_(static_cast<int>(p), absl::StrCat(kOver, " ", number_));
  }
}

void Generations::OnKilled(int process) {
  members_[process].state = State::kIsLost;
  members_[process].was_lost_now = true;
  SayIsOver();
}

void Generations::OnExit(int process, int exit_status) {
  members_[process].state = State::kHasExited;
  members_[process].exit_status = exit_status;
}

int Generations::num_left() const {
  return static_cast<int>(absl::c_count_if(members_, [](const Member& member) {
    return member.state == State::kRuns || member.state == State::kWaits;
  }));
}

bool Generations::IsDone() const {
  return absl::c_any_of(members_, [](const Member& m) { return m.has_finished; });
}

bool Generations::IsAnyWaiting() const {
  return absl::c_any_of(members_, [](const Member& m) { return m.state == State::kWaits; });
}

bool Generations::IsDue() const {
  return !has_ended_ && IsAnyWaiting() &&
         absl::c_none_of(members_, [](const Member& m) { return m.state == State::kRuns; });
}

Generations::Decision Generations::Decide(int64_t num_lines, bool may_go_on) {
  const auto has = [&](const auto& is) { return absl::c_any_of(members_, is); };
  const bool is_done = IsDone();
  const bool has_exited = has([](const Member& m) { return m.state == State::kHasExited; });
  const bool has_lost = has([](const Member& m) { return m.was_lost_now; });
  const bool has_failed =
      has([](const Member& m) { return m.state == State::kWaits && m.has_failed; });
  const bool has_enough = num_left() >= min_processes_;
  // An error beside a loss follows from it, or comes again.
  num_without_loss_ = has_lost ? 0 : num_without_loss_ + 1;
  const bool goes_on = may_go_on && !is_done && !has_exited && has_enough &&
                       (has_lost || (!has_failed && num_without_loss_ <= kMaxWithoutLoss));
  int next = 0;
  const int size = num_left();
  if (goes_on) ++number_;
  const std::string name = RandomName();
  has_ended_ = !goes_on;
  for (size_t p = 0; p < members_.size(); ++p) {
    Member& member = members_[p];
    member.was_lost_now = false;
    if (member.state != State::kWaits) continue;
    member.state = State::kRuns;
    member.has_failed = false;
    say_(static_cast<int>(p), goes_on ? absl::StrCat(kGeneration, " ", number_, " ", next++, " ",
                                                     size, " ", num_lines, " ", name)
                                      : std::string(is_done ? kDone : kFail));
  }
  if (goes_on) return Decision::kGoesOn;
  return may_go_on && has_lost && !is_done && !has_exited && !has_enough ? Decision::kHasTooFew
                                                                         : Decision::kEnds;
}

}  // namespace weft
