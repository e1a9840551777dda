#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

absl::StatusOr<Tensor> Mean(const Tensor& x, const AttrValues& attrs) {
  auto out = RunOp("reduce_mean", {{"X", {x}}}, attrs, {{"Out", 1}});
  if (!out.ok()) return out.status();
  return (*out)["Out"][0];
}

// As Paddle 2.6.2 and 3.3.1 do.
TEST(ReduceSumTest, NumbersBecomeWholeBeforeTheyAreAddedUp) {
  for (const auto& [dim, expected] :
       {std::pair<Ints, std::vector<int64_t>>{{1}, {1, -1}}, {{0}, {0, -1, 1}}}) {
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto out, RunOp("reduce_sum", {{"X", {Floats({2, 3}, {0.9, 0.9, 1.9, -0.9, -1.9, 0.9})}}},
                        {{"dim", dim}, {"in_dtype", 5}, {"out_dtype", 3}}, {{"Out", 1}}));
    EXPECT_EQ(Values<int64_t>(out["Out"][0]), expected);
  }
}

TEST(ReduceMeanTest, OverAllDimensionsGivesAScalar) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      Tensor mean, Mean(Floats({2, 2}, {1, 2, 3, 4}), {{"reduce_all", true}, {"dim", Ints{}}}));
  EXPECT_THAT(mean.dims(), IsEmpty());
  EXPECT_THAT(Values<float>(mean), ElementsAre(2.5));
}

TEST(ReduceMeanTest, NoDimensionsMeansAll) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(Floats({2, 2}, {1, 2, 3, 4}), {{"dim", Ints{}}}));
  EXPECT_THAT(mean.dims(), IsEmpty());
}

TEST(ReduceMeanTest, KeepDimLeavesOnes) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      Tensor mean, Mean(Floats({2, 2}, {1, 2, 3, 4}), {{"dim", Ints{-1}}, {"keep_dim", true}}));
  EXPECT_THAT(mean.dims(), ElementsAre(2, 1));
  EXPECT_THAT(Values<float>(mean), ElementsAre(1.5, 3.5));
}

TEST(ReduceMeanTest, OverOuterAndInnerDimensionKeepsTheMiddleOne) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      Tensor mean, Mean(Floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), {{"dim", Ints{0, 2}}}));
  EXPECT_THAT(mean.dims(), ElementsAre(2));
  EXPECT_THAT(Values<float>(mean), ElementsAre(3.5, 5.5));
}

TEST(ReduceMeanTest, OfAScalarIsItself) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(Floats({}, {3}), {{"reduce_all", true}}));
  EXPECT_THAT(Values<float>(mean), ElementsAre(3));
}

TEST(ReduceMeanTest, OfNothingIsNotANumber) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(Floats({0, 2}, {}), {{"reduce_all", true}}));
  EXPECT_TRUE(std::isnan(Values<float>(mean)[0]));
}

TEST(ReduceMeanTest, MissingDimensionIsNamed) {
  EXPECT_THAT(Mean(Floats({2}, {1, 2}), {{"dim", Ints{1}}}),
              IsInvalidArgument("attribute dim: expected an axis of 1 dimensions, found 1"));
}

TEST(ReduceMeanTest, OfNoIntegersIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor mean, Mean(MakeTensor<int64_t>({2, 0}, {}), {{"dim", Ints{1}}}));
  EXPECT_THAT(Values<int64_t>(mean), ElementsAre(0, 0));
}

TEST(ReduceMeanGradTest, SpreadsTheGradientEvenly) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("reduce_mean_grad",
                      {{"X", {Floats({2, 2}, {0, 0, 0, 0})}}, {"Out@GRAD", {Floats({2}, {4, 8})}}},
                      {{"dim", Ints{1}}}, {{"X@GRAD", 1}}));
  EXPECT_THAT(out["X@GRAD"][0].dims(), ElementsAre(2, 2));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(2, 2, 4, 4));
}

TEST(ReduceMeanGradTest, OfAScalarResult) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("reduce_mean_grad",
                      {{"X", {Floats({4}, {0, 0, 0, 0})}}, {"Out@GRAD", {Floats({}, {1})}}},
                      {{"reduce_all", true}}, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(0.25, 0.25, 0.25, 0.25));
}

