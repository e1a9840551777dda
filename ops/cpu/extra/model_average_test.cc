#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// A window of at least 2 steps: the sums of full windows go to sum 3.
TEST(AverageAccumulatesTest, SumsAWindowInPlace) {
  Tensor p = Floats({1}, {1}), a = Floats({1}, {0}), b = Floats({1}, {0}), c = Floats({1}, {0});
  Tensor number = MakeTensor<int64_t>({1}, {0}), old = number, updates = number;
  WEFT_ASSERT_OK_AND_ASSIGN(OpRunner op, OpRunner::Make("average_accumulates",
                                                        {{"param", {&p}},
                                                         {"in_sum_1", {&a}},
                                                         {"in_sum_2", {&b}},
                                                         {"in_sum_3", {&c}},
                                                         {"in_num_accumulates", {&number}},
                                                         {"in_old_num_accumulates", {&old}},
                                                         {"in_num_updates", {&updates}}},
                                                        {{"average_window", 0.5f},
                                                         {"min_average_window", int64_t{2}},
                                                         {"max_average_window", int64_t{10}}},
                                                        {{"out_sum_1", {&a}},
                                                         {"out_sum_2", {&b}},
                                                         {"out_sum_3", {&c}},
                                                         {"out_num_accumulates", {&number}},
                                                         {"out_old_num_accumulates", {&old}},
                                                         {"out_num_updates", {&updates}}}));
  const std::vector<std::vector<float>> expected = {{1, 0}, {0, 3}, {3, 3}, {0, 7}};
  for (size_t step = 0; step < expected.size(); ++step) {
    *p.data<float>() = static_cast<float>(step + 1);
    WEFT_ASSERT_OK(op.Run());
    EXPECT_THAT(Values<float>(a), ElementsAre(expected[step][0])) << step;
    EXPECT_THAT(Values<float>(c), ElementsAre(expected[step][1])) << step;
  }
  EXPECT_EQ(*number.data<int64_t>(), 0);
  EXPECT_EQ(*old.data<int64_t>(), 2);
  EXPECT_EQ(*updates.data<int64_t>(), 4);
  EXPECT_THAT(Values<float>(p), ElementsAre(4));
}

}  // namespace
}  // namespace weft::testing
