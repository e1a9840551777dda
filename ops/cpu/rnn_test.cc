// The gradient of rnn against central differences, with sequences of different lengths, for which
// Paddle's gradient is not a reference.
#include <cmath>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr int64_t kTime = 3, kBatch = 2, kInput = 2, kHidden = 2;

Tensor Wave(const Dims& dims, double start) {
  std::vector<double> values(NumElements(dims));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(start + 1.3 * i);
  return MakeTensor<double>(dims, values);
}

// Two layers in both directions.
struct Rnn {
  std::string mode;
  Tensor input = Wave({kTime, kBatch, kInput}, 0.1);
  std::vector<Tensor> states, weights;
  Tensor lengths = MakeTensor<int32_t>({kBatch}, {3, 2});
  // Loss = Σ (Out · dout) + Σ (State · dstate).
  Tensor dout = Wave({kTime, kBatch, 2 * kHidden}, 0.2);
  std::vector<Tensor> dstates;
  Tensor out, reserve, dropout_state;
  float dropout = 0;
  std::vector<Tensor> last;

  explicit Rnn(std::string mode_name) : mode(std::move(mode_name)) {
    const int64_t gates = mode == "LSTM" ? 4 : mode == "GRU" ? 3 : 1;
    const int num_states = mode == "LSTM" ? 2 : 1;
    for (int i = 0; i < num_states; ++i) {
      states.push_back(Wave({4, kBatch, kHidden}, 0.3 + i));
      dstates.push_back(Wave({4, kBatch, kHidden}, 0.4 + i));
    }
    last.resize(num_states);
    for (int cell = 0; cell < 4; ++cell) {
      weights.push_back(Wave({gates * kHidden, cell < 2 ? kInput : 2 * kHidden}, 0.5 + cell));
      weights.push_back(Wave({gates * kHidden, kHidden}, 0.6 + cell));
    }
    for (int bias = 0; bias < 8; ++bias) weights.push_back(Wave({gates * kHidden}, 0.7 + bias));
  }

  AttrValues Attrs() const {
    return {{"mode", mode},
            {"num_layers", 2},
            {"dropout_prob", dropout},
            {"seed", 5},
            {"is_bidirec", true},
            {"input_size", static_cast<int32_t>(kInput)},
            {"hidden_size", static_cast<int32_t>(kHidden)}};
  }
  static std::vector<Tensor*> Pointers(std::vector<Tensor>& tensors) {
    std::vector<Tensor*> pointers;
    for (Tensor& tensor : tensors) pointers.push_back(&tensor);
    return pointers;
  }
  SlotPointers Inputs() {
    return {{"Input", {&input}},
            {"PreState", Pointers(states)},
            {"WeightList", Pointers(weights)},
            {"SequenceLength", {&lengths}}};
  }
  absl::Status Forward() {
    return RunOpOn("rnn", Inputs(), Attrs(),
                   {{"DropoutState", {&dropout_state}},
                    {"Out", {&out}},
                    {"State", Pointers(last)},
                    {"Reserve", {&reserve}}});
  }
  double Loss() {
    WEFT_EXPECT_OK(Forward());
    double loss = 0;
    const auto add = [&](const Tensor& a, const Tensor& b) {
      for (int64_t i = 0; i < a.size(); ++i) loss += a.data<double>()[i] * b.data<double>()[i];
    };
    add(out, dout);
    for (size_t i = 0; i < last.size(); ++i) add(last[i], dstates[i]);
    return loss;
  }
  void ExpectGradient(Tensor* of, const Tensor& gradient) {
    ASSERT_EQ(of->dims(), gradient.dims());
    constexpr double kStep = 1e-5;
    for (int64_t i = 0; i < of->size(); ++i) {
      double& value = of->data<double>()[i];
      const double old = value;
      value = old + kStep;
      const double above = Loss();
      value = old - kStep;
      const double below = Loss();
      value = old;
      EXPECT_NEAR(gradient.data<double>()[i], (above - below) / (2 * kStep), 1e-7) << i;
    }
  }
};

