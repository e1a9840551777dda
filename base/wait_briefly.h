// Waiting that sleeps only if it takes long.
#ifndef WEFT_BASE_WAIT_BRIEFLY_H_
#define WEFT_BASE_WAIT_BRIEFLY_H_

#include <chrono>
#include <mutex>
#include <thread>

namespace weft {

// Asks `is_there`, an atomic flag or comparison, again and again for up to `limit`. A thread that
// sleeps takes tens of microseconds to wake, longer on an idle machine. Whoever calls it looks
// again, and sleeps if it is not there. The usual time is longer than a small step and what a
// caller does between two, and short compared with what the system gives a thread at a time.
template <typename Predicate>
void WaitBriefly(const Predicate& is_there,
                 std::chrono::microseconds limit = std::chrono::microseconds(100)) {
  if (is_there()) return;  // without asking for the time
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!is_there() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// Locks a mutex: asks as WaitBriefly does, then sleeps.
inline std::unique_lock<std::mutex> LockBriefly(std::mutex* mutex) {
  std::unique_lock<std::mutex> lock(*mutex, std::defer_lock);
  WaitBriefly([&lock] { return lock.try_lock(); });
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

}  // namespace weft

#endif  // WEFT_BASE_WAIT_BRIEFLY_H_
