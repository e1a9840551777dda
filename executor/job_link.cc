#include "executor/job_link.h"

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/job_connection.h"
#include "executor/job_dispatcher.h"
#include "executor/job_gathers.h"
#include "executor/job_link_internal.h"
#include "executor/job_messages.h"
#include "executor/process_state.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// How often peers are looked at. Silence and stops are counted in such ticks, so that a process
// that was itself stopped does not blame the others when it goes on.
constexpr std::chrono::milliseconds kTick(200);
// A process that is seen stopped, or gone and silent, this often in a row, has failed. The end of
// its connection says sooner that a process has gone, unless a child of it holds the connection, or
// its memory takes long to be freed.
constexpr int kMaxDeadTicks = 5;
// A connection at which nobody greets is closed after this time.
constexpr std::chrono::seconds kGreetingTime(10);
// What process 0 decides after a timeout arrives within this time.
constexpr std::chrono::seconds kAnswerTime(5);
// The end of a link waits so long for the others to take what it has sent.
constexpr std::chrono::seconds kClosingTime(1);

// The number of the gather that Finish is. Those of AllGather begin with 0.
constexpr int64_t kFinishNumber = -1;

Clock::duration Seconds(double s) {
  constexpr double kNever = 1e8;  // years
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(s, 0.0, kNever)));
}

// Several heartbeats must be missing before a process counts as gone or lost.
int64_t HeartbeatTicks(double lost_after_s) {
  return std::clamp<int64_t>(Seconds(lost_after_s / 4) / kTick, 1, 2);
}

// "rank 3", "ranks 4, 5", "ranks 8 to 15".
std::string DescribeRanks(int process, int local_ranks) {
  const int first = process * local_ranks;
  if (local_ranks == 1) return absl::StrCat("rank ", first);
  if (local_ranks == 2) return absl::StrCat("ranks ", first, ", ", first + 1);
  return absl::StrCat("ranks ", first, " to ", first + local_ranks - 1);
}

std::string DescribeGather(int64_t number) {
  return number == kFinishNumber ? "the end of the job"
                                 : absl::StrCat("all-gather #", number, " of the job");
}

// Why two processes cannot be of one job; empty: they can.
std::string Difference(const JobHello& a, const JobHello& b) {
  const auto name = [](const JobHello& hello) {
    return absl::StrCat("process ", hello.process, " (pid ", hello.identity.pid, " on host ",
                        hello.identity.hostname, ")");
  };
  const auto differ = [&](absl::string_view what, const auto& of_a, const auto& of_b) {
    return absl::StrCat(name(a), " has ", what, " ", of_a, ", but ", name(b), " has ", of_b);
  };
  if (a.version != b.version) {
    return absl::StrCat("process ", a.process, " speaks version ", a.version,
                        " of the job link, but another process version ", b.version,
                        ": they run different builds of Weft");
  }
  if (a.job != b.job) {
    return differ("the job", absl::StrCat("\"", a.job, "\""), absl::StrCat("\"", b.job, "\""));
  }
  if (a.num_processes != b.num_processes) {
    return differ("the number of processes", a.num_processes, b.num_processes);
  }
  if (a.local_ranks != b.local_ranks) {
    return differ("the number of ranks per process", a.local_ranks, b.local_ranks);
  }
  if (a.process == b.process) {
    return absl::StrCat("two processes have the number ", a.process, ": pid ", a.identity.pid,
                        " on host ", a.identity.hostname, " and pid ", b.identity.pid, " on host ",
                        b.identity.hostname);
  }
  return "";
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
  if (options.job.size() > kMaxGreetingBytes / 2) {
    return error("the text of the job has ", options.job.size(), " bytes, more than ",
                 kMaxGreetingBytes / 2);
  }
  if (options.num_processes == 1) return absl::OkStatus();
  return CheckJobAddress(options.address);
}

