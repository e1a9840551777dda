// The rendezvous of the ranks of a ring in memory that they share: threads of one process, or
// processes of one host.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_SHARED_RING_H_
#define WEFT_EXECUTOR_COMMUNICATORS_SHARED_RING_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "executor/communicators/communicator.h"

namespace weft {

// Whether the machine can run that many ranks at once.
bool HasProcessorForEach(int nranks);

// The state of a ring whose ranks are threads of this process.
class PrivateRingState {
 public:
  explicit PrivateRingState(int nranks);
  ~PrivateRingState();
  PrivateRingState(const PrivateRingState&) = delete;
  PrivateRingState& operator=(const PrivateRingState&) = delete;
  void* data() const { return data_; }

 private:
  void* const data_;
};

// A process' view of a ring. Its state is plain data without pointers: all views of a ring share
// it. Ranks are positions in the ring.
//
// A call has two phases. It starts when all ranks have arrived, and ends when all are done; calls
// whose input fits into the state (IsSmall) end at once, because their ranks read nothing else of
// each other. So a rank is at most one call ahead of another, and the state keeps two calls of each
// rank.
//
// Every rank writes only what is its own, and reads what others have written: on the way to a call
// one cache line moves from each rank to each. Only who breaks the ring writes for all: he marks it
// as broken, then looks which calls have started, and says so. A rank that has seen all others
// arrive, and then no mark, starts; one that sees the mark does what he says. Full fences, before
// he looks and before they look for the mark, make them agree.
//
// A rank that waits polls for some microseconds, then sleeps. It wakes up now and then, because the
// process that should wake it may be gone.
class SharedRing {
 public:
  struct Options {
    // Of a ring whose ranks are all in this process.
    static Options For(const RingKey& key, const GroupOptions& options);

    RingKey key;
    int nranks = 1;      // of the ring
    int first = 0;       // of the ranks of this process, which are consecutive
    int count = 1;       // of the ranks of this process; others are in other processes
    bool polls = true;   // before it sleeps
    bool copies = true;  // small inputs, into the state
    double warn_after_s = 60;
    double timeout_s = 600;
    std::function<void(const std::string&)> warn;
  };

  // The size of the state, which begins as zeros, 64-byte aligned.
  static size_t StateBytes(int nranks);

  SharedRing(void* state, Options options);
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  int nranks() const { return options_.nranks; }

  // Whether a rank's input of that size fits into the state.
  bool IsSmall(size_t bytes) const { return options_.copies && bytes <= inline_bytes_; }

  // How other ranks find the buffers of a rank: a copy of the input, of a small call, or places
  // whose meaning the ranks agree on.
  struct Buffers {
    const void* copied = nullptr;
    size_t copied_bytes = 0;
    uint64_t in = 0;
    uint64_t out = 0;
  };

  // Arrives at the rank's next call, and waits until all have. Checks that all call the same. The
  // errors are those of Communicator::Run; they break the ring.
  absl::Status Start(int rank, const CollectiveCall& call, const Buffers& buffers);

  // The buffers of a rank at the call that `rank` has started.
  Buffers BuffersOf(int other, int rank) const;

  // Says that `rank` is done, and waits until all are, unless the call is small. Ranks of this
  // process still use the buffers and wait for nobody, so the wait for them needs, and allows,
  // neither a timeout nor an abort. For others it allows both.
  absl::Status End(int rank, const CollectiveCall& call);

  // No call starts any more. The first error counts.
  void Break(const absl::Status& status);

 private:
  struct Text;
  struct Call;
  struct Rank;
  struct State;
  using Clock = std::chrono::steady_clock;

  Rank& RankState(int rank) const;
  Call& CallOf(int rank, uint64_t number) const;
  char* InlineData(int rank, uint64_t number) const;
  // Calls at which the rank has arrived.
  uint64_t NumCalls(int rank) const;

  bool IsBroken() const;
  void MarkBroken(const absl::Status& status);
  // Waits until the rank that broke the ring has said why; false: it does not.
  bool WaitForVerdict() const;
  absl::Status BrokenStatus(const CollectiveCall& call, uint64_t number) const;
  absl::Status FirstError() const;

  absl::Status WaitForStart(int rank, const CollectiveCall& call, uint64_t number);
  template <typename IsOver>
  bool Poll(const IsOver& is_over) const;
  template <typename IsOver>
  bool SleepUntil(Clock::time_point time, const IsOver& is_over) const;
  void WakeSleepers() const;

  absl::Status CheckCalls(int rank, uint64_t number) const;
  std::string Describe(int rank, uint64_t number) const;
  std::string DescribeMissing(uint64_t number, double seconds) const;
  std::string DescribeUnfinished(int rank, uint64_t number, double seconds) const;

  const Options options_;
  const size_t inline_bytes_;
  State* const state_;
  // Of this process: the first status with which it broke the ring, or would have.
  mutable std::mutex mutex_;
  absl::Status own_error_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_SHARED_RING_H_
