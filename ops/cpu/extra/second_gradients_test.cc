// Second gradients against differences of the gradient ops' results, in double precision.
#include "ops/schema/second_gradients.h"

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/schema/op_schema.h"

namespace weft::testing {
namespace {

using Kind = SecondGradient::Kind;

Tensor Random(const Dims& dims, std::mt19937* random) {
  std::vector<double> values(NumElements(dims));
  for (double& value : values) value = std::uniform_real_distribution<>(0.3, 1.7)(*random);
  return MakeTensor<double>(dims, values);
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

struct Shapes {
  Dims x, y, out;
};
Shapes ShapesFor(const SecondGradient& s) {
  if (s.op == "conv2d") return {{2, 4, 5, 4}, {6, 2, 3, 2}, {2, 6, 3, 3}};
  if (s.op == "matmul_v2") return {{2, 3, 4}, {5, 4}, {2, 3, 5}};
  if (s.op == "mul") return {{3, 4}, {4, 2}, {3, 2}};
  if (s.kind == Kind::kFunction) return {{3, 4}, {}, {3, 4}};
  return {{2, 3, 4}, {3, 1}, {2, 3, 4}};
}
AttrValues AttrsFor(const SecondGradient& s) {
  if (s.op == "conv2d") return {{"groups", 2}};
  if (s.op == "matmul_v2") return {{"trans_y", true}};
  if (s.op == "pow") return {{"factor", 2.5f}};
  if (s.op == "celu" || s.op == "elu") return {{"alpha", 0.7f}};
  if (s.op == "softplus") return {{"beta", 1.5f}};
  return {};
}

class SecondGradientsTest : public ::testing::TestWithParam<SecondGradient> {
 protected:
  // The gradient op's outputs, at `values`: for x, y, out and dout.
  std::map<std::string, Tensor> Gradient(const std::map<std::string, Tensor>& values) const {
    const SecondGradient& s = GetParam();
    const OpSchema& grad = *FindOpSchema(s.op + "_grad");
    SlotTensors inputs;
    for (const SlotSchema& slot : grad.inputs()) {
      if (!slot.IsRequired(/*version=*/0)) continue;
      const bool is_gradient = slot.name.find("@GRAD") != std::string::npos;
      const bool is_y = slot.name == "Y" || slot.name == "Filter";
      const bool is_out = slot.name == "Out";
      inputs.push_back({slot.name,
                        {values.at(is_gradient ? "dout"
                                   : is_y      ? "y"
                                   : is_out    ? "out"
                                               : "x")}});
    }
    SlotCounts outputs;
    for (const SlotSchema& slot : grad.outputs()) outputs.push_back({slot.name, 1});
    auto result = RunOp(grad.type(), inputs, AttrsFor(s), outputs);
    EXPECT_TRUE(result.ok()) << result.status();
    std::map<std::string, Tensor> gradients;
    for (auto& [slot, tensors] : *result) {
      gradients[slot == "Y@GRAD" || slot == "Filter@GRAD" ? "dy" : "dx"] = std::move(tensors[0]);
    }
    return gradients;
  }
};

TEST_P(SecondGradientsTest, AreDifferencesOfGradients) {
  const SecondGradient& s = GetParam();
  if (s.kind == Kind::kView) GTEST_SKIP() << "its elements are tested below";
  std::mt19937 random(7);
  const Shapes shapes = ShapesFor(s);
  std::map<std::string, Tensor> values;
  for (const auto& [name, dims] : {std::pair<std::string, Dims>{"x", shapes.x},
                                   {"y", shapes.y},
                                   {"out", shapes.out},
                                   {"dout", shapes.out},
                                   {"ddx", shapes.x},
                                   {"ddy", shapes.y}}) {
    values[name] = Random(dims, &random);
    // On both sides of 0, if the domain has both.
    const bool takes_both = s.op == "elu" || s.op == "celu" || s.op == "leaky_relu";
    if (takes_both && values[name].size() > 1) values[name].data<double>()[1] *= -1;
  }
  const auto penalty = [&](const std::map<std::string, Tensor>& at) {
    const auto gradients = Gradient(at);
    double sum = Dot(gradients.at("dx"), values["ddx"]);
    if (!s.ddy.empty()) sum += Dot(gradients.at("dy"), values["ddy"]);
    return sum;
  };

  // The slots' contents: for x / y, out and dx; for a function, v and dout or dx.
  const bool is_of_out = s.x == "Out";
  const std::string v = is_of_out ? "out" : "x";
  const bool takes_dx = s.dout == "DX" || s.dout == "grad_x";
  const Tensor dx = Gradient(values).at("dx");
  SlotTensors inputs = {{s.ddx, {values["ddx"]}}};
  if (!s.x.empty()) inputs.push_back({s.x, {values[v]}});
  if (!s.y.empty()) inputs.push_back({s.y, {values["y"]}});
  if (!s.ddy.empty()) inputs.push_back({s.ddy, {values["ddy"]}});
  if (!s.dout.empty()) inputs.push_back({s.dout, {takes_dx ? dx : values["dout"]}});
  SlotCounts outputs = {{s.ddout, 1}};
  for (const std::string& slot : {s.dx, s.dy}) {
    if (!slot.empty()) outputs.push_back({slot, 1});
  }
  WEFT_ASSERT_OK_AND_ASSIGN(auto found, RunOp(s.type, inputs, AttrsFor(s), outputs));

  for (const auto& [slot, name] :
       {std::pair<std::string, std::string>{s.dx, v}, {s.dy, "y"}, {s.ddout, "dout"}}) {
    if (slot.empty()) continue;
    const Tensor& tensor = found[slot][0];
    ASSERT_EQ(tensor.dims(), values[name].dims());
    for (int64_t i = 0; i < tensor.size(); ++i) {
      constexpr double kStep = 1e-5;
      std::map<std::string, Tensor> moved;
      for (const auto& value : values) moved[value.first] = value.second.Clone();
      moved[name].data<double>()[i] += kStep;
      const double above = penalty(moved);
      moved[name].data<double>()[i] -= 2 * kStep;
      const double expected = (above - penalty(moved)) / (2 * kStep);
      EXPECT_NEAR(tensor.data<double>()[i], expected, 1e-6 * std::max(1.0, std::fabs(expected)))
          << slot << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, SecondGradientsTest, ValuesIn(SecondGradients()),
                         [](const ::testing::TestParamInfo<SecondGradient>& info) {
                           return info.param.type;
                         });

TEST(ReshapeSecondGradientTest, HasTheElementsOfTheOneAndTheShapeOfTheOther) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("reshape2_grad_grad",
                                            {{"DOut", {Floats({3, 2}, {0, 0, 0, 0, 0, 0})}},
                                             {"DDX", {Floats({2, 3}, {1, 2, 3, 4, 5, 6})}}},
                                            {}, {{"DDOut", 1}}));
  EXPECT_EQ(out["DDOut"][0].dims(), (Dims{3, 2}));
  EXPECT_EQ(Values<float>(out["DDOut"][0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(ProductSecondGradientTest, MissingGradientIsZero) {
  const Tensor x = Floats({1, 2}, {1, 2}), y = Floats({2, 1}, {3, 4}), dout = Floats({1, 1}, {5});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("mul_grad_grad", {{"X", {x}}, {"Y", {y}}, {"DOut", {dout}}, {"DDX", {x}}}, {},
                      {{"DX", 1}, {"DY", 1}, {"DDOut", 1}}));
  EXPECT_EQ(Values<float>(out["DX"][0]), (std::vector<float>{0, 0}));
  EXPECT_EQ(Values<float>(out["DY"][0]), (std::vector<float>{5, 10}));
  EXPECT_EQ(Values<float>(out["DDOut"][0]), (std::vector<float>{11}));
}

TEST(SumSecondGradientTest, MissingGradientIsZeroAndTheOtherIsBroadcast) {
  const Tensor y = Floats({2}, {0, 0}), dout = Floats({2, 2}, {9, 9, 9, 9});
  const auto sum = [&](const char* type, const char* slot, const Tensor& given) {
    auto out = RunOp(type, {{"Y", {y}}, {"DOut", {dout}}, {slot, {given}}}, {}, {{"DDOut", 1}});
    EXPECT_TRUE(out.ok()) << out.status();
    return Values<float>((*out)["DDOut"][0]);
  };
  EXPECT_EQ(sum("elementwise_add_grad_grad", "DDX", Floats({2, 2}, {1, 2, 3, 4})),
            (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(sum("elementwise_sub_grad_grad", "DDY", Floats({2}, {1, 2})),
            (std::vector<float>{-1, -2, -1, -2}));
}

TEST(QuotientSecondGradientTest, ARepeatedXIsUnimplemented) {
  EXPECT_THAT(RunOp("elementwise_div_grad_grad",
                    {{"Y", {Floats({2}, {1, 2})}},
                     {"Out", {Floats({2}, {1, 2})}},
                     {"DX", {Floats({1}, {1})}},
                     {"DDX", {Floats({1}, {1})}}},
                    {}, {{"DDOut", 1}}),
              IsUnimplemented("repeated"));
}

}  // namespace
}  // namespace weft::testing
