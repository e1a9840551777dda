// Rows of a table that a server sends to workers.
#ifndef WEFT_EXECUTOR_SERVERS_SERVED_ROWS_H_
#define WEFT_EXECUTOR_SERVERS_SERVED_ROWS_H_

#include <vector>

#include "executor/servers/server_message.h"
#include "ops/tensor.h"

namespace weft {

// The rows of `table` with these numbers, in their order. `numbers`: int64, of rows that it has.
Tensor RowsOf(const Tensor& table, const Tensor& numbers);

// Rows that a worker has prefetched for a later step. It gets those that change until then.
struct PrefetchedRows {
  ServerMessage prefetch;
  Tensor sent;  // as the worker has them
};

// The tensors of ServerMessage::kChanges: of rows with other bits than those that were sent. So it
// does not matter what an update changes.
std::vector<Tensor> ChangesOf(const Tensor& table, const PrefetchedRows& prefetched);

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVED_ROWS_H_
