// How processes come together.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/jobs/star_link.h"

namespace weft {
namespace {

// A connection at which nobody greets is closed after this time; the oldest at once, if there are
// more than so many.
constexpr std::chrono::seconds kGreetingTime(10);
constexpr size_t kMaxStrangers = 256;

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

}  // namespace

absl::Status StarLink::Join() {
  if (options_.num_processes == 1) {
    HaveJoined(true);
    RunThread();
    return absl::OkStatus();
  }
  join_deadline_ = Clock::now() + Seconds(options_.connect_timeout_s);
  if (is_center()) {
    const bool has_file = options_.token.empty();
    // One that an earlier run has left would mislead the others.
    if (has_file) unlink(options_.token_file.c_str());
    token_ = has_file ? NewJobToken() : options_.token;
    const bool any_port = (has_file && options_.any_port) || options_.share_port;
    const std::string name = has_file ? SocketNameFor(token_) : "";
    absl::StatusOr<JobAcceptor> acceptor =
        ListenAt(&io_, name.empty() ? options_.address : "unix:" + name, any_port,
                 [this] { return WaitForAddress(); });
    if (options_.share_port) options_.share_port(acceptor.ok() ? PortOf(*acceptor) : 0);
    WEFT_RETURN_IF_ERROR(acceptor.status());
    acceptor_ = *std::move(acceptor);
    if (has_file) {
      WEFT_ASSIGN_OR_RETURN(token_file_,
                            JobTokenFile::Create(options_.token_file, {token_, PortOf(acceptor_)}));
    }
    Accept();
  } else {
    const int port = options_.share_port ? options_.share_port(0) : 0;
    if (options_.share_port && port == 0) {
      return absl::UnavailableError(absl::StrCat("process 0 cannot listen at ", options_.address));
    }
    WEFT_ASSIGN_OR_RETURN(JobAnswer answer,
                          ConnectTo(
                              &io_, options_.address,
                              [this, port]() -> absl::StatusOr<JobTokenText> {
                                absl::StatusOr<JobTokenText> text =
                                    options_.token.empty() ? ReadTokenFile()
                                                           : JobTokenText{options_.token, port};
                                if (text.ok()) token_ = text->token;
                                return text;
                              },
                              Make(JobMessageType::kHello, 0, 0, EncodeHello(self_)),
                              join_deadline_, options_.is_over));
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

// Other users know the address of a job whose token is in a file; it follows from its launcher.
std::string StarLink::SocketNameFor(const std::string& token) const {
  return absl::StartsWith(options_.address, "unix:") ? SecretSocketName(token, options_.address)
                                                     : "";
}

// Process 0 may still replace a file that is wrong, or may wait elsewhere.
absl::StatusOr<JobTokenText> StarLink::ReadTokenFile() {
  absl::StatusOr<JobTokenText> text = ReadJobTokenFile(options_.token_file);
  if (text.ok()) text->unix_name = SocketNameFor(text->token);
  if (text.ok() || absl::IsNotFound(text.status())) return text;
  if (!has_noted_token_file_ && options_.on_note) {
    options_.on_note(absl::StrCat("waiting for another file with the token of the job: ",
                                  text.status().message()));
  }
  has_noted_token_file_ = true;
  return text;
}

bool StarLink::WaitForAddress() {
  if (!has_noted_address_ && options_.on_note) {
    options_.on_note(
        absl::StrCat("another process listens at ", options_.address, ": waiting until it ends"));
  }
  has_noted_address_ = true;
  std::this_thread::sleep_for(kTick);
  return Clock::now() < join_deadline_ && !(options_.is_over && options_.is_over());
}

void StarLink::Accept() {
  acceptor_.async_accept([this](std::error_code error, JobSocket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      // Too many open files, whether or not somebody waits. A stranger that is alone may be of the
      // job, and prove it soon.
      pollfd waiting = {acceptor_.native_handle(), POLLIN, 0};
      const auto num_unproved = std::count_if(strangers_.begin(), strangers_.end(),
                                              [](const Stranger& s) { return !s.knows_token; });
      if (error == asio::error::no_descriptors && num_unproved > 1 && poll(&waiting, 1, 0) > 0) {
        DropUnproved();
        return Accept();
      }
      auto pause = std::make_shared<asio::steady_timer>(io_, kTick);
      pause->async_wait([this, pause](std::error_code) { Accept(); });
      return;
    }
    if (!IsOfThisUser(&socket)) {
      ++num_dropped_;
      return Accept();  // the socket closes
    }
    PrepareSocket(&socket);
    if (strangers_.size() == kMaxStrangers && !DropUnproved()) Drop(strangers_.begin());
    const auto connection = std::make_shared<JobConnection>(std::move(socket));
    Stranger stranger;
    stranger.connection = connection;
    stranger.deadline = Clock::now() + kGreetingTime;
    strangers_.push_back(std::move(stranger));
    Start(connection);
    Accept();
  });
}

void StarLink::Start(const std::shared_ptr<JobConnection>& connection) {
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
          if (stranger == strangers_.end()) return;
          if (!stranger->is_refused) ++num_dropped_;
          strangers_.erase(stranger);
        } else {
          OnEnd(c->process(), reason);
        }
        if (is_closing_) CheckClosed();
      });
}

