#include "executor/streams/progress_counter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "base/wait_briefly.h"

namespace weft {
namespace {

constexpr uint32_t kSleeping = 1;
// About what it takes to wake a thread that sleeps.
constexpr std::chrono::microseconds kSpin(40);

// std::atomic::wait is C++20.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  static_assert(sizeof(*word) == sizeof(uint32_t));
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void ProgressCounter::AdvanceTo(uint32_t count) {
  const uint32_t before = word_.exchange(count << 1, std::memory_order_release);
  if (before & kSleeping) FutexWakeAll(&word_);
}

void ProgressCounter::WaitFor(uint32_t count, std::memory_order order) {
  // Compares by difference, so that the counter may wrap around.
  const auto is_before = [count](uint32_t word) {
    return static_cast<int32_t>((word & ~kSleeping) - (count << 1)) < 0;
  };
  WaitBriefly([&] { return !is_before(word_.load(std::memory_order_relaxed)); }, kSpin);
  uint32_t word = word_.load(order);
  while (is_before(word)) {
    if ((word & kSleeping) != 0 ||
        word_.compare_exchange_strong(word, word | kSleeping, std::memory_order_relaxed)) {
      FutexWait(&word_, word | kSleeping);
    }
    word = word_.load(order);
  }
}

}  // namespace weft
