#include "tools/numeric/numeric_check.h"

#include <map>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "tests/support/rewrite.h"
#include "tests/support/training_programs.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

struct Pair {
  Program main, startup;
};

Pair FitALine() {
  return {ReadProgram("tests/data/fit_a_line/main.pb").value(),
          ReadProgram("tests/data/fit_a_line/startup.pb").value()};
}

Pair Programs(const TrainingSpec& spec) {
  TrainingPrograms programs = BuildPrograms(spec);
  return {programs.main, programs.startup};
}

Pair Rewritten(const Pair& original, int nranks, const std::string& mode = "grad_allreduce",
               const std::map<std::string, std::string>& flags = {}) {
  Pair result = original;
  EXPECT_THAT(Rewrite(InMode(mode, nranks, flags), &result.main, &result.startup), testing::IsOk());
  return result;
}

absl::StatusOr<NumericReport> Check(const Pair& original, const Pair& rewritten, int nranks = 2,
                                    int64_t steps = 2) {
  NumericOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  options.steps = steps;
  return CheckNumerically({&original.main, &original.startup},
                          {&rewritten.main, &rewritten.startup}, options);
}

// The program without the only backward op of the type.
Pair Without(Pair programs, const std::string& type) {
  Rewriter rewriter(&programs.main);
  for (OpId id : programs.main.block(0).ops()) {
    const Op op = programs.main.op(id);
    if (op.type() != type || !IsBackward(op)) continue;
    rewriter.Erase(id);
    EXPECT_THAT(rewriter.Commit(), testing::IsOk());
    return programs;
  }
  ADD_FAILURE() << "no " << type;
  return programs;
}

TEST(NumericCheck, ProductsAndMeansAreEqualBitByBit) {
  const Pair original = FitALine();
  for (int nranks : {2, 4}) {
    SCOPED_TRACE(nranks);
    WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report,
                              Check(original, Rewritten(original, nranks), nranks));
    EXPECT_TRUE(report.IsEqual());
    EXPECT_FALSE(report.largest_rounding.has_value());
    EXPECT_THAT(report.compared, ElementsAre("fc_0.b_0", "fc_0.w_0"));
    EXPECT_THAT(report.rank_local, IsEmpty());
    EXPECT_THAT(report.unchanged, IsEmpty());
    EXPECT_EQ(report.batch, 4 * nranks);
  }
}

TEST(NumericCheck, StartupProgramsMayBeLeftOut) {
  const Pair original = FitALine(), rewritten = Rewritten(original, 2);
  NumericOptions options;
  options.kernels = &CpuKernels();
  WEFT_ASSERT_OK_AND_ASSIGN(
      const NumericReport report,
      CheckNumerically({&original.main, nullptr}, {&rewritten.main, nullptr}, options));
  EXPECT_EQ(NumericReportText(report),
            "2 steps on 2 ranks, batch 8: 2 variables equal bit by bit\n");
}

// Whether a single division changes a bit depends on the order in which the CPU adds.
TEST(NumericCheck, DivisionByOddNumbersOfRanksIsRounded) {
  const Pair original = FitALine();
  std::string reports;
  for (int nranks : {3, 5, 7, 11}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report,
                              Check(original, Rewritten(original, nranks), nranks));
    EXPECT_TRUE(report.IsEqual());
    reports += NumericReportText(report);
  }
  EXPECT_THAT(reports, HasSubstr("equal within 1e-5, where results are rounded"));
}

// Layers on an embedding, softmax, adam: labels and ids must be in range.
TrainingSpec Classifier() {
  TrainingSpec spec;
  spec.lookups = 2;
  LayerSpec layer;
  layer.width = 8;
  layer.bias = true;
  layer.activation = weft::testing::Activation::kTanh;
  spec.layers = {layer, layer};
  spec.head.layer = 1;
  spec.head.loss = LossKind::kSoftmaxCrossEntropy;
  spec.weights_by = OptimizerKind::kAdam;
  spec.biases_by = OptimizerKind::kMomentum;
  return spec;
}

