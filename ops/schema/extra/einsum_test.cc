#include "ops/schema/extra/einsum.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(EinsumTest, LabelsEachDimension) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Einsum e, ParseEinsum("bi, ij -> bj", {{-1, 3}, {3, 4}}));
  EXPECT_THAT(e.operands, ElementsAre("bi", "ij"));
  EXPECT_EQ(e.out, "bj");
  EXPECT_THAT(e.OutDims(), ElementsAre(-1, 4));
}

TEST(EinsumTest, WithoutAnArrowTheResultHasTheLabelsThatOccurOnce) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Einsum e, ParseEinsum("cb,ba", {{5, 3}, {3, 4}}));
  EXPECT_EQ(e.out, "ac");
}

TEST(EinsumTest, DotsAreTheDimensionsThatAreNotNamedAlignedAtTheRight) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Einsum e,
                            ParseEinsum("...ij,...jk->...ik", {{2, 1, 3, 4}, {7, 4, 5}}));
  EXPECT_THAT(e.operands, ElementsAre("10ij", "0jk"));
  EXPECT_THAT(e.OutDims(), ElementsAre(2, 7, 3, 5));
}

TEST(EinsumTest, SaysWhatIsWrong) {
  EXPECT_THAT(ParseEinsum("ij,jk->ik", {{2, 3}, {4, 5}}).status(),
              IsInvalidArgument("label j is 3 and 4"));
  EXPECT_THAT(ParseEinsum("ij->ik", {{2, 3}}).status(), IsInvalidArgument("labels of operands"));
  EXPECT_THAT(ParseEinsum("ij->ii", {{2, 3}}).status(), IsInvalidArgument("once"));
  EXPECT_THAT(ParseEinsum("i1->i", {{2, 3}}).status(), IsInvalidArgument("expected letters"));
  EXPECT_THAT(ParseEinsum("ij", {{2}}).status(), IsInvalidArgument("operand 0"));
  EXPECT_THAT(ParseEinsum("i,j->i", {{2}}).status(), IsInvalidArgument("expected 1 operands"));
}

}  // namespace
}  // namespace weft::testing
