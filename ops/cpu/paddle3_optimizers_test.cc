// Against numbers of Paddle 3.3.1, whose optimizers keep the powers of nadam and radam in the shape
// of the parameter.
#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

::testing::Matcher<std::vector<float>> Near(const std::vector<float>& values) {
  std::vector<::testing::Matcher<float>> matchers;
  for (const float value : values) matchers.push_back(FloatNear(value, 2e-6f));
  return ElementsAreArray(matchers);
}

// Element `i` of the gradient in a step.
std::vector<float> Gradient(int step) {
  const std::vector<std::vector<float>> gradients = {{0.5, -1, 2}, {0.25, 1, -2}, {1, 0, 0.5}};
  return gradients[step % 3];
}

// A parameter of equal elements: each is what Paddle makes of one.
std::vector<float> Twice(float value) { return {value, value}; }

struct NadamState {
  explicit NadamState(const std::vector<float>& ones)
      : decay(Floats({static_cast<int64_t>(ones.size())}, ones)), b2(decay), mu(decay) {}
  absl::Status Run(float gradient) {
    Tensor g = Floats({2}, Twice(gradient)), lr = Floats({1}, {0.1});
    return RunOpOn("nadam",
                   {{"Param", {&p}},
                    {"Grad", {&g}},
                    {"LearningRate", {&lr}},
                    {"Moment1", {&m1}},
                    {"Moment2", {&m2}},
                    {"MomentumDecayPow", {&decay}},
                    {"Beta2Pow", {&b2}},
                    {"MuProduct", {&mu}}},
                   {},
                   {{"ParamOut", {&p}},
                    {"Moment1Out", {&m1}},
                    {"Moment2Out", {&m2}},
                    {"MomentumDecayPowOut", {&decay}},
                    {"Beta2PowOut", {&b2}},
                    {"MuProductOut", {&mu}}});
  }
  Tensor p = Floats({2}, {1, 1}), m1 = Floats({2}, {0, 0}), m2 = Floats({2}, {0, 0});
  Tensor decay, b2, mu;
};

TEST(NadamTest, StepsAsInPaddle) {
  const float expected[3][4] = {
      {0.8943548202514648, 0.9599999785423279, 0.9990000128746033, 0.4500734806060791},
      {0.8419626951217651, 0.9215999841690063, 0.9980010390281677, 0.2025991827249527},
      {0.7389593720436096, 0.8847359418869019, 0.9970030784606934, 0.09121427685022354}};
  for (const size_t powers : {1, 2}) {
    SCOPED_TRACE(powers);
    NadamState state(std::vector<float>(powers, 1));
    for (int step = 0; step < 3; ++step) {
      WEFT_ASSERT_OK(state.Run(Gradient(step)[0]));
      EXPECT_THAT(Values<float>(state.p), Near(Twice(expected[step][0])));
      EXPECT_THAT(Values<float>(state.decay), Near(std::vector<float>(powers, expected[step][1])));
      EXPECT_THAT(Values<float>(state.b2), Near(std::vector<float>(powers, expected[step][2])));
      EXPECT_THAT(Values<float>(state.mu), Near(std::vector<float>(powers, expected[step][3])));
    }
  }
}

TEST(NadamTest, ElementsOfDifferentPowersStepByTheirOwn) {
  NadamState both({1, 0.25}), first({1}), second({0.25});
  for (int step = 0; step < 3; ++step) {
    for (NadamState* const state : {&both, &first, &second}) {
      WEFT_ASSERT_OK(state->Run(Gradient(step)[0]));
    }
    const float p[2] = {Values<float>(first.p)[0], Values<float>(second.p)[1]};
    EXPECT_NE(p[0], p[1]);
    EXPECT_THAT(Values<float>(both.p), Near({p[0], p[1]}));
    EXPECT_THAT(Values<float>(both.mu),
                Near({Values<float>(first.mu)[0], Values<float>(second.mu)[0]}));
  }
}

TEST(NadamTest, RefusesPowersOfDifferentSizes) {
  NadamState state({1, 1});
  state.mu = Floats({1}, {1});
  EXPECT_THAT(state.Run(1), IsInvalidArgument("input MuProduct"));
}

