// Rules that a look at one program for all ranks, or at one step, does not see: what single ranks
// do otherwise, what LocalSGD has to count on, and what is computed part by part.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_text.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Edits = std::vector<std::pair<absl::string_view, absl::string_view>>;

Program Read(absl::string_view text, const Edits& edits = {}) {
  std::string edited(text);
  for (const auto& [from, to] : edits) {
    EXPECT_GT(absl::StrReplaceAll({{from, to}}, &edited), 0) << from;
  }
  return *ParseProgramText(edited);
}

std::vector<std::string> Errors(absl::Span<const RankPrograms> ranks,
                                const Program* original = nullptr) {
  VerifyOptions options;
  options.nranks = 2;
  options.original.main = original;
  std::vector<std::string> errors;
  const Findings findings = Verify(ranks, options);
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError)
      errors.push_back(ToString(finding, ranks.size() == 1));
  }
  return errors;
}

// --- W505: which variables ranks exchange --------------------------------------------------------

constexpr absl::string_view kTwoBroadcasts = R"(program {
  block 0 parent=-1 {
    var a : fp32[16] parameter persistable
    var b : fp32[16, 1] parameter persistable
    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=0, use_calc_stream=true}
    Out=[b] = c_broadcast(X=[b]) {ring_id=0, root=0, use_calc_stream=true}
  }
})";

constexpr absl::string_view kBroadcastA = "Out=[a] = c_broadcast(X=[a])";
constexpr absl::string_view kBroadcastB = "Out=[b] = c_broadcast(X=[b])";

TEST(ExchangedVariables, AreTheSameOnAllRanks) {
  const Program program = Read(kTwoBroadcasts);
  EXPECT_THAT(Errors({{&program}, {&program}}), IsEmpty());
}

TEST(ExchangedVariables, OfOneSizeMayNotBeMixedUp) {
  const Program one = Read(kTwoBroadcasts);
  const Program other = Read(
      kTwoBroadcasts, {{kBroadcastA, "first"}, {kBroadcastB, kBroadcastA}, {"first", kBroadcastB}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(AllOf(StartsWith("W505 error: rank 1: "),
                                HasSubstr("ring 0, call 0: rank 1 exchanges b (op 0 (c_broadcast))"
                                          ", rank 0 a (op 0 (c_broadcast))"))));
}

constexpr absl::string_view kBuffer = R"(program {
  block 0 parent=-1 {
    var a : fp32[4]
    var b : fp32[8]
    var buffer : fp32[128]
    FusedOutput=[buffer], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false, set_constant=true, constant=1.0, use_align=true, align_size=256}
    Out=[buffer] = c_allreduce_sum(X=[buffer]) {ring_id=0, use_calc_stream=true}
  }
})";

TEST(ExchangedVariables, StandInTheSameOrderInBuffers) {
  const Program one = Read(kBuffer);
  const Program other = Read(kBuffer, {{"Output=[a, b]", "Output=[b, a]"},  //
                                       {"Input=[a, b]", "Input=[b, a]"}});
  EXPECT_THAT(Errors({{&one}, {&one}}), IsEmpty());
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(HasSubstr("rank 1 exchanges {b, a} (op 1 (c_allreduce_sum)), rank 0 "
                                    "{a, b}")));
}

// --- W506: when blocks with collectives run ------------------------------------------------------

constexpr absl::string_view kEveryOtherStep = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    var step : int64[1] persistable
    var k : int64[1]
    var none : int64[1]
    var rest : int64[1]
    var due : bool[1]
    var scope : step_scopes
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=2.0}
    Out=[none] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) {axis=-1}
    Out=[due] = equal(X=[rest], Y=[none])
    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[step] = increment(X=[step]) {step=1.0}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})";

constexpr absl::string_view kStartup = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    c_comm_init_all() {ring_id=0, nranks=2}
  }
})";

TEST(Conditions, AreComputedAlikeOnAllRanks) {
  const Program program = Read(kEveryOtherStep), startup = Read(kStartup);
  EXPECT_THAT(Errors({{&program, &startup}, {&program, &startup}}), IsEmpty());
}