// Connections form a star with process 0 in its center, which relays what the others send to each
// other, gathers, and decides which failure was the first.
//
// The thread of the link runs the connections; what it alone uses has no lock. Handlers run on the
// thread of the dispatcher, so that heartbeats go on.
class Link : public JobLink {
 public:
  Link(const JobLinkOptions& options, const ProcessIdentity& self)
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
    self_.identity = self;
  }

  ~Link() override;

  // Waits until all processes have come.
  absl::Status Join();

  int process() const override { return options_.process; }
  int num_processes() const override { return options_.num_processes; }
  bool is_one_host() const override { return is_one_host_; }

  absl::StatusOr<std::vector<std::string>> AllGather(std::string text) override {
    return Gather(num_gathers_++, std::move(text));
  }
  void Send(int process, Topic topic, std::string message) override;
  void Listen(Topic topic, Handler handler) override {
    dispatcher_.Listen(topic, std::move(handler));
  }
  void Abort(int rank, const absl::Status& status) override;
  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    dispatcher_.OnFailure(std::move(handler));
  }
  absl::Status Finish() override;

 private:
  // Another process, as this one sees it.
  struct Peer {
    std::shared_ptr<JobConnection> connection;  // null before it has come, and after its end
    std::optional<JobHello> hello;              // of all, once all have come
    bool is_watched = false;                    // the system says whether it runs
    bool has_finished = false;                  // process 0 knows
    bool is_lost = false;                       // it does not answer
    uint64_t num_reads = 0;
    int silent_ticks = 0;
    int stopped_ticks = 0;
    int gone_ticks = 0;
  };
  // One that has not greeted yet, or was refused.
  struct Stranger {
    std::shared_ptr<JobConnection> connection;
    Clock::time_point deadline;
    bool is_refused = false;
  };
  using Gathered = absl::StatusOr<std::vector<std::string>>;

  bool is_center() const { return options_.process == 0; }
  // "process 1 (rank 1, pid 4711 on host a)"
  std::string Describe(int process) const;
  std::string Describe(const std::vector<int>& processes) const;

  void RunThread();
  void StartTimer();
  void OnTick();
  void Close();
  void CheckClosed();

  // Joining.
  void Accept();
  void Start(const std::shared_ptr<JobConnection>& connection);
  std::vector<Stranger>::iterator FindStranger(const JobConnection* connection);
  void OnGreeting(JobConnection* connection, const JobMessage& message);
  void AddPeer(int process, JobHello hello, std::shared_ptr<JobConnection> connection);
  void Welcome();
  absl::Status TakeWelcome(absl::string_view body);
  void HaveJoined(bool is_one_host);

  // Messages.
  JobMessage Make(JobMessageType type, int to, int64_t number, std::string body) const {
    return MakeJobMessage(type, options_.process, to, number, std::move(body));
  }
  // Through process 0, if this is another.
  void SendTo(int process, JobMessage message);
  // To all at the other ends of connections.
  void SendToAll(JobMessageType type, int64_t number, std::string body, int except = kNobody);
  void OnMessage(int from, JobMessage message);
  void OnTopic(int from, JobMessage message);
  void OnEnd(int process, const std::string& reason);

  // All-gathers.
  Gathered Gather(int64_t number, std::string text);
  void AddToGather(int64_t number, int process, std::string text);
  void SetGathered(int64_t number, Gathered gathered);
  absl::Status LateGather(int64_t number) const;

  // Failures.
  void CheckPeer(int process);
  void Lose(int process, absl::string_view what);
  // This process has found a failure; `except` has told it.
  void Fail(const absl::Status& failure, int except = kNobody);
  void TellFailure(const absl::Status& failure, int except);
  void SetFailure(const absl::Status& failure);

  static constexpr int kNobody = -1;

  const JobLinkOptions options_;
  const int64_t heartbeat_ticks_;
  JobHello self_;
  bool is_one_host_ = true;  // set before Join returns
  int64_t num_gathers_ = 0;

  // Of the thread of the link.
  asio::io_context io_;
  asio::steady_timer timer_;
  JobAcceptor acceptor_;
  std::vector<Peer> peers_;  // by process
  std::vector<Stranger> strangers_;
  JobGathers gathers_;  // of process 0
  Clock::time_point join_deadline_;
  int64_t num_ticks_ = 0;
  bool is_joining_ = true;
  bool has_failed_ = false;
  absl::Status first_failure_;  // as process 0 has told it
  bool is_done_ = false;        // all have finished
  bool is_closing_ = false;     // the destructor runs

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_joined_ = false;
  absl::Status failure_;                                // the first that this process knew
  std::map<int64_t, std::optional<Gathered>> waiting_;  // by number of a gather
  bool is_closed_ = false;                              // no connection is open

  JobDispatcher dispatcher_;  // after what its handlers use
  std::thread thread_;
};

