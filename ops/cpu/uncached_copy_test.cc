#include "ops/cpu/uncached_copy.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// At the start of a line and elsewhere, of whole lines and parts of one.
TEST(UncachedCopyTest, CopiesWhatItIsGivenAndNoMore) {
  constexpr int64_t kLine = 16, kMaxSize = 3 * kLine;
  std::vector<float> from(kMaxSize + 1);
  std::iota(from.begin(), from.end(), 1);
  alignas(64) float to[kMaxSize + 2];
  for (int64_t source = 0; source < 2; ++source) {
    for (int64_t begin = 0; begin < 2; ++begin) {
      for (int64_t n = 0; n <= kMaxSize; ++n) {
        std::fill(std::begin(to), std::end(to), -1);
        UncachedCopy(from.data() + source, to + begin, n);
        for (int64_t i = 0; i < kMaxSize + 2; ++i) {
          const bool is_copied = begin <= i && i < begin + n;
          ASSERT_EQ(to[i], is_copied ? from[source + i - begin] : -1)
              << begin << " " << n << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
