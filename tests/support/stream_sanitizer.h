// Finds accesses of ops that nothing orders, in runs on the host.
#ifndef WEFT_TESTS_SUPPORT_STREAM_SANITIZER_H_
#define WEFT_TESTS_SUPPORT_STREAM_SANITIZER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/run/runner.h"
#include "executor/streams/stream.h"
#include "ops/kernel.h"

namespace weft::testing {

// Makes devices whose streams are threads (executor/streams/thread_stream.h), and kernels and
// communicators that say what they read and write. Each task of a stream has a vector clock: what
// its stream, the streams that it has waited for, and the host have done before. Two ops that
// access a byte of the device, of which one writes, must be ordered by these clocks.
// ThreadSanitizer sees only what it has compiled, and of that the orders that occur; here, a
// missing wait is found whatever the order. Besides, each task begins after a time that is drawn,
// so that results differ if something is missed.
//
// Not seen: what the host does with values between steps, what kernels keep, the row numbers of
// sparse values, and what coalesce_tensor copies.
class StreamSanitizer {
 public:
  // Draws times up to `max_delay_us`, for every fourth task.
  StreamSanitizer(uint64_t seed, int max_delay_us) : seed_(seed), max_delay_us_(max_delay_us) {}

  // Makes a run use all of them. `options` has a kernel table and makes communicators.
  void Use(RunOptions* options);

  // Of a rank. It, the kernels and the communicators must not outlive this.
  std::unique_ptr<Device> NewDevice();
  const KernelTable* Checked(const KernelTable& kernels);
  std::unique_ptr<CommunicatorGroup> Checked(std::unique_ptr<CommunicatorGroup> group);

  // "sgd on stream compute writes what c_allreduce_sum on stream ring 0 has written": each once.
  std::set<std::string> reports() const;
  // Of ops on streams.
  int64_t num_accesses() const;

 private:
  friend class AccessChecker;

  void CountAccess();
  void Report(std::string report);

  const uint64_t seed_;
  const int max_delay_us_;
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<Memory>> memories_;  // values outlive their devices
  int64_t num_accesses_ = 0;
  std::set<std::string> reports_;
  std::deque<KernelTable> tables_;
};

// RunProgram that fails if accesses of streams are not ordered.
absl::StatusOr<RunResult> RunSanitized(const RunInputs& inputs, RunOptions options);

// RunSanitized for one rank or two that are threads of this process; RunProgram for more ranks,
// which take longer, and for programs on two devices or with servers, whose devices are others.
absl::StatusOr<RunResult> RunChecked(const RunInputs& inputs, const RunOptions& options);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_STREAM_SANITIZER_H_