std::list<StarLink::Stranger>::iterator StarLink::FindStranger(const JobConnection* connection) {
  return std::find_if(strangers_.begin(), strangers_.end(),
                      [&](const Stranger& s) { return s.connection.get() == connection; });
}

bool StarLink::DropUnproved() {
  const auto unproved = std::find_if(strangers_.begin(), strangers_.end(),
                                     [](const Stranger& s) { return !s.knows_token; });
  if (unproved == strangers_.end()) return false;
  Drop(unproved);
  return true;
}

void StarLink::Drop(std::list<Stranger>::iterator stranger) {
  if (!stranger->is_refused) ++num_dropped_;
  stranger->connection->Close();
  strangers_.erase(stranger);
}

void StarLink::OnGreeting(JobConnection* connection, const JobMessage& message) {
  const auto stranger = FindStranger(connection);
  if (stranger == strangers_.end() || stranger->is_refused) return;
  if (!stranger->knows_token) {
    if (!Prove(&*stranger, message)) Drop(stranger);
    return;
  }
  absl::StatusOr<JobHello> hello = DecodeHello(*message.body);
  if (message.header.type != JobMessageType::kHello || !hello.ok()) return Drop(stranger);
  OnHello(stranger, *std::move(hello));
}

bool StarLink::Prove(Stranger* stranger, const JobMessage& message) {
  const std::string& body = *message.body;
  if (stranger->my_nonce.empty()) {
    if (message.header.type != JobMessageType::kChallenge || body.size() != kJobNonceBytes) {
      return false;
    }
    stranger->their_nonce = body;
    stranger->my_nonce = NewJobNonce();
    stranger->connection->Send(Make(JobMessageType::kChallenge, 0, 0, stranger->my_nonce));
    return true;
  }
  const auto proof = [&](JobSide side) {
    return JobProof(token_, side, stranger->their_nonce, stranger->my_nonce);
  };
  if (message.header.type != JobMessageType::kProof ||
      !IsSameProof(body, proof(JobSide::kConnects))) {
    return false;
  }
  stranger->knows_token = true;
  stranger->connection->SetProved();
  stranger->connection->Send(Make(JobMessageType::kProof, 0, 0, proof(JobSide::kListens)));
  return true;
}