TEST(Conditions, MayNotDependOnAnotherNumber) {
  const Program one = Read(kEveryOtherStep);
  const Program other = Read(kEveryOtherStep, {{"dtype=3, value=2.0", "dtype=3, value=3.0"}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(AllOf(StartsWith("W506 error: rank 1: op 5 (conditional_block): "),
                                HasSubstr("condition due is computed from fill_constant"))));
}

// In the first step the ranks agree.
TEST(Conditions, MayNotDependOnWhatAStepMakesDifferent) {
  const Program one = Read(kEveryOtherStep);
  const Program other = Read(kEveryOtherStep, {{"{step=1.0}", "{step=2.0}"}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(HasSubstr("condition due depends on step, which a step makes something "
                                    "else on rank 1 than on rank 0")));
}

TEST(Conditions, MayNotBeginDifferently) {
  const Program program = Read(kEveryOtherStep), startup = Read(kStartup);
  const Program other = Read(kStartup, {{"dtype=3, value=0.0", "dtype=3, value=1.0"}});
  EXPECT_THAT(Errors({{&program, &startup}, {&program, &other}}),
              ElementsAre(HasSubstr("condition due depends on step, which the startup program "
                                    "makes something else on rank 1 than on rank 0")));
}

// --- W605: averages that are never due, or always ------------------------------------------------

constexpr absl::string_view kOneDevice = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
  }
})";

TEST(LocalSgd, AveragesOnAConditionThatChanges) {
  const Program original = Read(kOneDevice), program = Read(kEveryOtherStep);
  EXPECT_THAT(Errors({{&program}}, &original), IsEmpty());
}

TEST(LocalSgd, MayNotCountOnACounterThatStandsStill) {
  const Program original = Read(kOneDevice);
  const Program program =
      Read(kEveryOtherStep, {{"    Out=[step] = increment(X=[step]) {step=1.0}\n", ""}});
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("W605 error: variable w, last written by op 5"),
                                HasSubstr("which is the same in every step"))));
}

// --- W317: where ranks that go on by themselves begin --------------------------------------------

constexpr absl::string_view kStartupOfProcesses = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    var id : raw
    Out=[w] = uniform_random() {shape=longs[4], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[id] = c_gen_nccl_id() {rank=0, endpoint="a:1", other_endpoints=strings["b:1"]}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}
  }
})";

TEST(LocalSgd, BeginsWithTheSameParametersOnAllRanks) {
  const Program program = Read(kEveryOtherStep), startup = Read(kStartupOfProcesses);
  EXPECT_THAT(Errors({{&program, &startup}}), IsEmpty());
}

TEST(LocalSgd, MayNotBeginWithTheRanksOwnDraws) {
  const Program program = Read(kEveryOtherStep);
  const Program startup =
      Read(kStartupOfProcesses,
           {{"    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}\n", ""}});
  EXPECT_THAT(Errors({{&program, &startup}}),
              ElementsAre(AllOf(StartsWith("W317 error: "), HasSubstr("does not broadcast it"))));
}

// --- W317: parameters that do not stay the same
// ---------------------------------------------------

constexpr absl::string_view kMeanGradient = R"(program {
  block 0 parent=-1 {
    var x : fp32[4] need_check_feed stop_gradient
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var limit : fp32[1] persistable
    var size : fp32[1]
    var due : bool[1]
    var scope : step_scopes
    var loss@GRAD : fp32[4]
    var w@GRAD : fp32[4]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[size] = reduce_mean(X=[x]) {dim=ints[0], keep_dim=false, reduce_all=true}
)";
constexpr absl::string_view kUpdate =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";

TEST(EqualParameters, NeedLearningRatesThatRanksAgreeOn) {
  const std::string rate = "    Out=[lr] = scale(X=[size]) {scale=0.1}\n";
  const Program right = Read(absl::StrCat(kMeanGradient, kUpdate, "  }\n}"));
  const Program wrong = Read(absl::StrCat(kMeanGradient, rate, kUpdate, "  }\n}"));
  EXPECT_THAT(Errors({{&right}}), IsEmpty());
  EXPECT_THAT(Errors({{&wrong}}),
              ElementsAre("W317 error: op 5 (sgd) updates w by w@GRAD, but the parameter itself "
                          "becomes own to each rank in a step: op 5 (sgd) computes it from lr, "
                          "which is own to each rank"));
}

