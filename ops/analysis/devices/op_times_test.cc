#include "ops/analysis/devices/op_times.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

double FlopsOfOnlyOp(ProgramBuilder& builder, int64_t batch = 1) {
  const Program program = builder.Build();
  return FlopsOf(program.op(program.block(0).ops()[0]), batch);
}

TEST(OpTimes, ProductsMultiplyAndAdd) {
  ProgramBuilder builder;
  builder.Var("x", {-1, 3}).Var("w", {3, 5}).Var("y", {-1, 5});
  builder.Op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  EXPECT_DOUBLE_EQ(FlopsOfOnlyOp(builder, 8), 2 * 8 * 3 * 5);
}

TEST(OpTimes, BatchedProductsCountEveryMatrix) {
  ProgramBuilder builder;
  builder.Var("x", {4, 2, 3, 7}).Var("y", {4, 2, 7, 5}).Var("z", {4, 2, 3, 5});
  builder.Op("matmul_v2", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}});
  EXPECT_DOUBLE_EQ(FlopsOfOnlyOp(builder), 2.0 * 8 * 3 * 7 * 5);
}

TEST(OpTimes, GradientsOfProductsTakeTwice) {
  ProgramBuilder builder;
  builder.Var("x", {8, 3}).Var("w", {3, 5}).Var("dy", {8, 5}).Var("dw", {3, 5});
  builder.Op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"dy"}}}, {{"Y@GRAD", {"dw"}}});
  EXPECT_DOUBLE_EQ(FlopsOfOnlyOp(builder), 2 * 2 * 8 * 3 * 5);
}

TEST(OpTimes, ConvolutionsMeetTheFiltersOfTheirChannel) {
  ProgramBuilder builder;
  builder.Var("x", {2, 3, 9, 9}).Var("f", {16, 3, 3, 3}).Var("y", {2, 16, 7, 7});
  builder.Op("conv2d", {{"Input", {"x"}}, {"Filter", {"f"}}}, {{"Output", {"y"}}});
  EXPECT_DOUBLE_EQ(FlopsOfOnlyOp(builder), 2.0 * (2 * 16 * 7 * 7) * (3 * 3 * 3));
}

TEST(OpTimes, OtherOpsMoveTheirArguments) {
  ProgramBuilder builder;
  builder.Var("x", {-1, 10}).Var("y", {-1, 10});
  builder.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  OpTimeOptions options;
  options.batch = 4;
  options.bytes_per_second = 1000;
  EXPECT_THAT(EstimateOpTimes(builder.Build(), options), ElementsAre(DoubleEq(0.32)));
}

}  // namespace
}  // namespace weft::testing
