#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(ComparisonTest, RepeatsAScalar) {
  const SlotTensors inputs = {{"X", {Floats({3}, {1, 2, 3})}}, {"Y", {Floats({1}, {2})}}};
  const std::vector<std::pair<const char*, std::vector<bool>>> results = {
      {"equal", {false, true, false}},        {"not_equal", {true, false, true}},
      {"less_than", {true, false, false}},    {"less_equal", {true, true, false}},
      {"greater_than", {false, false, true}}, {"greater_equal", {false, true, true}}};
  for (const auto& [op, expected] : results) {
    WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(op, inputs, {}, {{"Out", 1}}));
    EXPECT_EQ(Values<bool>(out["Out"][0]), expected) << op;
  }
}

TEST(ComparisonTest, AlignsAtTheAxis) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("less_than", {{"X", {Floats({2, 2}, {1, 2, 3, 4})}}, {"Y", {Floats({2}, {2, 4})}}},
            {{"axis", 0}}, {{"Out", 1}}));
  EXPECT_THAT(Values<bool>(out["Out"][0]), ElementsAre(true, false, true, false));
}

TEST(ComparisonTest, LargeIntegersAreComparedExactly) {
  const int64_t n = int64_t{1} << 60;
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("equal",
                                            {{"X", {MakeTensor<int64_t>({2}, {n, n + 1})}},
                                             {"Y", {MakeTensor<int64_t>({}, {n})}}},
                                            {}, {{"Out", 1}}));
  EXPECT_THAT(Values<bool>(out["Out"][0]), ElementsAre(true, false));
}

TEST(ComparisonTest, NotANumberEqualsNothing) {
  Tensor nan = Floats({}, {std::nanf("")});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("not_equal", {{"X", {nan}}, {"Y", {nan}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<bool>(out["Out"][0]), ElementsAre(true));
}

TEST(LogicTest, OfBooleans) {
  const SlotTensors inputs = {{"X", {MakeTensor<bool>({4}, {false, false, true, true})}},
                              {"Y", {MakeTensor<bool>({4}, {false, true, false, true})}}};
  const std::vector<std::pair<const char*, std::vector<bool>>> results = {
      {"logical_and", {false, false, false, true}},
      {"logical_or", {false, true, true, true}},
      {"logical_xor", {false, true, true, false}}};
  for (const auto& [op, expected] : results) {
    WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(op, inputs, {}, {{"Out", 1}}));
    EXPECT_EQ(Values<bool>(out["Out"][0]), expected) << op;
  }
}

TEST(LogicTest, NumbersOtherThanZeroAreTrue) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("logical_xor", {{"X", {Floats({2}, {0.5f, 2})}}, {"Y", {Floats({2}, {0, 3})}}}, {},
            {{"Out", 1}}));
  EXPECT_THAT(Values<bool>(out["Out"][0]), ElementsAre(true, false));
  WEFT_ASSERT_OK_AND_ASSIGN(
      out, RunOp("logical_not", {{"X", {MakeTensor<int32_t>({2}, {0, 2})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<bool>(out["Out"][0]), ElementsAre(true, false));
}

TEST(LogicTest, MayTakeThePlaceOfOperands) {
  Tensor x = MakeTensor<bool>({2}, {true, false}), y = MakeTensor<bool>({}, {true});
  WEFT_ASSERT_OK(RunOpOn("logical_and", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<bool>(x), ElementsAre(true, false));
  WEFT_ASSERT_OK(RunOpOn("logical_not", {{"X", {&x}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<bool>(x), ElementsAre(false, true));

  Tensor number = Floats({2}, {1, 2});
  WEFT_ASSERT_OK(
      RunOpOn("less_equal", {{"X", {&number}}, {"Y", {&number}}}, {}, {{"Out", {&number}}}));
  EXPECT_THAT(Values<bool>(number), ElementsAre(true, true));
}

}  // namespace
}  // namespace weft::testing