TEST(NumericCheck, RoundedResultsAreEqualWithinATolerance) {
  for (bool sparse : {false, true}) {
    TrainingSpec spec = Classifier();
    spec.sparse = sparse;
    if (sparse) spec.weights_by = OptimizerKind::kSgd;
    const Pair original = Programs(spec);
    WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, Rewritten(original, 2)));
    EXPECT_TRUE(report.IsEqual()) << NumericReportText(report);
    ASSERT_TRUE(report.largest_rounding.has_value());
    EXPECT_GT(report.largest_rounding->relative, 0);
    EXPECT_LE(report.largest_rounding->relative, kNumericTolerance);
    EXPECT_THAT(report.unchanged, IsEmpty());
  }
}

// Mixed precision: each rank rounds its part of the gradient to 11 bits, one device the whole.
TEST(NumericCheck, HalfPrecisionIsRoundedMore) {
  const Program main = testing::CompactProgram(R"(
    var x : fp32[-1, 8] need_check_feed
    var w : fp32[8, 1] parameter persistable
    var lr : fp32[1] persistable
    Out=[tenth] = scale(X=[x]) {bias=0.0, bias_after_scale=true, scale=0.1}
    Out=[x.fp16] = cast(X=[tenth]) {in_dtype=5, out_dtype=4}
    Out=[w.fp16] = cast(X=[w]) {in_dtype=5, out_dtype=4}
    Out=[y.fp16] = mul(X=[x.fp16], Y=[w.fp16]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[y] = cast(X=[y.fp16]) {in_dtype=4, out_dtype=5}
    Out=[each] = square(X=[y]) role=forward
    Out=[loss] = reduce_mean(X=[each]) role=forward|loss {dim=ints[0], keep_dim=false, reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {dtype=5, shape=longs[], value=1.0}
    X@GRAD=[each@GRAD] = reduce_mean_grad(Out@GRAD=[loss@GRAD], X=[each]) role=backward {dim=ints[0], keep_dim=false, reduce_all=true}
    X@GRAD=[y@GRAD] = square_grad(Out@GRAD=[each@GRAD], X=[y]) role=backward
    Out=[y.fp16@GRAD] = cast(X=[y@GRAD]) role=backward {in_dtype=5, out_dtype=4}
    Y@GRAD=[w.fp16@GRAD] = mul_grad(Out@GRAD=[y.fp16@GRAD], X=[x.fp16], Y=[w.fp16]) role=backward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[w@GRAD] = cast(X=[w.fp16@GRAD]) role=backward vars=[w, w@GRAD] {in_dtype=4, out_dtype=5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
)");
  const Program startup = testing::CompactProgram(R"(
    var w : fp32[8, 1] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {dtype=5, shape=longs[8, 1], value=0.0}
    Out=[lr] = fill_constant() {dtype=5, shape=longs[1], value=1.0}
)");
  const Pair original = {main, startup};
  const Pair rewritten = Rewritten(original, 2);
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, rewritten));
  EXPECT_TRUE(report.IsEqual()) << NumericReportText(report);
  EXPECT_EQ(report.tolerance, kHalfTolerance);
  ASSERT_TRUE(report.largest_rounding.has_value());
  EXPECT_GT(report.largest_rounding->relative, kNumericTolerance);
  EXPECT_THAT(NumericReportText(report), HasSubstr("equal within the rounding of 16-bit numbers"));
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport wrong,
                            Check(original, Without(rewritten, "c_allreduce_sum")));
  EXPECT_FALSE(wrong.IsEqual());
}

