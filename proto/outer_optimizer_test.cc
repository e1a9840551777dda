#include "proto/outer_optimizer.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Rule = OuterOptimizer::Rule;
using testing::IsInvalidArgument;

TEST(OuterOptimizer, TextHasDefaults) {
  for (const auto& [text, expected] :
       {std::pair<const char*, const char*>{"averaging", "averaging"},
        {"sgd", "sgd{lr=1}"},
        {"nesterov", "nesterov{lr=0.7,momentum=0.9}"},
        {"slowmo{momentum=0.25}", "slowmo{lr=1,momentum=0.25}"}}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const OuterOptimizer outer, ParseOuterOptimizer(text));
    EXPECT_EQ(ToString(outer), expected);
    WEFT_ASSERT_OK_AND_ASSIGN(const OuterOptimizer again, ParseOuterOptimizer(expected));
    EXPECT_TRUE(again == outer) << text;
  }
}

TEST(OuterOptimizer, NumbersReadBackExactly) {
  const OuterOptimizer outer = {Rule::kNesterov, 1.0 / 3, 0.123456789};
  WEFT_ASSERT_OK_AND_ASSIGN(const OuterOptimizer read, ParseOuterOptimizer(ToString(outer)));
  EXPECT_TRUE(read == outer) << ToString(outer);
}

TEST(OuterOptimizer, OtherTextIsRefused) {
  for (const char* const text : {"", "adam", "sgd,sgd", "sgd{momentum=0.5}", "averaging{lr=1}",
                                 "nesterov{lr=0}", "sgd{lr=x}", "sgd{lr=-1}", "sgd{lr=inf}",
                                 "nesterov{momentum=1}", "slowmo{momentum=0}", "sgd{lr=nan}"}) {
    EXPECT_THAT(ParseOuterOptimizer(text),
                IsInvalidArgument("outer: expected averaging, sgd{lr=1}"))
        << text;
  }
}

}  // namespace
}  // namespace weft
