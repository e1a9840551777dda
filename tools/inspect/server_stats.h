// Statistics of programs for parameter servers and their workers.
#ifndef WEFT_TOOLS_INSPECT_SERVER_STATS_H_
#define WEFT_TOOLS_INSPECT_SERVER_STATS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

// What a worker exchanges for a key in a step, in bytes as ServerTraffic counts them.
struct KeyTraffic {
  std::string param;
  int64_t unknown = 0;  // tensors of unknown size, which do not count

  // Of a parameter that a server holds whole.
  int64_t pulls = 0, pulled_bytes = 0;
  int64_t pushes = 0, pushed_bytes = 0;

  // Of a table that servers hold by rows: what each row takes, and what each server gets with a
  // push besides. How many rows there are depends on the ids.
  bool is_table = false;
  int64_t table_rows = 0;
  int64_t asked_row_bytes = 0, pulled_row_bytes = 0, pushed_row_bytes = 0;
  int64_t pushed_to_each_bytes = 0;
  // The most rows that lookups need, and that pushes have; -1: not known.
  int64_t most_pulled_rows = 0, most_pushed_rows = 0;
  bool is_prefetched = false;
};

// By key; empty if the program is none for workers. `batch`: for unknown first dimensions. O(ops).
std::map<int64_t, KeyTraffic> PredictServerTraffic(const Program& worker, int64_t batch);

// Lines for readers; empty without keys. `num_servers`: also the share of each server; 0: none.
std::string ServerTrafficText(const std::map<int64_t, KeyTraffic>& keys, int num_servers);

// What one server keeps.
struct ServedBytes {
  int64_t parameters = 0;
  int64_t state = 0;        // what optimizers keep
  int64_t push = 0;         // of one worker, while it waits for the others; rows do not count
  int64_t row_tables = 0;   // tables among the parameters: their pushes are rows
  int64_t push_of_row = 0;  // a row of each of these
};

// By server. Errors of PartOfServer. O(servers x ops).
absl::StatusOr<std::vector<ServedBytes>> PredictServedBytes(const Program& server, int num_servers);

std::string ServedBytesText(const std::vector<ServedBytes>& servers);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_SERVER_STATS_H_
