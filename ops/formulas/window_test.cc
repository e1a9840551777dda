#include "ops/formulas/window.h"

#include <cstdint>
#include <set>

#include "gtest/gtest.h"

namespace weft::formulas {
namespace {

TEST(FilterWindow, PositionsAreThoseThatMeetTheElement) {
  for (int64_t size : {1, 2, 3, 5}) {
    for (int64_t stride : {1, 2, 3}) {
      for (int64_t dilation : {1, 2, 3}) {
        for (int64_t pad : {0, 1, 4}) {
          const FilterWindow window{size, stride, dilation, pad};
          for (int64_t source = 0; source < 12; ++source) {
            for (int64_t k = 0; k < size; ++k) {
              int64_t expected = -1;
              for (int64_t at = 0; at < 40; ++at) {
                if (window.SourceOf(at, k) == source) expected = at;
              }
              const int64_t found = window.PositionOf(source, k);
              EXPECT_EQ(found < 0 ? -1 : found, expected)
                  << size << " " << stride << " " << dilation << " " << pad << " " << source;
            }
          }
        }
      }
    }
  }
}

// Of every element, by looking at all windows.
void ExpectWindowsOfElements(const PoolWindows& windows) {
  for (int64_t element = 0; element < windows.image; ++element) {
    std::set<int64_t> expected, found;
    for (int64_t at = 0; at < windows.positions; ++at) {
      const PoolRange range = windows.At(at);
      if (range.begin <= element && element < range.end) expected.insert(at);
    }
    for (int64_t at = windows.First(element); at < windows.End(element); ++at) found.insert(at);
    EXPECT_EQ(found, expected) << "element " << element << " of " << windows.image << ", "
                               << windows.positions << " windows of " << windows.size << ", stride "
                               << windows.stride << ", padding " << windows.pad_begin;
  }
}

TEST(PoolWindows, SlidingWindowsOfAnElement) {
  for (int64_t image : {1, 5, 8}) {
    for (int64_t size : {1, 2, 3, 5}) {
      for (int64_t stride : {1, 2, 3, 4}) {
        for (int64_t pad : {0, 1, 2}) {
          PoolWindows windows;
          windows.kind = PoolWindows::Kind::kSliding;
          windows.image = image;
          windows.size = size;
          windows.stride = stride;
          windows.pad_begin = windows.pad_end = pad;
          const int64_t room = image + 2 * pad - size;
          if (room < 0) continue;
          windows.positions = room / stride + 1;
          ExpectWindowsOfElements(windows);
          windows.positions = (room + stride - 1) / stride + 1;  // attribute ceil_mode
          ExpectWindowsOfElements(windows);
        }
      }
    }
  }
}

TEST(PoolWindows, OtherWindowsOfAnElement) {
  for (int64_t image : {1, 2, 5, 7, 12}) {
    for (int64_t positions : {1, 2, 3, 5, 7, 9}) {
      PoolWindows windows;
      windows.kind = PoolWindows::Kind::kAdaptive;
      windows.image = image;
      windows.positions = positions;
      ExpectWindowsOfElements(windows);
    }
    PoolWindows whole;
    whole.image = image;
    ExpectWindowsOfElements(whole);
    EXPECT_EQ(whole.At(0).divisor, image);
  }
}

TEST(PoolWindows, PaddingCountsIfItIsNotExcluded) {
  PoolWindows windows;
  windows.kind = PoolWindows::Kind::kSliding;
  windows.image = 5;
  windows.size = 3;
  windows.stride = 2;
  windows.pad_begin = windows.pad_end = 1;
  windows.positions = 4;  // the last one begins at the last element of the padding
  EXPECT_EQ(windows.At(0).divisor, 2);
  EXPECT_TRUE(windows.At(0).is_cut);
  windows.exclusive = false;
  EXPECT_EQ(windows.At(0).divisor, 3);
  EXPECT_EQ(windows.At(2).divisor, 3);
  EXPECT_EQ(windows.At(3).divisor, 1);
}

}  // namespace
}  // namespace weft::formulas
