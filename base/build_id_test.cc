#include "base/build_id.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(BuildId, IsAHashInHexadecimalDigits) {
  const std::string id = BuildId();
  EXPECT_GE(id.size(), 16);
  EXPECT_TRUE(std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isxdigit(c); }))
      << id;
  EXPECT_EQ(BuildId(), id);
}

}  // namespace
}  // namespace weft
