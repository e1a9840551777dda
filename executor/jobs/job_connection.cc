#include "executor/jobs/job_connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using Protocol = asio::generic::stream_protocol;
using Tcp = asio::ip::tcp;

// Between two tries or looks.
constexpr std::chrono::milliseconds kPause(50);

struct Address {
  std::string unix_name;  // if it is not empty, the rest has no meaning
  std::string host;
  std::string port;
};

absl::StatusOr<Address> ParseAddress(const std::string& text, bool any_port = false) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no address \"host:port\" or \"unix:NAME\": ", what));
  };
  constexpr size_t kMaxUnixName = 100;  // sockaddr_un has 108 bytes
  Address address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (rest.empty()) return error("it has no name");
    if (rest.size() > kMaxUnixName) {
      return error(absl::StrCat("the name has more than ", kMaxUnixName, " characters"));
    }
    address.unix_name = std::string(rest);
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return error("it has no port");
  absl::string_view host = rest.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) return error("it has no host");
  int port = 0;
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return error("the port is no number below 65536");
  }
  if (port == 0 && !any_port)
    return error("port 0 is any port, and the other processes cannot know which");
  address.host = std::string(host);
  address.port = absl::StrCat(port);
  return address;
}

Protocol::endpoint UnixEndpoint(const Address& address) {
  return asio::local::stream_protocol::endpoint(std::string(1, '\0') + address.unix_name);
}

// The endpoints to connect to.
std::vector<Protocol::endpoint> Resolve(asio::io_context* io, const Address& address,
                                        std::error_code* error) {
  *error = {};
  if (!address.unix_name.empty()) return {UnixEndpoint(address)};
  std::vector<Protocol::endpoint> endpoints;
  Tcp::resolver resolver(*io);
  for (const auto& result : resolver.resolve(address.host, address.port, *error)) {
    endpoints.push_back(result.endpoint());
  }
  return endpoints;
}

// Where to listen, the best first.
std::vector<Protocol::endpoint> ListenEndpoints(asio::io_context* io, const Address& address,
                                                std::error_code* error) {
  std::error_code no_ip;
  asio::ip::make_address(address.host, no_ip);
  if (!address.unix_name.empty() || !no_ip || address.host == "localhost") {
    return Resolve(io, address, error);
  }
  std::vector<Protocol::endpoint> endpoints;
  Tcp::resolver resolver(*io);
  for (const auto& result : resolver.resolve(address.host, address.port, *error)) {
    if (!result.endpoint().address().is_loopback()) endpoints.push_back(result.endpoint());
  }
  if (!endpoints.empty()) return endpoints;
  *error = {};
  int port = 0;
  if (!absl::SimpleAtoi(address.port, &port)) return {};
  // The first is for both versions of IP.
  return {Tcp::endpoint(Tcp::v6(), port), Tcp::endpoint(Tcp::v4(), port)};
}

// What an error says of the other end.
std::string Reason(const std::error_code& error) {
  if (error == asio::error::eof) return "the connection was closed";
  if (error == std::errc::protocol_error) {
    return "what listens there is no process of a Weft job";
  }
  return error.message();
}

// How long one who connects waits. `is_over` may be empty.
struct Patience {
  Clock::time_point deadline;
  const std::function<bool()>& is_over;

  Patience ForAtMost(Clock::duration time) const {
    return {std::min(deadline, Clock::now() + time), is_over};
  }
  bool Ends() const { return Clock::now() >= deadline || (is_over && is_over()); }
};

// Runs one operation of the context while there is patience. `start` gets the handler to call;
// `cancel` makes it end.
std::error_code RunWhile(asio::io_context* io, const Patience& patience,
                         const std::function<void(std::function<void(std::error_code)>)>& start,
                         const std::function<void()>& cancel) {
  std::optional<std::error_code> result;
  start([&](std::error_code error) { result = error; });
  do {
    io->restart();
    io->run_until(std::min(patience.deadline, Clock::now() + kPause));
    if (result.has_value()) return *result;
  } while (!patience.Ends());
  cancel();
  io->restart();
  io->run();
  return asio::error::timed_out;
}

