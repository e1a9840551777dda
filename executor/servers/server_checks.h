// What a parameter server expects of the messages that it gets.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_CHECKS_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "executor/servers/server_message.h"
#include "executor/servers/server_part.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// What the user can do where the programs of workers and servers do not fit: for the end of errors.
inline constexpr char kServerProgramsHint[] =
    "; take the programs of workers and servers from one run of transpile: 'weft verify worker.pb "
    "option:server server.pb' says whether they fit";

// Of the messages for a key that a server holds.
struct ExpectedMessages {
  int num_workers = 1;
  int64_t num_rows = 0;  // of the server's part of a table
  TensorType grad;       // its part
  // What the optimizer reads besides; of a type that is not known: none.
  std::vector<absl::optional<TensorType>> others;
};

// For a push, `next_step` is that of the next push of the worker. InvalidArgument, naming rank, key
// and parameter: a sender that is no worker, a message that servers do not get, or that does not
// fit the key: tensors of other types, rows that the server does not have, a push of another step.
// O(rows of the message).
absl::Status CheckMessage(const ServerMessage& message, int64_t next_step, const ServedKey& served,
                          const ExpectedMessages& expected);

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_CHECKS_H_
