#include "executor/rewrites/channels_last.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/rewrites/rewrites_testing.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

// The ops in order, with the dims of their first input.
std::vector<std::string> OpsOf(const Plan& plan) {
  std::vector<std::string> ops;
  for (const Plan::Instruction& instruction : plan.instructions) {
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    const Plan::PlanOp& op = plan.ops[instruction.index];
    ops.push_back(absl::StrCat(op.type, DimsToString(plan.variables[op.inputs[0]].declared->dims)));
  }
  return ops;
}

// Expects that the rewritten program computes what it computes as written, and returns its ops.
std::vector<std::string> ExpectSameResults(const std::string& block,
                                           const std::vector<std::string>& results) {
  const auto rewrite = [](const std::vector<int>& accessed, Plan* plan) {
    KeepChannelsLast(CpuKernels(), accessed, plan);
  };
  return OpsOf(testing::ExpectSameResults(block, results, rewrite, /*tolerance=*/1e-4F));
}

// A layer of a residual network, and its gradient.
constexpr char kLayer[] = R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[6, 3, 3, 3]
    var bias : fp32[6]
    var scale, shift, mean, variance : fp32[6] persistable
    Output=[a] = conv2d(Filter=[filter], Input=[x]) {paddings=ints[1, 1]}
    Out=[b] = elementwise_add(X=[a], Y=[bias]) {axis=1}
    MeanOut=[mean], SavedMean=[saved_mean], SavedVariance=[saved_variance], VarianceOut=[variance], Y=[c] = batch_norm(Bias=[shift], Mean=[mean], Scale=[scale], Variance=[variance], X=[b])
    Out=[d] = relu(X=[c])
    Out=[e] = elementwise_add(X=[d], Y=[a])
    Out=[pooled] = pool2d(X=[e]) {ksize=ints[2, 2], pooling_type="max", strides=ints[2, 2]}
    Out=[flat], XShape=[shape] = flatten2(X=[pooled])
)";

TEST(ChannelsLastTest, ImagesStayWithChannelsLastFromAConvolutionToTheFirstOtherOp) {
  EXPECT_THAT(
      ExpectSameResults(kLayer, {"flat", "saved_mean"}),
      ElementsAre("transpose[2, 3, 8, 8]", "conv2d[6, 3, 3, 3]", "elementwise_add[2, 8, 8, 6]",
                  "batch_norm[6]", "relu[2, 8, 8, 6]", "elementwise_add[2, 8, 8, 6]",
                  "pool2d[2, 8, 8, 6]", "transpose[2, 4, 4, 6]", "flatten2[2, 6, 4, 4]"));
}

TEST(ChannelsLastTest, GradientsToo) {
  EXPECT_THAT(ExpectSameResults(absl::StrCat(kLayer, R"(
    var flat_grad : fp32[2, 96]
    X@GRAD=[pooled_grad] = flatten2_grad(Out@GRAD=[flat_grad], XShape=[shape])
    X@GRAD=[e_grad] = pool2d_grad(Out=[pooled], Out@GRAD=[pooled_grad], X=[e]) {ksize=ints[2, 2], pooling_type="max", strides=ints[2, 2]}
    X@GRAD=[d_grad], Y@GRAD=[a_grad1] = elementwise_add_grad(Out@GRAD=[e_grad], X=[d], Y=[a])
    X@GRAD=[c_grad] = relu_grad(Out=[d], Out@GRAD=[d_grad])
    Bias@GRAD=[shift_grad], Scale@GRAD=[scale_grad], X@GRAD=[b_grad] = batch_norm_grad(SavedMean=[saved_mean], SavedVariance=[saved_variance], Scale=[scale], X=[b], Y@GRAD=[c_grad])
    X@GRAD=[a_grad2], Y@GRAD=[bias_grad] = elementwise_add_grad(Out@GRAD=[b_grad], X=[a], Y=[bias]) {axis=1}
    Out=[a_grad] = sum(X=[a_grad1, a_grad2])
    Filter@GRAD=[filter_grad], Input@GRAD=[x_grad] = conv2d_grad(Filter=[filter], Input=[x], Output@GRAD=[a_grad]) {paddings=ints[1, 1]}
)"),
                                {"filter_grad", "bias_grad", "scale_grad", "shift_grad"})
                  .size(),
              9u + 1u + 8u);  // one more transposition: of pooled_grad
}