bool IsSane(const JobMessageHeader& header) {
  return header.magic == JobMessageHeader::kMagic && header.size <= MaxBodyBytes(header.type);
}

// What an end sends before both are known to belong to one job.
bool IsProof(JobMessageType type) {
  return type == JobMessageType::kChallenge || type == JobMessageType::kProof;
}

// The messages of one who connects, one after the other.
class Greeter {
 public:
  Greeter(asio::io_context* io, JobSocket* socket, const Patience& patience)
      : io_(*io), socket_(*socket), patience_(patience) {}

  std::error_code Send(const JobMessage& message) {
    const std::array<asio::const_buffer, 2> buffers = {
        asio::buffer(&message.header, sizeof(message.header)), asio::buffer(*message.body)};
    return Run([&](auto done) {
      asio::async_write(socket_, buffers, [done](std::error_code e, size_t) { done(e); });
    });
  }

  std::error_code Receive(JobMessage* message) {
    std::error_code error = Read(asio::buffer(&message->header, sizeof(message->header)));
    if (error) return error;
    const JobMessageType type = message->header.type;
    const bool is_answer =
        IsProof(type) || type == JobMessageType::kHello || type == JobMessageType::kFailure;
    if (!IsSane(message->header) || !is_answer) {
      return std::make_error_code(std::errc::protocol_error);
    }
    message->body = std::make_shared<std::string>(message->header.size, '\0');
    return Read(asio::buffer(*message->body));
  }

  // Sends a message, and receives one of the same type.
  std::error_code Exchange(const JobMessage& message, std::string* body) {
    std::error_code error = Send(message);
    JobMessage answer;
    if (!error) error = Receive(&answer);
    if (error) return error;
    if (answer.header.type != message.header.type) {
      return std::make_error_code(std::errc::protocol_error);
    }
    *body = std::move(*answer.body);
    return {};
  }

 private:
  template <typename Start>
  std::error_code Run(const Start& start) {
    return RunWhile(&io_, patience_, start, [this] {
      std::error_code ignored;
      socket_.close(ignored);
    });
  }
  std::error_code Read(asio::mutable_buffer buffer) {
    return Run([&](auto done) {
      asio::async_read(socket_, buffer, [done](std::error_code e, size_t) { done(e); });
    });
  }

  asio::io_context& io_;
  JobSocket& socket_;
  const Patience patience_;
};

// Empty: both ends know the token. Else why this is not sure.
std::string ProveBoth(const std::string& token, Greeter* greeter) {
  const auto make = [](JobMessageType type, std::string body) {
    return MakeJobMessage(type, 0, 0, 0, std::move(body));
  };
  const std::string mine = NewJobNonce();
  std::string theirs, proof;
  std::error_code error = greeter->Exchange(make(JobMessageType::kChallenge, mine), &theirs);
  if (error == asio::error::timed_out) return "what listens there does not answer";
  if (error) return Reason(error);
  error = greeter->Exchange(
      make(JobMessageType::kProof, JobProof(token, JobSide::kConnects, mine, theirs)), &proof);
  // Whoever does not know the token gets no answer.
  const bool is_dropped = error == asio::error::eof || error == asio::error::connection_reset;
  if (error && !is_dropped) return Reason(error);
  if (!error && IsSameProof(proof, JobProof(token, JobSide::kListens, mine, theirs))) return "";
  return "what listens there does not know the token of this job";
}

