#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(MulTest, MultipliesMatrices) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("mul", {{"X", {Floats({1, 2}, {1, 2})}}, {"Y", {Floats({2, 2}, {3, 4, 5, 6})}}}, {},
            {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(13, 16));
}

TEST(MulTest, FlattensToTheColumnsThatAttributesName) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("mul",
                                            {{"X", {Floats({2, 1, 3}, {1, 2, 3, 4, 5, 6})}},
                                             {"Y", {Floats({3, 1, 2}, {1, 0, 0, 1, 1, 1})}}},
                                            {{"x_num_col_dims", 2}}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 1, 1, 2));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(4, 5, 10, 11));
}

TEST(MulTest, TheSameKernelTakesASmallerBatch) {
  Tensor x = Floats({2, 1}, {1, 2}), y = Floats({1, 1}, {3}), out;
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner op, OpRunner::Make("mul", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&out}}}));
  WEFT_ASSERT_OK(op.Run());
  x = Floats({1, 1}, {5});
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(15));
}

TEST(MulTest, InnerDimensionsThatDifferAreAnError) {
  EXPECT_THAT(RunOp("mul", {{"X", {Floats({1, 2}, {1, 2})}}, {"Y", {Floats({3, 1}, {1, 2, 3})}}},
                    {}, {{"Out", 1}}),
              IsInvalidArgument("input Y: expected 2 rows, as many as X has columns"));
}

TEST(MulGradTest, GradientsAreProductsWithTheOtherOperand) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("mul_grad",
                                            {{"X", {Floats({1, 2}, {1, 2})}},
                                             {"Y", {Floats({2, 2}, {3, 4, 5, 6})}},
                                             {"Out@GRAD", {Floats({1, 2}, {1, 10})}}},
                                            {}, {{"X@GRAD", 1}, {"Y@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(43, 65));
  EXPECT_THAT(Values<float>(out["Y@GRAD"][0]), ElementsAre(1, 10, 2, 20));
}

TEST(MulGradTest, InputsNeedNoGradient) {
  Tensor x = Floats({1, 1}, {2}), dout = Floats({1, 1}, {5}), dy;
  WEFT_ASSERT_OK(RunOpOn("mul_grad", {{"X", {&x}}, {"Y", {&x}}, {"Out@GRAD", {&dout}}}, {},
                         {{"X@GRAD", {}}, {"Y@GRAD", {&dy}}}));
  EXPECT_THAT(Values<float>(dy), ElementsAre(10));
}

}  // namespace
}  // namespace weft::testing
