// The last checkpoints of a run, written while it goes on.
#ifndef WEFT_EXECUTOR_FILES_CHECKPOINT_SERIES_H_
#define WEFT_EXECUTOR_FILES_CHECKPOINT_SERIES_H_

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "executor/files/checkpoint.h"

namespace weft {

// One checkpoint is written at a time, by a thread of its own, from a copy. One thread calls it,
// but for Wait.
//
// PATH has the last checkpoint. With `keep` above 1, PATH.STEP has each of the last `keep`, the
// last one too: a second name of the same file.
class CheckpointSeries {
 public:
  // `begin_step`: of the run. What an earlier run has left before this step counts among the last
  // ones if the run goes on from there (`goes_on`); other files are left alone.
  CheckpointSeries(std::string path, int keep, int64_t begin_step, bool goes_on);
  // Waits until the last checkpoint is written. Its error is lost.
  ~CheckpointSeries();

  // Begins to write a checkpoint, whose tensors need not stay as they are. Waits for the one
  // before, and returns its error. Without memory for a copy, writes it before it returns. Errors
  // name the file: those of WriteCheckpoint, and of a file that cannot be linked or removed.
  absl::Status Write(const Checkpoint& checkpoint);

  // Waits until what Write has begun is written, and returns its error, once. Thread-safe.
  absl::Status Wait();

 private:
  std::string PathOf(int64_t step) const;
  absl::Status WriteNow(const Checkpoint& checkpoint);

  const std::string path_;
  const int keep_;
  std::set<int64_t> steps_;
  std::mutex mutex_;
  std::thread writer_;   // joinable: a checkpoint is being written, or was
  absl::Status status_;  // of the writer, once it is joined
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_CHECKPOINT_SERIES_H_
