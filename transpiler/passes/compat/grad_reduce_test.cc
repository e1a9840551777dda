#include "transpiler/passes/compat/grad_reduce.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/option_binder.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Model(const std::string& type) {
  return R"(
  var a : )" +
         type + R"([4, 2] persistable parameter
  var b : )" +
         type + R"([4, 2] persistable parameter
  var a@GRAD : )" +
         type + R"([4, 2]
  var b@GRAD : )" +
         type + R"([4, 2]
  var g : )" +
         type + R"([4, 2]
  var lr : fp32[1] persistable
  Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
  Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
  ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
)";
}

// The ops of the program after the pass, or its error.
absl::StatusOr<std::string> Reduced(const std::string& options, const std::string& type = "fp32",
                                    absl::optional<int> nranks = 4,
                                    std::vector<Message>* messages = nullptr,
                                    const ParamAttrsByName& attrs = {}) {
  Program program = CompactProgram(Model(type));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> specs, ParseSpecs("grad-reduce{" + options + "}"));
  GradReduce::Options parsed;
  OptionBinder bind;
  parsed.Bind(bind);
  WEFT_RETURN_IF_ERROR(bind.Set(specs[0].options));
  PassContext context;
  context.sink.messages = messages;
  context.target.param_attrs = attrs;
  context.target.groups = GroupsOf(attrs);
  ClusterSpec cluster;
  cluster.nranks = nranks;
  context.target.cluster = *Cluster::Create(cluster);
  ProgramPair programs{&program, nullptr};
  WEFT_RETURN_IF_ERROR(GradReduce(parsed).Run(context, programs).status());
  std::string text = CanonicalText(program.ToProto());
  return text.substr(text.rfind("\n", text.find(" = ")) + 1);
}

TEST(GradReduceTest, SumIsTheDefault) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, Reduced(""));
  EXPECT_THAT(text, HasSubstr("Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD])"));
  EXPECT_THAT(text, Not(HasSubstr("scale(")));
}

TEST(GradReduceTest, MeanMultipliesByTheReciprocalAfterTheWait) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, Reduced("reduce_method=mean,buckets=count"));
  EXPECT_THAT(
      text,
      HasSubstr("    Out=[fused_gradient_0] = c_allreduce_sum(X=[fused_gradient_0]) role=backward\n"
                "    Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_comm(X=[b@GRAD, a@GRAD, "
                "fused_gradient_0]) role=backward\n"
                "    Out=[fused_gradient_0] = scale(X=[fused_gradient_0]) role=backward {nranks=4, "
                "scale=0.25}\n"));
}

TEST(GradReduceTest, MeanOverAnUnknownNumberOfRanksIsAnAverage) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Reduced("reduce_method=mean", "fp32", absl::nullopt));
  EXPECT_THAT(text, HasSubstr("c_allreduce_avg("));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string quotient,
                            Reduced("reduce_method=mean,division=quotient"));
  EXPECT_THAT(quotient, HasSubstr("c_allreduce_avg("));
}

// 1 / 4 is wrong for 2 ranks.
TEST(GradReduceTest, GroupOfRanksAverages) {
  ParamAttrsByName attrs;
  attrs["a"].group = RankGroup{"g0", {0, 1}, 0};
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Reduced("reduce_method=mean", "fp32", 4, nullptr, attrs));
  EXPECT_THAT(text, HasSubstr("Out=[a@GRAD] = c_allreduce_avg(X=[a@GRAD]) role=backward "
                              "{group_ranks=ints[0, 1], ring_id=1}"));
  EXPECT_THAT(text, Not(HasSubstr("scale(")));
  EXPECT_THAT(Reduced("reduce_method=mean,division=before", "fp32", 4, nullptr, attrs).status(),
              IsUnimplemented("group 'g0' of ranks"));
}

// The division follows the wait for the reduction, and so does not multiply parts of the sum.
TEST(GradReduceTest, ReducedGradientsAreDividedBehindTheirReduction) {
  Program program = CompactProgram(Model("fp32"));
  ProgramPair programs{&program, nullptr};
  PassContext context;
  ClusterSpec cluster;
  cluster.nranks = 4;
  context.target.cluster = *Cluster::Create(cluster);
  GradReduce::Options options;
  WEFT_ASSERT_OK(GradReduce(options).Run(context, programs).status());
  options.is_done = true;
  options.method = GradReduce::Method::kMean;
  WEFT_ASSERT_OK(GradReduce(options).Run(context, programs).status());
  const std::string text = CanonicalText(program.ToProto());
  const size_t wait = text.find("Out=[b@GRAD, a@GRAD] = c_wait_comm");
  ASSERT_NE(wait, std::string::npos) << text;
  EXPECT_GT(text.find("Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward {nranks=4, scale=0.25}"),
            wait);
  EXPECT_GT(text.find("Out=[a@GRAD] = scale("), wait);
}

