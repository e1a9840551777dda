#include "transpiler/passes/updates/schedule_value.h"

#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr ValueRange kAny;
constexpr ValueRange kNotNegative{0};
constexpr ValueRange kBelowOne{0, 1, /*includes_max=*/false};

TEST(ScheduleValue, NumbersAndDecaysAreRead) {
  using Decay = ScheduleValue::Decay;
  const std::pair<const char*, ScheduleValue> cases[] = {
      {"0.1", {0.1}},
      {"1", {1}},
      {"-1e-4", {-1e-4}},
      {"exp(0.1:1000:0.96)", {0.1, Decay{1000, 0.96, false}}},
      {"exp(0.1:2.5:1.1:staircase)", {0.1, Decay{2.5, 1.1, true}}},
      {"exp(0.1, 1000, 0.5, staircase)", {0.1, Decay{1000, 0.5, true}}},
      {"exp(0:1:0)", {0, Decay{1, 0, false}}},
  };
  for (const auto& [text, expected] : cases) {
    WEFT_ASSERT_OK_AND_ASSIGN(const ScheduleValue value, ParseScheduleValue(text, kAny));
    EXPECT_TRUE(value == expected) << text << " read as " << ToString(value);
  }
}

TEST(ScheduleValue, TextReadsBackAsTheValue) {
  for (const char* text :
       {"0.1", "1e-08", "0.3333333333333333", "exp(0.1:1000:0.96)", "exp(0.05:7:0.1:staircase)"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const ScheduleValue value, ParseScheduleValue(text, kAny));
    EXPECT_EQ(ToString(value), text);
  }
}

TEST(ScheduleValue, OtherTextIsRefused) {
  for (const char* text : {"",
                           "x",
                           "true",
                           "nan",
                           "inf",
                           "[1]",
                           "None",
                           "0.1 0.2",
                           "exp",
                           "1e39",
                           "1e-60",
                           "exp(0.1:1e-320:0.5)",
                           "exp()",
                           "exp(0.1)",
                           "exp(0.1:1)",
                           "exp(0.1:0:0.5)",
                           "exp(0.1:-1:0.5)",
                           "exp(0.1:1:-0.5)",
                           "exp(0.1:1:x)",
                           "exp(0.1:1:0.5:stairs)",
                           "exp(0.1:1:0.5:staircase:1)",
                           "exp(0.1:1:0.5",
                           "cos(0.1:1:0.5)"}) {
    EXPECT_FALSE(ParseScheduleValue(text, kAny).ok()) << text;
  }
}

TEST(ScheduleValue, RangeHoldsInAllSteps) {
  for (const char* text : {"0", "2", "exp(2:1:3)"}) {
    EXPECT_TRUE(ParseScheduleValue(text, kNotNegative).ok()) << text;
  }
  for (const char* text : {"-0.1", "exp(-0.5:1:0.5)"}) {
    EXPECT_FALSE(ParseScheduleValue(text, kNotNegative).ok()) << text;
  }
  for (const char* text : {"0", "0.999", "exp(0.9:1:1)", "exp(0:1:2)"}) {
    EXPECT_TRUE(ParseScheduleValue(text, kBelowOne).ok()) << text;
  }
  for (const char* text : {"1", "0.99999999999", "exp(1:1:0.5)", "exp(0.5:10:1.001)"}) {
    EXPECT_FALSE(ParseScheduleValue(text, kBelowOne).ok()) << text;
  }
}

TEST(ScheduleValue, ErrorSaysWhatIsExpected) {
  EXPECT_EQ(ParseScheduleValue("2", kBelowOne).status().message(),
            "expected a number >= 0 and < 1, or exp(INIT:STEPS:RATE[:staircase]) with RATE <= 1");
}

TEST(ScheduleValue, DecayOfZeroIsZero) {
  EXPECT_TRUE((ScheduleValue{0, ScheduleValue::Decay{1, 2, false}}).IsZero());
  EXPECT_FALSE((ScheduleValue{0.1}).IsZero());
}

}  // namespace
}  // namespace weft
