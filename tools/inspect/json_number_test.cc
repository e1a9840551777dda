#include "tools/inspect/json_number.h"

#include <limits>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(NumberToJsonTest, FloatTakesNoMoreDigitsThanItNeeds) {
  EXPECT_EQ(NumberToJson(0.01f).dump(), "0.01");
  EXPECT_EQ(NumberToJson(2.3f).dump(), "2.3");
  EXPECT_EQ(NumberToJson(0.01).dump(), "0.01");
}

TEST(NumberToJsonTest, FloatsReadBackAsTheSameFloat) {
  for (float value : {1.0f / 3, 16777217.0f, 1e-40f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(static_cast<float>(NumberToJson(value).get<double>()), value);
  }
}

TEST(NumberToJsonTest, NonFiniteNumbersAreStrings) {
  EXPECT_EQ(NumberToJson(std::numeric_limits<float>::quiet_NaN()).dump(), "\"nan\"");
  EXPECT_EQ(NumberToJson(std::numeric_limits<double>::infinity()).dump(), "\"inf\"");
  EXPECT_EQ(NumberToJson(-std::numeric_limits<float>::infinity()).dump(), "\"-inf\"");
}

}  // namespace
}  // namespace weft
