// The code around all updates: half precision, several parameters in one op. op_vectors_test
// compares the formulas with Paddle's numbers.
#include <cmath>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/bound_kernel.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

TEST(UpdateTest, AHalfPrecisionParameterIsUpdatedInItsMaster) {
  // Steps below the resolution of a bf16 near 1 accumulate in the master.
  Tensor p = MakeTensor<BFloat16>({1}, {1.0f}), master = Floats({1}, {1});
  Tensor g = MakeTensor<BFloat16>({1}, {1.0f}), lr = Floats({1}, {1.0f / 1024});
  for (int step = 0; step < 4; ++step) {
    WEFT_ASSERT_OK(RunOpOn(
        "sgd",
        {{"Param", {&p}}, {"MasterParam", {&master}}, {"Grad", {&g}}, {"LearningRate", {&lr}}},
        {{"multi_precision", true}}, {{"ParamOut", {&p}}, {"MasterParamOut", {&master}}}));
    if (step == 0) {
      EXPECT_EQ(Values<BFloat16>(p)[0], 1.0f);
    }
  }
  EXPECT_THAT(Values<float>(master), ElementsAre(1 - 4.0f / 1024));
  EXPECT_EQ(Values<BFloat16>(p)[0], 1 - 4.0f / 1024);
}

TEST(UpdateTest, RowsInHalfPrecisionUpdateTheMaster) {
  Tensor p = MakeTensor<Float16>({2, 1}, {1.0f, 2.0f}), master = Floats({2, 1}, {1, 2});
  Tensor g, lr = Floats({1}, {1});
  g.ResizeRows(DType::kFloat16, {2, 1}, 1);
  g.mutable_rows()[0] = 1;
  g.data<Float16>()[0] = 0.5f;
  WEFT_ASSERT_OK(RunOpOn(
      "sgd", {{"Param", {&p}}, {"MasterParam", {&master}}, {"Grad", {&g}}, {"LearningRate", {&lr}}},
      {}, {{"ParamOut", {&p}}, {"MasterParamOut", {&master}}}));
  EXPECT_THAT(Values<float>(master), ElementsAre(1, 1.5));
  EXPECT_EQ(Values<Float16>(p)[1], 1.5f);
}

// State and parameter are updated in place: what the host does for an optimizer of which it has the
// state alone.
TEST(UpdateTest, AGradientInHalfPrecisionCopiesNothing) {
  KernelSpec spec;
  spec.schema = FindOpSchema("momentum");
  spec.attrs = OpAttrs::Make(*spec.schema, {{"mu", 0.5f}});
  spec.inputs = {
      {"Param", {0, 1}}, {"Grad", {1, 1}}, {"LearningRate", {2, 1}}, {"Velocity", {3, 1}}};
  spec.outputs = {{"ParamOut", {0, 1}}, {"VelocityOut", {1, 1}}};
  auto made = (*CpuKernels().Find("momentum"))(spec);
  WEFT_ASSERT_OK(made.status());
  BoundKernel kernel(*std::move(made));
  Tensor p = Floats({2}, {1, 2}), v = Floats({2}, {0, 1}), lr = Floats({1}, {1});
  Tensor g = MakeTensor<Float16>({2}, {0.5f, 0.25f});
  const std::vector<const Tensor*> inputs = {&p, &g, &lr, &v};
  const std::vector<Tensor*> outputs = {&p, &v};
  KernelContext ctx;
  ctx.inputs = inputs;
  ctx.outputs = outputs;
  WEFT_ASSERT_OK(kernel.Run(ctx));
  EXPECT_THAT(Values<float>(p), ElementsAre(0.5, 1.25));
  EXPECT_THAT(Values<float>(v), ElementsAre(0.5, 0.75));
  EXPECT_FALSE(kernel.has_temporaries());
}

// Parts of long parameters are converted, updated and rounded one after the other. lamb needs norms
// first. The first time, nothing is in half precision, and then the gradient alone.
TEST(UpdateTest, LongParametersInHalfPrecisionAreUpdatedAsInFp32) {
  const int64_t n = 3 * 1024 + 7;
  std::vector<float> first(n), grads(n);
  for (int64_t i = 0; i < n; ++i) {
    first[i] = 1 + static_cast<float>(i % 31) / 16;
    grads[i] = static_cast<float>(i % 13) / 8 - 0.5f;
  }
  for (const char* type : {"adam", "lamb"}) {
    std::vector<Tensor> results;
    for (const int num_halves : {0, 1, 2}) {
      const bool is_half = num_halves == 2;
      Tensor p =
          is_half ? MakeTensor<Float16>({n}, {first.begin(), first.end()}) : Floats({n}, first);
      Tensor g = num_halves > 0 ? MakeTensor<Float16>({n}, {grads.begin(), grads.end()})
                                : Floats({n}, grads);
      Tensor master = Floats({n}, first), lr = Floats({1}, {0.25});
      Tensor m1 = Floats({n}, std::vector<float>(n)), m2 = Floats({n}, std::vector<float>(n));
      Tensor b1 = Floats({1}, {0.5}), b2 = Floats({1}, {0.75});
      SlotPointers inputs = {{"Param", {&p}},    {"Grad", {&g}},     {"LearningRate", {&lr}},
                             {"Moment1", {&m1}}, {"Moment2", {&m2}}, {"Beta1Pow", {&b1}},
                             {"Beta2Pow", {&b2}}};
      SlotPointers outputs = {{"ParamOut", {&p}},
                              {"Moment1Out", {&m1}},
                              {"Moment2Out", {&m2}},
                              {"Beta1PowOut", {&b1}},
                              {"Beta2PowOut", {&b2}}};
      if (is_half) {
        inputs.push_back({"MasterParam", {&master}});
        outputs.push_back({"MasterParamOut", {&master}});
      }
      AttrValues attrs = {{"beta1", 0.5f}, {"beta2", 0.75f}};
      if (type == std::string("lamb")) attrs.push_back({"weight_decay", 0.5f});
      WEFT_ASSERT_OK(RunOpOn(type, inputs, attrs, outputs));
      results.push_back(is_half ? master.Clone() : p.Clone());
      EXPECT_EQ(Values<float>(results.back()), Values<float>(results[0])) << type;
      if (!is_half) continue;
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(p.data<Float16>()[i].bits(), Float16(master.data<float>()[i]).bits()) << i;
      }
      EXPECT_NE(Values<float>(master), first);
    }
  }
}

