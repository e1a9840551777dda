#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(SparseSumTest, RowsOfAllInputsFollowOneAnother) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("sum",
                                            {{"X",
                                              {Rows({5, 2}, {4, 0}, {1, 2, 3, 4}),
                                               Rows({5, 2}, {}, {}), Rows({5, 2}, {4}, {5, 6})}}},
                                            {}, {{"Out", 1}}));
  const Tensor& sum = out["Out"][0];
  ASSERT_TRUE(sum.is_rows());
  EXPECT_THAT(sum.rows(), ElementsAre(4, 0, 4));
  EXPECT_THAT(Values<float>(sum), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(sum.height(), 5);
}

TEST(SparseSumTest, OutMayBeAnyOfTheInputs) {
  Tensor first = Rows({5, 1}, {4}, {1}), second = Rows({5, 1}, {2, 3}, {2, 3});
  WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&first, &second}}}, {}, {{"Out", {&second}}}));
  EXPECT_THAT(second.rows(), ElementsAre(4, 2, 3));
  EXPECT_THAT(Values<float>(second), ElementsAre(1, 2, 3));
}

TEST(SparseSumTest, WithADenseInputTheSumIsDense) {
  Tensor rows = Rows({3, 2}, {2, 0, 2}, {1, 2, 3, 4, 5, 6});
  Tensor dense = Floats({3, 2}, {10, 20, 30, 40, 50, 60});
  WEFT_ASSERT_OK(RunOpOn("sum", {{"X", {&rows, &dense}}}, {}, {{"Out", {&rows}}}));
  EXPECT_FALSE(rows.is_rows());
  EXPECT_EQ(rows.dims(), (Dims{3, 2}));
  EXPECT_THAT(Values<float>(rows), ElementsAre(13, 24, 30, 40, 56, 68));
}

TEST(SparseSumTest, InputsOfOtherShapesAreRefused) {
  EXPECT_THAT(RunOp("sum", {{"X", {Rows({3, 2}, {}, {}), Rows({4, 2}, {}, {})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected rows of a tensor of shape [3, 2], found rows of shape "
                       "[4, 2]"));
  EXPECT_THAT(
      RunOp("sum", {{"X", {Rows({3, 2}, {}, {}), Floats({3, 1}, {1, 2, 3})}}}, {}, {{"Out", 1}}),
      IsInvalidArgument("input X: expected shape"));
}

TEST(SparseMultiplyTest, EveryRowTimesANumber) {
  Tensor x = Rows({5, 1}, {4, 4}, {1, 3}), y = Floats({1}, {2});
  WEFT_ASSERT_OK(RunOpOn("elementwise_mul", {{"X", {&x}}, {"Y", {&y}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(x.rows(), ElementsAre(4, 4));
  EXPECT_THAT(Values<float>(x), ElementsAre(2, 6));
  Tensor two = Floats({2}, {1, 2}), out;
  EXPECT_THAT(RunOpOn("elementwise_mul", {{"X", {&x}}, {"Y", {&two}}}, {}, {{"Out", {&out}}}),
              IsInvalidArgument("input Y"));
  EXPECT_THAT(RunOpOn("elementwise_mul", {{"X", {&y}}, {"Y", {&x}}}, {}, {{"Out", {&out}}}),
              IsInvalidArgument("input X"));
}

// The norm is that of the sums of rows of the same index: √(3² + 4²).
TEST(SparseClipByNormTest, RowsOfTheSameNumberCountTogether) {
  Tensor x = Rows({5, 1}, {4, 0, 4}, {1, 4, 2}), out;
  WEFT_ASSERT_OK(RunOpOn("clip_by_norm", {{"X", {&x}}}, {{"max_norm", 2.5f}}, {{"Out", {&out}}}));
  EXPECT_THAT(out.rows(), ElementsAre(0, 4));
  EXPECT_THAT(Values<float>(out), ElementsAre(2, 1.5));
  WEFT_ASSERT_OK(RunOpOn("clip_by_norm", {{"X", {&x}}}, {{"max_norm", 6.0f}}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(4, 3));
}

TEST(SparseScaleTest, ScalesTheRowsInPlaceOrElsewhere) {
  Tensor x = Rows({5, 1}, {4, 4}, {1, 3}), out;
  WEFT_ASSERT_OK(RunOpOn("scale", {{"X", {&x}}}, {{"scale", 2.0f}}, {{"Out", {&out}}}));
  EXPECT_THAT(out.rows(), ElementsAre(4, 4));
  EXPECT_THAT(Values<float>(out), ElementsAre(2, 6));
  WEFT_ASSERT_OK(RunOpOn("scale", {{"X", {&x}}}, {{"scale", 3.0f}}, {{"Out", {&x}}}));
  EXPECT_THAT(x.rows(), ElementsAre(4, 4));
  EXPECT_THAT(Values<float>(x), ElementsAre(3, 9));
}

TEST(SparseScaleTest, InPlaceACopyStaysAsItIs) {
  Tensor x = Rows({5, 1}, {4}, {1});
  const Tensor copy = x;
  WEFT_ASSERT_OK(RunOpOn("scale", {{"X", {&x}}}, {{"scale", 2.0f}}, {{"Out", {&x}}}));
  EXPECT_THAT(x.rows(), ElementsAre(4));
  EXPECT_THAT(Values<float>(x), ElementsAre(2));
  EXPECT_THAT(Values<float>(copy), ElementsAre(1));
}

TEST(SparseScaleTest, NoRowsStayNone) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("scale", {{"X", {Rows({5, 1}, {}, {})}}}, {{"scale", 2.0f}}, {{"Out", 1}}));
  EXPECT_TRUE(out["Out"][0].is_rows());
  EXPECT_THAT(out["Out"][0].rows(), IsEmpty());
}

TEST(SparseScaleTest, BiasIsRefused) {
  EXPECT_THAT(
      RunOp("scale", {{"X", {Rows({5, 1}, {}, {})}}}, {{"bias", 1.0f}}, {{"Out", 1}}),
      StatusIs(absl::StatusCode::kUnimplemented, "attribute bias: expected 0 for SelectedRows"));
}

}  // namespace
}  // namespace weft::testing
