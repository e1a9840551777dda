// Which rows of a table that servers hold a lookup needs, and from whom.
#ifndef WEFT_EXECUTOR_SERVERS_WANTED_ROWS_H_
#define WEFT_EXECUTOR_SERVERS_WANTED_ROWS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "executor/servers/server_part.h"
#include "ops/tensor.h"

namespace weft {

// InvalidArgument for ids that are no integers, or, naming the first one, no rows of the table,
// unless such ids give zeros.
absl::Status CheckIds(const ServedKey& table, const Tensor& ids, bool zeros_out_of_range);

struct WantedRows {
  // By server: each row once, as its number among those of the server.
  std::vector<std::vector<int64_t>> of_server;
  // By id: the server, and the position among what is asked of it. Ids of padding have none.
  absl::flat_hash_map<int64_t, std::pair<int, int64_t>> places;

  int64_t size() const { return static_cast<int64_t>(places.size()); }
};

// Leaves out ids that are no rows. `ids`: int32 or int64. O(ids).
WantedRows FindWantedRows(const ServedKey& table, const Tensor& ids, int64_t padding,
                          int num_servers);

// Writes the row of every id to `out`, which has room for them; zeros for padding, and for ids that
// are no rows of the table. `rows`: by server, what it has sent. InvalidArgument for another id
// that is not wanted. O(elements of `out`).
absl::Status CopyWantedRows(const ServedKey& table, const WantedRows& wanted,
                            const std::vector<Tensor>& rows, const Tensor& ids, int64_t padding,
                            Tensor* out);

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_WANTED_ROWS_H_
