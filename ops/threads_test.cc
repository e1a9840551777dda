#include "ops/threads.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ThreadsTest, PartsCoverEverythingOnceAndBeginAtMultiples) {
  for (int threads : {1, 2, 3, 7}) {
    SetKernelThreads(threads);
    for (int64_t multiple : {1, 10, 64}) {
      for (int64_t n : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 100000}) {
        std::vector<int> visits(n, 0);
        ForEachPart(n, multiple, [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin % multiple, 0);
          for (int64_t i = begin; i < end; ++i) ++visits[i];
        });
        EXPECT_EQ(visits, std::vector<int>(n, 1)) << n << " in " << threads;
      }
    }
  }
  SetKernelThreads(1);
}

TEST(ThreadsTest, PartsAreNotDividedAgain) {
  SetKernelThreads(2);
  ForEachPart(2, 1, [](int64_t, int64_t) { EXPECT_EQ(KernelThreads(), 1); });
  EXPECT_EQ(KernelThreads(), 2);
  // One part is not one of several.
  ForEachPart(1, 1, [](int64_t, int64_t) { EXPECT_EQ(KernelThreads(), 2); });
  SetKernelThreads(1);
}

TEST(ThreadsTest, ShortLoopsAreNotDivided) {
  SetKernelThreads(2);
  std::atomic<int> parts{0};
  const auto count = [&parts](int64_t, int64_t) { ++parts; };
  ForEachPartIfLong(kMinParallelSize - 1, 10, 1, count);
  EXPECT_EQ(parts.exchange(0), 1);
  ForEachPartIfLong(kMinParallelSize, 10, 1, count);
  EXPECT_EQ(parts, 2);
  SetKernelThreads(1);
}

TEST(ThreadsTest, TheNumberBelongsToTheThread) {
  SetKernelThreads(3);
  std::thread([] { EXPECT_EQ(KernelThreads(), 1); }).join();
  EXPECT_EQ(KernelThreads(), 3);
  SetKernelThreads(1);
}

}  // namespace
}  // namespace weft