TEST(ReduceMeanGradTest, XGradMayTakeThePlaceOfX) {
  Tensor x = Floats({2}, {5, 6}), dout = Floats({}, {1});
  WEFT_ASSERT_OK(RunOpOn("reduce_mean_grad", {{"X", {&x}}, {"Out@GRAD", {&dout}}},
                         {{"reduce_all", true}}, {{"X@GRAD", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(0.5, 0.5));
}

// Gradients of the products of the rows.
std::vector<float> ProdGrad(const Dims& dims, const std::vector<float>& x,
                            const std::vector<float>& out, const std::vector<float>& dout,
                            bool paddle_cpu_quirks = false) {
  Tensor xs = Floats(dims, x), outs = Floats({dims[0]}, out), douts = Floats({dims[0]}, dout), dx;
  auto bound =
      OpRunner::Make("reduce_prod_grad", {{"Out", {&outs}}, {"Out@GRAD", {&douts}}, {"X", {&xs}}},
                     {{"dim", Ints{1}}}, {{"X@GRAD", {&dx}}}, paddle_cpu_quirks);
  EXPECT_THAT(bound, IsOk());
  WEFT_EXPECT_OK(bound->Run());
  return Values<float>(dx);
}

TEST(ReduceProdGradTest, IsTheProductOfTheOthers) {
  EXPECT_THAT(ProdGrad({1, 3}, {2, -3, 4}, {-24}, {0.5}), ElementsAre(-6, 4, -3));
}

TEST(ReduceProdGradTest, OneZeroHasTheProductOfTheOthersTwoHaveNone) {
  EXPECT_THAT(ProdGrad({2, 3}, {2, 0, 4, 0, 5, 0}, {0, 0}, {3, 3}), ElementsAre(0, 24, 0, 0, 0, 0));
}

TEST(ReduceProdGradTest, ProductThatUnderflowsStillHasAGradient) {
  EXPECT_THAT(ProdGrad({1, 2}, {1e-30f, 1e-30f}, {0}, {1}), ElementsAre(1e-30f, 1e-30f));
}

TEST(ReduceProdGradTest, PaddleDividesByZero) {
  const std::vector<float> dx = ProdGrad({1, 2}, {2, 0}, {0}, {1}, /*paddle_cpu_quirks=*/true);
  EXPECT_EQ(dx[0], 0);
  EXPECT_TRUE(std::isnan(dx[1]));
}

TEST(ReduceMinGradTest, TheResultThatIsReadHasItsDimensions) {
  EXPECT_THAT(RunOp("reduce_min_grad",
                    {{"X", {Floats({2, 2}, {1, 2, 3, 4})}},
                     {"Out", {Floats({1}, {1})}},
                     {"Out@GRAD", {Floats({2}, {1, 1})}}},
                    {}, {{"X@GRAD", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Out: expected dimensions [2] of X reduced, found fp32[1]"));
}

TEST(SquaredL2NormTest, AlwaysHasOneElement) {
  for (const Dims& dims : {Dims{2, 1}, Dims{2}}) {
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto out, RunOp("squared_l2_norm", {{"X", {Floats(dims, {3, -4})}}}, {}, {{"Out", 1}}));
    EXPECT_THAT(out["Out"][0].dims(), ElementsAre(1));
    EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(25));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("squared_l2_norm", {{"X", {Floats({0}, {})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0));
}

TEST(ReduceTest, ResultsHaveTheSameBitsOnAnyNumberOfThreads) {
  const Dims dims = {37, 30, 40};
  std::vector<float> x(NumElements(dims));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (const std::string type : {"reduce_sum", "reduce_max", "reduce_prod", "reduce_amax"}) {
    for (const Ints& dim : {Ints{0}, Ints{1}, Ints{2}, Ints{0, 2}, Ints{0, 1, 2}}) {
      std::vector<std::vector<float>> results;
      for (const int threads : {1, 2, 3}) {
        SetKernelThreads(threads);
        const Tensor input = Floats(dims, x);
        auto out = *RunOp(type, {{"X", {input}}}, {{"dim", dim}}, {{"Out", 1}});
        auto grad =
            *RunOp(type + "_grad", {{"X", {input}}, {"Out", out["Out"]}, {"Out@GRAD", out["Out"]}},
                   {{"dim", dim}}, {{"X@GRAD", 1}});
        results.push_back(Values<float>(out["Out"][0]));
        const std::vector<float> values = Values<float>(grad["X@GRAD"][0]);
        results.back().insert(results.back().end(), values.begin(), values.end());
      }
      SetKernelThreads(1);
      EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]) << type << " " << dim[0];
    }
  }
}

}  // namespace
}  // namespace weft::testing
