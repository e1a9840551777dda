#include "tools/job/generations.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

using Kind = ControlMessage::Kind;

// By kind.
constexpr absl::string_view kWords[] = {"begins",     "ended", "finished", "over",
                                        "generation", "done",  "fail"};

std::string RandomName() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

}  // namespace

std::string ControlMessage::Encode() const {
  const Generation& g = generation;
  std::string text(kWords[static_cast<int>(kind)]);
  if (kind == Kind::kOver) absl::StrAppend(&text, " ", g.number);
  if (kind == Kind::kEnded) absl::StrAppend(&text, " ", g.number, " ", is_own ? 1 : 0, " ", step);
  if (kind == Kind::kGeneration) {
    absl::StrAppend(&text, " ", g.number, " ", g.process, " ", g.num_processes, " ", g.num_lines,
                    " ", g.name);
  }
  return text;
}

absl::optional<ControlMessage> ControlMessage::Decode(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  const auto* const word = absl::c_find(kWords, words[0]);
  if (word == std::end(kWords)) return absl::nullopt;
  const auto read = [&](size_t i, auto* number) {
    return i < words.size() && absl::SimpleAtoi(words[i], number) && *number >= 0;
  };
  ControlMessage message;
  message.kind = static_cast<Kind>(word - std::begin(kWords));
  Generation& g = message.generation;
  int is_own = 0;
  bool is_read = true;
  if (message.kind == Kind::kOver) is_read = read(1, &g.number);
  if (message.kind == Kind::kEnded) {
    is_read = read(1, &g.number) && read(2, &is_own) && read(3, &message.step);
    message.is_own = is_own == 1;
  }
  if (message.kind == Kind::kGeneration) {
    is_read = read(1, &g.number) && read(2, &g.process) && read(3, &g.num_processes) &&
              read(4, &g.num_lines) && g.process < g.num_processes && words.size() == 6 &&
              !words[5].empty();
    if (is_read) g.name = words[5];
  }
  // Other spellings are none.
  if (!is_read || message.Encode() != text) return absl::nullopt;
  return message;
}

absl::StatusOr<std::string> DescribeControl(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, "fstat");
  return absl::StrCat(fd, ":", info.st_ino);
}

absl::StatusOr<absl::optional<GenerationClient>> GenerationClient::Find(const GetEnv& get) {
  const char* const text = get(kControlVariable);
  if (text == nullptr || *text == '\0') return absl::nullopt;
  int fd = -1;
  uint64_t inode = 0;
  struct stat info;
  const std::vector<absl::string_view> words = absl::StrSplit(text, ':');
  const std::string begins = ControlMessage{Kind::kBegins}.Encode();
  // No two sockets of a system have one number at a time.
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &fd) ||
      !absl::SimpleAtoi(words[1], &inode) || fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode) ||
      info.st_ino != inode || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
      send(fd, begins.data(), begins.size(), MSG_NOSIGNAL) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kControlVariable, "=", text,
        ": expected the socket that weft launch --elastic has opened: a script must hand it on, as "
        "exec does, and Python with pass_fds or close_fds=False"));
  }
  return absl::optional<GenerationClient>(GenerationClient(fd));
}

GenerationClient::GenerationClient(GenerationClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

GenerationClient::~GenerationClient() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<absl::optional<int>> GenerationClient::JoinsAfter(const GetEnv& get) {
  const char* const text = get(kGenerationVariable);
  if (text == nullptr || *text == '\0') return absl::nullopt;
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number > 0) return absl::make_optional(number);
  return absl::InvalidArgumentError(
      absl::StrCat(kGenerationVariable, "=", text, ": expected the number of a generation"));
}