Link::~Link() {
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

absl::Status Link::Join() {
  if (options_.num_processes == 1) {
    HaveJoined(true);
    RunThread();
    return absl::OkStatus();
  }
  join_deadline_ = Clock::now() + Seconds(options_.connect_timeout_s);
  if (is_center()) {
    WEFT_ASSIGN_OR_RETURN(acceptor_, ListenAt(&io_, options_.address));
    Accept();
  } else {
    WEFT_ASSIGN_OR_RETURN(
        JobAnswer answer,
        ConnectTo(&io_, options_.address, Make(JobMessageType::kHello, 0, 0, EncodeHello(self_)),
                  join_deadline_));
    if (answer.message.header.type == JobMessageType::kFailure) {
      return DecodeError(*answer.message.body);
    }
    WEFT_ASSIGN_OR_RETURN(JobHello hello, DecodeHello(*answer.message.body));
    const std::string difference = Difference(self_, hello);
    if (!difference.empty()) return absl::InvalidArgumentError(difference);
    // Process 0 waits for the others, perhaps from now on, and says so if they do not come.
    join_deadline_ = Clock::now() + Seconds(options_.connect_timeout_s) + kAnswerTime;
    io_.restart();
    const auto connection = std::make_shared<JobConnection>(std::move(answer.socket));
    AddPeer(0, std::move(hello), connection);
    Start(connection);
  }
  RunThread();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return has_joined_ || !failure_.ok(); });
  return failure_;
}

void Link::RunThread() {
  StartTimer();
  thread_ = std::thread([this] { io_.run(); });
}

void Link::StartTimer() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](std::error_code error) {
    if (error) return;
    OnTick();
    StartTimer();
  });
}

void Link::OnTick() {
  ++num_ticks_;
  const Clock::time_point now = Clock::now();
  for (int p = 0; p < num_processes(); ++p) {
    if (peers_[p].connection != nullptr) CheckPeer(p);
  }
  for (Stranger& stranger : strangers_) {
    if (now >= stranger.deadline) stranger.connection->Close();
  }
  strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(),
                                  [&](const Stranger& s) { return now >= s.deadline; }),
                   strangers_.end());
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
  if (is_joining_ && !has_failed_ && now >= join_deadline_) {
    std::vector<int> missing;
    for (int p = 1; p < num_processes(); ++p) {
      if (!peers_[p].hello.has_value()) missing.push_back(p);
    }
    Fail(is_center()
             ? absl::DeadlineExceededError(absl::StrCat(
                   Describe(missing), missing.size() == 1 ? " has" : " have", " not come to ",
                   options_.address, " within ", options_.connect_timeout_s, " s"))
             : absl::DeadlineExceededError(
                   absl::StrCat(Describe(0), " has not said within ", options_.connect_timeout_s,
                                " s that all processes have come to ", options_.address)));
  }
}

std::string Link::Describe(int process) const {
  std::string text =
      absl::StrCat("process ", process, " (", DescribeRanks(process, options_.local_ranks));
  if (const std::optional<JobHello>& hello = peers_[process].hello; hello.has_value()) {
    absl::StrAppend(&text, ", pid ", hello->identity.pid, " on host ", hello->identity.hostname);
  }
  return text + ")";
}

std::string Link::Describe(const std::vector<int>& processes) const {
  constexpr size_t kMax = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(processes.size(), kMax); ++i) {
    names.push_back(Describe(processes[i]));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (processes.size() > kMax) {
    absl::StrAppend(&text, " and ", processes.size() - kMax, " more");
  }
  return text;
}

// ---- Joining

void Link::Accept() {
  acceptor_.async_accept([this](std::error_code error, JobSocket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      // Such as too many open files: others may be closed soon.
      auto pause = std::make_shared<asio::steady_timer>(io_, kTick);
      pause->async_wait([this, pause](std::error_code) { Accept(); });
      return;
    }
    PrepareSocket(&socket);
    const auto connection = std::make_shared<JobConnection>(std::move(socket));
    strangers_.push_back({connection, Clock::now() + kGreetingTime});
    Start(connection);
    Accept();
  });
}

void Link::Start(const std::shared_ptr<JobConnection>& connection) {
  JobConnection* c = connection.get();  // it outlives its handlers
  c->Start(
      [this, c](JobMessage message) {
        if (c->process() == JobConnection::kStranger) {
          OnGreeting(c, message);
        } else {
          OnMessage(c->process(), std::move(message));
        }
      },
      [this, c](const std::string& reason) {
        if (c->process() == JobConnection::kStranger) {
          const auto stranger = FindStranger(c);
          if (stranger != strangers_.end()) strangers_.erase(stranger);
        } else {
          OnEnd(c->process(), reason);
        }
        if (is_closing_) CheckClosed();
      });
}

