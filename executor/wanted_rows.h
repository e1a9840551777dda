// Which rows of a table that servers hold a lookup needs, and from whom.
#ifndef WEFT_EXECUTOR_WANTED_ROWS_H_
#define WEFT_EXECUTOR_WANTED_ROWS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "executor/server_part.h"
#include "ops/tensor.h"

namespace weft {

// InvalidArgument, naming the first one, for ids that are no rows of the table, or no integers.
absl::Status CheckIds(const ServedKey& table, const Tensor& ids);

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

// Writes the row of every id to `out`, which has room for them; zeros for padding. `rows`: by
// server, what it has sent. InvalidArgument for an id that is not wanted. O(elements of `out`).
absl::Status CopyWantedRows(const WantedRows& wanted, const std::vector<Tensor>& rows,
                            const Tensor& ids, int64_t padding, size_t row_bytes, Tensor* out);

}  // namespace weft

#endif  // WEFT_EXECUTOR_WANTED_ROWS_H_