void ExpectGradients(const char* mode, float dropout) {
  SCOPED_TRACE(mode);
  Rnn rnn(mode);
  rnn.dropout = dropout;
  WEFT_ASSERT_OK(rnn.Forward());
  Tensor dinput;
  std::vector<Tensor> dstates(rnn.states.size()), dweights(rnn.weights.size());
  SlotPointers inputs = rnn.Inputs();
  inputs.push_back({"DropoutState", {&rnn.dropout_state}});
  inputs.push_back({"Out", {&rnn.out}});
  inputs.push_back({"Reserve", {&rnn.reserve}});
  inputs.push_back({"Out@GRAD", {&rnn.dout}});
  inputs.push_back({"State@GRAD", Rnn::Pointers(rnn.dstates)});
  WEFT_ASSERT_OK(RunOpOn("rnn_grad", inputs, rnn.Attrs(),
                         {{"Input@GRAD", {&dinput}},
                          {"PreState@GRAD", Rnn::Pointers(dstates)},
                          {"WeightList@GRAD", Rnn::Pointers(dweights)}}));
  rnn.ExpectGradient(&rnn.input, dinput);
  for (size_t i = 0; i < dstates.size(); ++i) rnn.ExpectGradient(&rnn.states[i], dstates[i]);
  for (size_t i = 0; i < dweights.size(); ++i) {
    SCOPED_TRACE(i);
    rnn.ExpectGradient(&rnn.weights[i], dweights[i]);
  }
}

TEST(RnnTest, GradientsAreCentralDifferences) {
  for (const char* mode : {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}) ExpectGradients(mode, 0);
}

// With a seed, every run drops the same elements.
TEST(RnnTest, GradientsGoThroughDropout) {
  for (const char* mode : {"LSTM", "GRU"}) ExpectGradients(mode, 0.4f);
}

TEST(RnnTest, DropoutBetweenLayersDropsAndScales) {
  Rnn rnn("RNN_TANH");
  WEFT_ASSERT_OK(rnn.Forward());
  EXPECT_EQ(rnn.dropout_state.size(), 0);
  const std::vector<double> whole = Values<double>(rnn.out);
  rnn.dropout = 0.4f;
  WEFT_ASSERT_OK(rnn.Forward());
  EXPECT_EQ(rnn.dropout_state.size(), kTime * kBatch * 2 * kHidden);
  EXPECT_THAT(Values<uint8_t>(rnn.dropout_state), Contains(0));
  EXPECT_THAT(Values<uint8_t>(rnn.dropout_state), Contains(1));
  EXPECT_NE(Values<double>(rnn.out), whole);
}

TEST(RnnTest, BeyondItsLengthASequenceGivesZeros) {
  Rnn rnn("GRU");
  WEFT_ASSERT_OK(rnn.Forward());
  const std::vector<double> out = Values<double>(rnn.out);
  EXPECT_THAT(std::vector<double>(out.end() - 2 * kHidden, out.end()), Each(0));
}

TEST(RnnTest, ALengthBeyondTheTimeIsAnError) {
  Rnn rnn("GRU");
  rnn.lengths = MakeTensor<int32_t>({kBatch}, {3, 4});
  EXPECT_THAT(rnn.Forward(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input SequenceLength: expected 0 to 3, found 4 of sequence 1"));
}

TEST(RnnTest, WeightsOfAnotherShapeAreAnError) {
  Rnn rnn("LSTM");
  rnn.weights[1] = Wave({4 * kHidden, kHidden + 1}, 0);
  EXPECT_THAT(rnn.Forward(), IsInvalidArgument("[8, 2]"));
  rnn.weights.pop_back();
  EXPECT_THAT(rnn.Forward(),
              IsInvalidArgument("input WeightList: expected 16 variables, found 15"));
}

// An attribute alone must not determine what is kept for each layer.
TEST(RnnTest, LayersWithoutWeightsAreAnError) {
  for (const char* type : {"rnn", "rnn_grad"}) {
    SlotTensors inputs = {{"Input", {Floats({1, 1, 1}, {0})}},
                          {"PreState", {Floats({1, 1, 1}, {0})}},
                          {"WeightList", {4, Floats({1, 1}, {0})}}};
    if (type == std::string("rnn_grad")) {
      inputs.insert(inputs.end(), {{"Reserve", {Floats({1}, {0})}},
                                   {"Out", {Floats({1, 1, 1}, {0})}},
                                   {"Out@GRAD", {Floats({1, 1, 1}, {0})}}});
    }
    EXPECT_THAT(RunOp(type, inputs,
                      {{"mode", std::string("GRU")},
                       {"num_layers", 2000000000},
                       {"hidden_size", 1},
                       {"input_size", 1}},
                      {{"Out", 1}, {"State", 1}, {"Input@GRAD", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "input WeightList: expected 8000000000 variables, found 4"))
        << type;
  }
}

}  // namespace
}  // namespace weft::testing
