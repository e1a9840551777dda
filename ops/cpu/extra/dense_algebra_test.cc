#include <cmath>
#include <string>
#include <vector>

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

// numpy.linalg.qr of the first matrix; zeros, and columns in proportion, have orthonormal factors.
TEST(DenseAlgebraTest, FactorsAreOrthonormalAndTriangular) {
  const Tensor x = Floats({3, 3, 2}, {1, 2, 2, 0, -2, 1, 0, 0, 0, 0, 0, 0, 1, 2, 1, 2, 1, 2});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("qr", {{"X", {x}}}, {}, {{"Q", 1}, {"R", 1}}));
  const std::vector<float> q = Values<float>(out["Q"][0]), r = Values<float>(out["R"][0]);
  ASSERT_EQ(out["Q"][0].dims(), (Dims{3, 3, 2}));
  ASSERT_EQ(out["R"][0].dims(), (Dims{3, 2, 2}));
  const float third = 1.0F / 3, root = std::sqrt(5.0F);
  EXPECT_THAT(std::vector<float>(r.begin(), r.begin() + 4),
              Pointwise(FloatNear(1e-6F), {-3.0F, 0.0F, 0.0F, root}));
  EXPECT_THAT(
      std::vector<float>(q.begin(), q.begin() + 6),
      Pointwise(FloatNear(1e-6F), {-third, 2 / root, -2 * third, 0.0F, 2 * third, 1 / root}));
  const float* const values = x.data<float>();
  for (int which = 0; which < 3; ++which) {
    const float *of_q = q.data() + which * 6, *of_r = r.data() + which * 4;
    EXPECT_EQ(of_r[2], 0) << which;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const float product =
            of_q[i] * of_q[j] + of_q[2 + i] * of_q[2 + j] + of_q[4 + i] * of_q[4 + j];
        EXPECT_NEAR(product, i == j ? 1 : 0, 1e-6) << which;
      }
      for (int row = 0; row < 3; ++row) {
        EXPECT_NEAR(of_q[2 * row] * of_r[i] + of_q[2 * row + 1] * of_r[2 + i],
                    values[which * 6 + 2 * row + i], 1e-6)
            << which;
      }
    }
  }
}

TEST(DenseAlgebraTest, WideMatricesHaveSquareFactors) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("qr", {{"X", {Floats({2, 3}, {0, 2, 1, 1, 0, 3})}}}, {},
                                            {{"Q", 1}, {"R", 1}}));
  EXPECT_THAT(Values<float>(out["Q"][0]), Pointwise(FloatNear(1e-6F), {0, -1, -1, 0}));
  EXPECT_THAT(Values<float>(out["R"][0]), Pointwise(FloatNear(1e-6F), {-1, 0, -3, 0, -2, -1}));
  EXPECT_THAT(RunOp("qr", {{"X", {Floats({2, 2}, {1, 0, 0, 1})}}},
                    {{"mode", std::string("complete")}}, {{"Q", 1}, {"R", 1}}),
              IsInvalidArgument("attribute mode: expected reduced, found complete"));
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
