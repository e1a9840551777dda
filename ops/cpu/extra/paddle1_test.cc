// Gradients of Paddle 1's ops against differences of what the ops compute. The programs of
// //tests/training:trained_programs_test compare the ops with Paddle's.
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/schema/op_schema.h"

namespace weft::testing {
namespace {

using SlotValues = std::map<std::string, Tensor>;

// Numbers between -1 and 1 without order.
Tensor MixedNumbers(const Dims& dims, int first) {
  std::vector<double> values;
  for (int64_t i = 0; i < NumElements(dims); ++i) {
    values.push_back(std::sin(1.7 * static_cast<double>(i * i + 3 * i + first)));
  }
  return MakeTensor<double>(dims, values);
}

struct GradientCase {
  std::string type;
  SlotValues inputs;
  AttrValues attrs;
  std::vector<std::string> of_outputs, of_inputs;
};

absl::StatusOr<SlotValues> RunSlots(const std::string& type, const AttrValues& attrs,
                                    const SlotValues& inputs) {
  const OpSchema& schema = *FindOpSchema(type);
  SlotTensors given;
  for (const SlotSchema& slot : schema.inputs()) {
    if (inputs.count(slot.name) > 0) given.push_back({slot.name, {inputs.at(slot.name)}});
  }
  SlotCounts made;
  for (const SlotSchema& slot : schema.outputs()) {
    const std::string of(absl::StripSuffix(slot.name, "@GRAD"));
    if (of == slot.name || inputs.count(of) > 0) made.push_back({slot.name, 1});
  }
  WEFT_ASSIGN_OR_RETURN(auto found, RunOp(type, given, attrs, made));
  SlotValues outputs;
  for (auto& [slot, tensors] : found) outputs[slot] = tensors[0];
  return outputs;
}

// Σ weights[slot] · outputs[slot]
double WeightedSum(const SlotValues& outputs, const SlotValues& weights) {
  double sum = 0;
  for (const auto& [slot, weight] : weights) {
    for (int64_t i = 0; i < weight.size(); ++i) {
      sum += weight.data<double>()[i] * outputs.at(slot).data<double>()[i];
    }
  }
  return sum;
}

void ExpectGradientsOfDifferences(const GradientCase& of) {
  SCOPED_TRACE(of.type);
  WEFT_ASSERT_OK_AND_ASSIGN(const SlotValues outputs, RunSlots(of.type, of.attrs, of.inputs));
  SlotValues weights, given = of.inputs;
  for (const auto& [slot, tensor] : outputs) given[slot] = tensor;
  for (const std::string& slot : of.of_outputs) {
    weights[slot] = MixedNumbers(outputs.at(slot).dims(), 5);
    given[absl::StrCat(slot, "@GRAD")] = weights[slot];
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const SlotValues gradients,
                            RunSlots(of.type + "_grad", of.attrs, given));
  constexpr double kStep = 1e-6;
  for (const std::string& slot : of.of_inputs) {
    const Tensor& gradient = gradients.at(absl::StrCat(slot, "@GRAD"));
    for (int64_t i = 0; i < gradient.size(); ++i) {
      double losses[2];
      for (int side : {0, 1}) {
        SlotValues moved = of.inputs;
        Tensor copy;
        WEFT_ASSERT_OK(copy.CopyFrom(moved.at(slot)));
        copy.data<double>()[i] += side == 0 ? -kStep : kStep;
        moved[slot] = copy;
        WEFT_ASSERT_OK_AND_ASSIGN(const SlotValues found, RunSlots(of.type, of.attrs, moved));
        losses[side] = WeightedSum(found, weights);
      }
      EXPECT_NEAR(gradient.data<double>()[i], (losses[1] - losses[0]) / (2 * kStep), 1e-6)
          << slot << " " << i;
    }
  }
}

TEST(Paddle1Test, GradientsAreThoseOfDifferences) {
  const Tensor classes = Int64s({3, 1}, {2, 0, 3});
  const Tensor scores = MakeTensor<double>({4, 1}, {-2, -1, 0.3, 1.6});
  const Tensor tags = Int64s({2, 4, 1}, {0, 2, 1, 1, 2, 2, 0, 0});
  const std::vector<GradientCase> cases = {
      {"smooth_l1_loss",
       {{"X", MixedNumbers({3, 4}, 1)}, {"Y", MixedNumbers({3, 4}, 2)}},
       {{"sigma", 1.5f}},
       {"Out"},
       {"X", "Y"}},
      {"smooth_l1_loss",
       {{"X", MixedNumbers({2, 3}, 1)},
        {"Y", MixedNumbers({2, 3}, 2)},
        {"InsideWeight", MixedNumbers({2, 3}, 3)},
        {"OutsideWeight", MixedNumbers({2, 3}, 4)}},
       {},
       {"Out"},
       {"X", "Y"}},
      {"margin_rank_loss",
       {{"Label", MakeTensor<double>({4, 1}, {1, -1, 1, -1})},
        {"X1", MixedNumbers({4, 1}, 1)},
        {"X2", MixedNumbers({4, 1}, 2)}},
       {{"margin", 0.1f}},
       {"Out"},
       {"X1", "X2"}},
      {"bpr_loss", {{"X", MixedNumbers({3, 4}, 1)}, {"Label", classes}}, {}, {"Y"}, {"X"}},
      {"teacher_student_sigmoid_loss",
       {{"X", MixedNumbers({4, 1}, 1)}, {"Label", scores}},
       {},
       {"Y"},
       {"X"}},
      {"cos_sim",
       {{"X", MixedNumbers({3, 4}, 1)}, {"Y", MixedNumbers({3, 4}, 2)}},
       {},
       {"Out"},
       {"X", "Y"}},
      {"cos_sim",
       {{"X", MixedNumbers({3, 4}, 1)}, {"Y", MixedNumbers({1, 4}, 2)}},
       {},
       {"Out"},
       {"X", "Y"}},
      {"lstm_unit",
       {{"X", MixedNumbers({2, 12}, 1)}, {"C_prev", MixedNumbers({2, 3}, 2)}},
       {{"forget_bias", 0.5f}},
       {"C", "H"},
       {"X", "C_prev"}},
      {"gru_unit",
       {{"Input", MixedNumbers({2, 9}, 1)},
        {"HiddenPrev", MixedNumbers({2, 3}, 2)},
        {"Weight", MixedNumbers({3, 9}, 3)},
        {"Bias", MixedNumbers({1, 9}, 4)}},
       {},
       {"Hidden"},
       {"Input", "HiddenPrev", "Weight", "Bias"}},
      {"gru_unit",
       {{"Input", MixedNumbers({2, 9}, 1)},
        {"HiddenPrev", MixedNumbers({2, 3}, 2)},
        {"Weight", MixedNumbers({3, 9}, 3)}},
       {{"origin_mode", true}, {"activation", 1}},
       {"Hidden"},
       {"Input", "HiddenPrev", "Weight"}},
      {"linear_chain_crf",
       {{"Emission", MixedNumbers({2, 4, 3}, 1)},
        {"Transition", MixedNumbers({5, 3}, 2)},
        {"Label", tags},
        {"Length", Int64s({2, 1}, {4, 2})}},
       {},
       {"LogLikelihood"},
       {"Emission", "Transition"}},
      {"pad2d",
       {{"X", MixedNumbers({2, 2, 3, 3}, 1)}},
       {{"paddings", std::vector<int32_t>{2, 1, 0, 2}}, {"mode", std::string("reflect")}},
       {"Out"},
       {"X"}},
      {"pad2d",
       {{"X", MixedNumbers({1, 2, 3, 2}, 1)}},
       {{"paddings", std::vector<int32_t>{1, 0, 2, 1}},
        {"mode", std::string("edge")},
        {"data_format", std::string("NHWC")}},
       {"Out"},
       {"X"}},
      {"soft_relu", {{"X", MixedNumbers({3, 4}, 1)}}, {}, {"Out"}, {"X"}},
      {"sigmoid_focal_loss",
       {{"X", MixedNumbers({4, 3}, 1)},
        {"Label", Int64s({4, 1}, {0, 3, -1, 1})},
        {"FgNum", MakeTensor<int32_t>({1}, {2})}},
       {{"gamma", 1.5f}},
       {"Out"},
       {"X"}},
      {"center_loss",
       {{"X", MixedNumbers({3, 2}, 1)},
        {"Label", classes},
        {"Centers", MixedNumbers({4, 2}, 2)},
        {"CenterUpdateRate", MakeTensor<double>({1}, {0.5})}},
       {{"cluster_num", 4}, {"need_update", true}},
       {"Loss"},
       {"X"}},
      {"space_to_depth",
       {{"X", MixedNumbers({2, 4, 2, 4}, 1)}},
       {{"blocksize", int64_t{2}}},
       {"Out"},
       {"X"}},
      {"partial_sum",
       {{"X", MixedNumbers({3, 5}, 1)}},
       {{"start_index", 1}, {"length", 3}},
       {"Out"},
       {"X"}},
      {"im2sequence",
       {{"X", MixedNumbers({2, 2, 4, 3}, 1)}},
       {{"kernels", std::vector<int32_t>{2, 2}},
        {"strides", std::vector<int32_t>{1, 2}},
        {"paddings", std::vector<int32_t>{1, 0, 0, 1}}},
       {"Out"},
       {"X"}},
      {"fused_elemwise_activation",
       {{"X", MixedNumbers({2, 3, 2}, 1)}, {"Y", MixedNumbers({3}, 2)}},
       {{"functor_list", std::vector<std::string>{"elementwise_mul", "tanh"}},
        {"axis", 1},
        {"save_intermediate_out", true}},
       {"Out"},
       {"X", "Y"}},
      {"fused_elemwise_activation",
       {{"X", MixedNumbers({2, 3}, 1)}, {"Y", MixedNumbers({2, 3}, 2)}},
       {{"functor_list", std::vector<std::string>{"sigmoid", "elementwise_mul"}},
        {"save_intermediate_out", true}},
       {"Out"},
       {"X", "Y"}},
      {"add_position_encoding",
       {{"X", MixedNumbers({2, 3, 4}, 1)}},
       {{"alpha", 0.5f}, {"beta", 2.0f}},
       {"Out"},
       {"X"}},
      {"fsp",
       {{"X", MixedNumbers({2, 3, 2, 2}, 1)}, {"Y", MixedNumbers({2, 2, 2, 2}, 2)}},
       {},
       {"Out"},
       {"X", "Y"}},
      {"pad_constant_like",
       {{"X", MixedNumbers({2, 3, 2}, 1)}, {"Y", MixedNumbers({1, 2, 2}, 2)}},
       {{"pad_value", 0.5f}},
       {"Out"},
       {"Y"}},
      {"crop",
       {{"X", MixedNumbers({3, 4}, 1)}},
       {{"offsets", std::vector<int32_t>{1, 0}}, {"shape", std::vector<int32_t>{2, 3}}},
       {"Out"},
       {"X"}},
      {"sample_logits",
       {{"Logits", MixedNumbers({2, 5}, 1)},
        {"Labels", Int64s({2, 1}, {3, 0})},
        {"CustomizedSamples", Int64s({2, 3}, {3, 1, 1, 0, 2, 4})},
        {"CustomizedProbabilities", MakeTensor<double>({2, 3}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6})}},
       {{"num_samples", 2}, {"use_customized_samples", true}},
       {"SampledLogits"},
       {"Logits"}},
      {"expand_as",
       {{"X", MixedNumbers({2, 1, 3}, 1)}, {"target_tensor", MixedNumbers({4, 2, 3}, 2)}},
       {},
       {"Out"},
       {"X"}},
  };
  for (const GradientCase& of : cases) ExpectGradientsOfDifferences(of);
}

// All chains of two tags and two steps, added up.
TEST(LinearChainCrfTest, IsMinusTheLogarithmOfTheProbability) {
  const std::vector<double> transition = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
  const std::vector<double> emission = {1, 2, 3, 4};
  const auto score = [&](int a, int b) {
    return transition[a] + emission[a] + transition[4 + 2 * a + b] + emission[2 + b] +
           transition[2 + b];
  };
  double sum = 0;
  for (int a : {0, 1}) {
    for (int b : {0, 1}) sum += std::exp(score(a, b));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const SlotValues found,
                            RunSlots("linear_chain_crf", {},
                                     {{"Emission", MakeTensor<double>({1, 2, 2}, emission)},
                                      {"Transition", MakeTensor<double>({4, 2}, transition)},
                                      {"Label", Int64s({1, 2, 1}, {1, 0})},
                                      {"Length", Int64s({1, 1}, {2})}}));
  EXPECT_NEAR(found.at("LogLikelihood").data<double>()[0], std::log(sum) - score(1, 0), 1e-12);
}

TEST(CrfDecodingTest, TakesTheBestChainUpToTheLength) {
  const SlotValues inputs = {
      {"Emission", MakeTensor<double>({2, 3, 2}, {0, 1, 0, 0, 0, 1, 5, 0, 0, 0, 9, 0})},
      {"Transition", MakeTensor<double>({4, 2}, {0, 0, 0, 0, -3, 2, 2, -3})},
      {"Length", Int64s({2, 1}, {3, 2})}};
  WEFT_ASSERT_OK_AND_ASSIGN(const SlotValues found, RunSlots("crf_decoding", {}, inputs));
  EXPECT_THAT(Values<int64_t>(found.at("ViterbiPath")), ElementsAre(1, 0, 1, 0, 1, 0));
}

TEST(CrfTest, PaddingOfLabelsMayBeAnything) {
  SlotValues inputs = {{"Emission", MixedNumbers({1, 3, 2}, 1)},
                       {"Transition", MixedNumbers({4, 2}, 2)},
                       {"Label", Int64s({1, 3, 1}, {1, 0, -1})},
                       {"Length", Int64s({1, 1}, {2})}};
  WEFT_EXPECT_OK(RunSlots("linear_chain_crf", {}, inputs).status());
  WEFT_EXPECT_OK(RunSlots("crf_decoding", {}, inputs).status());
  inputs["Length"] = Int64s({1, 1}, {3});
  EXPECT_THAT(RunSlots("linear_chain_crf", {}, inputs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Label: -1 at step 2 of sequence 0 is not in [0, 2)")));
}

TEST(CenterLossTest, CentersMoveTowardsTheirRows) {
  const SlotValues inputs = {{"X", MakeTensor<double>({3, 1}, {1, 3, 9})},
                             {"Label", Int64s({3}, {0, 0, 2})},
                             {"Centers", MakeTensor<double>({3, 1}, {0, 5, 1})},
                             {"CenterUpdateRate", MakeTensor<double>({1}, {0.5})}};
  WEFT_ASSERT_OK_AND_ASSIGN(
      SlotValues found,
      RunSlots("center_loss", {{"cluster_num", 3}, {"need_update", true}}, inputs));
  EXPECT_THAT(Values<double>(found.at("Loss")), ElementsAre(0.5, 4.5, 32));
  EXPECT_THAT(Values<double>(found.at("CentersOut")), ElementsAre(0.5 * 4 / 3, 5, 1 + 0.5 * 8 / 2));
  WEFT_ASSERT_OK_AND_ASSIGN(
      found, RunSlots("center_loss", {{"cluster_num", 3}, {"need_update", false}}, inputs));
  EXPECT_THAT(Values<double>(found.at("CentersOut")), ElementsAre(0, 5, 1));
}

// Far from 0, logarithms of probabilities stay finite.
TEST(SigmoidFocalLossTest, IsFiniteForLargeLogits) {
  const SlotValues inputs = {{"X", MakeTensor<double>({1, 2}, {-1000, 1000})},
                             {"Label", Int64s({1, 1}, {1})},
                             {"FgNum", MakeTensor<int32_t>({1}, {0})}};
  WEFT_ASSERT_OK_AND_ASSIGN(const SlotValues found, RunSlots("sigmoid_focal_loss", {}, inputs));
  EXPECT_THAT(Values<double>(found.at("Out")), ElementsAre(250, 750));
}

TEST(CropTest, HasNoKernelForTheDimensionsOfY) {
  EXPECT_THAT(RunSlots("crop", {{"offsets", std::vector<int32_t>{0, 0}}},
                       {{"X", MixedNumbers({3, 4}, 1)}, {"Y", MixedNumbers({2, 2}, 2)}}),
              IsUnimplemented("input Y: the kernel of this device does not support it"));
}

void ExpectInvalid(const std::string& type, const AttrValues& attrs, const SlotValues& inputs,
                   const std::string& message) {
  EXPECT_THAT(RunSlots(type, attrs, inputs), IsInvalidArgument(message));
}

TEST(CenterLossTest, GradientReadsARowOfDiffAndLossForEachRowOfX) {
  const AttrValues attrs = {{"cluster_num", 3}, {"need_update", true}};
  const Tensor x = MixedNumbers({2, 4}, 1), diff = MixedNumbers({2, 4}, 2);
  const Tensor dloss = MixedNumbers({2, 1}, 3);
  WEFT_EXPECT_OK(RunSlots("center_loss_grad", attrs,
                          {{"X", x}, {"SampleCenterDiff", diff}, {"Loss@GRAD", dloss}})
                     .status());
  ExpectInvalid("center_loss_grad", attrs,
                {{"X", x}, {"SampleCenterDiff", MixedNumbers({8}, 2)}, {"Loss@GRAD", dloss}},
                "input SampleCenterDiff: expected fp64[2, 4]");
  ExpectInvalid("center_loss_grad", attrs,
                {{"X", MixedNumbers({4, 4}, 1)},
                 {"SampleCenterDiff", diff},
                 {"Loss@GRAD", MixedNumbers({4, 1}, 3)}},
                "input SampleCenterDiff: expected fp64[4, 4]");
  ExpectInvalid("center_loss_grad", attrs,
                {{"X", x}, {"SampleCenterDiff", diff}, {"Loss@GRAD", MixedNumbers({1, 1}, 3)}},
                "input Loss@GRAD: expected fp64[2, 1]");
  ExpectInvalid("center_loss_grad", {{"cluster_num", -1}, {"need_update", true}},
                {{"X", x}, {"SampleCenterDiff", diff}, {"Loss@GRAD", dloss}},
                "attribute cluster_num");
}

TEST(SpaceToDepthTest, GradientHasTheDimensionsOfOut) {
  const Tensor x = MixedNumbers({1, 4, 4, 4}, 1);
  ExpectInvalid("space_to_depth_grad", {{"blocksize", int64_t{2}}},
                {{"X", x}, {"Out@GRAD", MixedNumbers({1, 4, 2, 2}, 2)}},
                "input Out@GRAD: expected fp64[1, 16, 2, 2]");
  ExpectInvalid("space_to_depth_grad", {{"blocksize", int64_t{0}}},
                {{"X", x}, {"Out@GRAD", MixedNumbers({1, 16, 2, 2}, 2)}},
                "attribute blocksize: expected 2 to 32768");
  ExpectInvalid("space_to_depth", {{"blocksize", int64_t{0}}}, {{"X", x}},
                "attribute blocksize: expected 2 to 32768");
}

TEST(PadConstantLikeTest, GradientHasAllElementsOfY) {
  const Tensor y = MixedNumbers({2, 3}, 1);
  for (const Dims& dims : {Dims{1, 3}, Dims{4, 4, 4}, Dims{4}}) {
    ExpectInvalid("pad_constant_like_grad", {}, {{"Y", y}, {"Out@GRAD", MixedNumbers(dims, 2)}},
                  "input Y: expected at most dimensions");
  }
  ExpectInvalid("pad_constant_like_grad", {},
                {{"Y", y}, {"Out@GRAD", Int64s({2, 3}, {1, 2, 3, 4, 5, 6})}},
                "input Y: expected int64 as Out@GRAD is");
}

TEST(CrfTest, LengthsAndTagsAreInRange) {
  const Tensor emission = MixedNumbers({1, 2, 2}, 1), transition = MixedNumbers({4, 2}, 2);
  EXPECT_THAT(
      RunSlots(
          "crf_decoding", {},
          {{"Emission", emission}, {"Transition", transition}, {"Length", Int64s({1, 1}, {3})}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("Length: 3 at position 0 is not in [0, 3)")));
  EXPECT_THAT(RunSlots("crf_decoding", {}, {{"Emission", emission}, {"Transition", transition}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("input Length")));
}

TEST(Paddle1Test, PartsBeyondTheInputAreErrors) {
  const Tensor x = MixedNumbers({2, 3}, 1);
  for (const char* type : {"partial_concat", "partial_sum"}) {
    EXPECT_THAT(
        RunOp(type, {{"X", {x}}}, {{"start_index", 2}, {"length", 2}}, {{"Out", 1}}).status(),
        IsInvalidArgument("attribute start_index"));
  }
  EXPECT_THAT(RunOp("im2sequence", {{"X", {MixedNumbers({1, 1, 2, 2}, 1)}}},
                    {{"kernels", std::vector<int32_t>{3, 2}}}, {{"Out", 1}})
                  .status(),
              IsInvalidArgument("at least a window of 3"));
  EXPECT_THAT(
      RunOp("fused_elemwise_activation", {{"X", {x}}, {"Y", {MixedNumbers({2}, 1)}}},
            {{"functor_list", std::vector<std::string>{"relu", "elementwise_add"}}}, {{"Out", 1}})
          .status(),
      IsInvalidArgument("input Y"));
  // More dimensions than X has.
  for (const Dims& dims : {Dims{1}, Dims{1, 1}}) {
    const Dims fewer(dims.begin() + 1, dims.end());
    EXPECT_THAT(
        RunOp("fused_elemwise_activation",
              {{"X", {MixedNumbers(fewer, 1)}}, {"Y", {MixedNumbers(dims, 1)}}},
              {{"functor_list", std::vector<std::string>{"relu", "elementwise_add"}}}, {{"Out", 1}})
            .status(),
        IsInvalidArgument("input Y"));
  }
}

}  // namespace
}  // namespace weft::testing
