#include "transpiler/passes/compat/grad_reduce.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kModel[] = R"(
    var x : fp32[2, 4] need_check_feed
    var a, b : fp32[4, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
)";
constexpr char kWritesB[] =
    "    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, "
    "b@GRAD]\n";
constexpr char kWritesA[] =
    "    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, "
    "a@GRAD]\n";

std::string ModelOf(const std::string& type, const std::string& dtype) {
  return absl::StrReplaceAll(kModel, {{"fp32", type}, {"dtype=5", "dtype=" + dtype}});
}

// What the pass makes of the model, for 4 ranks.
TranspileResult Expect(const std::string& options, const std::string& after,
                       const RewriteOptions& rewrite = OnRanks(4),
                       const std::string& model = kModel) {
  return ExpectRewrite(absl::StrCat("grad-reduce{", options, "}"), model, after, rewrite);
}

// The edits of a reduction of each gradient on its own, and of what follows it.
std::string EachAlone(const std::string& all_reduce, const std::string& after = "") {
  return absl::StrCat(kWritesB,
                      absl::StrReplaceAll(R"(
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = ALL_REDUCE(X=[b@GRAD]) role=backward
  WRITES_A
  + Out=[a@GRAD] = c_wait_compute(X=[a@GRAD]) role=backward
  + Out=[a@GRAD] = ALL_REDUCE(X=[a@GRAD]) role=backward
  + Out=[b@GRAD, a@GRAD] = c_wait_comm(X=[b@GRAD, a@GRAD]) role=backward
  )",
                                          {{"ALL_REDUCE", all_reduce}, {"WRITES_A", kWritesA}}),
                      after);
}

// That of one op for both.
std::string InOneOp(const std::string& attrs) {
  return absl::StrCat(kWritesA, R"(
  + Out=[b@GRAD, a@GRAD] = c_wait_compute(X=[b@GRAD, a@GRAD]) role=backward
  + Out=[b@GRAD, a@GRAD] = c_allreduce_xsum(X=[b@GRAD, a@GRAD]) role=backward )",
                      attrs, R"(
  + Out=[b@GRAD, a@GRAD] = c_wait_comm(X=[b@GRAD, a@GRAD]) role=backward
  )");
}

