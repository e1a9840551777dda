// Messages over a stream socket, TCP or Unix.
#ifndef WEFT_EXECUTOR_JOBS_JOB_CONNECTION_H_
#define WEFT_EXECUTOR_JOBS_JOB_CONNECTION_H_

#include <asio/basic_socket_acceptor.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/jobs/job_messages.h"
#include "executor/jobs/job_token.h"

namespace weft {

using JobSocket = asio::generic::stream_protocol::socket;
using JobAcceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

// Checks that an address is "host:port", "[::1]:port" or "unix:NAME". Port 0, which the system
// chooses, only where the others are told the port.
absl::Status CheckJobAddress(const std::string& address, bool any_port = false);

// Listens at an address: at the interface that the host names, or, if that is the loopback on a
// host of another name than "localhost", at all interfaces, as systems often give their own name to
// the loopback. While another process has the address, asks `waits` whether to try again; empty:
// no.
//   Unavailable  names the address and the reason
absl::StatusOr<JobAcceptor> ListenAt(asio::io_context* io, const std::string& address,
                                     bool any_port = false,
                                     const std::function<bool()>& waits = nullptr);
// The port at which it listens; 0: it has none.
int PortOf(const JobAcceptor& acceptor);

// Connects to process 0 of a job, and greets: both ends prove that they know the token, then send
// `greeting` and the answer. Asks `token` at each try, and tries again until the deadline, as long
// as nobody answers or knows the token, unless `is_over`, which may be empty, says true. Runs the
// context.
//   Unavailable  names the address and the last reason; or `is_over`
struct JobAnswer {
  JobSocket socket;
  JobMessage message;
};
absl::StatusOr<JobAnswer> ConnectTo(asio::io_context* io, const std::string& address,
                                    const std::function<absl::StatusOr<JobTokenText>()>& token,
                                    const JobMessage& greeting,
                                    std::chrono::steady_clock::time_point deadline,
                                    const std::function<bool()>& is_over = nullptr);

// Whether a process of this user is at the other end of a Unix socket. Of other sockets, the system
// does not say: true.
bool IsOfThisUser(JobSocket* socket);

// Sets what all sockets of the link have: they do not outlive exec, and send at once.
void PrepareSocket(JobSocket* socket);

// One end of a connection. All calls come from the thread that runs the context of the socket.
class JobConnection : public std::enable_shared_from_this<JobConnection> {
 public:
  explicit JobConnection(JobSocket socket) : socket_(std::move(socket)) {}

  // Reads messages until the connection ends; then calls on_end once. A reason that is empty says
  // that the other end has closed it.
  void Start(std::function<void(JobMessage)> on_message,
             std::function<void(const std::string& reason)> on_end);

  // The other end has proved that it knows the token: it may greet.
  void SetProved() { has_proved_ = true; }
  // The other end is that process, which may send other messages than those of strangers.
  void SetProcess(int process) { process_ = process; }
  // kStranger before.
  static constexpr int kStranger = -1;
  int process() const { return process_; }

  // Messages are sent in order.
  void Send(JobMessage message);

  // Tells the other end, after the messages, that no more come. Goes on reading.
  void EndSending();

  // Ends the connection. on_end is not called.
  void Close();

  bool is_sending() const { return !queue_.empty(); }
  // Grows whenever bytes arrive.
  uint64_t num_reads() const { return num_reads_; }

 private:
  void ReadHeader();
  void ReadBody();
  void Write();
  void End(const std::string& reason);
  // A completion condition that counts. It is not asked after the last of several reads.
  auto CountReads() {
    return [this](const std::error_code& error, size_t bytes) -> size_t {
      if (bytes > 0) ++num_reads_;
      return error ? 0 : kMaxReadBytes;
    };
  }

  static constexpr size_t kMaxReadBytes = size_t{1} << 20;

  JobSocket socket_;
  std::function<void(JobMessage)> on_message_;
  std::function<void(const std::string&)> on_end_;
  int process_ = kStranger;
  bool has_proved_ = false;
  uint64_t num_reads_ = 0;
  JobMessage in_;
  std::deque<JobMessage> queue_;  // the first is being sent
  bool ends_sending_ = false;
  bool can_send_ = true;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_CONNECTION_H_
