#include "executor/jobs/job_connection.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
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

struct Address {
  std::string unix_name;  // if it is not empty, the rest has no meaning
  std::string host;
  std::string port;
};

absl::StatusOr<Address> ParseAddress(const std::string& text) {
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
  if (port == 0) return error("port 0 is any port, and the other processes cannot know which");
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
  *error = {};
  int port = 0;
  if (!absl::SimpleAtoi(address.port, &port)) return {};
  // The first is for both versions of IP.
  return {Tcp::endpoint(Tcp::v6(), port), Tcp::endpoint(Tcp::v4(), port)};
}

// Runs one operation of the context until the deadline. `start` gets the handler to call;
// `cancel` makes it end.
std::error_code RunUntil(asio::io_context* io, Clock::time_point deadline,
                         const std::function<void(std::function<void(std::error_code)>)>& start,
                         const std::function<void()>& cancel) {
  std::optional<std::error_code> result;
  start([&](std::error_code error) { result = error; });
  io->restart();
  io->run_until(deadline);
  if (result.has_value()) return *result;
  cancel();
  io->restart();
  io->run();
  return asio::error::timed_out;
}

bool IsSane(const JobMessageHeader& header, uint64_t max_body_bytes) {
  return header.magic == JobMessageHeader::kMagic && header.size <= max_body_bytes;
}

// One try of ConnectTo.
std::error_code TryToConnect(asio::io_context* io, const Address& address,
                             const JobMessage& greeting, Clock::time_point deadline,
                             JobAnswer* answer) {
  // A host that drops packets must not keep the others from being tried.
  constexpr std::chrono::seconds kMaxConnectTime(3);
  std::error_code error;
  const std::vector<Protocol::endpoint> endpoints = Resolve(io, address, &error);
  if (error) return error;
  JobSocket& socket = answer->socket;
  const auto close = [&] {
    std::error_code ignored;
    socket.close(ignored);
  };
  for (const Protocol::endpoint& endpoint : endpoints) {
    close();
    error = RunUntil(
        io, std::min(deadline, Clock::now() + kMaxConnectTime),
        [&](auto done) { socket.async_connect(endpoint, done); }, close);
    if (!error) break;
  }
  if (error) return error;
  PrepareSocket(&socket);
  error = RunUntil(
      io, deadline,
      [&](auto done) {
        const std::array<asio::const_buffer, 2> buffers = {
            asio::buffer(&greeting.header, sizeof(greeting.header)), asio::buffer(*greeting.body)};
        asio::async_write(socket, buffers, [done](std::error_code e, size_t) { done(e); });
      },
      close);
  if (error) return error;
  const auto read = [&](asio::mutable_buffer buffer) {
    return RunUntil(
        io, deadline,
        [&](auto done) {
          asio::async_read(socket, buffer, [done](std::error_code e, size_t) { done(e); });
        },
        close);
  };
  JobMessageHeader& header = answer->message.header;
  error = read(asio::buffer(&header, sizeof(header)));
  if (error) return error;
  if (!IsSane(header, kMaxGreetingBytes)) return std::make_error_code(std::errc::protocol_error);
  answer->message.body = std::make_shared<std::string>(header.size, '\0');
  return read(asio::buffer(*answer->message.body));
}

}  // namespace

void PrepareSocket(JobSocket* socket) {
  fcntl(socket->native_handle(), F_SETFD, FD_CLOEXEC);
  std::error_code not_tcp;
  socket->set_option(Tcp::no_delay(true), not_tcp);
}

absl::Status CheckJobAddress(const std::string& address) { return ParseAddress(address).status(); }

absl::StatusOr<JobAcceptor> ListenAt(asio::io_context* io, const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
  std::error_code error;
  const auto endpoints = ListenEndpoints(io, address, &error);
  for (const Protocol::endpoint& endpoint : endpoints) {
    JobAcceptor acceptor(*io);
    acceptor.open(endpoint.protocol(), error);
    if (error) continue;
    fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    std::error_code not_tcp;
    if (address.unix_name.empty()) acceptor.set_option(Tcp::acceptor::reuse_address(true), not_tcp);
    acceptor.bind(endpoint, error);
    if (error == asio::error::address_in_use) break;
    if (error) continue;
    acceptor.listen(JobSocket::max_listen_connections, error);
    if (!error) return acceptor;
  }
  return absl::UnavailableError(
      absl::StrCat("process 0 cannot listen at ", text, ": ", error.message()));
}

absl::StatusOr<JobAnswer> ConnectTo(asio::io_context* io, const std::string& text,
                                    const JobMessage& greeting, Clock::time_point deadline) {
  WEFT_ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
  constexpr std::chrono::milliseconds kPause(50);
  std::string reason;
  do {
    JobAnswer answer{JobSocket(*io), {}};
    const std::error_code error = TryToConnect(io, address, greeting, deadline, &answer);
    if (!error) return answer;
    if (error == asio::error::eof) {
      reason = "the connection was closed";
    } else if (error == std::errc::protocol_error) {
      reason = "what listens there is no process of a Weft job";
    } else if (error != asio::error::timed_out || reason.empty()) {
      reason = error.message();
    }
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
  if (!IsSane(in_.header, max_body_bytes_)) return End("it has sent what is no message");
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