// With a buffer for both, and its reduction in fp32.
std::string InABuffer(const std::string& after) {
  return absl::StrCat(R"(
  + var fused_gradient_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[b@GRAD, a@GRAD] = coalesce_tensor(Input=[b@GRAD, a@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[4, 2, 4, 2], dtype=5}
)",
                      kWritesA, R"(
  + Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_compute(X=[b@GRAD, a@GRAD, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = c_allreduce_sum(X=[fused_gradient_0]) role=backward
  + Out=[b@GRAD, a@GRAD, fused_gradient_0] = c_wait_comm(X=[b@GRAD, a@GRAD, fused_gradient_0]) role=backward
  )",
                      after);
}

// The first two ranks share a.
RewriteOptions OfPair() {
  RewriteOptions options = OnRanks(4);
  options.param_attrs["a"].group = RankGroup{"pair", {0, 1}, 0};
  return options;
}

TEST(GradReduceTest, SumIsTheDefaultAndNotedForSeveralRanks) {
  EXPECT_THAT(ResultLines(Expect("", EachAlone("c_allreduce_sum")).messages),
              ElementsAre(HasSubstr("gradients are summed over the ranks")));
}

TEST(GradReduceTest, MeanMultipliesByTheReciprocalAfterTheWait) {
  const auto result = Expect("reduce_method=mean,buckets=count", InABuffer(R"(
  + Out=[fused_gradient_0] = scale(X=[fused_gradient_0]) role=backward {nranks=4, scale=0.25}
  )"));
  EXPECT_THAT(ResultLines(result.messages), Not(Contains(HasSubstr("are summed"))));
}

TEST(GradReduceTest, MeanOverAnUnknownNumberOfRanksIsAnAverage) {
  Expect("reduce_method=mean", EachAlone("c_allreduce_avg"), {});
  Expect("reduce_method=mean,division=quotient", EachAlone("c_allreduce_avg"));
}

// 1 / 4 is wrong for 2 ranks.
TEST(GradReduceTest, GroupOfRanksAverages) {
  Expect("reduce_method=mean",
         absl::StrCat(kWritesB, R"(
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
)",
                      kWritesA, R"(
  + Out=[a@GRAD] = c_wait_compute(X=[a@GRAD]) role=backward {ring_id=1}
  + Out=[a@GRAD] = c_allreduce_avg(X=[a@GRAD]) role=backward {group_ranks=ints[0, 1], ring_id=1}
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  + Out=[a@GRAD] = c_wait_comm(X=[a@GRAD]) role=backward {ring_id=1}
  )"),
         OfPair());
  EXPECT_THAT(RewriteStatus("grad-reduce{reduce_method=mean,division=before}", kModel, OfPair()),
              IsUnimplemented("group 'pair' of ranks"));
}

// The model with the reductions.
std::string ReducedModel() {
  return absl::StrReplaceAll(kModel, {{kWritesA, absl::StrCat(kWritesA, R"(
    Out=[b@GRAD, a@GRAD] = c_wait_compute(X=[b@GRAD, a@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD]) role=backward
    Out=[a@GRAD] = c_allreduce_sum(X=[a@GRAD]) role=backward
    Out=[b@GRAD, a@GRAD] = c_wait_comm(X=[b@GRAD, a@GRAD]) role=backward
)")}});
}

// The division follows the wait for the reduction, and so does not multiply parts of the sum.
TEST(GradReduceTest, ReducedGradientsAreDividedAfterTheirReduction) {
  RewriteOptions options = OnRanks(4);
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;  // divides again, which is wrong
  Expect("reduce_method=mean,reduce_done=true", R"(
    Out=[b@GRAD, a@GRAD] = c_wait_comm(X=[b@GRAD, a@GRAD]) role=backward
  + Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward {nranks=4, scale=0.25}
  + Out=[a@GRAD] = scale(X=[a@GRAD]) role=backward {nranks=4, scale=0.25}
  )",
         options, ReducedModel());
}

TEST(GradReduceTest, GradientsWithoutAReductionInPlaceAreNotDivided) {
  Program program = CompactProgram(kModel);
  ProgramPair programs{&program, nullptr};
  GradReduce::Options options;
  options.is_done = true;
  options.method = GradReduce::Method::kMean;
  options.degree = 4;
  EXPECT_THAT(GradReduce(options).Run(PassContext(), programs).status(),
              IsFailedPrecondition("gradient b@GRAD of parameter b: expected an op of the root "
                                   "block that reduces it in place, found none"));
}

// Slices of both buffers begin at the same elements: 128 halves are 256 bytes, and 512 of floats.
TEST(GradReduceTest, NarrowGradientsTravelAsFloats) {
  Expect("reduce_method=mean,comm_dtype=fp32,buckets=count", R"(
  + var a@GRAD@FP32, b@GRAD@FP32 : fp32[4, 2]
  + var fused_gradient_0 : fp16[256]
  + var fused_gradient_0@FP32 : fp32[256]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=4, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[b@GRAD, a@GRAD] = coalesce_tensor(Input=[b@GRAD, a@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[4, 2, 4, 2], dtype=4}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[fused_gradient_0@FP32], Output=[b@GRAD@FP32, a@GRAD@FP32] = coalesce_tensor(Input=[b@GRAD@FP32, a@GRAD@FP32]) role=backward {align_size=512, concated_ranks=longs[2, 2], concated_shapes=longs[4, 2, 4, 2], dtype=5}
  + Out=[fused_gradient_0@FP32] = cast(X=[fused_gradient_0]) role=backward {in_dtype=4, out_dtype=5}
  + Out=[fused_gradient_0@FP32] = c_wait_compute(X=[fused_gradient_0@FP32]) role=backward
  + Out=[fused_gradient_0@FP32] = c_allreduce_sum(X=[fused_gradient_0@FP32]) role=backward
  + Out=[fused_gradient_0@FP32] = c_wait_comm(X=[fused_gradient_0@FP32]) role=backward
  + Out=[fused_gradient_0@FP32] = scale(X=[fused_gradient_0@FP32]) role=backward {nranks=4, scale=0.25}
  + Out=[fused_gradient_0] = cast(X=[fused_gradient_0@FP32]) role=backward {in_dtype=5, out_dtype=4}
  )",
         OnRanks(4), ModelOf("fp16", "4"));
  Expect("comm_dtype=fp32", EachAlone("c_allreduce_sum"));
  Expect("comm_dtype=fp32", EachAlone("c_allreduce_sum"), OnRanks(4), ModelOf("fp64", "6"));
}

TEST(GradReduceTest, HalfClipsThenCastsAndDividesInSinglePrecision) {
  Expect("reduce_method=mean,comm_dtype=fp16,accumulate_type=native,clip=100",
         absl::StrCat("  + var a@GRAD@FP16, b@GRAD@FP16 : fp16[4, 2]\n", kWritesB, R"(
  + Out=[b@GRAD] = clip(X=[b@GRAD]) role=backward {max=100.0, min=-100.0, per_rank=true}
  + Out=[b@GRAD@FP16] = cast(X=[b@GRAD]) role=backward {in_dtype=5, out_dtype=4}
  + Out=[b@GRAD@FP16] = c_wait_compute(X=[b@GRAD@FP16]) role=backward
  + Out=[b@GRAD@FP16] = c_allreduce_sum(X=[b@GRAD@FP16]) role=backward {accumulate_type="native"}
)",
                      kWritesA, R"(
  + Out=[a@GRAD] = clip(X=[a@GRAD]) role=backward {max=100.0, min=-100.0, per_rank=true}
  + Out=[a@GRAD@FP16] = cast(X=[a@GRAD]) role=backward {in_dtype=5, out_dtype=4}
  + Out=[a@GRAD@FP16] = c_wait_compute(X=[a@GRAD@FP16]) role=backward
  + Out=[a@GRAD@FP16] = c_allreduce_sum(X=[a@GRAD@FP16]) role=backward {accumulate_type="native"}
  + Out=[b@GRAD@FP16, a@GRAD@FP16] = c_wait_comm(X=[b@GRAD@FP16, a@GRAD@FP16]) role=backward
  + Out=[b@GRAD] = cast(X=[b@GRAD@FP16]) role=backward {in_dtype=4, out_dtype=5}
  + Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward {nranks=4, scale=0.25}
  + Out=[a@GRAD] = cast(X=[a@GRAD@FP16]) role=backward {in_dtype=4, out_dtype=5}
  + Out=[a@GRAD] = scale(X=[a@GRAD]) role=backward {nranks=4, scale=0.25}
  )"));
}

TEST(GradReduceTest, SafeHalfDividesBeforeTheCast) {
  Expect("reduce_method=mean,comm_dtype=fp16,division=before,buckets=count", R"(
  + var a@GRAD@FP16, b@GRAD@FP16 : fp16[4, 2]
  + var fused_gradient_0 : fp32[128]
  + var fused_gradient_0@FP16 : fp16[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[b@GRAD, a@GRAD] = coalesce_tensor(Input=[b@GRAD, a@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[4, 2, 4, 2], dtype=5}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + Out=[fused_gradient_0] = scale(X=[fused_gradient_0]) role=backward {nranks=4, scale=0.25}
  + FusedOutput=[fused_gradient_0@FP16], Output=[b@GRAD@FP16, a@GRAD@FP16] = coalesce_tensor(Input=[b@GRAD@FP16, a@GRAD@FP16]) role=backward {align_size=128, concated_ranks=longs[2, 2], concated_shapes=longs[4, 2, 4, 2], dtype=4}
  + Out=[fused_gradient_0@FP16] = cast(X=[fused_gradient_0]) role=backward {in_dtype=5, out_dtype=4}
  + Out=[fused_gradient_0@FP16] = c_wait_compute(X=[fused_gradient_0@FP16]) role=backward
  + Out=[fused_gradient_0@FP16] = c_allreduce_sum(X=[fused_gradient_0@FP16]) role=backward
  + Out=[fused_gradient_0@FP16] = c_wait_comm(X=[fused_gradient_0@FP16]) role=backward
  + Out=[fused_gradient_0] = cast(X=[fused_gradient_0@FP16]) role=backward {in_dtype=4, out_dtype=5}
  )");
}

TEST(GradReduceTest, GroupIsOneOpWithoutABuffer) {
  Expect("buckets=count,lowering=group", InOneOp(""));
}

// As MindSpore's fusion pass reads them: the id of the group, and the positions of its parameters.
TEST(GradReduceTest, GroupOfMindSporeHasItsFusionAttributes) {
  Expect("buckets=mindspore,lowering=group", InOneOp("{fusion=1}"));
  Expect("buckets=\"mindspore{split_indices=1}\",lowering=group",
         InOneOp("{fusion=1024, index=ints[2, 1]}"));
  Expect("buckets=\"mindspore{split_indices=0}\",lowering=group",
         absl::StrReplaceAll(EachAlone("c_allreduce_sum"),
                             {{"c_allreduce_sum(X=[b@GRAD]) role=backward",
                               "c_allreduce_sum(X=[b@GRAD]) role=backward {fusion=1025, "
                               "index=ints[2]}"},
                              {"c_allreduce_sum(X=[a@GRAD]) role=backward",
                               "c_allreduce_sum(X=[a@GRAD]) role=backward {fusion=1024, "
                               "index=ints[1]}"}}));
  // A buffer is fused already.
  Expect("buckets=mindspore", InABuffer(""));
}

TEST(GradReduceTest, OwnDegreeIsNoted) {
  const TranspileResult result = Expect("reduce_method=mean,degree=8", EachAlone("c_allreduce_sum",
                                                                                 R"(
  + Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward {scale=0.125}
  + Out=[a@GRAD] = scale(X=[a@GRAD]) role=backward {scale=0.125}
  )"));
  EXPECT_THAT(ResultLines(result.messages),
              Contains("note: gradients are divided by degree 8, not by the 4 ranks"));
}

TEST(GradReduceTest, SumsIgnoreADegreeAndSaySo) {
  EXPECT_THAT(ResultLines(Expect("degree=3", EachAlone("c_allreduce_sum")).messages),
              Contains("note: degree 3 is not used: gradients are summed; reduce_method mean "
                       "divides by it"));
}

// As in MindSpore, whatever the group.
TEST(GradReduceTest, DegreeDividesWhatGroupsReduceToo) {
  const std::string by_4 = absl::StrCat(kWritesB, R"(
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD]) role=backward
)",
                                        kWritesA, R"(
  + Out=[a@GRAD] = c_wait_compute(X=[a@GRAD]) role=backward {ring_id=1}
  + Out=[a@GRAD] = c_allreduce_sum(X=[a@GRAD]) role=backward {group_ranks=ints[0, 1], ring_id=1}
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward {scale=0.25}
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  + Out=[a@GRAD] = c_wait_comm(X=[a@GRAD]) role=backward {ring_id=1}
  + Out=[a@GRAD] = scale(X=[a@GRAD]) role=backward {scale=0.25}
  )");
  for (const auto& [degree, scale] : {std::pair("4", "0.25"), {"2", "0.5"}}) {
    EXPECT_THAT(ResultLines(Expect(absl::StrCat("reduce_method=mean,degree=", degree),
                                   absl::StrReplaceAll(by_4, {{"0.25", scale}}), OfPair())
                                .messages),
                Contains(HasSubstr(absl::StrCat("divided by degree ", degree))));
  }
}

TEST(GradReduceTest, ContradictionsAreRefused) {
  const auto status = [](const std::string& options, const RewriteOptions& rewrite = OnRanks(4)) {
    const bool is_done = absl::StrContains(options, "reduce_done=true");
    return RewriteStatus(absl::StrCat("grad-reduce{", options, "}"),
                         is_done ? ReducedModel() : kModel, rewrite);
  };
  const std::pair<const char*, const char*> cases[] = {
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
    EXPECT_THAT(status(options), IsInvalidArgument(why)) << options;
  }
  EXPECT_THAT(status("reduce_method=mean,division=before", {}),
              IsInvalidArgument("number of ranks is unknown"));
}

TEST(GradReduceTest, HalfNeedsSinglePrecision) {
  for (const auto& [type, dtype] : {std::pair("fp64", "6"), {"fp16", "4"}}) {
    EXPECT_THAT(RewriteStatus("grad-reduce{comm_dtype=fp16}", ModelOf(type, dtype), OnRanks(4)),
                IsFailedPrecondition(absl::StrCat("gradient b@GRAD of parameter b, completed by "
                                                  "op 1 (mul_grad): expected fp32, which can "
                                                  "travel as fp16, found ",
                                                  type)))
        << "singa/half/dtype";
  }
}

}  // namespace
}  // namespace weft::testing
