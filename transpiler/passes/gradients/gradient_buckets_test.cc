#include "transpiler/passes/gradients/gradient_buckets.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// The buckets as "v@GRAD w@GRAD", with the op at which their buffer begins, or why one is alone.
std::vector<std::string> Buckets(const std::string& text, const std::string& policy,
                                 const BucketInputs& inputs = {}) {
  const Program program = CompactProgram(text);
  const auto analysis = AnalyzeGradients(program, std::set<std::string>());
  const auto parsed = BucketPolicy::Parse(policy);
  if (!analysis.ok() || !parsed.ok()) return {"error"};
  std::vector<std::string> texts;
  const auto filled = FillBuckets(program, *analysis, *parsed, inputs);
  if (!filled.ok()) return {filled.status().ToString()};
  for (const GradientBucket& bucket : filled->buckets) {
    std::string names = absl::StrJoin(TensorsOf(program, *analysis, bucket).names, " ");
    if (bucket.begins_at.valid() && bucket.gradients.size() > 1) {
      absl::StrAppend(&names, " from ", program.op(bucket.begins_at).DebugName());
    }
    if (!bucket.why_alone.empty()) absl::StrAppend(&names, ": ", bucket.why_alone);
    if (bucket.block != 0) absl::StrAppend(&names, " in block ", bucket.block);
    texts.push_back(names);
  }
  return texts;
}

constexpr char kThree[] = R"(
  Y@GRAD=[c@GRAD] = mul_grad(Y=[c], Out@GRAD=[g]) role=backward vars=[c, c@GRAD]
  Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
  Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
)";

TEST(GradientBuckets, FillUpInTheOrderOfCompletion) {
  EXPECT_THAT(Buckets(kThree, "none"), ElementsAre("c@GRAD", "b@GRAD", "a@GRAD"));
  EXPECT_THAT(Buckets(kThree, "count{count=2}"),
              ElementsAre("c@GRAD b@GRAD from op 0 (mul_grad)", "a@GRAD"));
}

TEST(GradientBuckets, GradientsOfUpdatesOnTheHostTravelApart) {
  BucketInputs inputs;
  inputs.updated_on_host = {"a", "c"};
  for (const char* policy : {"bytes", "count{count=2}", "optimal", "mindspore"}) {
    EXPECT_THAT(Buckets(kThree, policy, inputs),
                ElementsAre("b@GRAD", "c@GRAD a@GRAD from op 0 (mul_grad)"))
        << policy;
  }
}

TEST(GradientBuckets, GradientsOfDifferentGroupsTravelApart) {
  BucketInputs inputs;
  inputs.param_attrs["c"].group = RankGroup{"g", {0, 1}, 0};
  inputs.param_attrs["a"].group = RankGroup{"g", {0, 1}, 0};
  for (const char* policy : {"bytes", "count{count=2}", "optimal", "mindspore"}) {
    EXPECT_THAT(Buckets(kThree, policy, inputs),
                ElementsAre("b@GRAD", "c@GRAD a@GRAD from op 0 (mul_grad)"))
        << policy;
  }
  EXPECT_THAT(Buckets(kThree, "none", inputs), ElementsAre("c@GRAD", "b@GRAD", "a@GRAD"));
  inputs.param_attrs["a"].group = RankGroup{"h", {0, 1}, 1};
  EXPECT_THAT(Buckets(kThree, "bytes", inputs), ElementsAre("c@GRAD", "b@GRAD", "a@GRAD"));
}

TEST(GradientBuckets, MindSporeCountsParametersInTheOrderOfTheirDeclaration) {
  const std::string declared = R"(
    var a, b, c : fp32[2, 2] parameter persistable
  )" + std::string(kThree);
  EXPECT_THAT(Buckets(declared, "mindspore{split_indices=\"0\"}"),
              ElementsAre("c@GRAD b@GRAD from op 0 (mul_grad)", "a@GRAD"));
}

