// What processes tell each other once they have come together, and how they find that one is gone.
#include <asio/post.hpp>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/jobs/star_link.h"

namespace weft {
namespace {

// The number of the gather that Finish is. Those of AllGather and Gather begin with 0.
constexpr int64_t kFinishNumber = -1;

std::string DescribeGather(int64_t number) {
  return number == kFinishNumber ? "the end of the job"
                                 : absl::StrCat("gather #", number, " of the job");
}

}  // namespace

void StarLink::Send(int process, Topic topic, std::string message) {
  if (process == options_.process) return dispatcher_.Deliver(process, topic, std::move(message));
  JobMessage out =
      Make(JobMessageType::kTopic, process, static_cast<int64_t>(topic), std::move(message));
  asio::post(io_, [this, out = std::move(out)]() mutable {
    const int to = out.header.to;
    if (to < 0 || to >= num_processes()) {
      return Fail(absl::InternalError(
          absl::StrCat("a message is for process ", to, ", of ", num_processes())));
    }
    SendTo(to, std::move(out));
  });
}

void StarLink::SendTo(int process, JobMessage message) {
  const Peer& peer = peers_[is_center() ? process : 0];
  if (peer.connection != nullptr) peer.connection->Send(std::move(message));
}

void StarLink::SendToAll(JobMessageType type, int64_t number, std::string body, int except) {
  const JobMessage message = Make(type, 0, number, std::move(body));
  for (int p = 0; p < num_processes(); ++p) {
    if (p != except && peers_[p].connection != nullptr) peers_[p].connection->Send(message);
  }
}

void StarLink::OnMessage(int from, JobMessage message) {
  const JobMessageHeader header = message.header;
  switch (header.type) {
    case JobMessageType::kHeartbeat:
      return;
    case JobMessageType::kTopic:
      return OnTopic(from, std::move(message));
    case JobMessageType::kFailure: {
      const absl::Status failure = DecodeError(*message.body);
      if (is_center()) return Fail(failure, from);
      has_failed_ = true;
      dispatcher_.Fail(failure);
      return SetFailure(failure);
    }
    case JobMessageType::kBye:
      if (!peers_[from].has_finished) {
        Fail(absl::UnavailableError(absl::StrCat(Describe(from), " has ended")));
      }
      return;
    case JobMessageType::kGather:
      if (!is_center()) break;
      return AddToGather(header.number, from, std::move(*message.body));
    case JobMessageType::kWelcome: {
      if (is_center() || !is_joining_) break;
      const absl::Status status = TakeWelcome(*message.body);
      if (!status.ok()) Fail(status);
      return;
    }
    case JobMessageType::kGathered:
      if (is_center()) break;
      return SetGathered(header.number, DecodeTexts(*message.body));
    case JobMessageType::kGatherFailed:
      if (is_center()) break;
      return SetGathered(header.number, DecodeError(*message.body));
    case JobMessageType::kChallenge:
    case JobMessageType::kProof:
    case JobMessageType::kHello:
      break;
  }
  Fail(absl::InternalError(absl::StrCat(Describe(from), " has sent a message of type ",
                                        static_cast<uint32_t>(header.type),
                                        ", which it must not send")));
}

void StarLink::OnTopic(int from, JobMessage message) {
  const JobMessageHeader& header = message.header;
  if ((is_center() && header.from != from) || header.from < 0 || header.from >= num_processes() ||
      header.to < 0 || header.to >= num_processes() || header.number < 0 ||
      header.number >= kNumTopics) {
    return Fail(absl::InternalError(
        absl::StrCat(Describe(from), " has sent a message from process ", header.from,
                     " to process ", header.to, " on topic ", header.number)));
  }
  if (header.to != options_.process) return SendTo(header.to, std::move(message));
  dispatcher_.Deliver(header.from, static_cast<Topic>(header.number), std::move(*message.body));
}

void StarLink::OnEnd(int process, const std::string& reason) {
  Peer& peer = peers_[process];
  peer.connection = nullptr;
  if (peer.has_finished) return;
  Fail(absl::UnavailableError(
      absl::StrCat(Describe(process), reason.empty() ? " was killed or has ended" : ": ", reason)));
}

// ---- Gathers

StarLink::Gathered StarLink::GatherFor(Receivers receivers, int64_t number, std::string text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    waiting_[number] = std::nullopt;
  }
  asio::post(io_, [this, receivers, number, text = std::move(text)]() mutable {
    if (is_center()) {
      if (receivers == Receivers::kCenter) kept_.insert(number);
      return AddToGather(number, 0, std::move(text));
    }
    SendTo(0, Make(JobMessageType::kGather, 0, number, std::move(text)));
  });
  const Clock::time_point deadline = Clock::now() + Seconds(options_.timeout_s) + kAnswerTime;
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<Gathered>& place = waiting_[number];
  changed_.wait_until(lock, deadline, [&] { return place.has_value() || !failure_.ok(); });
  Gathered gathered = absl::DeadlineExceededError(
      absl::StrCat(DescribeGather(number), ": ", Describe(0), " has not answered within ",
                   options_.timeout_s, " s"));
  if (place.has_value()) {
    gathered = *std::move(place);
  } else if (!failure_.ok()) {
    gathered = failure_;
  }
  waiting_.erase(number);
  return gathered;
}

