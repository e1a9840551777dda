#include "executor/step/arena.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

bool LiveTogether(const ArenaValue& a, const ArenaValue& b) {
  return a.first <= b.last && b.first <= a.last;
}

TEST(ArenaTest, ValuesThatLiveOneAfterTheOtherShareMemory) {
  const ArenaLayout layout = PlaceInArena({{{64, 0, 1}, {64, 2, 3}, {64, 4, 4}}});
  EXPECT_THAT(layout.offsets, ElementsAre(0, 0, 0));
  EXPECT_EQ(layout.bytes, 64);
  EXPECT_EQ(layout.live_bytes, 64);
}

TEST(ArenaTest, AValueThatEndsWhereAnotherBeginsLivesWithIt) {
  const ArenaLayout layout = PlaceInArena({{{64, 0, 1}, {64, 1, 2}}});
  EXPECT_NE(layout.offsets[0], layout.offsets[1]);
  EXPECT_EQ(layout.live_bytes, 128);
}

TEST(ArenaTest, OffsetsAreAlignedAndEmptyValuesHaveAnAddressOfTheirOwn) {
  const ArenaLayout layout = PlaceInArena({{{1, 0, 0}, {0, 0, 0}, {65, 0, 0}}});
  EXPECT_THAT(layout.offsets, ElementsAre(128, 192, 0));
  EXPECT_EQ(layout.bytes, 256);
  EXPECT_EQ(layout.live_bytes, 256);
}

TEST(ArenaTest, NothingNeedsNothing) {
  const ArenaLayout layout = PlaceInArena({});
  EXPECT_EQ(layout.bytes, 0);
  EXPECT_EQ(layout.live_bytes, 0);
}

TEST(ArenaTest, ValuesThatLiveTogetherNeverOverlap) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaValue> values(1 + below(120));
    for (ArenaValue& value : values) {
      value.bytes = below(3) == 0 ? below(5000) : 64 * below(4);
      value.first = below(200);
      value.last = value.first + (below(4) == 0 ? below(150) : below(5));
    }
    // Every second time in the order of time.
    const ArenaLayout layout = PlaceInArena(values, round % 2 == 0 ? kMostArenaPairs : 0);
    EXPECT_GE(layout.bytes, layout.live_bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(layout.offsets[i] % kArenaAlignment, 0);
      EXPECT_LE(layout.offsets[i] + values[i].bytes, layout.bytes);
      for (size_t j = 0; j < i; ++j) {
        if (!LiveTogether(values[i], values[j])) continue;
        const auto size = [&](size_t k) { return std::max<int64_t>(values[k].bytes, 1); };
        EXPECT_TRUE(layout.offsets[i] + size(i) <= layout.offsets[j] ||
                    layout.offsets[j] + size(j) <= layout.offsets[i])
            << i << " and " << j << " in round " << round;
      }
    }
  }
}

// What a program of that many ops keeps for its gradients; by size, it would take an hour.
TEST(ArenaTest, ManyValuesThatLiveTogetherFitWithoutGaps) {
  constexpr int kOps = 200000;
  std::vector<ArenaValue> values;
  for (int i = 0; i < kOps; ++i) values.push_back({64 * (1 + i % 7), i, 2 * kOps - i});
  for (int i = 0; i < kOps; ++i) values.push_back({64, kOps + i, kOps + i + 1});
  const ArenaLayout layout = PlaceInArena(values);
  EXPECT_GE(layout.bytes, layout.live_bytes);
  EXPECT_LE(layout.bytes, layout.live_bytes + 1024);
}

}  // namespace
}  // namespace weft::testing
