// Collectives of ranks that exchange messages: the part that all engines share.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_MESSAGE_COLLECTIVES_H_
#define WEFT_EXECUTOR_COMMUNICATORS_MESSAGE_COLLECTIVES_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"

namespace weft {

// One rank's end of the messages of a ring. Ranks are positions in the ring. One thread uses it,
// but for Interrupt.
class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Transport() = default;

  // Begin a message. Messages from one rank to another arrive in order. A message may be shorter
  // than the `bytes` of its receiver. The buffers belong to the transport until Wait is OK, or
  // until Stop.
  virtual void Receive(int from, void* data, size_t bytes) = 0;
  virtual void Send(int to, const void* data, size_t bytes) = 0;

  // Waits until all messages that were begun are done.
  //   DeadlineExceeded  some are not at `until`; Wait may be called again
  //   Cancelled         Interrupt was called
  // Other errors are of the engine, those of Receive and Send included.
  virtual absl::Status Wait(Clock::time_point until) = 0;

  // After Wait: the ranks whose messages have not come, ascending; if all have, the ranks that have
  // not taken a message.
  virtual std::vector<int> Pending() const = 0;

  // Makes Wait return, now and later. Any thread may call it.
  virtual void Interrupt() = 0;

  // Gives up: the buffers are the caller's again. Only Interrupt and the destructor may follow.
  virtual void Stop() = 0;
};

// Makes the end of the rank at `position` of options.rings[ring], which has several ranks.
using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(int ring, int position)>;

// FailedPrecondition if processes of the link name different rings. All processes call it.
absl::Status CompareRings(const GroupOptions& options);

// The rings of the options, for the ranks of this process. Calls `new_transport` here, ring by
// ring.
//
// Every call begins with a message from each rank to each other that holds the descriptor of the
// call, and the elements if they are few. So a call is compared before its data moves, and no rank
// leaves a call before all have arrived. Ranks reduce their part of the elements by left folds in
// rank order (executor/communicators/local_collective.h): results are those of NewLocalGroup, bit
// for bit. An all-reduce of B bytes sends and receives 2*B*(n-1)/n bytes on each rank.
//
// Warnings and errors are those of NewLocalGroup; the times count from the arrival of the waiting
// rank. They also say, over the link, which other call a late rank is in. Unavailable is an error
// of the engine, such as a connection that is closed.
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewMessageGroup(
    GroupOptions options, const TransportFactory& new_transport);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_MESSAGE_COLLECTIVES_H_