void StarLink::AddToGather(int64_t number, int process, std::string text) {
  if (number == kFinishNumber) peers_[process].has_finished = true;
  switch (gathers_.Add(number, process, std::move(text))) {
    case JobGathers::Outcome::kWaits:
      return;
    case JobGathers::Outcome::kHasFailed: {
      const absl::Status late = LateGather(number);
      if (process == 0) return SetGathered(number, late);
      return SendTo(process,
                    Make(JobMessageType::kGatherFailed, process, number, EncodeError(late)));
    }
    case JobGathers::Outcome::kComplete: {
      std::vector<std::string> texts = gathers_.Take(number);
      std::vector<absl::string_view> sent;
      if (kept_.erase(number) == 0) sent.assign(texts.begin(), texts.end());
      SendToAll(JobMessageType::kGathered, number, EncodeTexts(sent));
      return SetGathered(number, std::move(texts));
    }
  }
}

void StarLink::SetGathered(int64_t number, Gathered gathered) {
  if (number == kFinishNumber && gathered.ok()) {
    // Both ends stop sending. So both read all that was sent before they close.
    is_done_ = true;
    for (Peer& peer : peers_) {
      peer.has_finished = true;
      if (peer.connection != nullptr) peer.connection->EndSending();
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = waiting_.find(number);
  if (it != waiting_.end()) it->second = std::move(gathered);
  changed_.notify_all();
}

absl::Status StarLink::LateGather(int64_t number) const {
  const std::vector<int> missing = gathers_.Missing(number);
  return absl::DeadlineExceededError(absl::StrCat(
      DescribeGather(number), ": ", Describe(missing), missing.size() == 1 ? " has" : " have",
      " not arrived within ", options_.timeout_s, " s"));
}

absl::Status StarLink::Finish() {
  const Clock::time_point deadline = Clock::now() + Seconds(options_.timeout_s);
  WEFT_RETURN_IF_ERROR(GatherFor(Receivers::kCenter, kFinishNumber, "").status());
  if (dispatcher_.WaitUntilIdle(deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      DescribeGather(kFinishNumber), ": ", Describe(options_.process),
      " has not dealt with the messages of the others within ", options_.timeout_s, " s"));
}

// ---- Failures

void StarLink::CheckPeer(int process) {
  Peer& peer = peers_[process];
  if (num_ticks_ % heartbeat_ticks_ == 0 && !peer.connection->is_sending()) {
    peer.connection->Send(Make(JobMessageType::kHeartbeat, process, 0, ""));
  }
  const bool is_silent = peer.connection->num_reads() == peer.num_reads;
  peer.num_reads = peer.connection->num_reads();
  if (has_failed_ || peer.has_finished) return;
  if (!peer.is_watched) {
    peer.silent_ticks = is_silent ? peer.silent_ticks + 1 : 0;
    if (peer.silent_ticks * kTick >= Seconds(options_.lost_after_s)) {
      Lose(process, absl::StrCat("has sent nothing for ", options_.lost_after_s, " s"));
    }
    return;
  }
  const ProcessState state = StateOf(peer.hello->identity);
  peer.stopped_ticks = state == ProcessState::kStopped ? peer.stopped_ticks + 1 : 0;
  // What it sent before its end is read first. A process may go on without its main thread.
  peer.gone_ticks = state == ProcessState::kGone && is_silent ? peer.gone_ticks + 1 : 0;
  if (peer.stopped_ticks >= kMaxStoppedLooks) Lose(process, "is stopped");
  // The end of its connection says it sooner, unless a child of it holds the connection, or its
  // memory takes long to be freed.
  if (peer.gone_ticks >= kMaxStoppedLooks) Lose(process, "was killed or has ended");
}

void StarLink::Lose(int process, absl::string_view what) {
  peers_[process].is_lost = true;
  Fail(absl::UnavailableError(absl::StrCat(Describe(process), " ", what)));
}

void StarLink::Fail(const absl::Status& failure, int except) {
  if (has_failed_ || is_done_ || is_closing_) return;
  has_failed_ = true;
  dispatcher_.Fail(failure);
  SetFailure(failure);
  TellFailure(failure, except);
}

void StarLink::Abort(int rank, const absl::Status& status) {
  const absl::Status failure =
      absl::AbortedError(absl::StrCat("rank ", rank, " failed: ", status.message()));
  SetFailure(failure);
  asio::post(io_, [this, failure] {
    if (has_failed_ || is_done_) return;
    has_failed_ = true;
    TellFailure(failure, options_.process);
  });
}

void StarLink::TellFailure(const absl::Status& failure, int except) {
  first_failure_ = failure;
  SendToAll(JobMessageType::kFailure, 0, EncodeError(failure), except);
}

void StarLink::SetFailure(const absl::Status& failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) failure_ = failure;
  changed_.notify_all();
}

}  // namespace weft
