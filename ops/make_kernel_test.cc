#include "ops/make_kernel.h"

#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

Tensor Int32s(const std::vector<int32_t>& values) {
  return MakeTensor<int32_t>({static_cast<int64_t>(values.size())}, values);
}

TEST(MakeKernelTest, OneTensorGivesAList) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("reshape2", {{"X", {Floats({4}, {1, 2, 3, 4})}}, {"Shape", {Int32s({2, -1})}}},
            {{"shape", Ints{-1, -1}}}, {{"Out", 1}, {"XShape", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 2));
  EXPECT_THAT(out["XShape"][0].dims(), ElementsAre(0, 4));
}

TEST(MakeKernelTest, ManyTensorsGiveAList) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("fill_constant", {{"ShapeTensorList", {Int32s({2}), MakeTensor<int64_t>({}, {3})}}},
            {{"value", 7.0F}}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(out["Out"][0]), Each(7));
}

TEST(MakeKernelTest, AListCountsMoreThanOneTensor) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("reshape2",
                                            {{"X", {Floats({2}, {1, 2})}},
                                             {"Shape", {Int32s({1, 2})}},
                                             {"ShapeTensor", {Int32s({2}), Int32s({1})}}},
                                            {}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 1));
}

TEST(MakeKernelTest, ATensorGivesOneNumber) {
  const Tensor x = Floats({2}, {-3, 5});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("scale", {{"X", {x}}, {"ScaleTensor", {Floats({1}, {2})}}}, {{"bias", 1.0F}},
                      {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(-5, 11));
  WEFT_ASSERT_OK_AND_ASSIGN(
      out, RunOp("clip", {{"X", {x}}, {"Max", {Floats({}, {4})}}}, {{"min", -1.0F}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(-1, 4));
  WEFT_ASSERT_OK_AND_ASSIGN(
      out, RunOp("top_k_v2", {{"X", {x}}, {"K", {Int32s({1})}}}, {}, {{"Out", 1}, {"Indices", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(5));
}

TEST(MakeKernelTest, NumbersStayExact) {
  const int64_t large = (int64_t{1} << 53) + 1;
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("fill_constant", {{"ValueTensor", {MakeTensor<int64_t>({1}, {large})}}},
            {{"dtype", static_cast<int>(DType::kInt64)}, {"shape", std::vector<int64_t>{1}}},
            {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(large));
  // A limit between two fp32 numbers.
  WEFT_ASSERT_OK_AND_ASSIGN(
      out, RunOp("clip",
                 {{"X", {MakeTensor<double>({1}, {5})}}, {"Max", {MakeTensor<double>({1}, {0.1})}}},
                 {{"min", 0.0F}}, {{"Out", 1}}));
  EXPECT_THAT(Values<double>(out["Out"][0]), ElementsAre(0.1));
}

TEST(MakeKernelTest, SeveralAttributesTakeANumberEach) {
  const Tensor x = Floats({1, 1, 1, 1}, {3});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("nearest_interp_v2", {{"X", {x}}, {"OutSize", {Int32s({2, 3})}}},
                                  {{"align_corners", false}}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(1, 1, 2, 3));
  const auto resize = [&](const Tensor& size) {
    return RunOp("nearest_interp_v2", {{"X", {x}}, {"OutSize", {size}}}, {{"align_corners", false}},
                 {{"Out", 1}});
  };
  // The last ones: the width alone.
  EXPECT_THAT(resize(Int32s({2})), IsInvalidArgument("attribute out_h: expected 1 or more"));
  EXPECT_THAT(resize(Int32s({1, 1, 1, 1})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input OutSize: [1, 1, 1, 1] is no value of attribute out_d"));
}

TEST(MakeKernelTest, OtherValuesInTheNextStep) {
  Tensor x = Floats({4}, {1, 2, 3, 4}), start = Int32s({1}), end = Int32s({3}), out;
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner op,
      OpRunner::Make(
          "slice", {{"Input", {&x}}, {"StartsTensorList", {&start}}, {"EndsTensorList", {&end}}},
          {{"axes", Ints{0}}, {"starts", Ints{-1}}, {"ends", Ints{-1}}}, {{"Out", {&out}}}));
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(2, 3));
  *start.data<int32_t>() = 0;
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(1, 2, 3));
  *end.data<int32_t>() = 1;
  WEFT_ASSERT_OK(op.Run());
  EXPECT_THAT(Values<float>(out), ElementsAre(1));
}

TEST(MakeKernelTest, GradientsHaveTheSameInputs) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("strided_slice_grad",
                                            {{"Input", {Floats({4}, {0, 0, 0, 0})}},
                                             {"StartsTensor", {Int32s({1})}},
                                             {"EndsTensor", {Int32s({4})}},
                                             {"StridesTensor", {Int32s({2})}},
                                             {"Out@GRAD", {Floats({2}, {5, 6})}}},
                                            {{"axes", Ints{0}}}, {{"Input@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["Input@GRAD"][0]), ElementsAre(0, 5, 0, 6));
  WEFT_ASSERT_OK_AND_ASSIGN(out, RunOp("tile_grad",
                                       {{"X", {Floats({1}, {0})}},
                                        {"repeat_times_tensor", {Int32s({2})}},
                                        {"Out@GRAD", {Floats({2}, {5, 6})}}},
                                       {}, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(11));
}

TEST(MakeKernelTest, AListHasANumberInEachTensor) {
  EXPECT_THAT(RunOp("fill_constant", {{"ShapeTensorList", {Int32s({1, 1})}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("input ShapeTensorList"));
}

TEST(MakeKernelTest, ValuesThatDoNotFitAreAnError) {
  const SlotTensors x = {{"X", {Floats({6}, {1, 2, 3, 4, 5, 6})}}};
  const auto reshape = [&](const Tensor& shape) {
    SlotTensors inputs = x;
    inputs.push_back({"Shape", {shape}});
    return RunOp("reshape2", inputs, {}, {{"Out", 1}});
  };
  EXPECT_THAT(reshape(Floats({1}, {6})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Shape: [6] is no value of attribute shape"));
  EXPECT_THAT(reshape(Int32s({4})), IsInvalidArgument("attribute shape"));
  EXPECT_THAT(reshape(Tensor()), StatusIs(absl::StatusCode::kInvalidArgument,
                                          "input Shape: expected a tensor of numbers"));
  EXPECT_THAT(RunOp("concat", {{"X", {Floats({1}, {1})}}, {"AxisTensor", {Int32s({0, 0})}}}, {},
                    {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input AxisTensor: [0, 0] is no value of attribute axis"));
}

}  // namespace
}  // namespace weft::testing
