// A counter that one thread advances and others wait for.
#ifndef WEFT_EXECUTOR_STREAMS_PROGRESS_COUNTER_H_
#define WEFT_EXECUTOR_STREAMS_PROGRESS_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace weft {

// Counts up from 0. Everything that happened before AdvanceTo(n) is visible after WaitFor(n).
// Nothing else is ordered: in particular, the advancing thread learns nothing about the waiting
// ones. A mutex and a condition variable would order both directions. ThreadSanitizer would then
// mistake a wait in one direction for a wait in the other, and miss unordered accesses.
//
// Advanced by one thread at a time, by less than 2^30 beyond what is waited for; wraps around.
class ProgressCounter {
 public:
  ProgressCounter() = default;
  ProgressCounter(const ProgressCounter&) = delete;
  ProgressCounter& operator=(const ProgressCounter&) = delete;

  // Makes a system call only if a thread sleeps.
  void AdvanceTo(uint32_t count);
  // Waits until the counter has reached `count`: asks for a short time, then sleeps. If it is
  // already higher, what happened before the later advances is visible too. memory_order_relaxed
  // makes nothing visible: for data that is synchronized otherwise.
  void WaitFor(uint32_t count, std::memory_order order = std::memory_order_acquire);

 private:
  // Twice the count, plus 1 while a thread may be asleep.
  std::atomic<uint32_t> word_{0};
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_PROGRESS_COUNTER_H_
