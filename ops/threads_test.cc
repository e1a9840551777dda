#include "ops/threads.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ThreadsTest, PartsCoverEverythingOnceAndBeginAtMultiplesOf64) {
  for (int threads : {1, 2, 3, 7}) {
    SetKernelThreads(threads);
    for (int64_t n : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 100000}) {
      std::vector<int> visits(n, 0);
      ForEachPart(n, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % 64, 0);
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      EXPECT_EQ(visits, std::vector<int>(n, 1)) << n << " in " << threads;
    }
  }
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