std::vector<Link::Stranger>::iterator Link::FindStranger(const JobConnection* connection) {
  return std::find_if(strangers_.begin(), strangers_.end(),
                      [&](const Stranger& s) { return s.connection.get() == connection; });
}

void Link::OnGreeting(JobConnection* connection, const JobMessage& message) {
  const auto stranger = FindStranger(connection);
  absl::StatusOr<JobHello> hello = DecodeHello(*message.body);
  if (stranger == strangers_.end() || stranger->is_refused || !hello.ok() ||
      message.header.type != JobMessageType::kHello) {
    return connection->Close();  // OnTick forgets it
  }
  std::string difference = Difference(self_, *hello);
  const int process = hello->process;
  if (difference.empty() && (process < 0 || process >= num_processes())) {
    difference = absl::StrCat("pid ", hello->identity.pid, " on host ", hello->identity.hostname,
                              " has the process number ", process, " of ", num_processes());
  }
  if (difference.empty() && peers_[process].hello.has_value()) {
    difference = Difference(*peers_[process].hello, *hello);
  }
  if (!difference.empty()) {
    const absl::Status error = absl::InvalidArgumentError(difference);
    stranger->is_refused = true;
    connection->Send(Make(JobMessageType::kFailure, process, 0, EncodeError(error)));
    connection->EndSending();
    return Fail(error);
  }
  const std::shared_ptr<JobConnection> owned = stranger->connection;
  strangers_.erase(stranger);
  AddPeer(process, *std::move(hello), owned);
  SendTo(process, Make(JobMessageType::kHello, process, 0, EncodeHello(self_)));
  if (has_failed_) {
    return SendTo(process, Make(JobMessageType::kFailure, process, 0, EncodeError(first_failure_)));
  }
  for (int p = 1; p < num_processes(); ++p) {
    if (!peers_[p].hello.has_value()) return;
  }
  Welcome();
}

void Link::AddPeer(int process, JobHello hello, std::shared_ptr<JobConnection> connection) {
  Peer& peer = peers_[process];
  if (!hello.identity.host.empty() && hello.identity.host == self_.identity.host) {
    const ProcessState state = StateOf(hello.identity);
    peer.is_watched = state == ProcessState::kRunning || state == ProcessState::kStopped;
  }
  peer.hello = std::move(hello);
  connection->SetProcess(process);
  peer.connection = std::move(connection);
}

void Link::Welcome() {
  peers_[0].hello = self_;
  bool is_one_host = true;
  std::vector<std::string> texts(1);
  for (int p = 0; p < num_processes(); ++p) {
    is_one_host = is_one_host && (p == 0 || peers_[p].is_watched);
    texts.push_back(EncodeHello(*peers_[p].hello));
  }
  texts[0] = is_one_host ? "one host" : "several hosts";
  SendToAll(JobMessageType::kWelcome, 0,
            EncodeTexts(std::vector<absl::string_view>(texts.begin(), texts.end())));
  HaveJoined(is_one_host);
}

absl::Status Link::TakeWelcome(absl::string_view body) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, DecodeTexts(body));
  if (texts.size() != peers_.size() + 1) {
    return absl::InternalError(absl::StrCat(Describe(0), " names ", texts.size() - 1,
                                            " processes instead of ", peers_.size()));
  }
  for (size_t p = 0; p < peers_.size(); ++p) {
    WEFT_ASSIGN_OR_RETURN(peers_[p].hello, DecodeHello(texts[p + 1]));
  }
  HaveJoined(texts[0] == "one host");
  return absl::OkStatus();
}

void Link::HaveJoined(bool is_one_host) {
  is_joining_ = false;
  is_one_host_ = is_one_host;
  std::error_code ignored;
  acceptor_.close(ignored);
  for (Stranger& stranger : strangers_) stranger.connection->Close();
  strangers_.clear();
  std::lock_guard<std::mutex> lock(mutex_);
  has_joined_ = true;
  changed_.notify_all();
}

// ---- Messages