bool GenerationClient::IsOver() const {
  pollfd polled = {fd_, POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

void GenerationClient::Finish() const {
  const std::string finished = ControlMessage{Kind::kFinished}.Encode();
  // A launcher that has ended needs no word.
  (void)send(fd_, finished.data(), finished.size(), MSG_NOSIGNAL);
}

GenerationClient::Next GenerationClient::End(bool is_own, int64_t step,
                                             Generation* generation) const {
  const std::string ended = ControlMessage{Kind::kEnded, *generation, is_own, step}.Encode();
  if (send(fd_, ended.data(), ended.size(), MSG_NOSIGNAL) < 0) return Next::kFails;
  for (;;) {
    std::array<char, 256> buffer;
    const ssize_t size = recv(fd_, buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return Next::kFails;  // the launcher has ended
    const auto message = ControlMessage::Decode({buffer.data(), static_cast<size_t>(size)})
                             .value_or(ControlMessage());
    if (message.kind == Kind::kOver) continue;
    if (message.kind == Kind::kDone) return Next::kIsDone;
    if (message.kind != Kind::kGeneration) return Next::kFails;
    *generation = message.generation;
    return Next::kGoesOn;
  }
}

bool Generations::IsBegin(absl::string_view text) {
  return text == ControlMessage{Kind::kBegins}.Encode();
}

bool Generations::OnMessage(int process, absl::string_view text) {
  Member& member = members_[process];
  const auto message = ControlMessage::Decode(text).value_or(ControlMessage());
  if (message.kind == Kind::kBegins && (number_ == 1 || member.joins)) {
    member.takes_part = true;
    member.has_finished = false;
    return true;
  }
  if (message.kind == Kind::kFinished) {
    member.has_finished = true;
    return true;
  }
  if (message.kind == Kind::kEnded && message.generation.number == number_ &&
      member.state == State::kRuns && !has_ended_) {
    member.state = State::kWaits;
    member.has_failed = message.is_own;
    if (message.step > step_) {
      step_ = message.step;
      num_without_loss_ = 0;
      for (Member& other : members_) other.losses = other.losses_now;
    }
    SayIsOver();
    return true;
  }
  say_(process, {Kind::kFail});
  return false;
}

// To those that wait for others before they have met.
void Generations::SayIsOver() const {
  for (size_t p = 0; p < members_.size(); ++p) {
    if (members_[p].state != State::kRuns) continue;
    say_(static_cast<int>(p), {Kind::kOver, {number_}});
  }
}

void Generations::OnKilled(int process) {
  members_[process].state = State::kIsLost;
  ++members_[process].losses_now;
  ++members_[process].losses;
  SayIsOver();
}

void Generations::OnReplaced(int process) {
  Member member;
  member.joins = true;
  member.losses_now = members_[process].losses_now;
  member.losses = members_[process].losses;
  members_[process] = member;
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
  const bool has_lost = has([](const Member& m) { return m.losses_now > 0; });
  const bool has_failed =
      has([](const Member& m) { return m.state == State::kWaits && m.has_failed; });
  const bool has_enough = num_left() >= min_processes_;
  // An error beside a loss follows from it, or comes again.
  num_without_loss_ = has_lost ? 0 : num_without_loss_ + 1;
  const bool goes_on = may_go_on && !is_done && !has_exited && has_enough &&
                       (has_lost || (!has_failed && num_without_loss_ <= kMaxWithoutLoss));
  if (goes_on) ++number_;
  Generation next{number_, 0, num_left(), num_lines, RandomName()};
  has_ended_ = !goes_on;
  for (size_t p = 0; p < members_.size(); ++p) {
    Member& member = members_[p];
    member.losses_now = 0;
    member.joins = false;
    if (member.state != State::kWaits) continue;
    member.state = State::kRuns;
    member.has_failed = false;
    say_(static_cast<int>(p), {goes_on   ? Kind::kGeneration
                               : is_done ? Kind::kDone
                                         : Kind::kFail,
                               next});
    ++next.process;
  }
  if (goes_on) return Decision::kGoesOn;
  return may_go_on && has_lost && !is_done && !has_exited && !has_enough ? Decision::kHasTooFew
                                                                         : Decision::kEnds;
}

}  // namespace weft
