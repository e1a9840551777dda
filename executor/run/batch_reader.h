// Reads the batches of a run ahead of the ranks.
#ifndef WEFT_EXECUTOR_RUN_BATCH_READER_H_
#define WEFT_EXECUTOR_RUN_BATCH_READER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/tensor.h"

namespace weft {

// A thread reads batches in the order of steps, while the ranks compute: kMaxBatches of them, and
// again as many once the ranks have taken these; where ranks look ahead (Peek), once they have
// taken all but one. It begins when the first rank asks for its part, and ends with the run or the
// first error. Batches that are there before their steps begin need no thread (When::kInTime).
class BatchReader {
 public:
  // The part of one rank: by fed variable.
  using Part = std::vector<Tensor>;
  // Makes the parts of a step, by rank. They share memory with nothing, each other included.
  // `spare`: by rank, a part that is no longer needed, whose memory may be used again; or empty.
  using ReadParts =
      std::function<absl::StatusOr<std::vector<Part>>(int64_t step, std::vector<Part> spare)>;

  // The most batches in memory, besides the parts that ranks have.
  static constexpr int64_t kMaxBatches = 4;

  enum class When {
    kAhead,   // a thread reads
    kInTime,  // the first rank that needs a batch reads it
  };

  // For the steps from `begin_step` on, below `end_step`. One thread at a time calls `read`.
  BatchReader(int nranks, int64_t begin_step, int64_t end_step, ReadParts read,
              When when = When::kAhead);
  // Waits until a call of `read` has ended.
  ~BatchReader();

  // Returns the part of a rank, once it is read. Every rank takes its parts of all steps, in order.
  // A rank that is ahead of another may wait for it. Returns the error of `read` for this
  // step, and throws what that threw; ResourceExhausted if there is no thread; Aborted after Stop.
  // Thread-safe.
  absl::StatusOr<Part> Take(int64_t step, int rank);

  // A copy of tensor `index` of a part that Take will return; none if it is not read yet, cannot be
  // read, or is not of the run. Does not wait. Thread-safe.
  absl::optional<Tensor> Peek(int64_t step, int rank, size_t index);

  // Gives back a part that Take has returned. The memory of large tensors is slow to allocate and
  // free. Thread-safe.
  void GiveBack(int rank, Part part);

  // Ends reading, and the waits of ranks. Thread-safe.
  void Stop();

 private:
  struct Batch {
    absl::Status status;
    std::exception_ptr exception;
    std::vector<Part> parts;  // by rank; empty where taken
    int num_taken = 0;
  };

  absl::Status StartThread();
  void ReadAll();
  std::vector<Part> TakeSpare();
  Batch ReadBatch(int64_t step, std::vector<Part> spare) const;

  const int nranks_;
  const int64_t begin_step_, end_step_;
  const ReadParts read_;
  const When when_;
  std::mutex mutex_;
  std::condition_variable has_batch_, is_needed_;
  size_t num_left_ = 0;  // with so many batches, more are read
  std::deque<Batch> batches_;
  int64_t first_step_;                    // of batches_
  std::vector<std::vector<Part>> spare_;  // by rank
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_BATCH_READER_H_