void Link::Send(int process, Topic topic, std::string message) {
  if (process == options_.process) {
    return dispatcher_.Deliver(process, topic, std::move(message));
  }
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

void Link::SendTo(int process, JobMessage message) {
  const Peer& peer = peers_[is_center() ? process : 0];
  if (peer.connection != nullptr) peer.connection->Send(std::move(message));
}

void Link::SendToAll(JobMessageType type, int64_t number, std::string body, int except) {
  const JobMessage message = Make(type, 0, number, std::move(body));
  for (int p = 0; p < num_processes(); ++p) {
    if (p != except && peers_[p].connection != nullptr) peers_[p].connection->Send(message);
  }
}

void Link::OnMessage(int from, JobMessage message) {
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
    case JobMessageType::kHello:
      break;
  }
  Fail(absl::InternalError(absl::StrCat(Describe(from), " has sent a message of type ",
                                        static_cast<uint32_t>(header.type),
                                        ", which it must not send")));
}

void Link::OnTopic(int from, JobMessage message) {
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

void Link::OnEnd(int process, const std::string& reason) {
  Peer& peer = peers_[process];
  peer.connection = nullptr;
  if (peer.has_finished) return;
  Fail(absl::UnavailableError(
      absl::StrCat(Describe(process), reason.empty() ? " was killed or has ended" : ": ", reason)));
}

void Link::Close() {
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
  strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(),
                                  [](const Stranger& s) { return !s.is_refused; }),
                   strangers_.end());
  CheckClosed();
}

void Link::CheckClosed() {
  for (const Peer& peer : peers_) {
    if (peer.connection != nullptr) return;
  }
  if (!strangers_.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

// ---- All-gathers

Link::Gathered Link::Gather(int64_t number, std::string text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    waiting_[number] = std::nullopt;
  }
  asio::post(io_, [this, number, text = std::move(text)]() mutable {
    if (is_center()) return AddToGather(number, 0, std::move(text));
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

void Link::AddToGather(int64_t number, int process, std::string text) {
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
      SendToAll(JobMessageType::kGathered, number,
                EncodeTexts(std::vector<absl::string_view>(texts.begin(), texts.end())));
      return SetGathered(number, std::move(texts));
    }
  }
}

void Link::SetGathered(int64_t number, Gathered gathered) {
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

absl::Status Link::LateGather(int64_t number) const {
  const std::vector<int> missing = gathers_.Missing(number);
  return absl::DeadlineExceededError(absl::StrCat(
      DescribeGather(number), ": ", Describe(missing), missing.size() == 1 ? " has" : " have",
      " not arrived within ", options_.timeout_s, " s"));
}

absl::Status Link::Finish() {
  const Clock::time_point deadline = Clock::now() + Seconds(options_.timeout_s);
  WEFT_RETURN_IF_ERROR(Gather(kFinishNumber, "").status());
  if (dispatcher_.WaitUntilIdle(deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      DescribeGather(kFinishNumber), ": ", Describe(options_.process),
      " has not dealt with the messages of the others within ", options_.timeout_s, " s"));
}

// ---- Failures

void Link::CheckPeer(int process) {
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
  if (peer.stopped_ticks >= kMaxDeadTicks) Lose(process, "is stopped");
  if (peer.gone_ticks >= kMaxDeadTicks) Lose(process, "was killed or has ended");
}

void Link::Lose(int process, absl::string_view what) {
  peers_[process].is_lost = true;
  Fail(absl::UnavailableError(absl::StrCat(Describe(process), " ", what)));
}

void Link::Fail(const absl::Status& failure, int except) {
  if (has_failed_ || is_done_ || is_closing_) return;
  has_failed_ = true;
  dispatcher_.Fail(failure);
  SetFailure(failure);
  TellFailure(failure, except);
}

void Link::Abort(int rank, const absl::Status& status) {
  const absl::Status failure =
      absl::AbortedError(absl::StrCat("rank ", rank, " failed: ", status.message()));
  SetFailure(failure);
  asio::post(io_, [this, failure] {
    if (has_failed_ || is_done_) return;
    has_failed_ = true;
    TellFailure(failure, options_.process);
  });
}

void Link::TellFailure(const absl::Status& failure, int except) {
  first_failure_ = failure;
  SendToAll(JobMessageType::kFailure, 0, EncodeError(failure), except);
}

void Link::SetFailure(const absl::Status& failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) failure_ = failure;
  changed_.notify_all();
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobLink>> NewJobLinkAs(const JobLinkOptions& options,
                                                      const ProcessIdentity& self) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  auto link = std::make_unique<Link>(options, self);
  WEFT_RETURN_IF_ERROR(link->Join());
  return link;
}

absl::StatusOr<std::unique_ptr<JobLink>> NewJobLink(const JobLinkOptions& options) {
  return NewJobLinkAs(options, ThisProcess());
}

}  // namespace weft