TEST(ChannelsLastTest, WhatIsReadBetweenStepsIsAsWritten) {
  // b is fetched: its op stays as it is.
  EXPECT_THAT(
      ExpectSameResults(R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[6, 3, 3, 3]
    Output=[a] = conv2d(Filter=[filter], Input=[x])
    Out=[b] = relu(X=[a])
    Out=[c] = elementwise_add(X=[a], Y=[b])
    Out=[y] = reduce_sum(X=[c]) {reduce_all=true}
)",
                        {"b", "y"}),
      ElementsAre("transpose[2, 3, 8, 8]", "conv2d[6, 3, 3, 3]", "transpose[2, 6, 6, 6]",
                  "relu[2, 6, 6, 6]", "elementwise_add[2, 6, 6, 6]", "reduce_sum[2, 6, 6, 6]"));
}

TEST(ChannelsLastTest, AnOpThatWorksInPlaceAndOneThatReadsBothLayouts) {
  ExpectSameResults(R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[6, 3, 3, 3]
    Output=[a] = conv2d(Filter=[filter], Input=[x])
    Out=[a] = relu(X=[a])
    Out=[s] = reduce_sum(X=[a]) {reduce_all=true}
    Out=[a] = scale(X=[a]) {scale=0.5}
    Out=[b] = elementwise_mul(X=[a], Y=[a])
    Out=[y] = softmax(X=[b]) {axis=1}
)",
                    {"s", "y"});
}

TEST(ChannelsLastTest, GroupsVectorsAlongOtherAxesAndDrawsStayAsWritten) {
  EXPECT_THAT(ExpectSameResults(R"(
    var x : fp32[2, 4, 8, 8]
    var filter : fp32[4, 2, 3, 3]
    Output=[a] = conv2d(Filter=[filter], Input=[x]) {groups=2}
    Out=[y] = relu(X=[a])
)",
                                {"y"}),
              ElementsAre("conv2d[4, 2, 3, 3]", "relu[2, 4, 6, 6]"));
  EXPECT_THAT(ExpectSameResults(R"(
    var x : fp32[2, 4, 8, 8]
    var filter : fp32[6, 4, 3, 3]
    var row : fp32[6]
    Output=[a] = conv2d(Filter=[filter], Input=[x])
    Out=[b] = elementwise_add(X=[a], Y=[row]) {axis=-1}
    Mask=[mask], Out=[y] = dropout(X=[b]) {dropout_prob=0.5, seed=7}
)",
                                {"y"}),
              ElementsAre("transpose[2, 4, 8, 8]", "conv2d[6, 4, 3, 3]", "transpose[2, 6, 6, 6]",
                          "elementwise_add[2, 6, 6, 6]", "dropout[2, 6, 6, 6]"));
}

TEST(ChannelsLastTest, ConvolutionsInGroupsAmongOthersStayAsWritten) {
  EXPECT_THAT(ExpectSameResults(R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[4, 3, 3, 3]
    var halves : fp32[6, 2, 3, 3]
    var single : fp32[6, 1, 3, 3]
    var last : fp32[2, 6, 1, 1]
    var y_grad : fp32[2, 2, 8, 8]
    Output=[a] = conv2d(Filter=[filter], Input=[x]) {paddings=ints[1, 1]}
    Output=[b] = conv2d(Filter=[halves], Input=[a]) {groups=2, paddings=ints[1, 1]}
    Out=[c] = relu(X=[b])
    Output=[d] = depthwise_conv2d(Filter=[single], Input=[c]) {groups=6, paddings=ints[1, 1]}
    Output=[y] = conv2d(Filter=[last], Input=[d])
    Filter@GRAD=[last_grad], Input@GRAD=[d_grad] = conv2d_grad(Filter=[last], Input=[d], Output@GRAD=[y_grad])
    Filter@GRAD=[single_grad], Input@GRAD=[c_grad] = depthwise_conv2d_grad(Filter=[single], Input=[c], Output@GRAD=[d_grad]) {groups=6, paddings=ints[1, 1]}
    X@GRAD=[b_grad] = relu_grad(Out=[c], Out@GRAD=[c_grad])
    Filter@GRAD=[halves_grad], Input@GRAD=[a_grad] = conv2d_grad(Filter=[halves], Input=[a], Output@GRAD=[b_grad]) {groups=2, paddings=ints[1, 1]}
    Filter@GRAD=[filter_grad] = conv2d_grad(Filter=[filter], Input=[x], Output@GRAD=[a_grad]) {paddings=ints[1, 1]}
)",
                                {"y", "last_grad", "single_grad", "halves_grad", "filter_grad"}),
              IsSupersetOf(
                  {"transpose[2, 3, 8, 8]", "conv2d[6, 2, 3, 3]", "depthwise_conv2d[6, 1, 3, 3]"}));
}

