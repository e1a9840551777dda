#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

// The value of each element is its position in the transposed tensor.
void ExpectTransposes(const Dims& dims, const Ints& axes) {
  const int rank = static_cast<int>(dims.size());
  Dims out_dims(rank), strides(rank, 1), x_shape = dims;
  for (int d = rank - 1; d > 0; --d) strides[d - 1] = strides[d] * dims[d];
  for (int d = 0; d < rank; ++d) out_dims[d] = dims[axes[d]];
  std::vector<float> x(NumElements(dims)), counting(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t rest = i, from = 0;
    for (int d = rank - 1; d >= 0; --d) {
      from += rest % out_dims[d] * strides[axes[d]];
      rest /= out_dims[d];
    }
    x[from] = counting[i] = i;
  }
  x_shape.insert(x_shape.begin(), 0);
  const AttrValues attrs = {{"axis", axes}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("transpose2", {{"X", {Floats(dims, x)}}}, attrs,
                                            {{"Out", 1}, {"XShape", 1}}));
  EXPECT_EQ(Values<float>(out["Out"][0]), counting) << DimsToString(dims);
  WEFT_ASSERT_OK_AND_ASSIGN(auto grad, RunOp("transpose2_grad",
                                             {{"XShape", {Floats(x_shape, {})}},
                                              {"Out@GRAD", {Floats(out_dims, counting)}}},
                                             attrs, {{"X@GRAD", 1}}));
  EXPECT_EQ(Values<float>(grad["X@GRAD"][0]), x) << DimsToString(dims);
}

TEST(TransposeTest, MovesRowsAndTilesOfAnySize) {
  for (const int64_t n : {1, 3, 15, 16, 17, 33}) {
    for (const int64_t m : {1, 2, 16, 40}) {
      ExpectTransposes({n, m}, {1, 0});
      for (const Ints& axes :
           {Ints{0, 2, 1}, Ints{1, 0, 2}, Ints{1, 2, 0}, Ints{2, 0, 1}, Ints{2, 1, 0}}) {
        ExpectTransposes({n, 3, m}, axes);
      }
      ExpectTransposes({2, n, m, 5}, {0, 2, 1, 3});
      ExpectTransposes({2, n, 3, m}, {2, 3, 0, 1});
      ExpectTransposes({2, n, 3, m}, {3, 1, 2, 0});
    }
  }
  ExpectTransposes({3, 0, 2}, {2, 1, 0});
  ExpectTransposes({3}, {0});
}

TEST(ExpandTest, GradientOfRepeatedElementsIsSummed) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto grad, RunOp("expand_v2_grad",
                                             {{"X", {Floats({2, 1}, {0, 0})}},
                                              {"Out@GRAD", {Floats({2, 2}, {1, 2, 3, 4})}}},
                                             {{"shape", Ints{2, 2}}}, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(grad["X@GRAD"][0]), ElementsAre(3, 7));
}

TEST(SliceTest, GradientOfALeftOutElementIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto grad,
      RunOp("slice_grad",
            {{"Input", {Floats({3}, {0, 0, 0})}}, {"Out@GRAD", {Floats({2}, {1, 2})}}},
            {{"axes", Ints{0}}, {"starts", Ints{1}}, {"ends", Ints{3}}}, {{"Input@GRAD", 1}}));
  EXPECT_THAT(Values<float>(grad["Input@GRAD"][0]), ElementsAre(0, 1, 2));
}

TEST(SliceTest, AnAxisThatIsLeftOutHasOneElement) {
  using Ints = std::vector<int32_t>;
  EXPECT_THAT(RunOp("slice", {{"Input", {Floats({2, 2}, {1, 2, 3, 4})}}},
                    {{"axes", Ints{1}},
                     {"starts", Ints{-100}},
                     {"ends", Ints{2}},
                     {"decrease_axis", Ints{1}}},
                    {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute decrease_axis: expected axes of one element, found [2, 2]"));
}

// It wrote beyond the tensor.
TEST(SetValueTest, EmptySlicesOfADroppedAxisWriteNothing) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("set_value", {{"Input", {Floats({1, 3}, {1, 2, 3})}}},
                                            {{"axes", std::vector<int64_t>{0}},
                                             {"starts", std::vector<int64_t>{1}},
                                             {"ends", std::vector<int64_t>{2}},
                                             {"steps", std::vector<int64_t>{1}},
                                             {"decrease_axes", std::vector<int64_t>{0}},
                                             {"shape", std::vector<int64_t>{1}},
                                             {"values", std::vector<Scalar>{9.0}}},
                                            {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(1, 2, 3));
}

// As Paddle writes numbers that are not computed.
TEST(SetValueTest, ValuesMayBeAnAttribute) {
  const auto run = [](const std::vector<Scalar>& values, const std::vector<int64_t>& shape) {
    return RunOp("set_value", {{"Input", {Floats({2, 3}, {1, 2, 3, 4, 5, 6})}}},
                 {{"axes", std::vector<int64_t>{1}},
                  {"starts", std::vector<int64_t>{0}},
                  {"ends", std::vector<int64_t>{3}},
                  {"steps", std::vector<int64_t>{2}},
                  {"shape", shape},
                  {"values", values}},
                 {{"Out", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto one, run({0.5}, {1}));
  EXPECT_THAT(Values<float>(one["Out"][0]), ElementsAre(0.5, 2, 0.5, 0.5, 5, 0.5));
  WEFT_ASSERT_OK_AND_ASSIGN(auto two, run({7.0, int64_t{8}}, {2}));
  EXPECT_THAT(Values<float>(two["Out"][0]), ElementsAre(7, 2, 8, 7, 5, 8));
  EXPECT_THAT(run({7.0, 8.0, 9.0}, {3}).status(), IsInvalidArgument("attribute shape"));
  EXPECT_THAT(run({7.0}, {2}).status(), IsInvalidArgument("attribute values"));
  EXPECT_THAT(run({}, {1}).status(), IsInvalidArgument("an input ValueTensor, or an"));
}

}  // namespace
}  // namespace weft::testing
