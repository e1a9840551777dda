// How the rows of tables that servers hold came to a worker.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_ROW_TRAFFIC_H_
#define WEFT_EXECUTOR_COMMUNICATORS_ROW_TRAFFIC_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace weft {

struct RowTraffic {
  int64_t pulled = 0;      // rows that the step which needs them asked for
  int64_t prefetched = 0;  // rows that the step before asked for
  int64_t changed = 0;     // of these, sent again, as an update had changed them
  // In the step that waits for them: of rows that are pulled, and of those that have changed.
  int64_t waited_bytes = 0;
};

// Rows that a step asked for, which the next one needs.
struct PrefetchSpan {
  std::string table;
  int64_t rows = 0;
  int64_t changed = 0;
  // From when the worker asked until the rows of all servers had come, as they were then.
  std::chrono::steady_clock::time_point begin, end;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_ROW_TRAFFIC_H_