// The gradient of w[i] is the mean of 0.1 x[i], which is 0 for some i except for rounding. adam
// divides it by its magnitude, so rounding alone moves w[i] by about lr.
Pair RoundingDivided(const std::string& lr) {
  const Program main = testing::CompactProgram(R"(
    var x : fp32[-1, 64] need_check_feed
    var w : fp32[64, 1] parameter persistable
    var m1, m2 : fp32[64, 1] persistable
    var b1, b2, lr : fp32[1] persistable
    Out=[tenth] = scale(X=[x]) {bias=0.0, bias_after_scale=true, scale=0.1}
    Out=[y] = mul(X=[tenth], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[loss] = reduce_mean(X=[y]) role=forward|loss {dim=ints[0], keep_dim=false, reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {dtype=5, shape=longs[], value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(Out@GRAD=[loss@GRAD], X=[y]) role=backward {dim=ints[0], keep_dim=false, reduce_all=true}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[tenth], Y=[w]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w], Moment1Out=[m1], Moment2Out=[m2], Beta1PowOut=[b1], Beta2PowOut=[b2] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[b1], Beta2Pow=[b2]) role=optimize vars=[w, w@GRAD]
)");
  const Program startup = testing::CompactProgram(absl::StrReplaceAll(R"(
    var w : fp32[64, 1] parameter persistable
    var m1, m2 : fp32[64, 1] persistable
    var b1, b2, lr : fp32[1] persistable
    Out=[w] = fill_constant() {dtype=5, shape=longs[64, 1], value=0.0}
    Out=[m1] = fill_constant() {dtype=5, shape=longs[64, 1], value=0.0}
    Out=[m2] = fill_constant() {dtype=5, shape=longs[64, 1], value=0.0}
    Out=[b1] = fill_constant() {dtype=5, shape=longs[1], value=0.9}
    Out=[b2] = fill_constant() {dtype=5, shape=longs[1], value=0.999}
    Out=[lr] = fill_constant() {dtype=5, shape=longs[1], value=RATE}
)",
                                                                      {{"RATE", lr}}));
  return {main, startup};
}

TEST(NumericCheck, AmplifiedRoundingIsMeasuredOnTheOriginal) {
  const Pair original = RoundingDivided("0.0001");
  const Pair rewritten = Rewritten(original, 2);
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, rewritten));
  EXPECT_TRUE(report.IsEqual()) << NumericReportText(report);
  EXPECT_THAT(report.rough, IsEmpty());
  ASSERT_TRUE(report.largest_rounding.has_value());
  const NumericReport::Difference& most = *report.largest_rounding;
  EXPECT_EQ(most.variable, "w");
  EXPECT_GT(most.relative, kNumericTolerance);
  EXPECT_LE(most.relative, kRoundingFactor * most.of_original);
  EXPECT_THAT(NumericReportText(report),
              AllOf(HasSubstr("equal within the rounding of the original, where "),
                    HasSubstr("; the original itself by ")));
  // A wrong program differs by more than that.
  for (const char* dropped : {"scale", "c_allreduce_sum"}) {
    SCOPED_TRACE(dropped);
    WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport wrong,
                              Check(original, Without(rewritten, dropped)));
    EXPECT_FALSE(wrong.IsEqual());
  }
}

// Nor does rounding excuse ranks that diverge, however little.
TEST(NumericCheck, RanksOfDifferentBitsAreFoundDespiteRounding) {
  for (const char* lr : {"0.0001", "0.1"}) {
    SCOPED_TRACE(lr);
    const Pair original = RoundingDivided(lr);
    WEFT_ASSERT_OK_AND_ASSIGN(
        const NumericReport report,
        Check(original, Without(Rewritten(original, 2, "grad_allreduce", {{"buckets", "none"}}),
                                "c_allreduce_sum")));
    EXPECT_THAT(report.differences,
                Contains(::testing::Field(&NumericReport::Difference::variable, "w")));
    EXPECT_THAT(report.differences,
                Contains(::testing::Field(&NumericReport::Difference::variable, "m1")));
    EXPECT_THAT(report.rank_local, IsEmpty());
  }
}

