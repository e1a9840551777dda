#include <string>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// A matrix that has an inverse, and one that has none.
Tensor OneSingular() { return Floats({2, 2, 2}, {2, 1, 1, 1, 4, 2, 2, 1}); }

TEST(DenseAlgebraTest, SingularMatricesAreErrorsThatNameThem) {
  const auto is_singular = IsInvalidArgument("matrix 1 is singular");
  const Tensor x = OneSingular();
  EXPECT_THAT(RunOp("inverse", {{"Input", {x}}}, {}, {{"Output", 1}}), is_singular);
  EXPECT_THAT(RunOp("solve", {{"X", {x}}, {"Y", {x}}}, {}, {{"Out", 1}}), is_singular);
  const Tensor triangles = Floats({2, 2, 2}, {1, 2, 9, 1, 1, 2, 9, 0});
  EXPECT_THAT(RunOp("triangular_solve", {{"X", {triangles}}, {"Y", {x}}}, {}, {{"Out", 1}}),
              is_singular);
  EXPECT_THAT(RunOp("cholesky_solve", {{"X", {x}}, {"Y", {triangles}}}, {}, {{"Out", 1}}),
              is_singular);
  EXPECT_THAT(RunOp("slogdeterminant_grad",
                    {{"Input", {x}},
                     {"Out", {Floats({2, 2}, {1, 0, 0, 0})}},
                     {"Out@GRAD", {Floats({2, 2}, {1, 1, 1, 1})}}},
                    {}, {{"Input@GRAD", 1}}),
              is_singular);
}

TEST(DenseAlgebraTest, IndefiniteMatrixHasNoCholeskyFactor) {
  EXPECT_THAT(RunOp("cholesky", {{"X", {OneSingular()}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("matrix 1 is not positive definite"));
}

TEST(DenseAlgebraTest, DeterminantsOfSingularMatricesHaveGradients) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("determinant_grad",
                                            {{"Input", {OneSingular()}},
                                             {"Out", {Floats({2}, {1, 0})}},
                                             {"Out@GRAD", {Floats({2}, {1, 2})}}},
                                            {}, {{"Input@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["Input@GRAD"][0]), ElementsAre(1, -1, -1, 2, 2, -4, -4, 8));
}

// With as many matrices as rows, Y could be a vector for each: to solve, but not for the others.
TEST(DenseAlgebraTest, RightSidesAreVectorsForSolveOnly) {
  const Tensor x = Floats({2, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 2}), y = Floats({2, 2}, {1, 2, 3, 4});
  WEFT_ASSERT_OK_AND_ASSIGN(auto solved,
                            RunOp("solve", {{"X", {x}}, {"Y", {y}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(solved["Out"][0]), ElementsAre(1, 2, 1.5, 2));
  WEFT_ASSERT_OK_AND_ASSIGN(auto triangular,
                            RunOp("triangular_solve", {{"X", {x}}, {"Y", {y}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(triangular["Out"][0]), ElementsAre(1, 2, 3, 4, 0.5, 1, 1.5, 2));
}

TEST(DenseAlgebraTest, SizesThatDoNotFitAreErrors) {
  const Tensor square = Floats({2, 2}, {2, 1, 1, 1}), wide = Floats({1, 2}, {1, 2});
  for (const std::string op : {"inverse", "determinant", "slogdeterminant"}) {
    EXPECT_THAT(RunOp(op, {{"Input", {wide}}}, {}, {{op == "inverse" ? "Output" : "Out", 1}}),
                IsInvalidArgument("square"));
  }
  EXPECT_THAT(RunOp("solve", {{"X", {square}}, {"Y", {wide}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("2 rows"));
  EXPECT_THAT(RunOp("multi_dot", {{"X", {square, wide}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("2 rows"));
}

}  // namespace
}  // namespace weft::testing
