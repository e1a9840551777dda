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

namespace weft {

using JobSocket = asio::generic::stream_protocol::socket;
using JobAcceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

// Greetings are shorter. A stranger gets no more memory than that.
inline constexpr uint64_t kMaxGreetingBytes = uint64_t{1} << 20;

// Checks that an address is "host:port", "[::1]:port" or "unix:NAME".
absl::Status CheckJobAddress(const std::string& address);

// Listens at an address. A host that is an IP address or "localhost" means this interface, any
// other name all interfaces: the name of a host is often that of its loopback interface there.
//   Unavailable  names the address and the reason
absl::StatusOr<JobAcceptor> ListenAt(asio::io_context* io, const std::string& address);

// Connects to the address, sends a message and returns the socket and the answer; tries again until
// the deadline, as long as nobody answers. Runs the context.
//   Unavailable  names the address and the last reason
struct JobAnswer {
  JobSocket socket;
  JobMessage message;
};
absl::StatusOr<JobAnswer> ConnectTo(asio::io_context* io, const std::string& address,
                                    const JobMessage& greeting,
                                    std::chrono::steady_clock::time_point deadline);

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

  // The other end is that process. Its messages may be of any size.
  void SetProcess(int process) {
    process_ = process;
    max_body_bytes_ = uint64_t{1} << 62;
  }
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
  uint64_t max_body_bytes_ = kMaxGreetingBytes;
  uint64_t num_reads_ = 0;
  JobMessage in_;
  std::deque<JobMessage> queue_;  // the first is being sent
  bool ends_sending_ = false;
  bool can_send_ = true;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_CONNECTION_H_
