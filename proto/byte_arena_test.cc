#include "proto/byte_arena.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ByteArena, BytesStayWhereTheyAre) {
  ByteArena arena;
  absl::string_view first = arena.Copy("first");
  for (int i = 0; i < 100; ++i) arena.Copy(std::string(10000, 'x'));
  EXPECT_EQ(first, "first");
}

TEST(ByteArena, StringsLargerThanAChunkFit) {
  ByteArena arena;
  const std::string big(1 << 20, 'b');
  EXPECT_EQ(arena.Copy(big), big);
  EXPECT_EQ(arena.Copy(""), "");
}

TEST(ByteArena, CopyKeepsBytesAliveAndGrowsApart) {
  auto arena = std::make_unique<ByteArena>();
  absl::string_view shared = arena->Copy("shared");
  ByteArena copy = *arena;
  absl::string_view mine = copy.Copy("mine");
  absl::string_view theirs = arena->Copy("theirs");
  EXPECT_EQ(mine, "mine");
  EXPECT_EQ(theirs, "theirs");
  arena.reset();
  EXPECT_EQ(shared, "shared");
}

TEST(ByteArena, AbsorbedBytesLiveOn) {
  ByteArena arena;
  absl::string_view bytes;
  {
    ByteArena other;
    bytes = other.Copy("handed over");
    arena.Absorb(&other);
    other.Copy("not in the way");
  }
  EXPECT_EQ(bytes, "handed over");
}

}  // namespace
}  // namespace weft
