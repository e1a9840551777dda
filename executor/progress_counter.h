// A counter that one thread advances and others wait for.
#ifndef WEFT_EXECUTOR_PROGRESS_COUNTER_H_
#define WEFT_EXECUTOR_PROGRESS_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace weft {

// Counts up from 0. Everything that happened before AdvanceTo(n) is visible after WaitFor(n), and
// nothing else is ordered: in particular the advancing thread learns nothing of the waiting ones.
// A mutex and a condition variable would order both ways, and ThreadSanitizer would then take a
// wait in one direction for a wait in the other, and overlook accesses that are not ordered.
//
// Advanced by one thread at a time, by less than 2^30 beyond what is waited for; wraps around.
class ProgressCounter {
 public:
  ProgressCounter() = default;
  ProgressCounter(const ProgressCounter&) = delete;
  ProgressCounter& operator=(const ProgressCounter&) = delete;

  // A system call only where a thread sleeps.
  void AdvanceTo(uint32_t count);
  // Sleeps until the counter has come to `count`. Where it has gone on, what happened before the
  // later advances is visible too.
  void WaitFor(uint32_t count);
  // The same, but makes nothing visible: for data that has its own way.
  void WaitForWithoutOrder(uint32_t count);

 private:
  void Wait(uint32_t count, std::memory_order order);

  // Twice the count, plus 1 while a thread may be asleep.
  std::atomic<uint32_t> word_{0};
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRESS_COUNTER_H_