TEST(EqualParameters, NeedConditionsThatRanksAgreeOn) {
  const std::string text =
      absl::StrCat(kMeanGradient,
                   "    Out=[due] = greater_than(X=[size], Y=[limit])\n"
                   "    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w, w@GRAD]) "
                   "{sub_block=block(1), is_scalar_condition=true}\n"
                   "  }\n  block 1 parent=0 {\n",
                   kUpdate, "  }\n}");
  const Program right = Read(text, {{"X=[size], Y=[limit]", "X=[lr], Y=[limit]"}});
  const Program wrong = Read(text);
  EXPECT_THAT(Errors({{&right}}), IsEmpty());
  EXPECT_THAT(
      Errors({{&wrong}}),
      ElementsAre("W317 error: block 1, op 0 (sgd) updates w by w@GRAD, but the parameter itself "
                  "becomes own to each rank in a step: op 5 (conditional_block) runs its block on "
                  "condition due, which is own to each rank"));
}

// --- Updates of parts ----------------------------------------------------------------------------

// Each rank updates one half of w, by one half of the mean of gradients, and all get both halves.
constexpr absl::string_view kHalves = R"(program {
  block 0 parent=-1 {
    var x : fp32[4] need_check_feed stop_gradient
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var loss@GRAD : fp32[4]
    var w@GRAD : fp32[4]
    var w_half@GRAD : fp32[2]
    var w_half : fp32[2]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    Out=[w_half@GRAD] = c_reducescatter(X=[w@GRAD]) {ring_id=0, nranks=2, use_calc_stream=true}
    Out=[w_half@GRAD] = scale(X=[w_half@GRAD]) role=backward {scale=0.5, nranks=2}
    Out=[w_half] = c_reducescatter(X=[w]) {ring_id=0, nranks=2, use_calc_stream=true}
    Out=[w_half] = scale(X=[w_half]) role=optimize {scale=0.5, nranks=2}
    ParamOut=[w_half] = sgd(Param=[w_half], Grad=[w_half@GRAD], LearningRate=[lr]) role=optimize
    Out=[w] = c_allgather(X=[w_half]) {ring_id=0, nranks=2, use_calc_stream=true}
  }
})";

constexpr absl::string_view kWhole = R"(program {
  block 0 parent=-1 {
    var x : fp32[4] need_check_feed stop_gradient
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var loss@GRAD : fp32[4]
    var w@GRAD : fp32[4]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  }
})";

TEST(Halves, MakeUpTheUpdateOfTheWhole) {
  const Program original = Read(kWhole), program = Read(kHalves);
  EXPECT_THAT(Errors({{&program}}, &original), IsEmpty());
}

TEST(Halves, HaveToBeUpdatedByTheMeanGradient) {
  const Program original = Read(kWhole);
  const Program program = Read(kHalves, {{"role=backward {scale=0.5, nranks=2}",  //
                                          "role=backward {scale=0.25, nranks=2}"}});
  EXPECT_THAT(Errors({{&program}}, &original), ElementsAre(StartsWith("W601 error: ")));
}

// --- Where only an attribute differs -------------------------------------------------------------

TEST(DifferentAttributes, OfAnUpdateAreNamed) {
  const Program original = Read(kWhole, {{"value=1.0", "value=2.0"}}), program = Read(kHalves);
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("W601 error: variable w, last written by op 7"),
                                HasSubstr("expected fill_constant{value=2.0}, found "
                                          "fill_constant{value=1.0}, in "))));
}

constexpr absl::string_view kStatistic = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] persistable
    var largest : fp32[4] persistable
    Out=[largest] = clip(X=[w]) {min=0.0, max=1.0}
  }
})";

TEST(DifferentAttributes, OfAStateAreNamed) {
  const Program original = Read(kStatistic);
  const Program program = Read(kStatistic, {{"max=1.0", "max=2.0"}});
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("W602 error: variable largest"),
                                HasSubstr("expected clip{max=1.0}(w), found clip{max=2.0}(w)"))));
}

}  // namespace
}  // namespace weft