// Who knows the token is of the job, or was meant to be: what does not fit ends it.
void StarLink::OnHello(std::list<Stranger>::iterator stranger, JobHello hello) {
  std::string difference = Difference(self_, hello);
  const int process = hello.process;
  if (difference.empty() && (process < 0 || process >= num_processes())) {
    difference = absl::StrCat("pid ", hello.identity.pid, " on host ", hello.identity.hostname,
                              " has the process number ", process, " of ", num_processes());
  }
  if (difference.empty() && peers_[process].hello.has_value()) {
    difference = Difference(*peers_[process].hello, hello);
  }
  const std::shared_ptr<JobConnection> connection = stranger->connection;
  const auto refuse = [&](const absl::Status& error) {
    stranger->is_refused = true;
    connection->Send(Make(JobMessageType::kFailure, process, 0, EncodeError(error)));
    connection->EndSending();
  };
  if (hello.version == self_.version && hello.job == self_.job &&
      hello.generation != self_.generation) {
    // It was left behind, such as a process that was stopped: the others go on without it.
    return refuse(absl::AbortedError(
        absl::StrCat("process ", process, " (pid ", hello.identity.pid, ") belongs to generation ",
                     hello.generation, " of the job, which has gone on with ", self_.generation)));
  }
  if (!difference.empty()) {
    const absl::Status error = absl::InvalidArgumentError(difference);
    refuse(error);
    return Fail(error);
  }
  strangers_.erase(stranger);
  AddPeer(process, std::move(hello), connection);
  SendTo(process, Make(JobMessageType::kHello, process, 0, EncodeHello(self_)));
  if (has_failed_) {
    return SendTo(process, Make(JobMessageType::kFailure, process, 0, EncodeError(first_failure_)));
  }
  for (int p = 1; p < num_processes(); ++p) {
    if (!peers_[p].hello.has_value()) return;
  }
  Welcome();
}

void StarLink::AddPeer(int process, JobHello hello, std::shared_ptr<JobConnection> connection) {
  Peer& peer = peers_[process];
  if (!hello.identity.host.empty() && hello.identity.host == self_.identity.host) {
    const ProcessState state = StateOf(hello.identity);
    peer.is_watched = state == ProcessState::kRunning || state == ProcessState::kStopped;
  }
  peer.hello = std::move(hello);
  connection->SetProcess(process);
  peer.connection = std::move(connection);
}

void StarLink::Welcome() {
  peers_[0].hello = self_;
  bool is_one_host = true;
  std::vector<std::string> texts(1);
  for (int p = 0; p < num_processes(); ++p) {
    is_one_host = is_one_host && (p == 0 || peers_[p].is_watched);
    texts.push_back(EncodeHello(*peers_[p].hello));
  }
  texts[0] = is_one_host ? "one host" : "several hosts";
  StopListening();
  NoteDifferences();
  SendToAll(JobMessageType::kWelcome, 0,
            EncodeTexts(std::vector<absl::string_view>(texts.begin(), texts.end())));
  HaveJoined(is_one_host);
}

absl::Status StarLink::TakeWelcome(absl::string_view body) {
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

std::string StarLink::DroppedText() const {
  if (num_dropped_ == 0) return "";
  return absl::StrCat(": ", num_dropped_, num_dropped_ == 1 ? " connection" : " connections",
                      " that did not prove to know the token of the job ",
                      num_dropped_ == 1 ? "was" : "were", " dropped");
}

void StarLink::NoteDifferences() const {
  if (!options_.on_note) return;
  if (num_dropped_ > 0) options_.on_note(absl::StrCat(options_.address, DroppedText()));
  for (const auto& [name, value] : self_.facts) {
    for (int p = 1; p < num_processes(); ++p) {
      const auto& facts = peers_[p].hello->facts;
      const auto other = facts.find(name);
      if (other != facts.end() && other->second == value) continue;
      options_.on_note(absl::StrCat(name, " of ", Describe(0), ": ", value, "; of ", Describe(p),
                                    ": ", other == facts.end() ? "unknown" : other->second,
                                    ": they may round differently"));
      break;  // the first is enough
    }
  }
}

void StarLink::StopListening() {
  std::error_code ignored;
  acceptor_.close(ignored);
  token_file_ = nullptr;
  while (!strangers_.empty()) Drop(strangers_.begin());
}

void StarLink::HaveJoined(bool is_one_host) {
  is_joining_ = false;
  is_one_host_ = is_one_host;
  StopListening();
  std::lock_guard<std::mutex> lock(mutex_);
  has_joined_ = true;
  changed_.notify_all();
}

}  // namespace weft
