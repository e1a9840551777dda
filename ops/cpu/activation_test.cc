#include "ops/formulas/activation.h"

#include <cmath>
#include <string>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/schema/op_schema.h"

namespace weft::testing {
namespace {

TEST(ActivationTest, ReluCutsOffBelowZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("relu", {{"X", {Floats({3}, {-1, 0, 2})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 0, 2));
}

TEST(ActivationTest, ReluWorksInPlace) {
  Tensor x = Floats({2}, {-3, 4});
  WEFT_ASSERT_OK(RunOpOn("relu", {{"X", {&x}}}, {}, {{"Out", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(0, 4));
}

TEST(ActivationTest, ReluGradPassesWhereOutIsPositive) {
  Tensor out = Floats({3}, {0, 2, 5}), dout = Floats({3}, {7, 8, 9});
  WEFT_ASSERT_OK(
      RunOpOn("relu_grad", {{"Out", {&out}}, {"Out@GRAD", {&dout}}}, {}, {{"X@GRAD", {&dout}}}));
  EXPECT_THAT(Values<float>(dout), ElementsAre(0, 8, 9));
}

TEST(ActivationTest, SignAndSlopeOfNanAreNan) {
  const Tensor x = Floats({4}, {-3, 0, 2, NAN});
  WEFT_ASSERT_OK_AND_ASSIGN(auto sign, RunOp("sign", {{"X", {x}}}, {}, {{"Out", 1}}));
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto slope, RunOp("abs_grad", {{"Out@GRAD", {Floats({4}, {1, 1, 1, 1})}}, {"X", {x}}}, {},
                        {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(sign["Out"][0]), ElementsAre(-1, 0, 1, IsNan()));
  EXPECT_THAT(Values<float>(slope["X@GRAD"][0]), ElementsAre(-1, 0, 1, IsNan()));
}

TEST(ActivationTest, SquareInDoublePrecision) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("square", {{"X", {MakeTensor<double>({2}, {0.1, -3})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<double>(out["Out"][0]), ElementsAre(0.1 * 0.1, 9));
}

TEST(ActivationTest, SquareGradIsTwiceXTimesOutGrad) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("square_grad", {{"X", {Floats({2}, {3, -4})}}, {"Out@GRAD", {Floats({2}, {1, 0.5})}}},
            {}, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(6, -4));
}

TEST(ActivationTest, UnreadGradientIsSkipped) {
  Tensor x = Floats({1}, {3});
  WEFT_EXPECT_OK(
      RunOpOn("square_grad", {{"X", {&x}}, {"Out@GRAD", {&x}}}, {}, {{"X@GRAD", {nullptr}}}));
}

TEST(ActivationTest, IntegersHaveNoKernel) {
  EXPECT_THAT(RunOp("relu", {{"X", {MakeTensor<int32_t>({1}, {1})}}}, {}, {{"Out", 1}}),
              IsUnimplemented("input X: no kernel"));
}

TEST(ActivationTest, SqrtTanhAndSigmoid) {
  const auto apply = [](const char* op, float x) {
    return Values<float>((*RunOp(op, {{"X", {Floats({1}, {x})}}}, {}, {{"Out", 1}}))["Out"][0])[0];
  };
  EXPECT_FLOAT_EQ(apply("sqrt", 9), 3);
  EXPECT_FLOAT_EQ(apply("tanh", 0.5f), std::tanh(0.5f));
  EXPECT_FLOAT_EQ(apply("sigmoid", 0), 0.5f);
  EXPECT_FLOAT_EQ(apply("sigmoid", -200), 0);
}

TEST(ActivationTest, GradientsFromTheOutput) {
  const auto gradient = [](const char* op, float out) {
    return Values<float>(
        (*RunOp(op, {{"Out", {Floats({1}, {out})}}, {"Out@GRAD", {Floats({1}, {2})}}}, {},
                {{"X@GRAD", 1}}))["X@GRAD"][0])[0];
  };
  EXPECT_FLOAT_EQ(gradient("sqrt_grad", 4), 0.25f);
  EXPECT_FLOAT_EQ(gradient("tanh_grad", 0.5f), 1.5f);
  EXPECT_FLOAT_EQ(gradient("sigmoid_grad", 0.5f), 0.5f);
}

TEST(ActivationTest, GradientOpsHaveTheInputsThatTheirFormulasRead) {
  formulas::ForEachActivation([](const std::string& type, auto tag) {
    using Gradient = formulas::XGradOf<typename decltype(tag)::Formula>;
    const OpSchema* const schema = FindOpSchema(type + "_grad");
    ASSERT_NE(schema, nullptr) << type;
    EXPECT_NE(schema->FindInput(Gradient::kReads), nullptr) << type << " " << Gradient::kReads;
  });
}

TEST(ActivationTest, FormulasSayWhatTheyRead) {
  EXPECT_STREQ(formulas::XGradOf<formulas::Log>::kReads, "X");
  EXPECT_STREQ(formulas::XGradOf<formulas::Relu>::kReads, "Out");
  EXPECT_STREQ(formulas::XGradOf<formulas::Floor>::kReads, "Out@GRAD");
}

TEST(ActivationTest, GradientOpWithoutWhatItReadsHasNoKernel) {
  const Tensor dout = Floats({1}, {1});
  EXPECT_THAT(RunOp("relu_grad", {{"Out@GRAD", {dout}}}, {}, {{"X@GRAD", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input Out: missing"));
}

}  // namespace
}  // namespace weft::testing