TEST(ChannelsLastTest, APersistableImageKeepsItsChannels) {
  EXPECT_THAT(ExpectSameResults(R"(
    var image : fp32[1, 3, 8, 8] persistable
    var filter : fp32[6, 3, 3, 3]
    Output=[y] = conv2d(Filter=[filter], Input=[image])
    Out=[image] = scale(X=[image]) {scale=0.5}
)",
                                {"y", "image"}),
              ElementsAre("conv2d[6, 3, 3, 3]", "scale[1, 3, 8, 8]"));
  EXPECT_THAT(ExpectSameResults(R"(
    var image : fp32[1, 3, 8, 8] persistable
    var filter : fp32[6, 3, 3, 3]
    Output=[a] = conv2d(Filter=[filter], Input=[image])
    Out=[image] = scale(X=[image]) {scale=0.5}
    Out=[y] = reduce_sum(X=[a]) {reduce_all=true}
)",
                                {"y", "image"}),
              ElementsAre("transpose[1, 3, 8, 8]", "conv2d[6, 3, 3, 3]", "scale[1, 3, 8, 8]",
                          "transpose[1, 6, 6, 6]", "reduce_sum[1, 6, 6, 6]"));
}

// Without running it.
std::vector<std::string> RewrittenOps(const std::string& program) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  Plan plan = *Plan::Build(CompactProgram(program), options);
  KeepChannelsLast(CpuKernels(), {}, &plan);
  return OpsOf(plan);
}

TEST(ChannelsLastTest, AnImageThatAnotherStreamChangesHasNoCopy) {
  EXPECT_THAT(
      RewrittenOps(R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[6, 3, 3, 3]
    Output=[a] = conv2d(Filter=[filter], Input=[x])
    Out=[x] = c_allreduce_sum(X=[x]) {ring_id=0, use_calc_stream=false}
    Out=[x] = c_wait_comm(X=[x]) {ring_id=0}
    Output=[b] = conv2d(Filter=[filter], Input=[x])
)"),
      ElementsAre("conv2d[6, 3, 3, 3]", "c_allreduce_sum[2, 3, 8, 8]", "conv2d[6, 3, 3, 3]"));
}

TEST(ChannelsLastTest, AnImageThatABlockChangesHasNoCopy) {
  EXPECT_THAT(RewrittenOps(R"(
    var x : fp32[2, 3, 8, 8]
    var filter : fp32[6, 3, 3, 3]
    var holds : bool[1]
    Output=[a] = conv2d(Filter=[filter], Input=[x])
    Out=[x], Scope=[scope] = conditional_block(Cond=[holds], Input=[x]) {is_scalar_condition=true, sub_block=block(1)}
    Output=[b] = conv2d(Filter=[filter], Input=[x])
    block 1:
    Out=[x] = scale(X=[x]) {scale=0.5}
)"),
              ElementsAre("conv2d[6, 3, 3, 3]", "scale[2, 3, 8, 8]", "conv2d[6, 3, 3, 3]"));
}

TEST(ChannelsLastTest, ImagesOfThreeDimensions) {
  // As Paddle writes it: the name of a layout of two dimensions.
  EXPECT_THAT(ExpectSameResults(R"(
    var x : fp32[1, 2, 4, 4, 4]
    var filter : fp32[2, 3, 2, 2, 2]
    Output=[a] = conv3d_transpose(Filter=[filter], Input=[x]) {data_format="NCHW"}
    Out=[y] = reduce_sum(X=[a]) {reduce_all=true}
)",
                                {"y"}),
              ElementsAre("transpose[1, 2, 4, 4, 4]", "conv3d_transpose[2, 3, 2, 2, 2]",
                          "transpose[1, 5, 5, 5, 3]", "reduce_sum[1, 3, 5, 5, 5]"));
}

TEST(ChannelsLastTest, APlanWithoutConvolutionsStaysAsItIs) {
  const std::string block = R"(
    var x : fp32[2, 4, 8, 8]
    Out=[y] = pool2d(X=[x]) {ksize=ints[2, 2], pooling_type="avg", strides=ints[2, 2]}
)";
  EXPECT_THAT(ExpectSameResults(block, {"y"}), ElementsAre("pool2d[2, 4, 8, 8]"));
}

}  // namespace
}  // namespace weft::testing