TEST(UpdateTest, OnlyTheGradientMayBeRows) {
  Tensor p = Floats({2, 1}, {1, 2}), rows = Rows({2, 1}, {0, 1}, {1, 2}), lr = Floats({1}, {1});
  EXPECT_THAT(RunOpOn("sgd", {{"Param", {&rows}}, {"Grad", {&rows}}, {"LearningRate", {&lr}}}, {},
                      {{"ParamOut", {&rows}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Param: expected a dense tensor, found SelectedRows"));
  EXPECT_THAT(
      RunOpOn("momentum",
              {{"Param", {&p}}, {"Grad", {&rows}}, {"Velocity", {&rows}}, {"LearningRate", {&lr}}},
              {{"mu", 0.5f}}, {{"ParamOut", {&p}}, {"VelocityOut", {&rows}}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "input Velocity: expected a dense tensor, found SelectedRows"));
}

TEST(UpdateTest, WithoutAMasterHalvesAreRounded) {
  Tensor p = MakeTensor<BFloat16>({1}, {1.0f}), g = p, lr = Floats({1}, {0.5});
  Tensor g_copy = g.Clone();
  WEFT_ASSERT_OK(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&g_copy}}, {"LearningRate", {&lr}}}, {},
                         {{"ParamOut", {&p}}}));
  EXPECT_EQ(Values<BFloat16>(p)[0], 0.5f);
}

TEST(UpdateTest, TheParameterMayTakeThePlaceOfTheGradient) {
  Tensor p = Floats({2}, {3, 4}), g = Floats({2}, {1, 2}), lr = Floats({}, {1});
  WEFT_ASSERT_OK(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&g}}, {"LearningRate", {&lr}}}, {},
                         {{"ParamOut", {&g}}}));
  EXPECT_THAT(Values<float>(g), ElementsAre(2, 2));
}

// Two parameters, the second without a velocity so far.
struct MergedMomentumTest : public ::testing::Test {
  Tensor p0 = Floats({1}, {8}), p1 = Floats({2}, {1, 2}), g0 = Floats({1}, {1});
  Tensor g1 = Floats({2}, {2, 4}), v0 = Floats({1}, {4}), v1 = Floats({2}, {0, 0});
  Tensor lr = Floats({}, {1});
  SlotPointers inputs = {{"Param", {&p0, &p1}},
                         {"Grad", {&g0, &g1}},
                         {"Velocity", {&v0, &v1}},
                         {"LearningRate", {&lr}}};
  SlotPointers outputs = {{"ParamOut", {&p0, &p1}}, {"VelocityOut", {&v0, &v1}}};
};

TEST_F(MergedMomentumTest, UpdatesEachParameterSeparately) {
  WEFT_ASSERT_OK(RunOpOn("merged_momentum", inputs,
                         {{"mu", 0.5f},
                          {"regularization_method", std::vector<std::string>{"", "l2_decay"}},
                          {"regularization_coeff", std::vector<float>{0, 0.5f}}},
                         outputs));
  EXPECT_THAT(Values<float>(v0), ElementsAre(3));
  EXPECT_THAT(Values<float>(p0), ElementsAre(5));
  EXPECT_THAT(Values<float>(v1), ElementsAre(2.5, 5));
  EXPECT_THAT(Values<float>(p1), ElementsAre(-1.5, -3));
}

TEST_F(MergedMomentumTest, PaddlesKernelIgnoresRescaleGrad) {
  const AttrValues attrs = {{"mu", 0.0f}, {"rescale_grad", 0.5f}};
  WEFT_ASSERT_OK(RunOpOn("merged_momentum", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p0), ElementsAre(7.5));
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner paddles, OpRunner::Make("merged_momentum", inputs, attrs, outputs, /*quirks=*/true));
  WEFT_ASSERT_OK(paddles.Run());
  EXPECT_THAT(Values<float>(p0), ElementsAre(6.5));
}

