#include <cmath>
#include <cstring>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/float16.h"

namespace weft::testing {
namespace {

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

TEST(DependTest, ReadsNothingOfWhatItComesAfter) {
  Tensor x = Floats({2}, {1, -2}), dep = MakeTensor<int64_t>({3}, {7, 8, 9});
  WEFT_ASSERT_OK(RunOpOn("depend", {{"Dep", {&dep}}, {"X", {&x}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(1, -2));
}

TEST(CastTest, TruncatesTowardsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("cast", {{"X", {Floats({2}, {1.9f, -1.9f})}}},
                                            {{"in_dtype", 5}, {"out_dtype", 3}}, {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(1, -1));
}

TEST(CastTest, RowsKeepTheirIndices) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("cast", {{"X", {Rows({6, 2}, {4, 1}, {1, 2, 3, 4})}}},
                                            {{"in_dtype", 5}, {"out_dtype", 4}}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].rows(), ElementsAre(4, 1));
  EXPECT_EQ(out["Out"][0].TallDims(), (Dims{6, 2}));
  EXPECT_THAT(Values<Float16>(out["Out"][0]), ElementsAre(1, 2, 3, 4));
}

// Also more elements than are converted at a time, infinities and not-a-numbers.
TEST(CastTest, HalvesHaveTheBitsOfSingleConversions) {
  std::vector<float> values = {0.1f, -65519.0f, 65520.0f, 1e-8f, 6e-8f, 3e38f, NAN, -INFINITY};
  for (int i = 0; i < 67; ++i) values.push_back(std::ldexp(1.0f + 0.01f * i, i % 40 - 20));
  const auto n = static_cast<int64_t>(values.size());
  const auto check = [&](auto half) {
    using Half = decltype(half);
    const int type = static_cast<int>(DTypeOf<Half>::value);
    WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                              RunOp("cast", {{"X", {Floats({n}, values)}}},
                                    {{"in_dtype", 5}, {"out_dtype", type}}, {{"Out", 1}}));
    const Tensor& halves = out["Out"][0];
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(halves.data<Half>()[i].bits(), Half(values[i]).bits()) << values[i];
    }
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto back,
        RunOp("cast", {{"X", {halves}}}, {{"in_dtype", type}, {"out_dtype", 5}}, {{"Out", 1}}));
    for (int64_t i = 0; i < n; ++i) {
      const float expected = static_cast<float>(Half(values[i]));
      EXPECT_EQ(std::memcmp(back["Out"][0].data<float>() + i, &expected, sizeof(float)), 0) << i;
    }
  };
  check(Float16());
  check(BFloat16());
}

TEST(CastTest, ToAnUnknownElementTypeIsAnError) {
  EXPECT_THAT(RunOp("cast", {{"X", {Floats({1}, {1})}}}, {{"in_dtype", 5}, {"out_dtype", 99}},
                    {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute out_dtype: expected the number of an element type, found 99"));
}

}  // namespace
}  // namespace weft::testing
