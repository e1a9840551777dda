#include "executor/jobs/job_link.h"

#include <algorithm>
#include <asio/post.hpp>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/jobs/job_link_internal.h"
#include "executor/jobs/process_state.h"
#include "executor/jobs/star_link.h"

namespace weft {
namespace {

// The end of a link waits so long for the others to take what it has sent.
constexpr std::chrono::seconds kClosingTime(1);

// "rank 3", "ranks 4, 5", "ranks 8 to 15".
std::string DescribeRanks(int process, const JobLinkOptions& options) {
  const int n = options.num_processes;
  const int num_ranks = options.num_ranks > 0 ? options.num_ranks : options.local_ranks * n;
  const int first = FirstRankOf(process, num_ranks, n);
  const int last = FirstRankOf(process + 1, num_ranks, n) - 1;
  if (first == last) return absl::StrCat("rank ", first);
  if (first + 1 == last) return absl::StrCat("ranks ", first, ", ", last);
  return absl::StrCat("ranks ", first, " to ", last);
}

absl::Status CheckOptions(const JobLinkOptions& options) {
  const auto error = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (options.num_processes < 1) {
    return error("the number of processes is ", options.num_processes, ", but must be positive");
  }
  if (options.process < 0 || options.process >= options.num_processes) {
    return error("the process number is ", options.process, ", but must be between 0 and ",
                 options.num_processes - 1);
  }
  if (options.local_ranks < 1) {
    return error("the number of ranks per process is ", options.local_ranks,
                 ", but must be positive");
  }
  for (const auto& [name, seconds] : {std::pair("connect_timeout_s", options.connect_timeout_s),
                                      std::pair("timeout_s", options.timeout_s),
                                      std::pair("lost_after_s", options.lost_after_s)}) {
    if (!(seconds > 0)) return error(name, " is ", seconds, ", but must be positive");
  }
  constexpr size_t kMaxJobBytes = 4096;  // a greeting has it, and little else
  if (options.job.size() > kMaxJobBytes) {
    return error("the text of the job has ", options.job.size(), " bytes, more than ",
                 kMaxJobBytes);
  }
  if (options.num_processes == 1) return absl::OkStatus();
  const bool has_file = options.token.empty() && !options.token_file.empty();
  if (!has_file) {
    const absl::Status status = CheckJobToken(options.token);
    if (!status.ok()) return error("the token of the job: ", status.message());
  }
  return CheckJobAddress(options.address,
                         (has_file && options.any_port) || options.share_port != nullptr);
}

}  // namespace

// Several heartbeats must be missing before a process counts as gone or lost.
int64_t StarLink::HeartbeatTicks(double lost_after_s) {
  return std::clamp<int64_t>(Seconds(lost_after_s / 4) / kTick, 1, 2);
}

StarLink::StarLink(const JobLinkOptions& options, const ProcessIdentity& self)
    : options_(options),
      heartbeat_ticks_(HeartbeatTicks(options.lost_after_s)),
      timer_(io_),
      acceptor_(io_),
      peers_(options.num_processes),
      gathers_(options.num_processes, Seconds(options.timeout_s)) {
  self_.job = options.job;
  self_.process = options.process;
  self_.num_processes = options.num_processes;
  self_.local_ranks = options.local_ranks;
  self_.generation = options.generation;
  self_.identity = self;
  self_.facts = options.facts;
}

StarLink::~StarLink() {
  dispatcher_.Stop();
  if (!thread_.joinable()) return;
  asio::post(io_, [this] { Close(); });
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kClosingTime, [&] { return is_closed_; });
  }
  io_.stop();
  thread_.join();
}

void StarLink::RunThread() {
  StartTimer();
  thread_ = std::thread([this] { io_.run(); });
}

void StarLink::StartTimer() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](std::error_code error) {
    if (error) return;
    OnTick();
    StartTimer();
  });
}

void StarLink::OnTick() {
  ++num_ticks_;
  const Clock::time_point now = Clock::now();
  for (int p = 0; p < num_processes(); ++p) {
    if (peers_[p].connection != nullptr) CheckPeer(p);
  }
  while (!strangers_.empty() && now >= strangers_.front().deadline) Drop(strangers_.begin());
  for (int64_t number : gathers_.FailLate(now)) {
    const absl::Status late = LateGather(number);
    for (int p : gathers_.Waiting(number)) {
      if (p == 0) {
        SetGathered(number, late);
      } else {
        SendTo(p, Make(JobMessageType::kGatherFailed, p, number, EncodeError(late)));
      }
    }
  }
  if (is_joining_ && !has_failed_ && options_.is_over && options_.is_over()) {
    Fail(absl::UnavailableError("the generation of the job is over"));
  }
  if (is_joining_ && !has_failed_ && now >= join_deadline_) {
    std::vector<int> missing;
    for (int p = 1; p < num_processes(); ++p) {
      if (!peers_[p].hello.has_value()) missing.push_back(p);
    }
    Fail(is_center()
             ? absl::DeadlineExceededError(absl::StrCat(
                   Describe(missing), missing.size() == 1 ? " has" : " have", " not come to ",
                   options_.address, " within ", options_.connect_timeout_s, " s", DroppedText()))
             : absl::DeadlineExceededError(
                   absl::StrCat(Describe(0), " has not said within ", options_.connect_timeout_s,
                                " s that all processes have come to ", options_.address)));
  }
}

std::string StarLink::Describe(int process) const {
  std::string text = absl::StrCat("process ", process, " (", DescribeRanks(process, options_));
  if (const std::optional<JobHello>& hello = peers_[process].hello; hello.has_value()) {
    absl::StrAppend(&text, ", pid ", hello->identity.pid, " on host ", hello->identity.hostname);
  }
  return text + ")";
}

std::string StarLink::Describe(const std::vector<int>& processes) const {
  constexpr size_t kMax = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(processes.size(), kMax); ++i) {
    names.push_back(Describe(processes[i]));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (processes.size() > kMax) absl::StrAppend(&text, " and ", processes.size() - kMax, " more");
  return text;
}

void StarLink::Close() {
  is_closing_ = true;
  std::error_code ignored;
  acceptor_.close(ignored);
  if (!is_done_) SendToAll(JobMessageType::kBye, 0, "");
  for (Peer& peer : peers_) {
    if (peer.connection == nullptr) continue;
    peer.connection->EndSending();
    if (!peer.is_lost) continue;
    peer.connection->Close();
    peer.connection = nullptr;
  }
  for (Stranger& stranger : strangers_) {
    if (!stranger.is_refused) stranger.connection->Close();
  }
  strangers_.remove_if([](const Stranger& s) { return !s.is_refused; });
  CheckClosed();
}

void StarLink::CheckClosed() {
  for (const Peer& peer : peers_) {
    if (peer.connection != nullptr) return;
  }
  if (!strangers_.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

absl::StatusOr<std::unique_ptr<JobLink>> NewJobLinkAs(const JobLinkOptions& options,
                                                      const ProcessIdentity& self) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  auto link = std::make_unique<StarLink>(options, self);
  WEFT_RETURN_IF_ERROR(link->Join());
  return link;
}

absl::StatusOr<std::unique_ptr<JobLink>> NewJobLink(const JobLinkOptions& options) {
  return NewJobLinkAs(options, ThisProcess());
}

}  // namespace weft