TEST(NumericCheck, LargeRoundingIsNotCalledEqual) {
  const Pair original = RoundingDivided("0.1");
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, Rewritten(original, 2)));
  EXPECT_TRUE(report.IsEqual()) << NumericReportText(report);
  EXPECT_THAT(report.rough, ElementsAre("w"));
  EXPECT_THAT(report.compared, ElementsAre("b1", "b2", "m1", "m2"));
  EXPECT_THAT(NumericReportText(report),
              HasSubstr("  not shown, because rounding changes them as much in the original: w"));
}

TEST(NumericCheck, EveryModeThatReducesGradientsIsEqual) {
  const Pair original = Programs(Classifier());
  for (const char* mode : {"grad_allreduce", "multi_thread", "single_process_multi_thread"}) {
    SCOPED_TRACE(mode);
    WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report,
                              Check(original, Rewritten(original, 2, mode)));
    EXPECT_TRUE(report.IsEqual()) << NumericReportText(report);
  }
}

TEST(NumericCheck, DroppedScaleIsFound) {
  const Pair original = FitALine();
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report,
                            Check(original, Without(Rewritten(original, 2), "scale")));
  ASSERT_THAT(report.differences, SizeIs(2));
  EXPECT_EQ(report.differences[0].variable, "fc_0.b_0");
  EXPECT_EQ(report.differences[1].variable, "fc_0.w_0");
  for (const NumericReport::Difference& difference : report.differences) {
    EXPECT_TRUE(difference.is_parameter);
    EXPECT_EQ(difference.step, 0);
    EXPECT_EQ(difference.rank, 0);
    EXPECT_NE(difference.expected, difference.found);
  }
  EXPECT_THAT(report.differences[0].index, ElementsAre(0));
  EXPECT_THAT(report.differences[1].index, SizeIs(2));
  EXPECT_THAT(NumericReportText(report),
              StartsWith("2 steps on 2 ranks, batch 8: different\n"
                         "  parameter fc_0.b_0, rank 0, after step 0: expected "));
}

// Adam hides it in parameters, but not in its moments.
TEST(NumericCheck, DroppedScaleIsFoundUnderAdam) {
  const Pair original = Programs(Classifier());
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report,
                            Check(original, Without(Rewritten(original, 2), "scale")));
  EXPECT_THAT(report.differences,
              Contains(::testing::Field(&NumericReport::Difference::is_parameter, false)));
}

TEST(NumericCheck, MissingAllReduceIsFound) {
  const Pair original = FitALine();
  WEFT_ASSERT_OK_AND_ASSIGN(
      const NumericReport report,
      Check(original, Without(Rewritten(original, 2, "grad_allreduce", {{"buckets", "none"}}),
                              "c_allreduce_sum")));
  // The other parameter is correct in the first step.
  ASSERT_THAT(report.differences, SizeIs(1));
  EXPECT_EQ(report.differences[0].variable, "fc_0.b_0");
}

// For the gradient of any parameter, and any optimizer.
TEST(NumericCheck, EveryMissingAllReduceIsFound) {
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam}) {
    TrainingSpec spec = Classifier();
    spec.weights_by = spec.biases_by = kind;
    const Pair original = Programs(spec);
    const Pair rewritten = Rewritten(original, 2, "grad_allreduce", {{"buckets", "none"}});
    int dropped = 0;
    for (OpId id : rewritten.main.block(0).ops()) {
      if (rewritten.main.op(id).type() != "c_allreduce_sum") continue;
      SCOPED_TRACE(rewritten.main.op(id).DebugName());
      Pair without = rewritten;
      Rewriter rewriter(&without.main);
      rewriter.Erase(id);
      WEFT_ASSERT_OK(rewriter.Commit());
      WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, without));
      EXPECT_FALSE(report.IsEqual()) << NumericReportText(report);
      ++dropped;
    }
    EXPECT_EQ(dropped, 5);  // the table, and weight and bias of two layers
  }
}