TEST(GradReduceTest, GradientsWithoutAReductionInPlaceAreNotDivided) {
  Program program = CompactProgram(Model("fp32"));
  ProgramPair programs{&program, nullptr};
  PassContext context;
  GradReduce::Options options;
  options.is_done = true;
  options.method = GradReduce::Method::kMean;
  options.degree = 4;
  EXPECT_THAT(GradReduce(options).Run(context, programs).status(),
              IsFailedPrecondition("gradient b@GRAD of parameter b: expected an op of the root "
                                   "block that reduces it in place, found none"));
}

// Slices of both buffers begin at the same elements: 128 halves are 256 bytes, and 512 of floats.
TEST(GradReduceTest, NarrowGradientsTravelAsFloats) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Reduced("reduce_method=mean,comm_dtype=fp32,buckets=count", "fp16"));
  EXPECT_THAT(text, HasSubstr("Out=[fused_gradient_0@FP32] = cast(X=[fused_gradient_0])"));
  EXPECT_THAT(text, HasSubstr("align_size=512"));
  const size_t reduce = text.find("c_allreduce_sum(X=[fused_gradient_0@FP32])");
  const size_t multiply = text.find("scale(X=[fused_gradient_0@FP32])");
  const size_t back = text.find("Out=[fused_gradient_0] = cast(X=[fused_gradient_0@FP32])");
  EXPECT_NE(back, std::string::npos);
  EXPECT_LT(reduce, multiply);
  EXPECT_LT(multiply, back);
  for (const char* type : {"fp32", "fp64"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const std::string wide, Reduced("comm_dtype=fp32", type));
    EXPECT_THAT(wide, Not(HasSubstr("cast("))) << type;
  }
}

TEST(GradReduceTest, HalfClipsThenCastsAndDividesInSinglePrecision) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      Reduced("reduce_method=mean,comm_dtype=fp16,accumulate_type=native,clip=100"));
  const std::vector<std::string> order = {
      "Out=[b@GRAD] = clip(X=[b@GRAD]) role=backward {max=100.0, min=-100.0, per_rank=true}",
      "Out=[b@GRAD@FP16] = cast(X=[b@GRAD])",
      "Out=[b@GRAD@FP16] = c_wait_compute(X=[b@GRAD@FP16])",
      "Out=[b@GRAD@FP16] = c_allreduce_sum(X=[b@GRAD@FP16]) role=backward "
      "{accumulate_type=\"native\"}",
      "Out=[b@GRAD] = cast(X=[b@GRAD@FP16])",
      "Out=[b@GRAD] = scale(X=[b@GRAD])",
      "ParamOut=[b]",
  };
  size_t at = 0;
  for (const std::string& op : order) {
    const size_t found = text.find(op, at);
    ASSERT_NE(found, std::string::npos) << op << " after " << at << " in\n" << text;
    at = found;
  }
}

TEST(GradReduceTest, SafeHalfDividesBeforeTheCast) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      Reduced("reduce_method=mean,comm_dtype=fp16,division=before,buckets=count"));
  EXPECT_LT(text.find("scale(X=[fused_gradient_0])"), text.find("cast(X=[fused_gradient_0])"));
  EXPECT_EQ(text.find("scale(", text.find("c_allreduce_sum")), std::string::npos);
}

TEST(GradReduceTest, GroupIsOneOpWithoutABuffer) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, Reduced("buckets=count,lowering=group"));
  EXPECT_THAT(text, HasSubstr("Out=[b@GRAD, a@GRAD] = c_allreduce_xsum(X=[b@GRAD, a@GRAD])"));
  EXPECT_THAT(text, Not(HasSubstr("coalesce_tensor")));
}

// As MindSpore's fusion pass reads them: the id of the group, and the places of its parameters.
TEST(GradReduceTest, GroupOfMindSporeHasItsFusionAttributes) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string one, Reduced("buckets=mindspore,lowering=group"));
  EXPECT_THAT(one, HasSubstr("c_allreduce_xsum(X=[b@GRAD, a@GRAD]) role=backward {fusion=1}"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string split,
                            Reduced("buckets=\"mindspore{split_indices=0}\",lowering=group"));
  EXPECT_THAT(split, HasSubstr("c_allreduce_sum(X=[b@GRAD]) role=backward {fusion=1025, "
                               "index=ints[2]}"));
  EXPECT_THAT(split, HasSubstr("c_allreduce_sum(X=[a@GRAD]) role=backward {fusion=1024, "
                               "index=ints[1]}"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string both,
                            Reduced("buckets=\"mindspore{split_indices=1}\",lowering=group"));
  EXPECT_THAT(both, HasSubstr("c_allreduce_xsum(X=[b@GRAD, a@GRAD]) role=backward {fusion=1024, "
                              "index=ints[2, 1]}"));
  // A buffer is fused already.
  EXPECT_THAT(Reduced("buckets=mindspore"), testing::IsOkAndHolds(Not(HasSubstr("fusion="))));
}

TEST(GradReduceTest, OwnDegreeIsNoted) {
  std::vector<Message> messages;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Reduced("reduce_method=mean,degree=8", "fp32", 4, &messages));
  EXPECT_THAT(text, HasSubstr("scale=0.125"));
  EXPECT_THAT(text, Not(HasSubstr("nranks")));
  EXPECT_THAT(testing::ResultLines(messages),
              ::testing::Contains("note: gradients are divided by degree 8, not by the 4 "
                                  "ranks"));
}

