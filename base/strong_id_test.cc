#include "base/strong_id.h"

#include <sstream>
#include <type_traits>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using AppleId = StrongId<struct AppleTag>;
using PearId = StrongId<struct PearTag>;

TEST(StrongId, KindsDoNotMix) {
  static_assert(!std::is_convertible_v<AppleId, PearId>);
  static_assert(!std::is_convertible_v<uint32_t, AppleId>);
}

TEST(StrongId, DefaultIsInvalid) {
  EXPECT_FALSE(AppleId().valid());
  EXPECT_TRUE(AppleId(0).valid());
}

TEST(StrongId, HashesAndCompares) {
  absl::flat_hash_set<AppleId> set = {AppleId(1), AppleId(2), AppleId(1)};
  EXPECT_EQ(set.size(), 2);
  EXPECT_LT(AppleId(1), AppleId(2));
}

TEST(StrongId, Prints) {
  std::ostringstream os;
  os << AppleId(7) << " " << AppleId();
  EXPECT_EQ(os.str(), "7 invalid");
}

}  // namespace
}  // namespace weft