TEST(GradientBuckets, MindSporeFusesGradientsOfEqualCommFusion) {
  BucketInputs inputs;
  inputs.param_attrs["a"].comm_fusion = 7;
  inputs.param_attrs["c"].comm_fusion = 7;
  EXPECT_THAT(Buckets(kThree, "mindspore", inputs),
              ElementsAre("b@GRAD", "c@GRAD a@GRAD from op 0 (mul_grad)"));
  inputs.param_attrs["b"].comm_fusion = 0;
  inputs.param_attrs["c"].comm_fusion = 0;
  EXPECT_THAT(Buckets(kThree, "mindspore", inputs), ElementsAre("c@GRAD", "b@GRAD", "a@GRAD"));
}

// a is used before b is complete: what MindSpore would fuse is divided there.
TEST(GradientBuckets, BucketsOfParametersAreDividedWhereAMemberIsUsed) {
  EXPECT_THAT(Buckets(R"(
    var b, a : fp32[2, 2] parameter persistable
    Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  )",
                      "mindspore"),
              ElementsAre("a@GRAD", "b@GRAD"));
}

TEST(GradientBuckets, OptimalGoesByTheTimesOfGradients) {
  BucketInputs inputs;
  inputs.collective = *CollectiveTime::AlphaBeta(1, 1e9);
  EXPECT_THAT(Buckets(kThree, "optimal", inputs),
              ElementsAre("c@GRAD b@GRAD a@GRAD from op 0 (mul_grad)"));
  inputs.ready = {{"c@GRAD", {1}}, {"b@GRAD", {2}}, {"a@GRAD", {9}}};
  EXPECT_THAT(Buckets(kThree, "optimal", inputs),
              ElementsAre("c@GRAD b@GRAD from op 0 (mul_grad)", "a@GRAD"));
}

TEST(GradientBuckets, VariableOfSeveralGradientsIsReadySeveralTimes) {
  const Program program = CompactProgram(R"(
    Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )");
  const auto analysis = AnalyzeGradients(program, std::set<std::string>());
  WEFT_ASSERT_OK(analysis.status());
  const ReadyTimes ready = FindReadyTimes(program, *analysis, {1, 10, 100, 1000});
  EXPECT_THAT(ready.at("a@GRAD"), ElementsAre(1, 111));
  EXPECT_THAT(ReadyOfGradients(program, *analysis, ready), ElementsAre(1, 111));
}

TEST(GradientBuckets, CloseBeforeTheFirstUseOfAMember) {
  EXPECT_THAT(Buckets(R"(
    Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
  )",
                      "count"),
              ElementsAre("b@GRAD", "a@GRAD"));
}

TEST(GradientBuckets, GradientThatCannotShareABufferSaysWhy) {
  EXPECT_THAT(
      Buckets(R"(
    var a@GRAD : fp32[-1]
    var b@GRAD : selected_rows<fp32[8, 2]>
    Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
    W@GRAD=[b@GRAD] = lookup_table_v2_grad(W=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
    Out=[c@GRAD] = sum(X=[c@GRAD, g]) role=backward vars=[c, c@GRAD]
  )",
              "count"),
      ElementsAre("a@GRAD: its shape is unknown: [-1]", "b@GRAD: its rows differ from rank to rank",
                  "c@GRAD: its first write reads the old value"));
}

TEST(GradientBuckets, AccumulatedGradientsShareABucketOfTheirBlock) {
  EXPECT_THAT(Buckets(R"(
    var a_sum, b_sum : fp32[2, 2] persistable
    Out=[a_sum] = elementwise_add(X=[g], Y=[a_sum]) role=backward vars=[a, a_sum]
    Out=[b_sum] = elementwise_add(X=[g], Y=[b_sum]) role=backward vars=[b, b_sum]
    conditional_block(Cond=[due]) {sub_block=block(1)}
    block 1:
    ParamOut=[a] = sgd(Param=[a], Grad=[a_sum], LearningRate=[lr]) role=optimize
    ParamOut=[b] = sgd(Param=[b], Grad=[b_sum], LearningRate=[lr]) role=optimize
    Out=[a_sum] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5}
    Out=[b_sum] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5}
  )",
                      "count"),
              ElementsAre("a_sum b_sum in block 1"));
}

}  // namespace
}  // namespace weft::testing