TEST(GradReduceTest, SumsIgnoreADegreeAndSaySo) {
  std::vector<Message> messages;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string sum, Reduced(""));
  EXPECT_THAT(Reduced("degree=3", "fp32", 4, &messages), testing::IsOkAndHolds(sum));
  EXPECT_THAT(testing::ResultLines(messages),
              ::testing::Contains("note: degree 3 is not used: gradients are summed; "
                                  "reduce_method mean divides by it"));
}

// As in MindSpore, whatever the group.
TEST(GradReduceTest, DegreeDividesWhatGroupsReduceToo) {
  ParamAttrsByName attrs;
  attrs["a"].group = RankGroup{"pair", {0, 1}, 0};
  for (const char* degree : {"4", "2"}) {
    std::vector<Message> messages;
    WEFT_ASSERT_OK_AND_ASSIGN(
        const std::string text,
        Reduced(absl::StrCat("reduce_method=mean,degree=", degree), "fp32", 4, &messages, attrs));
    const std::string scale = absl::StrCat("{scale=", 1.0 / (degree[0] - '0'), "}");
    EXPECT_THAT(text, HasSubstr("Out=[a@GRAD] = c_allreduce_sum(X=[a@GRAD]) role=backward "
                                "{group_ranks=ints[0, 1], ring_id=1}"));
    for (const char* grad : {"a@GRAD", "b@GRAD"}) {
      EXPECT_THAT(text, HasSubstr(absl::StrCat("scale(X=[", grad, "]) role=backward ", scale)));
    }
    EXPECT_THAT(testing::ResultLines(messages),
                ::testing::Contains(HasSubstr(absl::StrCat("divided by degree ", degree))));
  }
}

TEST(GradReduceTest, SumsAreNotedForSeveralRanks) {
  std::vector<Message> of_sum, of_mean;
  WEFT_EXPECT_OK(Reduced("", "fp32", 4, &of_sum).status());
  EXPECT_THAT(testing::ResultLines(of_sum),
              ::testing::ElementsAre(HasSubstr("gradients are summed over the ranks")));
  WEFT_EXPECT_OK(Reduced("reduce_method=mean", "fp32", 4, &of_mean).status());
  EXPECT_THAT(of_mean, ::testing::IsEmpty());
}

TEST(GradReduceTest, ContradictionsAreRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"reduce_method=avg", "reduce_method"},
      {"reduce_method=mean,degree=0", "ranks or an integer >= 1"},
      {"reduce_method=mean,degree=true", "ranks or an integer >= 1"},
      {"reduce_method=mean,division=quotient,degree=3", "expected neither degree"},
      {"clip=-1", "a number >= 0"},
      {"clip=nan", "a number >= 0"},
      {"clip=1e-46", "a number >= 0"},  // 0 in fp32: all gradients would be
      {"reduce_method=mean,reduce_done=true,clip=1", "gradients have travelled"},
      {"reduce_method=mean,reduce_done=true,comm_dtype=fp16", "gradients have travelled"},
      {"reduce_method=mean,reduce_done=true,division=before", "gradients have travelled"},
      {"reduce_done=true", "gradients have travelled: expected reduce_method mean"},
  };
  for (const auto& [options, why] : cases) {
    EXPECT_THAT(Reduced(options).status(), IsInvalidArgument(why)) << options;
  }
  EXPECT_THAT(Reduced("reduce_method=mean,division=before", "fp32", absl::nullopt).status(),
              IsInvalidArgument("number of ranks is unknown"));
}

TEST(GradReduceTest, HalfNeedsSinglePrecision) {
  for (const char* type : {"fp64", "fp16"}) {
    EXPECT_THAT(
        Reduced("comm_dtype=fp16", type).status(),
        IsFailedPrecondition(absl::StrCat("gradient b@GRAD of parameter b, completed by op 0 "
                                          "(mul_grad): expected fp32, which can travel as fp16, "
                                          "found ",
                                          type)))
        << "singa/half/dtype";
  }
}

}  // namespace
}  // namespace weft::testing