// One try of ConnectTo. Empty, or why it failed.
std::string TryToConnect(asio::io_context* io, const Address& address, const std::string& token,
                         const JobMessage& greeting, const Patience& patience, JobAnswer* answer) {
  // A host that drops packets must not keep the others from being tried.
  constexpr std::chrono::seconds kMaxConnectTime(3);
  std::error_code error;
  const std::vector<Protocol::endpoint> endpoints = Resolve(io, address, &error);
  if (error) return Reason(error);
  JobSocket& socket = answer->socket;
  const auto close = [&] {
    std::error_code ignored;
    socket.close(ignored);
  };
  for (const Protocol::endpoint& endpoint : endpoints) {
    close();
    error = RunWhile(
        io, patience.ForAtMost(kMaxConnectTime),
        [&](auto done) { socket.async_connect(endpoint, done); }, close);
    if (!error) break;
  }
  if (error) return Reason(error);
  if (!IsOfThisUser(&socket)) return "what listens there belongs to another user";
  PrepareSocket(&socket);
  // What listens there may say nothing, and be no process of the job.
  constexpr std::chrono::seconds kMaxProofTime(10);
  Greeter prover(io, &socket, patience.ForAtMost(kMaxProofTime));
  const std::string reason = ProveBoth(token, &prover);
  if (!reason.empty()) return reason;
  Greeter greeter(io, &socket, patience);
  error = greeter.Send(greeting);
  if (!error) error = greeter.Receive(&answer->message);
  return error ? Reason(error) : "";
}

}  // namespace

void PrepareSocket(JobSocket* socket) {
  fcntl(socket->native_handle(), F_SETFD, FD_CLOEXEC);
  std::error_code not_tcp;
  socket->set_option(Tcp::no_delay(true), not_tcp);
}

bool IsOfThisUser(JobSocket* socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  int domain = AF_UNSPEC;
  socklen_t domain_size = sizeof(domain);
  const int fd = socket->native_handle();
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) != 0) return false;
  if (domain != AF_UNIX) return true;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

absl::Status CheckJobAddress(const std::string& address, bool any_port) {
  return ParseAddress(address, any_port).status();
}

absl::StatusOr<JobAcceptor> ListenAt(asio::io_context* io, const std::string& text, bool any_port,
                                     const std::function<bool()>& waits) {
  WEFT_ASSIGN_OR_RETURN(Address address, ParseAddress(text, any_port));
  if (any_port) address.port = "0";
  std::error_code error;
  const auto endpoints = ListenEndpoints(io, address, &error);
  do {
    for (const Protocol::endpoint& endpoint : endpoints) {
      JobAcceptor acceptor(*io);
      acceptor.open(endpoint.protocol(), error);
      if (error) continue;
      fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
      std::error_code not_tcp;
      if (address.unix_name.empty())
        acceptor.set_option(Tcp::acceptor::reuse_address(true), not_tcp);
      acceptor.bind(endpoint, error);
      if (error == asio::error::address_in_use) break;
      if (error) continue;
      acceptor.listen(JobSocket::max_listen_connections, error);
      if (!error) return acceptor;
    }
  } while (error == asio::error::address_in_use && waits && waits());
  return absl::UnavailableError(
      absl::StrCat("process 0 cannot listen at ", text, ": ", error.message()));
}

int PortOf(const JobAcceptor& acceptor) {
  std::error_code error;
  const Protocol::endpoint local = acceptor.local_endpoint(error);
  if (error) return 0;
  sockaddr_in ip4 = {};
  sockaddr_in6 ip6 = {};
  switch (local.data()->sa_family) {
    case AF_INET:
      std::memcpy(&ip4, local.data(), std::min(sizeof(ip4), local.size()));
      return ntohs(ip4.sin_port);
    case AF_INET6:
      std::memcpy(&ip6, local.data(), std::min(sizeof(ip6), local.size()));
      return ntohs(ip6.sin6_port);
    default:
      return 0;
  }
}