TEST_F(MergedMomentumTest, SlotsMustHaveEqualSizes) {
  inputs[1].second.pop_back();
  EXPECT_THAT(RunOpOn("merged_momentum", inputs, {{"mu", 0.5f}}, outputs),
              IsInvalidArgument("input Grad: expected 2 variables as Param, found 1"));
  inputs[1].second.push_back(nullptr);
  EXPECT_THAT(RunOpOn("merged_momentum", inputs, {{"mu", 0.5f}}, outputs),
              IsInvalidArgument("input Grad"));
}

TEST(MergedAdamTest, IsAdamForEachParameter) {
  Tensor p[2] = {Floats({1}, {1}), Floats({1}, {5})}, g[2] = {Floats({1}, {2}), Floats({1}, {-3})};
  Tensor m[2] = {Floats({1}, {0}), Floats({1}, {0})}, n[2] = {Floats({1}, {0}), Floats({1}, {0})};
  Tensor b1[2] = {Floats({1}, {0.5}), Floats({1}, {0.5})};
  Tensor b2[2] = {Floats({1}, {0.75}), Floats({1}, {0.75})}, lr = Floats({}, {0.5});
  WEFT_ASSERT_OK(RunOpOn("merged_adam",
                         {{"Param", {&p[0], &p[1]}},
                          {"Grad", {&g[0], &g[1]}},
                          {"Moment1", {&m[0], &m[1]}},
                          {"Moment2", {&n[0], &n[1]}},
                          {"Beta1Pow", {&b1[0], &b1[1]}},
                          {"Beta2Pow", {&b2[0], &b2[1]}},
                          {"LearningRate", {&lr}}},
                         {{"beta1", 0.5f}, {"beta2", 0.75f}, {"epsilon", 0.0f}},
                         {{"ParamOut", {&p[0], &p[1]}},
                          {"Moment1Out", {&m[0], &m[1]}},
                          {"Moment2Out", {&n[0], &n[1]}},
                          {"Beta1PowOut", {&b1[0], &b1[1]}},
                          {"Beta2PowOut", {&b2[0], &b2[1]}}}));
  EXPECT_THAT(Values<float>(p[0]),
              ElementsAre(0.5));  // the first step has the size of the learning rate
  EXPECT_THAT(Values<float>(p[1]), ElementsAre(5.5));
  EXPECT_THAT(Values<float>(b1[1]), ElementsAre(0.25));
}

// ‖p‖ = 5, ‖g‖ = 10, lr 0.1: the rate is 0.1 · 4 · 5 / (10 + 5 decay).
std::vector<float> LarsStep(float decay, bool quirks) {
  Tensor p = Floats({2}, {3, 4}), g = Floats({2}, {6, 8}), v = Floats({2}, {0, 0});
  Tensor lr = Floats({1}, {0.1f});
  auto bound = OpRunner::Make(
      "lars_momentum",
      {{"Param", {&p}}, {"Grad", {&g}}, {"Velocity", {&v}}, {"LearningRate", {&lr}}},
      {{"mu", 0.9f}, {"lars_coeff", 4.0f}, {"lars_weight_decay", std::vector<float>{decay}}},
      {{"ParamOut", {&p}}, {"VelocityOut", {&v}}}, quirks);
  EXPECT_THAT(bound, IsOk());
  WEFT_EXPECT_OK(bound->Run());
  return Values<float>(p);
}

TEST(LarsMomentumTest, TheRateFollowsTheNorms) {
  EXPECT_THAT(LarsStep(2, false), ElementsAre(FloatEq(3 - 0.1f * 12), FloatEq(4 - 0.1f * 16)));
  EXPECT_THAT(LarsStep(0, false), ElementsAre(FloatEq(3 - 0.2f * 6), FloatEq(4 - 0.2f * 8)));
}

TEST(LarsMomentumTest, PaddlesKernelTakesThePlainRateWithoutDecay) {
  EXPECT_THAT(LarsStep(0, true), ElementsAre(FloatEq(3 - 0.1f * 6), FloatEq(4 - 0.1f * 8)));
}

TEST(AdadeltaTest, WithoutALearningRateItIsOne) {
  Tensor p = Floats({1}, {1}), g = Floats({1}, {2}), s = Floats({1}, {0}), u = Floats({1}, {3});
  WEFT_ASSERT_OK(RunOpOn(
      "adadelta",
      {{"Param", {&p}}, {"Grad", {&g}}, {"AvgSquaredGrad", {&s}}, {"AvgSquaredUpdate", {&u}}},
      {{"rho", 0.5f}, {"epsilon", 1.0f}},
      {{"ParamOut", {&p}}, {"AvgSquaredGradOut", {&s}}, {"AvgSquaredUpdateOut", {&u}}}));
  const float step = 2 * std::sqrt(4.0f / 3);
  EXPECT_THAT(Values<float>(p), ElementsAre(FloatEq(1 - step)));
  EXPECT_THAT(Values<float>(u), ElementsAre(FloatEq(1.5f + step * step / 2)));
}

}  // namespace
}  // namespace weft::testing