// The parameter after 1, 3 and 9 steps. The variance is known after the sixth with beta2 of 0.999,
// never with 0.5.
void RadamSteps(int64_t powers, float beta2, const std::vector<float>& expected,
                float rho_expected) {
  SCOPED_TRACE(beta2);
  SCOPED_TRACE(powers);
  Tensor p = Floats({2}, {1, 1}), lr = Floats({1}, {0.1});
  Tensor m1 = Floats({2}, {0, 0}), m2 = Floats({2}, {0, 0});
  Tensor b1 = Floats({powers}, std::vector<float>(powers, 1)), b2 = b1, rho = b1;
  std::vector<float> found;
  for (int step = 0; step < 9; ++step) {
    Tensor g = Floats({2}, Twice(Gradient(step)[0]));
    WEFT_ASSERT_OK(RunOpOn("radam",
                           {{"Param", {&p}},
                            {"Grad", {&g}},
                            {"LearningRate", {&lr}},
                            {"Moment1", {&m1}},
                            {"Moment2", {&m2}},
                            {"Beta1Pow", {&b1}},
                            {"Beta2Pow", {&b2}},
                            {"Rho", {&rho}}},
                           {{"beta2", beta2}},
                           {{"ParamOut", {&p}},
                            {"Moment1Out", {&m1}},
                            {"Moment2Out", {&m2}},
                            {"Beta1PowOut", {&b1}},
                            {"Beta2PowOut", {&b2}},
                            {"RhoOut", {&rho}}}));
    EXPECT_EQ(Values<float>(p)[0], Values<float>(p)[1]);
    if (step == 0 || step == 2 || step == 8) found.push_back(Values<float>(p)[0]);
  }
  EXPECT_THAT(found, Near(expected));
  EXPECT_NEAR(Values<float>(rho)[0], rho_expected, 1e-5 * rho_expected);
}

TEST(RadamTest, StepsAsInPaddle) {
  for (const int64_t powers : {1, 2}) {
    RadamSteps(powers, 0.999f, {0.949999988079071f, 0.8530102968215942f, 0.7338011264801025f},
               995.0195922851562f);
    RadamSteps(powers, 0.5f, {0.949999988079071f, 0.8530102968215942f, 0.5156084895133972f},
               0.017612524330615997f);
  }
}

TEST(RpropTest, StepsAsInPaddle) {
  Tensor p = Floats({3}, {1, 2, -3}), prev = Floats({3}, {0, 0, 0});
  Tensor rates = Floats({3}, {0.1, 0.1, 0.1});
  Tensor range = Floats({2}, {1e-3, 0.15}), etas = Floats({1, 2}, {0.5, 1.2});
  const auto run = [&](const std::vector<float>& gradient) {
    Tensor g = Floats({3}, gradient);
    return RunOpOn("rprop",
                   {{"Param", {&p}},
                    {"Grad", {&g}},
                    {"Prev", {&prev}},
                    {"LearningRate", {&rates}},
                    {"LearningRateRange", {&range}},
                    {"Etas", {&etas}}},
                   {}, {{"ParamOut", {&p}}, {"PrevOut", {&prev}}, {"LearningRateOut", {&rates}}});
  };
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(run(Gradient(step)));
  EXPECT_THAT(Values<float>(p), Near({0.636f, 2.1f, -3.15f}));
  EXPECT_THAT(Values<float>(prev), ElementsAre(1, 0, 0.5));
  EXPECT_THAT(Values<float>(rates), Near({0.144f, 0.05f, 0.05f}));
  WEFT_ASSERT_OK(run({1, 1, 1}));
  EXPECT_THAT(Values<float>(p), Near({0.486f, 2.05f, -3.21f}));
  EXPECT_THAT(Values<float>(rates), Near({0.15f, 0.05f, 0.06f}));
  range = Floats({1}, {1});
  EXPECT_THAT(run({1, 1, 1}), IsInvalidArgument("LearningRateRange"));
}

TEST(AsgdTest, StepsAsInPaddle) {
  Tensor p = Floats({3}, {1, 2, -3}), d = Floats({3}, {0, 0, 0}), y = Floats({3}, {0.25, 0, 1});
  Tensor n = Floats({1}, {2}), lr = Floats({1}, {0.1});
  const auto run = [&](int step) {
    Tensor g = Floats({3}, Gradient(step));
    return RunOpOn("asgd",
                   {{"Param", {&p}},
                    {"Grad", {&g}},
                    {"LearningRate", {&lr}},
                    {"D", {&d}},
                    {"Y", {&y}},
                    {"N", {&n}}},
                   {}, {{"ParamOut", {&p}}, {"DOut", {&d}}, {"YOut", {&y}}});
  };
  for (int step = 0; step < 3; ++step) WEFT_ASSERT_OK(run(step));
  EXPECT_THAT(Values<float>(p), Near({0.95f, 2.0f, -2.875f}));
  EXPECT_THAT(Values<float>(d), ElementsAre(0.75, 0, -0.5));
  EXPECT_THAT(Values<float>(y), ElementsAre(1, 0, 0.5));
  n = Floats({1}, {0});
  EXPECT_THAT(run(0), IsInvalidArgument("input N: expected a number above 0, found 0"));
}

}  // namespace
}  // namespace weft::testing
