#include "proto/op_assumptions.h"

#include <utility>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

TEST(OpAssumptionsTest, WordsSayWhatTheyMean) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAssumptions read,
                            ParseOpAssumptions("a: elementwise | linear, pd_op.b:no_communication,"
                                               " c: per_sample|no_communication"));
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(ToString(read.at("a")), "elementwise|linear");
  EXPECT_EQ(ToString(read.at("pd_op.b")), "no_communication");
  EXPECT_FALSE(read.at("pd_op.b").IsFunction());
  EXPECT_EQ(ToString(read.at("c")), "per_sample");
  EXPECT_TRUE(ParseOpAssumptions("").value().empty());
}

TEST(OpAssumptionsTest, OtherTextIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"a", "expected 'OP_TYPE: elementwise|per_sample|linear|no_communication', found 'a'"},
      {": linear", "expected 'OP_TYPE: "},
      {"a: linear,", "expected 'OP_TYPE: "},
      {"a: pure",
       "a: expected elementwise, per_sample, linear or no_communication, joined by |, "
       "found 'pure'"},
      {"a: linear|", "found ''"},
      {"a: linear, a: elementwise", "a: expected once, found twice"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseOpAssumptions(text).status(), IsInvalidArgument(message)) << text;
  }
}

TEST(OpAssumptionsTest, GradientOpIsCoveredByItsOp) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OpAssumptions read, ParseOpAssumptions("a: linear"));
  EXPECT_NE(FindAssumption(read, "a"), nullptr);
  EXPECT_NE(FindAssumption(read, "a_grad"), nullptr);
  EXPECT_EQ(FindAssumption(read, "b"), nullptr);
  EXPECT_EQ(FindAssumption(read, "a_grad_grad"), nullptr);
}

}  // namespace
}  // namespace weft::testing