absl::StatusOr<JobAnswer> ConnectTo(asio::io_context* io, const std::string& text,
                                    const std::function<absl::StatusOr<JobTokenText>()>& token,
                                    const JobMessage& greeting, Clock::time_point deadline,
                                    const std::function<bool()>& is_over) {
  WEFT_ASSIGN_OR_RETURN(Address address, ParseAddress(text, /*any_port=*/true));
  const Patience patience{deadline, is_over};
  const std::string timed_out = Reason(asio::error::timed_out);
  std::string reason;
  do {
    if (is_over && is_over()) return absl::UnavailableError("the generation of the job is over");
    JobAnswer answer{JobSocket(*io), {}};
    const absl::StatusOr<JobTokenText> known = token();
    std::string failure;
    if (known.ok()) {
      if (known->port != 0) address.port = absl::StrCat(known->port);
      if (!known->unix_name.empty()) address.unix_name = known->unix_name;
      failure = TryToConnect(io, address, known->token, greeting, patience, &answer);
      if (failure.empty()) return answer;
    } else {
      failure = std::string(known.status().message());
    }
    // The end may cut the last try short.
    const bool says_nothing = failure == timed_out || Clock::now() >= deadline;
    if (!says_nothing || reason.empty()) reason = std::move(failure);
    std::this_thread::sleep_for(kPause);
  } while (Clock::now() < deadline);
  return absl::UnavailableError(
      absl::StrCat("process 0 cannot be reached at ", text, ": ", reason));
}

void JobConnection::Start(std::function<void(JobMessage)> on_message,
                          std::function<void(const std::string& reason)> on_end) {
  on_message_ = std::move(on_message);
  on_end_ = std::move(on_end);
  ReadHeader();
}

void JobConnection::ReadHeader() {
  asio::async_read(socket_, asio::buffer(&in_.header, sizeof(in_.header)), CountReads(),
                   [self = shared_from_this()](std::error_code error, size_t) {
                     if (error == asio::error::eof || error == asio::error::connection_reset) {
                       return self->End("");
                     }
                     if (error) return self->End(error.message());
                     ++self->num_reads_;
                     self->ReadBody();
                   });
}

void JobConnection::ReadBody() {
  const JobMessageType type = in_.header.type;
  const bool may_send =
      process_ != kStranger || (has_proved_ ? type == JobMessageType::kHello : IsProof(type));
  if (!IsSane(in_.header) || !may_send) return End("it has sent what is no message");
  try {
    in_.body = std::make_shared<std::string>(in_.header.size, '\0');
  } catch (const std::exception&) {
    return End(absl::StrCat("it has sent a message of ", in_.header.size,
                            " bytes, for which there is no memory"));
  }
  asio::async_read(socket_, asio::buffer(*in_.body), CountReads(),
                   [self = shared_from_this()](std::error_code error, size_t) {
                     if (error == asio::error::eof || error == asio::error::connection_reset) {
                       return self->End("");
                     }
                     if (error) return self->End(error.message());
                     self->on_message_(std::move(self->in_));
                     if (self->socket_.is_open()) self->ReadHeader();
                   });
}

void JobConnection::Send(JobMessage message) {
  if (!can_send_ || ends_sending_) return;
  queue_.push_back(std::move(message));
  if (queue_.size() == 1) Write();
}

void JobConnection::Write() {
  const JobMessage& message = queue_.front();
  const std::array<asio::const_buffer, 2> buffers = {
      asio::buffer(&message.header, sizeof(message.header)), asio::buffer(*message.body)};
  asio::async_write(socket_, buffers, [self = shared_from_this()](std::error_code error, size_t) {
    if (error) {
      // The reader finds out why, after what the other end has sent.
      self->can_send_ = false;
      self->queue_.clear();
      return;
    }
    self->queue_.pop_front();
    if (!self->queue_.empty()) return self->Write();
    if (self->ends_sending_) self->socket_.shutdown(JobSocket::shutdown_send, error);
  });
}

void JobConnection::EndSending() {
  if (ends_sending_) return;
  ends_sending_ = true;
  std::error_code closed;
  if (queue_.empty()) socket_.shutdown(JobSocket::shutdown_send, closed);
}

void JobConnection::Close() {
  on_end_ = nullptr;
  can_send_ = false;
  std::error_code ignored;
  socket_.close(ignored);
}

void JobConnection::End(const std::string& reason) {
  const auto on_end = std::move(on_end_);
  Close();
  if (on_end) on_end(reason);
}

}  // namespace weft
