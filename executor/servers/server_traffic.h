// What a worker and the parameter servers send each other, and what that takes.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_TRAFFIC_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_TRAFFIC_H_

#include <cstdint>

#include "executor/servers/server_message.h"

namespace weft {

// Of the tensors of a message: their elements, and 8 bytes for the number of each row.
int64_t BytesOf(const ServerMessage& message);

// Between a worker and one server.
struct ServerTraffic {
  struct Count {
    int64_t messages = 0;
    int64_t bytes = 0;

    void Add(const ServerMessage& message) {
      ++messages;
      bytes += BytesOf(message);
    }
  };
  Count pushed;  // gradients, with the scalars that optimizers read
  Count asked;   // for parameters, and for rows by their numbers
  Count pulled;  // parameters and rows, with those that have changed since they were prefetched
};

// What a server keeps, in bytes.
struct ServerMemory {
  int64_t parameters = 0;
  int64_t state = 0;  // of optimizers
  // The most that pushes took at once: those that waited for other workers, or for their update.
  int64_t pushes = 0;
  // The most that copies of prefetched rows took at once.
  int64_t prefetched = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_TRAFFIC_H_
