#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(AssignTest, CopiesAnyElementType) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("assign", {{"X", {MakeTensor<int16_t>({2}, {1, -2})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<int16_t>(out["Out"][0]), ElementsAre(1, -2));
}

TEST(AssignTest, NothingToCopyIsAnError) {
  EXPECT_THAT(RunOp("assign", {}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input X: missing"));
}

TEST(AssignTest, CopyDoesNotFollowTheOriginal) {
  Tensor x = Floats({1}, {1}), out;
  WEFT_ASSERT_OK(RunOpOn("assign", {{"X", {&x}}}, {}, {{"Out", {&out}}}));
  x.data<float>()[0] = 2;
  EXPECT_THAT(Values<float>(out), ElementsAre(1));
}

TEST(AssignTest, ToItselfChangesNothing) {
  Tensor x = Floats({1}, {1});
  WEFT_ASSERT_OK(RunOpOn("assign", {{"X", {&x}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(1));
}

TEST(CastTest, TruncatesTowardsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("cast", {{"X", {Floats({2}, {1.9f, -1.9f})}}},
                                            {{"in_dtype", 5}, {"out_dtype", 3}}, {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(1, -1));
}

TEST(CastTest, ToAnUnknownElementTypeIsAnError) {
  EXPECT_THAT(RunOp("cast", {{"X", {Floats({1}, {1})}}}, {{"in_dtype", 5}, {"out_dtype", 99}},
                    {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute out_dtype: expected the number of an element type, found 99"));
}

}  // namespace
}  // namespace weft::testing
