// Ranks that wait until the batch of their next step is read.
#ifndef WEFT_TESTS_TRAINING_READ_AHEAD_GATE_H_
#define WEFT_TESTS_TRAINING_READ_AHEAD_GATE_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "executor/run/feeder.h"
#include "ops/kernel.h"

namespace weft::testing {

// What a worker prefetches depends on whether the next batch is read in time (Feeder::Peek). With
// this gate, it is read before an op of each step, whatever threads do: in all steps but the last
// two, since nobody hears when the last batch of a run is ready.
//
// For runs whose ranks look ahead, or of no more than BatchReader::kMaxBatches steps: in others,
// nothing is read while ranks wait.
class ReadAheadGate {
 public:
  ReadAheadGate(int64_t begin_step, int64_t steps)
      : begin_step_(begin_step), end_step_(begin_step + steps) {}

  // Tells the gate which batches are read. The gate must outlive the result.
  FeedSource Watch(FeedSource source);

  // The CPU kernels; ops of this type wait at the gate. The program runs one of them in a step. The
  // gate must outlive the result.
  KernelTable KernelsThatWait(const std::string& op_type);

 private:
  void BeginRead(int64_t step);
  void WaitIn(int64_t step);
  absl::StatusOr<Kernel> MakeWaiting(const KernelSpec& spec, const KernelFactory& factory);

  const int64_t begin_step_, end_step_;
  std::mutex mutex_;
  std::condition_variable has_begun_;
  int64_t last_read_ = -1;  // the last step of which a batch is being read
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_TRAINING_READ_AHEAD_GATE_H_
