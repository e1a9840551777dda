#include "executor/streams/progress_counter.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ProgressCounterTest, WaitingForWhatWasReachedReturnsAtOnce) {
  ProgressCounter counter;
  counter.WaitFor(0);
  counter.AdvanceTo(3);
  counter.WaitFor(2);
  counter.WaitFor(3);
}

TEST(ProgressCounterTest, WaiterSeesWhatWasWrittenBeforeTheAdvance) {
  constexpr uint32_t kIterationsLeft = 2000;
  ProgressCounter ping, pong;
  uint32_t value = 0;  // no atomic: the counters alone order the accesses
  std::thread other([&] {
    for (uint32_t i = 1; i <= kIterationsLeft; ++i) {
      ping.WaitFor(i);
      value += 1;
      pong.AdvanceTo(i);
    }
  });
  for (uint32_t i = 1; i <= kIterationsLeft; ++i) {
    value += 1;
    ping.AdvanceTo(i);
    pong.WaitFor(i);
    ASSERT_EQ(value, 2 * i);
  }
  other.join();
}

TEST(ProgressCounterTest, OneAdvanceWakesEveryWaiter) {
  ProgressCounter counter;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) waiters.emplace_back([&] { counter.WaitFor(1); });
  counter.AdvanceTo(1);
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(ProgressCounterTest, WaitWithoutOrderSleepsAsLong) {
  ProgressCounter counter;
  std::atomic<bool> advanced{false};
  std::thread waiter([&] {
    counter.WaitFor(1, std::memory_order_relaxed);
    EXPECT_TRUE(advanced.load());
  });
  advanced = true;
  counter.AdvanceTo(1);
  waiter.join();
}

TEST(ProgressCounterTest, CountsOnWhenItWrapsAround) {
  ProgressCounter counter;
  counter.AdvanceTo(0x3fffffff);
  counter.AdvanceTo(0x7ffffffe);
  counter.WaitFor(0x7ffffffe);
  std::thread waiter([&] { counter.WaitFor(0x80000001); });
  counter.AdvanceTo(0x80000001);
  waiter.join();
}

}  // namespace
}  // namespace weft
