// Updates by SelectedRows gradients: what they change, and what they refuse. op_vectors_test
// compares their numbers with Paddle's.
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// An update of a parameter fp32[3, 1] that starts as 1, 2, 3, with learning rate 1; state starts
// as zeros.
class Update {
 public:
  explicit Update(std::string op, AttrValues attrs = {})
      : op_(std::move(op)), attrs_(std::move(attrs)) {
    Add("Param", "ParamOut", Floats({3, 1}, {1, 2, 3}));
  }
  // Tensors keep their addresses.
  Update(Update&&) = default;
  Update& State(const std::string& name) { return State(name, name + "Out"); }
  Update& State(const std::string& name, const std::string& output) {
    Add(name, output, Floats({3, 1}, {0, 0, 0}));
    return *this;
  }
  Update& Power(const std::string& name, float value) {
    Add(name, name + "Out", Floats({1}, {value}));
    return *this;
  }
  // Writes to other variables instead of in place.
  Update& Elsewhere() {
    for (auto& output : outputs_) output.second[0] = &elsewhere_[output.first];
    return *this;
  }

  Update& LikePaddle() {
    paddle_cpu_quirks_ = true;
    return *this;
  }

  absl::Status Run(const Tensor& grad) {
    Tensor grad_copy = grad, learning_rate = Floats({}, {1});
    SlotPointers inputs = inputs_;
    inputs.push_back({"Grad", {&grad_copy}});
    inputs.push_back({"LearningRate", {&learning_rate}});
    WEFT_ASSIGN_OR_RETURN(OpRunner op,
                          OpRunner::Make(op_, inputs, attrs_, outputs_, paddle_cpu_quirks_));
    return op.Run();
  }
  std::vector<float> Out(const std::string& name) const { return Output(name + "Out"); }
  std::vector<float> Output(const std::string& slot) const {
    for (const auto& output : outputs_) {
      if (output.first == slot) return Values<float>(*output.second[0]);
    }
    return {};
  }

 private:
  void Add(const std::string& name, const std::string& output, const Tensor& value) {
    Tensor* tensor = &tensors_.emplace_back(value);
    inputs_.push_back({name, {tensor}});
    outputs_.push_back({output, {tensor}});
  }

  std::string op_;
  AttrValues attrs_;
  bool paddle_cpu_quirks_ = false;
  std::deque<Tensor> tensors_;
  std::map<std::string, Tensor> elsewhere_;
  SlotPointers inputs_, outputs_;
};

Update Adam(bool lazy) {
  Update adam("adam", {{"lazy_mode", lazy}, {"beta1", 0.5f}, {"beta2", 0.5f}});
  adam.State("Moment1").State("Moment2").Power("Beta1Pow", 0.5).Power("Beta2Pow", 0.5);
  return adam;
}

const Tensor kNoRows = Rows({3, 1}, {}, {});

TEST(SparseOptimizersTest, SgdMovesTheRowsOfTheGradient) {
  Update sgd("sgd");
  WEFT_ASSERT_OK(sgd.Run(Rows({3, 1}, {2, 0, 2}, {1, 10, 2})));
  EXPECT_THAT(sgd.Out("Param"), ElementsAre(-9, 2, 0));
}

TEST(SparseOptimizersTest, ElsewhereOtherRowsAreCopied) {
  Update sgd("sgd");
  WEFT_ASSERT_OK(sgd.Elsewhere().Run(Rows({3, 1}, {2}, {1})));
  EXPECT_THAT(sgd.Out("Param"), ElementsAre(1, 2, 2));
  Update adagrad("adagrad");
  WEFT_ASSERT_OK(adagrad.State("Moment").Elsewhere().Run(Rows({3, 1}, {2}, {2})));
  EXPECT_THAT(adagrad.Out("Moment"), ElementsAre(0, 0, 4));
}

TEST(SparseOptimizersTest, EqualRowsCountAsOneGradientToAdagrad) {
  Update adagrad("adagrad");
  WEFT_ASSERT_OK(adagrad.State("Moment").Run(Rows({3, 1}, {1, 1}, {1, 2})));
  EXPECT_THAT(adagrad.Out("Moment"), ElementsAre(0, 9, 0));
}

Update Ftrl() {
  return std::move(Update("ftrl", {{"l1", 0.5f}, {"l2", 0.25f}})
                       .State("SquaredAccumulator", "SquaredAccumOut")
                       .State("LinearAccumulator", "LinearAccumOut"));
}

// Repeated rows count as their sum.
TEST(SparseOptimizersTest, RowsWithAGradientAreUpdatedAsByADenseOne) {
  const auto expect_alike = [](Update rows, Update dense, const std::vector<std::string>& outputs) {
    for (const float g : {1.0f, -3.0f}) {
      WEFT_ASSERT_OK(rows.Run(Rows({3, 1}, {2, 0, 2}, {g, 5 * g, 2})));
      WEFT_ASSERT_OK(dense.Run(Floats({3, 1}, {5 * g, 0, g + 2})));
    }
    for (const std::string& output : outputs) {
      SCOPED_TRACE(output);
      const std::vector<float> found = rows.Output(output), expected = dense.Output(output);
      EXPECT_EQ(found[0], expected[0]);
      EXPECT_EQ(found[2], expected[2]);
      EXPECT_EQ(found[1], output == "ParamOut" ? 2 : 0) << "a row without a gradient";
    }
  };
  expect_alike(Ftrl(), Ftrl(), {"ParamOut", "SquaredAccumOut", "LinearAccumOut"});
  expect_alike(std::move(Update("adagrad").State("Moment")),
               std::move(Update("adagrad").State("Moment")), {"ParamOut", "MomentOut"});
  expect_alike(Adam(/*lazy=*/true), Adam(/*lazy=*/true), {"ParamOut", "Moment1Out", "Moment2Out"});
}

