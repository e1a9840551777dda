// What workers and parameter servers of a run tell each other.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_MESSAGE_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_MESSAGE_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "ops/tensor.h"

namespace weft {

struct ServerMessage {
  enum class Kind : uint8_t {
    kPush,      // to a server: the gradient, then what the optimizer reads besides
    kPull,      // to a server: asks for the parameter, or for the rows in its tensor
    kPrefetch,  // to a server: asks for the rows in its tensor, which a later step needs, as they
                // are
    kReply,     // to a worker: what it has asked for
    kChanges,   // to a worker: after the reply to a prefetch, the rows that have changed until the
                // step: their positions in the prefetch, and the rows; no tensors if there are none
    kEnd,       // to a server: the worker runs no step from `step` on
  };
  static constexpr Kind kLastKind = Kind::kEnd;
  Kind kind = Kind::kPush;
  int32_t from = 0;  // a rank
  int64_t key = 0;
  int64_t step = 0;
  int64_t request = 0;  // of a worker: a reply has the number of its pull or prefetch
  // Of a push: the gradient has no rows for this server. There is no tensor for it then.
  bool has_no_rows = false;
  std::vector<Tensor> tensors;                    // in host memory; the receiver's alone
  std::chrono::steady_clock::time_point arrival;  // at the process of the receiver
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_MESSAGE_H_
