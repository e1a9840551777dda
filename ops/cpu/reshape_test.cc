#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

absl::StatusOr<std::map<std::string, std::vector<Tensor>>> Reshape(const Tensor& x,
                                                                   const Ints& shape) {
  return RunOp("reshape2", {{"X", {x}}}, {{"shape", shape}}, {{"Out", 1}, {"XShape", 1}});
}

TEST(ReshapeTest, ZeroCopiesADimensionAndOneTakesTheRest) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, Reshape(Floats({2, 1, 3}, {1, 2, 3, 4, 5, 6}), {0, -1}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(out["XShape"][0].dims(), ElementsAre(0, 2, 1, 3));
}

TEST(ReshapeTest, ToAScalarAndOfAnEmptyTensor) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, Reshape(MakeTensor<int64_t>({1, 1}, {7}), {}));
  EXPECT_EQ(out["Out"][0].rank(), 0);
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(7));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Reshape(Floats({0, 2}, {}), {0, -1}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(0, 0));
}

TEST(ReshapeTest, InPlace) {
  Tensor x = Floats({4}, {1, 2, 3, 4});
  WEFT_ASSERT_OK(RunOpOn("reshape2", {{"X", {&x}}}, {{"shape", Ints{2, 2}}}, {{"Out", {&x}}}));
  EXPECT_THAT(x.dims(), ElementsAre(2, 2));
  EXPECT_THAT(Values<float>(x), ElementsAre(1, 2, 3, 4));
}

TEST(ReshapeTest, ShapesThatDoNotFitAreAnError) {
  const Tensor x = Floats({6}, {1, 2, 3, 4, 5, 6});
  for (const Ints& shape : {Ints{4, -1}, Ints{5}, Ints{-1, -1}, Ints{-2, 3}, Ints{6, 0}}) {
    EXPECT_THAT(Reshape(x, shape), IsInvalidArgument("attribute shape: expected"));
  }
  EXPECT_THAT(Reshape(x, Ints(4, 1 << 30)), IsInvalidArgument("attribute shape: expected"));
}

TEST(ReshapeTest, GradientTakesItsDimsFromXShape) {
  Tensor xshape = Floats({0, 2, 1}, {}), dout = Floats({2}, {1, 2});
  WEFT_ASSERT_OK(RunOpOn("reshape2_grad", {{"XShape", {&xshape}}, {"Out@GRAD", {&dout}}}, {},
                         {{"X@GRAD", {&dout}}}));
  EXPECT_THAT(dout.dims(), ElementsAre(2, 1));
  EXPECT_THAT(Values<float>(dout), ElementsAre(1, 2));

  Tensor other = Floats({0, 3}, {});
  EXPECT_THAT(RunOpOn("reshape2_grad", {{"XShape", {&other}}, {"Out@GRAD", {&dout}}}, {},
                      {{"X@GRAD", {&dout}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Out@GRAD: expected as many elements as [3] of X, found fp32[2, 1]"));
}

}  // namespace
}  // namespace weft::testing