// So a dense update would make zeros of rows that no gradient has touched.
TEST(SparseOptimizersTest, FtrlSetsRowsWithASmallLinearAccumulatorToZero) {
  Update ftrl = Ftrl();
  WEFT_ASSERT_OK(ftrl.Run(Rows({3, 1}, {0}, {0.125})));
  EXPECT_THAT(ftrl.Out("Param"), ElementsAre(0, 2, 3));
}

TEST(SparseOptimizersTest, MomentumContinuesInRowsWithoutAGradient) {
  Update momentum("momentum", {{"mu", 0.5f}});
  momentum.State("Velocity");
  WEFT_ASSERT_OK(momentum.Run(Rows({3, 1}, {1}, {1})));
  WEFT_ASSERT_OK(momentum.Run(kNoRows));
  EXPECT_THAT(momentum.Out("Param"), ElementsAre(1, 0.5, 3));
  EXPECT_THAT(momentum.Out("Velocity"), ElementsAre(0, 0.5, 0));
}

TEST(SparseOptimizersTest, AdamDecaysMomentsOfAllRowsButLazyOnesOnlyOfThoseItIsGiven) {
  Update all = Adam(/*lazy=*/false), lazy = Adam(/*lazy=*/true);
  for (Update* adam : {&all, &lazy}) {
    WEFT_ASSERT_OK(adam->Run(Rows({3, 1}, {0}, {4})));
    EXPECT_THAT(adam->Out("Moment1"), ElementsAre(2, 0, 0));
    WEFT_ASSERT_OK(adam->Run(Rows({3, 1}, {1}, {4})));
  }
  EXPECT_THAT(all.Out("Moment1"), ElementsAre(1, 2, 0));
  EXPECT_THAT(lazy.Out("Moment1"), ElementsAre(2, 2, 0));
}

TEST(SparseOptimizersTest, PowersOfAdamCountStepsWithoutRowsToo) {
  for (const bool is_lazy : {false, true}) {
    Update adam = Adam(is_lazy);
    WEFT_ASSERT_OK(adam.Run(kNoRows));
    EXPECT_THAT(adam.Out("Param"), ElementsAre(1, 2, 3));
    EXPECT_THAT(adam.Out("Beta1Pow"), ElementsAre(0.25));
  }
}

// lr √(1 - b2) / (1 - b1) m / (√v + epsilon), with powers of one step too many, and epsilon √(1 -
// b2) only in the row that has a gradient.
TEST(SparseOptimizersTest, PaddlesAdamDoesNotCorrectEpsilonInRowsWithoutAGradient) {
  Update adam("adam", {{"beta1", 0.5f}, {"beta2", 0.25f}, {"epsilon", 2.0f}});
  adam.State("Moment1")
      .State("Moment2")
      .Power("Beta1Pow", 0.5)
      .Power("Beta2Pow", 0.25)
      .LikePaddle();
  WEFT_ASSERT_OK(adam.Run(Rows({3, 1}, {0}, {4})));
  const float b1 = 0.25, b2 = 0.0625, m = 2, v = 12;
  const float lr = std::sqrt(1 - b2) / (1 - b1);
  const float first = 1 - lr * m / (std::sqrt(v) + 2 * std::sqrt(1 - b2));
  EXPECT_THAT(adam.Out("Param"), ElementsAre(FloatNear(first, 1e-6), 2, 3));
  WEFT_ASSERT_OK(adam.Run(Rows({3, 1}, {1}, {4})));
  const float c1 = 0.125, c2 = 0.015625;
  const float next_lr = std::sqrt(1 - c2) / (1 - c1);
  EXPECT_THAT(
      adam.Out("Param"),
      ElementsAre(FloatNear(first - next_lr * (m / 2) / (std::sqrt(v / 4) + 2), 1e-6),
                  FloatNear(2 - next_lr * m / (std::sqrt(v) + 2 * std::sqrt(1 - c2)), 1e-6), 3));
}

TEST(SparseOptimizersTest, RowsOfATensorOfAnotherShapeAreRefused) {
  EXPECT_THAT(Update("sgd").Run(Rows({4, 1}, {3}, {1})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Grad: expected rows of a tensor of shape [3, 1], found rows of shape "
                       "[4, 1]"));
}

TEST(SparseOptimizersTest, DenseGradientIsRefused) {
  Tensor param = Floats({3, 1}, {1, 2, 3}), grad = kNoRows, learning_rate = Floats({}, {1});
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner sgd,
      OpRunner::Make("sgd",
                     {{"Param", {&param}}, {"Grad", {&grad}}, {"LearningRate", {&learning_rate}}},
                     {}, {{"ParamOut", {&param}}}));
  grad = Floats({3, 1}, {1, 1, 1});
  EXPECT_THAT(sgd.Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  "input Grad: expected SelectedRows, found a dense tensor"));
}

TEST(SparseOptimizersTest, UpdateThatIsNotDefinedByRowsHasNoKernelForThem) {
  EXPECT_EQ(CpuKernels().FindForRows("adamax"), nullptr);
  EXPECT_NE(CpuKernels().FindForRows("adam"), nullptr);
}

}  // namespace
}  // namespace weft::testing