TEST(NumericCheck, ProgramThatWasNotRewrittenIsFound) {
  const Pair original = FitALine();
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, original));
  EXPECT_THAT(report.differences, SizeIs(2));
}

TEST(NumericCheck, RankLocalStatesAreNotCompared) {
  TrainingSpec spec;
  spec.layers = {LayerSpec()};
  spec.merged_steps = 2;
  const Pair original = Programs(spec);
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report, Check(original, Rewritten(original, 2)));
  EXPECT_TRUE(report.IsEqual()) << NumericReportText(report);
  EXPECT_THAT(report.rank_local, Not(IsEmpty()));
  EXPECT_THAT(NumericReportText(report), HasSubstr("  not compared, because rank-local: "));
}

TEST(NumericCheck, StepsInWhichNoParameterChangesShowNothing) {
  TrainingSpec spec;
  spec.layers = {LayerSpec()};
  spec.merged_steps = 3;
  const Pair original = Programs(spec);
  const Pair rewritten = Rewritten(original, 2);
  EXPECT_THAT(Check(original, rewritten),
              IsFailedPrecondition("original program: no parameter changes in 2 steps"));
  WEFT_ASSERT_OK_AND_ASSIGN(const NumericReport report,
                            Check(original, rewritten, /*nranks=*/2, /*steps=*/3));
  EXPECT_TRUE(report.IsEqual());
}

// --- What cannot be run ---

constexpr char kText[] = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var y@GRAD : fp32[-1, 1] need_check_feed
    Out=[y] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize vars=[w, w@GRAD]
)";

// Checks a program, as text with a part replaced, against itself.
absl::Status CheckText(const std::string& from, const std::string& to) {
  std::string text = kText;
  EXPECT_GT(absl::StrReplaceAll({{from, to}}, &text), 0);
  const Program program = testing::CompactProgram(text);
  NumericOptions options;
  options.kernels = &CpuKernels();
  return CheckNumerically({&program, nullptr}, {&program, nullptr}, options).status();
}

TEST(NumericCheck, OpWithoutAKernelIsNamed) {
  EXPECT_THAT(CheckText("= mul(", "= nobody_knows("),
              IsUnimplemented(AllOf(StartsWith("original program: "), HasSubstr("nobody_knows"))));
}

TEST(NumericCheck, DataOfAFixedSizeCannotBeThatOfAllRanks) {
  EXPECT_THAT(CheckText("[-1,", "[8,"),
              IsFailedPrecondition("data variable x: expected -1 as dimension 0, found [8, 4]"));
}

TEST(NumericCheck, WhatMayHaveBeenMeantToBeComputedIsRefusedBesideMarkedData) {
  EXPECT_THAT(CheckText("[-1, 1] need_check_feed", "[-1, 1]"),
              IsFailedPrecondition("data variable y@GRAD: it is read and nothing writes it"));
  EXPECT_THAT(CheckText("[-1, 4] need_check_feed", "[-1, 4]"), testing::IsOk());
  EXPECT_THAT(CheckText(" need_check_feed", ""), testing::IsOk());
}

TEST(NumericCheck, MoreThanFitsIsRefusedBeforeAnyMemoryIsTaken) {
  EXPECT_THAT(
      CheckText("4", "1000000000"),
      IsResourceExhausted("variable x: with [8, 1000000000], more than 268435456 elements"));
}

TEST(NumericCheck, VariableThatIsGoneIsNamed) {
  const Pair original = FitALine();
  const Program other = testing::CompactProgram(kText);
  EXPECT_THAT(
      Check(original, {other, original.startup}),
      IsFailedPrecondition("rewritten program: variable fc_0.b_0: persistable in the original"));
}

}  // namespace
}  // namespace weft::testing
