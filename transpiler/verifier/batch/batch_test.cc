// Collectives that make values of the batch those of one device (layers 6 and 7).
#include "transpiler/verifier/batch/batch.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kVars[] = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var state : fp32[] persistable
    var s, t, loss : fp32[]
)";
constexpr char kForward[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)";
constexpr char kReduce[] =
    "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
constexpr char kUpdate[] =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";
constexpr char kAverage[] = "    Out=[s] = c_allreduce_avg(X=[s]) {use_calc_stream=true}\n";
constexpr char kSum[] = "    Out=[s] = c_allreduce_sum(X=[s]) {use_calc_stream=true}\n";

// Of the batch, and a state that adds them up.
constexpr char kMean[] = "    Out=[s] = mean(X=[y])\n";
constexpr char kCount[] =
    "    Out=[s] = reduce_sum(X=[y]) {reduce_all=true, dim=ints[0], keep_dim=false}\n";
constexpr char kAccumulate[] = "    Out=[state] = elementwise_add(X=[state], Y=[s])\n";
constexpr char kRoot[] = "    Out=[s] = sqrt(X=[s])\n";

// What is found in a step with these ops after the update, if the original has `original` there.
std::vector<std::string> Found(const std::vector<std::string>& original,
                               const std::vector<std::string>& rewritten,
                               const std::string& update = absl::StrCat(kReduce, kUpdate)) {
  return Differences(absl::StrCat(kVars, kForward, kUpdate, absl::StrJoin(original, "")),
                     absl::StrCat(kVars, kForward, update, absl::StrJoin(rewritten, "")),
                     ForRanks(2));
}

TEST(Batch, AReducedStatisticIsThatOfOneDevice) {
  EXPECT_THAT(Found({kMean, kAccumulate}, {kMean, kAverage, kAccumulate}), IsEmpty());
  EXPECT_THAT(Found({kCount, kAccumulate}, {kCount, kSum, kAccumulate}), IsEmpty());
  // The state itself, and a nonlinear function.
  EXPECT_THAT(
      Found({kMean, kAccumulate}, {kMean, kAccumulate,
                                   "    Out=[state] = c_allreduce_avg(X=[state]) role=optimize "
                                   "{use_calc_stream=true}\n"}),
      IsEmpty());
  EXPECT_THAT(Found({kMean, kRoot, kAccumulate}, {kMean, kAverage, kRoot, kAccumulate}), IsEmpty());
}

TEST(Batch, ASummedNumberOfSamplesIsThatOfOneDevice) {
  const std::string number =
      "    Out=[n] = size(Input=[x])\n"
      "    Out=[s] = cast(X=[n]) {in_dtype=3, out_dtype=5}\n";
  EXPECT_THAT(Found({number, kAccumulate}, {number, kSum, kAccumulate}), IsEmpty());
  EXPECT_THAT(Found({number, kAccumulate}, {number, kAverage, kAccumulate}), Not(IsEmpty()));
}

TEST(Batch, AStatisticReducedOtherwiseIsNot) {
  // The mean is as many times too large as there are ranks.
  EXPECT_THAT(Found({kMean, kAccumulate}, {kMean, kSum, kAccumulate}),
              Contains(StartsWith("error: W602: variable state")));
  // The count is as many times too small.
  EXPECT_THAT(Found({kCount, kAccumulate}, {kCount, kAverage, kAccumulate}),
              ElementsAre(StartsWith("warning: W703: state state")));
  EXPECT_THAT(
      Found({kCount, kAccumulate},
            {kCount, kSum, "    Out=[s] = scale(X=[s]) {scale=0.5, nranks=2}\n", kAccumulate}),
      ElementsAre(StartsWith("warning: W703: state state")));
  // Too late: the function is not linear.
  EXPECT_THAT(Found({kMean, kRoot, kAccumulate}, {kMean, kRoot, kAverage, kAccumulate}),
              Contains(StartsWith("error: W602: variable state")));
}

TEST(Batch, AMaximumOfTheRanksMaximaIsThatOfOneDevice) {
  const auto reduced = [](const char* type) {
    return absl::StrCat("    Out=[s] = ", type,
                        "(X=[y]) {reduce_all=true, dim=ints[0], keep_dim=false}\n");
  };
  const auto all_reduced = [](const char* type) {
    return absl::StrCat("    Out=[s] = ", type, "(X=[s]) {use_calc_stream=true}\n");
  };
  const std::string max = reduced("reduce_max"), min = reduced("reduce_min"),
                    prod = reduced("reduce_prod");
  EXPECT_THAT(Found({max, kAccumulate}, {max, all_reduced("c_allreduce_max"), kAccumulate}),
              IsEmpty());
  EXPECT_THAT(Found({min, kAccumulate}, {min, all_reduced("c_allreduce_min"), kAccumulate}),
              IsEmpty());
  EXPECT_THAT(Found({prod, kAccumulate}, {prod, all_reduced("c_allreduce_prod"), kAccumulate}),
              IsEmpty());
  for (const char* other : {"c_allreduce_min", "c_allreduce_sum", "c_allreduce_avg"}) {
    EXPECT_THAT(Found({max, kAccumulate}, {max, all_reduced(other), kAccumulate}),
                Contains(StartsWith("error: W602: variable state")))
        << other;
  }
}

// Under LocalSGD, ranks compute the mean with weights of their own.
TEST(Batch, AStatisticOfRankLocalWeightsIsNotThatOfOneDevice) {
  constexpr char kAgain[] = "    Out=[y] = mul(X=[x], Y=[w])\n";
  const auto found = Found({kAgain, kMean, kRoot, kAccumulate},
                           {kAgain, kMean, kAverage, kRoot, kAccumulate,
                            "    Out=[w] = c_allreduce_avg(X=[w]) role=optimize "
                            "{use_calc_stream=true}\n"},
                           kUpdate);
  EXPECT_THAT(found, Contains(StartsWith("error: W602: variable state")));
}

// The divisor of a loss: of one rank's samples, or of all.
TEST(Batch, AReducedDivisorMakesAWeightedMeanExact) {
  const auto step = [](const std::string& reduce, const std::string& gradients) {
    return absl::StrCat(kVars, R"(
    var weight : fp32[-1, 1] need_check_feed
    var p, p@GRAD : fp32[-1, 1]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[p] = elementwise_mul(X=[y], Y=[weight])
    Out=[n] = reduce_sum(X=[p]) {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[s] = reduce_sum(X=[weight]) {reduce_all=true, dim=ints[0], keep_dim=false}
)",
                        reduce, R"(
    Out=[loss] = elementwise_div(X=[n], Y=[s]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[n@GRAD] = elementwise_div_grad(X=[n], Y=[s], Out=[loss], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[p@GRAD] = reduce_sum_grad(X=[p], Out@GRAD=[n@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    X@GRAD=[y@GRAD] = elementwise_mul_grad(X=[y], Y=[weight], Out@GRAD=[p@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)",
                        gradients, kUpdate);
  };
  const std::string sum_gradients =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const std::string original = step("", "");
  EXPECT_THAT(Differences(original, step(kAverage, kReduce), ForRanks(2)), IsEmpty());
  // The mean in two ops, as on CPUs.
  const std::string divide = "    Out=[s] = scale(X=[s]) {scale=0.5, nranks=2}\n";
  const std::string mean = absl::StrCat(kSum, divide);
  EXPECT_THAT(Differences(original, step(mean, kReduce), ForRanks(2)), IsEmpty());
  EXPECT_THAT(Differences(original, step(mean, sum_gradients), ForRanks(2)),
              Contains(StartsWith("error: W312: ")));
  EXPECT_THAT(Differences(original, step(mean + divide, kReduce), ForRanks(2)), Not(IsEmpty()));
  EXPECT_THAT(Differences(original, step(divide, kReduce), ForRanks(2)), Not(IsEmpty()));
  EXPECT_THAT(Differences(original, step("", kReduce), ForRanks(2)),
              ElementsAre(StartsWith("warning: W701: loss loss")));
  // n / s is a sum over the batch with the s of one device.
  EXPECT_THAT(Differences(original, step(kSum, sum_gradients), ForRanks(2)), IsEmpty());
  VerifyOptions averaged = ForRanks(2);
  averaged.setting.reduction = Setting::Reduction::kMean;
  EXPECT_THAT(Differences(original, step(kSum, kReduce), averaged),
              ElementsAre(StartsWith("error: W702")));
}

// The square of a mean over the samples that count: ranks average the divisor, and the mean.
TEST(Batch, TheGradientOfADividendReadsNoQuotient) {
  const auto step = [](absl::string_view average_n, absl::string_view average_q,
                       absl::string_view gradients, absl::string_view reduce) {
    return absl::StrCat(
        kVars, R"(
    var m : fp32[-1, 1] need_check_feed
    var a, n, q : fp32[]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[p] = elementwise_mul(X=[y], Y=[m]) {axis=-1}
    Out=[a] = reduce_sum(X=[p]) {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[n] = reduce_sum(X=[m]) {reduce_all=true, dim=ints[0], keep_dim=false}
)",
        average_n, "    Out=[q] = elementwise_div(X=[a], Y=[n]) {axis=-1}\n", average_q, R"(
    Out=[loss] = square(X=[q]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[q@GRAD] = square_grad(X=[q], Out@GRAD=[loss@GRAD]) role=backward
    )",
        gradients,
        R"( = elementwise_div_grad(X=[a], Y=[n], Out=[q], Out@GRAD=[q@GRAD]) role=backward {axis=-1}
    X@GRAD=[p@GRAD] = reduce_sum_grad(X=[p], Out@GRAD=[a@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    X@GRAD=[y@GRAD] = elementwise_mul_grad(X=[y], Y=[m], Out@GRAD=[p@GRAD]) role=backward {axis=-1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)",
        reduce, kUpdate);
  };
  constexpr char kN[] = "    Out=[n] = c_allreduce_avg(X=[n]) {use_calc_stream=true}\n";
  constexpr char kQ[] = "    Out=[q] = c_allreduce_avg(X=[q]) {use_calc_stream=true}\n";
  constexpr char kOfA[] = "X@GRAD=[a@GRAD]", kOfBoth[] = "X@GRAD=[a@GRAD], Y@GRAD=[n@GRAD]";
  EXPECT_THAT(Differences(step("", "", kOfA, ""), step(kN, kQ, kOfA, kReduce), ForRanks(2)),
              IsEmpty());
  // The gradient of the divisor reads the quotient.
  EXPECT_THAT(Differences(step("", "", kOfBoth, ""), step(kN, kQ, kOfBoth, kReduce), ForRanks(2)),
              Contains(StartsWith("warning: W708: ")));
  EXPECT_THAT(Differences(step("", "", kOfA, ""), step("", kQ, kOfA, kReduce), ForRanks(2)),
              Not(IsEmpty()));
}

// Of a gradient, by other ops than one.
class AllReduceByHand : public ::testing::Test {
 protected:
  static std::vector<std::string> FoundWith(absl::string_view ops, absl::string_view gradient) {
    std::string update = kUpdate;
    update.replace(update.find("Grad=[w@GRAD]"), 13, absl::StrCat("Grad=[", gradient, "]"));
    return Differences(absl::StrCat(kVars, kForward, kUpdate),
                       absl::StrCat(kVars, "    var g : fp32[8, 1]\n    var h : fp32[4, 1]\n",
                                    kForward, ops, update),
                       ForRanks(2));
  }
};

TEST_F(AllReduceByHand, IsASumOnOneRankThatItSendsToAll) {
  constexpr char kReduceTo0[] =
      "    Out=[w@GRAD] = c_reduce_sum(X=[w@GRAD]) role=backward {ring_id=0, root_id=0, "
      "use_calc_stream=true}\n";
  constexpr char kDivide[] =
      "    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=0.5, nranks=2}\n";
  const auto send = [](int root, int ring) {
    return absl::StrCat("    Out=[w@GRAD] = c_broadcast(X=[w@GRAD]) role=backward {ring_id=", ring,
                        ", root=", root, ", use_calc_stream=true}\n");
  };
  const auto found = [&](absl::string_view ops) { return FoundWith(ops, "w@GRAD"); };
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, send(0, 0), kDivide)), IsEmpty());
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, kDivide, send(0, 0))), IsEmpty());
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, kDivide, send(1, 0))),
              Contains(StartsWith("error: ")));
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, send(0, 0))), Contains(StartsWith("error: W312: ")));
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, kDivide)), Contains(StartsWith("error: ")));
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, send(1, 0), kDivide)),
              Contains(StartsWith("error: ")));
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, send(0, 1), kDivide)),
              Contains(StartsWith("error: ")));
  // On the other rank, the relu is of another value.
  EXPECT_THAT(found(absl::StrCat(kReduceTo0, "    Out=[w@GRAD] = relu(X=[w@GRAD]) role=backward\n",
                                 send(0, 0), kDivide)),
              Contains(StartsWith("error: ")));
}

TEST_F(AllReduceByHand, IsASumOverRowsThatAllHaveGathered) {
  const auto found = [&](absl::string_view shape, absl::string_view reduce, absl::string_view dims,
                         absl::string_view scale) {
    return FoundWith(
        absl::StrCat("    var r : fp32[", shape, "]\n",
                     "    Out=[g] = c_allgather(X=[w@GRAD]) role=backward {ring_id=0, nranks=2, "
                     "use_calc_stream=true}\n",
                     "    Out=[r] = reshape(X=[g]) role=backward {shape=ints[", shape, "]}\n",
                     "    Out=[h] = ", reduce, "(X=[r]) role=backward {dim=ints[", dims,
                     "], keep_dim=false, reduce_all=false}\n", scale),
        "h");
  };
  constexpr char kDivide[] = "    Out=[h] = scale(X=[h]) role=backward {scale=0.5, nranks=2}\n";
  EXPECT_THAT(found("2, 4, 1", "reduce_sum", "0", kDivide), IsEmpty());
  EXPECT_THAT(found("2, 4, 1", "reduce_mean", "0", ""), IsEmpty());
  EXPECT_THAT(found("2, 4, 1", "reduce_sum", "0", ""), Contains(StartsWith("error: W312: ")));
  EXPECT_THAT(found("2, 4, 1", "reduce_mean", "0", kDivide), Contains(StartsWith("error: ")));
  // Rows of one rank add up.
  EXPECT_THAT(found("4, 2, 1", "reduce_sum", "1", kDivide), Contains(StartsWith("error: ")));
  EXPECT_THAT(found("2, 4, 1", "reduce_max", "0", ""), Contains(StartsWith("error: ")));
  // The reshape decides, not what its output declares.
  constexpr char kFirst[] =
      "    var r : fp32[2, 4, 1]\n"
      "    Out=[r] = fill_constant() role=backward {shape=longs[2, 4, 1], "
      "dtype=5, value=0.0}\n"
      "    Out=[g] = c_allgather(X=[w@GRAD]) role=backward {ring_id=0, "
      "nranks=2, use_calc_stream=true}\n";
  const auto reshaped = [&](absl::string_view shape) {
    return FoundWith(
        absl::StrCat(kFirst, "    Out=[r] = reshape(X=[g]) role=backward {shape=ints[", shape,
                     "]}\n    Out=[h] = reduce_mean(X=[r]) role=backward "
                     "{dim=ints[0], keep_dim=false, reduce_all=false}\n"),
        "h");
  };
  EXPECT_THAT(reshaped("2, 4, 1"), IsEmpty());
  EXPECT_THAT(reshaped("2, -1, 1"), IsEmpty());
  EXPECT_THAT(reshaped("8, 1, 1"), Contains(StartsWith("error: ")));
  EXPECT_THAT(reshaped("-1, 4, 1"), Contains(StartsWith("error: ")));
}

// Of one element, a sum is a copy: not where a variable has other elements than it declares.
TEST_F(AllReduceByHand, ASumOfOneElementIsOfOneElement) {
  const auto found = [](absl::string_view first) {
    return FoundWith(
        absl::StrCat(
            "    var r, sum_of_r : fp32[1]\n    var zeros : fp32[4, 1]\n", kReduce, first,
            "    Out=[r] = assign(X=[w@GRAD]) role=backward\n"
            "    Out=[sum_of_r] = reduce_sum(X=[r]) role=backward {dim=ints[0], keep_dim=false, "
            "reduce_all=true}\n"
            "    Out=[zeros] = fill_constant() role=backward {shape=longs[4, 1], dtype=5, "
            "value=0.0}\n"
            "    Out=[h] = elementwise_add(X=[zeros], Y=[sum_of_r]) role=backward {axis=-1}\n"),
        "h");
  };
  EXPECT_THAT(found("    Out=[r] = fill_constant() role=backward {shape=longs[1], dtype=5, "
                    "value=0.0}\n"),
              Contains(StartsWith("error: ")));
}

// The first gradient has the shape of the loss, as static.gradients writes it.
TEST(Batch, AFirstGradientOfAnNthIsADivision) {
  const auto step = [](absl::string_view first, absl::string_view reduce) {
    std::string text = absl::StrCat(kVars, kForward, reduce, kUpdate);
    const std::string ones =
        "fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}";
    text.replace(text.find(ones), ones.size(),
                 absl::StrCat("fill_any_like(X=[loss]) role=backward|loss {value=", first, "}"));
    return text;
  };
  const std::string original = step("1.0", "");
  constexpr char kSumGradient[] =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  EXPECT_THAT(Differences(original, step("0.5", kSumGradient), ForRanks(2)), IsEmpty());
  EXPECT_THAT(Differences(original, step("0.25", kSumGradient), ForRanks(2)), Not(IsEmpty()));
  EXPECT_THAT(Differences(original, step("0.5", kReduce), ForRanks(2)), Not(IsEmpty()));
  // What the original has is no division.
  EXPECT_THAT(Differences(step("0.5", ""), step("0.5", kSumGradient), ForRanks(2)),
              Contains(StartsWith("error: W312: ")));
}

// Before they are averaged: their mean's gradient reads no more than how many there are.
TEST(Batch, ADivisionOfSamplesIsOneOfTheirLoss) {
  const auto step = [](absl::string_view forward, absl::string_view backward,
                       absl::string_view reduction) {
    return absl::StrCat(
        kVars,
        "    var y, z : fp32[-1, 1]\n    Out=[y] = mul(X=[x], Y=[w])\n    Out=[z] = scale(X=[y]) "
        "{scale=",
        forward,
        ", bias=0.0}\n"
        "    Out=[loss] = mean(X=[z]) role=forward|loss\n"
        "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, "
        "value=1.0}\n"
        "    X@GRAD=[z@GRAD] = mean_grad(X=[z], Out@GRAD=[loss@GRAD]) role=backward\n"
        "    Out=[y@GRAD] = scale(X=[z@GRAD]) role=backward {scale=",
        backward,
        ", bias=0.0}\n"
        "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n",
        reduction, kUpdate);
  };
  constexpr char kSumGradient[] =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const std::string original = absl::StrCat(kVars, kForward, kUpdate);
  const auto found = [&](absl::string_view forward, absl::string_view backward,
                         absl::string_view reduction) {
    return Differences(original, step(forward, backward, reduction), ForRanks(2));
  };
  const auto is_error = StartsWith("error: ");
  EXPECT_THAT(found("0.5", "0.5", kSumGradient), Not(Contains(is_error)));
  EXPECT_THAT(found("0.5", "0.25", kSumGradient), Contains(is_error));
  EXPECT_THAT(found("0.5", "1.0", kSumGradient), Contains(is_error));
  EXPECT_THAT(found("0.5", "0.5", kReduce), Contains(is_error));
  // What the original has is no division.
  EXPECT_THAT(Differences(step("0.5", "0.5", ""), step("0.5", "0.5", kSumGradient), ForRanks(2)),
              Contains(is_error));
}

// A rate, and a step of the parameter itself, that follow from the norm of a batch or the like.
TEST(Batch, WhatAnOptimizerReadsIsThatOfOneDevice) {
  const auto found = [&](absl::string_view reduce, absl::string_view use, absl::string_view rate) {
    const auto step = [&](absl::string_view reduce_value, absl::string_view reduce_gradient) {
      return absl::StrCat(kVars, "    var r : fp32[1]\n    var d : fp32[4, 1]\n", kForward, kCount,
                          reduce_value, use, reduce_gradient,
                          absl::StrReplaceAll(kUpdate, {{"[lr]", rate}}));
    };
    return Differences(step("", ""), step(reduce, kReduce), ForRanks(2));
  };
  const auto is_error = StartsWith("error: W718");
  constexpr char kRate[] = "    Out=[r] = elementwise_mul(X=[lr], Y=[s])\n";
  EXPECT_THAT(found(kSum, kRate, "[r]"), IsEmpty());
  EXPECT_THAT(found(kAverage, kRate, "[r]"),
              ElementsAre(AllOf(is_error, HasSubstr("input r is 1/n of the reference value"))));
  constexpr char kDivide[] = "    Out=[s] = scale(X=[s]) {scale=0.5, bias=0.0, nranks=2}\n";
  EXPECT_THAT(found(absl::StrCat(kSum, kDivide), kRate, "[r]"), ElementsAre(is_error));
  // Of which the relation is lost.
  constexpr char kRootOfSum[] =
      "    Out=[s] = sqrt(X=[s])\n    Out=[r] = elementwise_mul(X=[lr], Y=[s])\n";
  EXPECT_THAT(found(kAverage, kRootOfSum, "[r]"),
              ElementsAre(HasSubstr("W708: op 10 (sgd): input r is unrelated")));
  constexpr char kStep[] =
      "    Out=[d] = elementwise_mul(X=[w], Y=[s])\n    Out=[w] = assign(X=[d])\n";
  EXPECT_THAT(found(kSum, kStep, "[lr]"), IsEmpty());
  EXPECT_THAT(found(kAverage, kStep, "[lr]"),
              Contains(AllOf(is_error, HasSubstr("parameter w is 1/n of the reference value"))));
  // What nobody has reduced.
  EXPECT_THAT(found("", kRate, "[r]"),
              Contains(HasSubstr("W708: op 8 (sgd): input r is a partial sum")));
  EXPECT_THAT(found("", kStep, "[lr]"),
              Contains(HasSubstr("W708: op 9 (sgd): parameter w is a partial sum")));
}

// momentum(Grad) with a factor is momentum(the multiple).
TEST(Batch, OptimizersMayMultiplyTheirGradients) {
  const auto step = [](absl::string_view factor, absl::string_view reduction) {
    return absl::StrCat(
        kVars, "    var v : fp32[4, 1] persistable\n", kForward,
        absl::StrReplaceAll(kReduce, {{"_avg", reduction}}),
        "    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], "
        "LearningRate=[lr]) role=optimize {mu=0.9, rescale_grad=",
        factor, "}\n");
  };
  const auto original = [&](absl::string_view factor) {
    return absl::StrReplaceAll(step(factor, "_avg"), {{kReduce, ""}});
  };
  const auto found = [&](absl::string_view before, absl::string_view factor,
                         absl::string_view reduction) {
    return Differences(original(before), step(factor, reduction), ForRanks(2));
  };
  const auto is_error = StartsWith("error: ");
  EXPECT_THAT(found("1.0", "0.5", "_sum"), IsEmpty());
  EXPECT_THAT(found("1.0", "0.5", "_avg"), Contains(is_error));
  EXPECT_THAT(found("1.0", "0.3", "_avg"), Contains(is_error));
  EXPECT_THAT(found("0.5", "0.5", "_avg"), IsEmpty());
  EXPECT_THAT(found("0.5", "0.5", "_sum"), Contains(is_error));
  // Without an original.
  EXPECT_THAT(testing::Found(step("0.5", "_sum"), ForRanks(2)), IsEmpty());
  EXPECT_THAT(testing::Found(step("1.0", "_sum"), ForRanks(2)), Contains(is_error));
}

// What is divided in both factors is divided twice.
TEST(Batch, AScaleByATensorIsAProduct) {
  const auto step = [](absl::string_view divide, absl::string_view factor,
                       absl::string_view reduce) {
    std::string forward = kForward;
    const size_t first_gradient = forward.find("    X@GRAD=");
    forward.insert(first_gradient, std::string(divide));
    return absl::StrCat(kVars, forward, "    Out=[w@GRAD] = scale(X=[w@GRAD], ScaleTensor=[",
                        factor, "]) role=backward {bias=0.0}\n", reduce, kUpdate);
  };
  constexpr char kDivide[] =
      "    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5, bias=0.0, nranks=2}\n";
  constexpr char kSumGradient[] =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const auto is_error = StartsWith("error: ");
  for (const char* factor : {"loss@GRAD", "loss"}) {
    EXPECT_THAT(Differences(step("", factor, ""), step(kDivide, factor, kSumGradient), ForRanks(2)),
                Contains(is_error))
        << factor;
  }
  EXPECT_THAT(Differences(step("", "lr", ""), step(kDivide, "lr", kSumGradient), ForRanks(2)),
              Not(Contains(is_error)));
}

// Beside a loss that is a mean.
TEST(Batch, TheGradientOfASumIsNotAveraged) {
  const auto found = Found({}, {R"(
    var v : fp32[4, 1] parameter persistable
    Out=[z] = mul(X=[x], Y=[v])
    Out=[s] = reduce_sum(X=[z]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[s@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[z@GRAD] = reduce_sum_grad(X=[z], Out@GRAD=[s@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[z@GRAD]) role=backward
    Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward {use_calc_stream=true}
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
)"});
  EXPECT_THAT(found, Contains(StartsWith("error: W702: op 13 (sgd): gradient v@GRAD")));
}

// loss is a mean that trains w and u, s a sum that trains w and v: a = x w, y = a + x u, z = a + x
// v.
class LossesOfBothKinds : public ::testing::Test {
 protected:
  static std::string Step(const std::string& after_fill, const std::string& gradients) {
    return absl::StrCat(kVars, R"(
    var u, v : fp32[4, 1] parameter persistable
    var a, a@GRAD, a@GRAD@0, a@GRAD@1, b, b@GRAD, c, c@GRAD : fp32[-1, 1]
    Out=[a] = mul(X=[x], Y=[w])
    Out=[b] = mul(X=[x], Y=[u])
    Out=[c] = mul(X=[x], Y=[v])
    Out=[y] = elementwise_add(X=[a], Y=[b])
    Out=[z] = elementwise_add(X=[a], Y=[c])
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[s] = reduce_sum(X=[z]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    Out=[s@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
)",
                        after_fill, R"(
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[z@GRAD] = reduce_sum_grad(X=[z], Out@GRAD=[s@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    X@GRAD=[a@GRAD@0], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[a], Y=[b], Out@GRAD=[y@GRAD]) role=backward
    X@GRAD=[a@GRAD@1], Y@GRAD=[c@GRAD] = elementwise_add_grad(X=[a], Y=[c], Out@GRAD=[z@GRAD]) role=backward
    Out=[a@GRAD] = sum(X=[a@GRAD@0, a@GRAD@1]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[a@GRAD]) role=backward
    Y@GRAD=[u@GRAD] = mul_grad(X=[x], Y=[u], Out@GRAD=[b@GRAD]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[c@GRAD]) role=backward
)",
                        gradients, Update("w"), Update("u"), Update("v"));
  }

  static std::string Update(const std::string& param) {
    return absl::StrCat("    ParamOut=[", param, "] = sgd(Param=[", param, "], Grad=[", param,
                        "@GRAD], LearningRate=[lr]) role=optimize\n");
  }
  // By reduction of w, u and v.
  static std::string Reduce(const std::string& w, const std::string& u, const std::string& v) {
    const auto reduce = [](const std::string& param, const std::string& how) {
      return absl::StrCat("    Out=[", param, "@GRAD] = c_allreduce_", how, "(X=[", param,
                          "@GRAD]) role=backward {use_calc_stream=true}\n");
    };
    return absl::StrCat(reduce("w", w), reduce("u", u), reduce("v", v));
  }
  static std::string Divide(const std::string& loss) {
    return absl::StrCat("    Out=[", loss, "@GRAD] = scale(X=[", loss,
                        "@GRAD]) role=backward {scale=0.5, nranks=2}\n");
  }

  // How the losses themselves say that gradients are to be reduced.
  static std::vector<std::string> FoundIn(const std::string& divisions,
                                          const std::string& reductions) {
    return Differences(Step("", ""), Step(divisions, reductions), ForRanks(2));
  }
};

TEST_F(LossesOfBothKinds, GradientsOfMeansAreDividedAndAllAreSummed) {
  EXPECT_THAT(FoundIn(Divide("loss"), Reduce("sum", "sum", "sum")), IsEmpty());
  // For ranks of unknown number, too.
  VerifyOptions options;
  EXPECT_THAT(testing::Found(Step(Divide("loss"), Reduce("sum", "sum", "sum")), options),
              IsEmpty());
}

// The gradient of the sum is what one device has, although it counts as a part.
TEST_F(LossesOfBothKinds, AGradientOfALossMayBeKept) {
  const auto kept = [](const std::string& step) {
    return "    var s@GRAD : fp32[] persistable\n" + step;
  };
  const std::string original = kept(Step("", ""));
  EXPECT_THAT(
      Differences(original, kept(Step(Divide("loss"), Reduce("sum", "sum", "sum"))), ForRanks(2)),
      IsEmpty());
  EXPECT_THAT(
      Differences(original, kept(Step(Divide("loss") + Divide("s"), Reduce("sum", "sum", "sum"))),
                  ForRanks(2)),
      Contains(HasSubstr("W602: variable s@GRAD")));
}

TEST_F(LossesOfBothKinds, AGradientOfAMeanAloneMayBeAveraged) {
  // w has both.
  const std::string halve =
      "    Out=[a@GRAD@0] = scale(X=[a@GRAD@0]) role=backward {scale=0.5, nranks=2}\n";
  std::string rewritten = Step("", Reduce("sum", "avg", "sum"));
  const std::string sum = "    Out=[a@GRAD] = sum(";
  rewritten.insert(rewritten.find(sum), halve);
  EXPECT_THAT(Differences(Step("", ""), rewritten, ForRanks(2)), IsEmpty());
}

TEST_F(LossesOfBothKinds, OtherCombinationsAreRefused) {
  // Averages.
  EXPECT_THAT(FoundIn("", Reduce("avg", "avg", "avg")),
              IsSupersetOf({HasSubstr("error: W315: op 20 (sgd) updates w"),
                            HasSubstr("error: W314: op 22 (sgd) updates v"),
                            HasSubstr("error: W702: op 22 (sgd): gradient v@GRAD is 1/n of"),
                            HasSubstr("error: W601: variable v"), HasSubstr("W601: variable w")}));
  // Sums without a division.
  EXPECT_THAT(FoundIn("", Reduce("sum", "sum", "sum")),
              IsSupersetOf({HasSubstr("error: W312: op 20 (sgd) updates w"),
                            HasSubstr("error: W312: op 21 (sgd) updates u"),
                            HasSubstr("error: W601: variable u"), HasSubstr("W601: variable w")}));
  // The wrong one divided, or both.
  EXPECT_THAT(FoundIn(Divide("s"), Reduce("sum", "sum", "sum")),
              IsSupersetOf({HasSubstr("error: W312: op 21 (sgd) updates w"),
                            HasSubstr("error: W312: op 22 (sgd) updates u"),
                            HasSubstr("error: W314: op 23 (sgd) updates v")}));
  EXPECT_THAT(FoundIn(Divide("loss") + Divide("s"), Reduce("sum", "sum", "sum")),
              IsSupersetOf({HasSubstr("error: W315: op 22 (sgd) updates w"),
                            HasSubstr("error: W314: op 24 (sgd) updates v")}));
  // Each reduced as the other one needs.
  EXPECT_THAT(FoundIn("", Reduce("sum", "sum", "avg")),
              IsSupersetOf({HasSubstr("error: W312: op 21 (sgd) updates u"),
                            HasSubstr("error: W314: op 22 (sgd) updates v")}));
}

// loss = mean + sum on one device, and on ranks a part of the mean beside the rank's own sum.
class MeanBesideASum : public ::testing::Test {
 protected:
  struct Parts {
    std::string divide = "    Out=[part] = scale(X=[mean]) {scale=0.5, nranks=2}\n";
    std::string mean = "part";  // what is added
    std::string divide_gradient =
        "    Out=[mean@GRAD] = scale(X=[part@GRAD]) role=backward {scale=0.5, nranks=2}\n";
    std::string gradient = "part@GRAD";  // of what is added
    std::string reduction = "sum";
    std::string after = "";  // the loss
  };

  static std::string Step(const Parts& parts) {
    return absl::StrCat(kVars, R"(
    var mean, mean@GRAD, part, part@GRAD, sum, sum@GRAD : fp32[]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[mean] = mean(X=[y])
    Out=[sum] = reduce_sum(X=[y]) {reduce_all=true, dim=ints[0], keep_dim=false}
)",
                        parts.divide, "    Out=[loss] = elementwise_add(X=[", parts.mean,
                        "], Y=[sum]) role=forward|loss\n", parts.after, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[)",
                        parts.gradient, "], Y@GRAD=[sum@GRAD] = elementwise_add_grad(X=[",
                        parts.mean, "], Y=[sum], Out@GRAD=[loss@GRAD]) role=backward\n",
                        parts.divide_gradient, R"(
    X@GRAD=[y@GRAD@0] = mean_grad(X=[y], Out@GRAD=[mean@GRAD]) role=backward
    X@GRAD=[y@GRAD@1] = reduce_sum_grad(X=[y], Out@GRAD=[sum@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[y@GRAD] = sum(X=[y@GRAD@0, y@GRAD@1]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)",
                        parts.reduction.empty()
                            ? ""
                            : absl::StrCat("    Out=[w@GRAD] = c_allreduce_", parts.reduction,
                                           "(X=[w@GRAD]) role=backward {use_calc_stream=true}\n"),
                        kUpdate);
  }

  static std::vector<std::string> FoundIn(const Parts& parts, int nranks = 2) {
    const Parts one_device{"", "mean", "", "mean@GRAD", ""};
    return Differences(Step(one_device), Step(parts), ForRanks(nranks));
  }
};

TEST_F(MeanBesideASum, IsItsNthPartOnEachRank) { EXPECT_THAT(FoundIn({}), IsEmpty()); }

TEST_F(MeanBesideASum, MustBeDividedWithItsGradientAndOnce) {
  constexpr char kDivide[] = "    Out=[part] = scale(X=[mean]) {scale=0.5, nranks=2}\n";
  constexpr char kGradient[] =
      "    Out=[mean@GRAD] = scale(X=[part@GRAD]) role=backward {scale=0.5, nranks=2}\n";
  constexpr char kAsItIs[] = "    Out=[mean@GRAD] = assign(X=[part@GRAD]) role=backward\n";
  constexpr char kAgain[] =
      "    Out=[mean@GRAD] = scale(X=[mean@GRAD]) role=backward {scale=0.5, nranks=2}\n";
  constexpr char kOther[] =
      "    Out=[mean@GRAD] = scale(X=[part@GRAD]) role=backward {scale=0.25}\n";
  constexpr char kTwice[] = "    Out=[part] = scale(X=[mean]) {scale=1.0, nranks=2}\n";
  constexpr char kAgainSum[] =
      "    Out=[sum@GRAD] = scale(X=[sum@GRAD]) role=backward {scale=0.5, nranks=2}\n";
  const std::vector<Parts> wrong = {
      {kDivide, "part", kAsItIs, "part@GRAD", "sum"},
      {kDivide, "part", "", "mean@GRAD", "sum"},
      {kDivide, "part", absl::StrCat(kGradient, kAgain), "part@GRAD", "sum"},
      {kDivide, "part", kOther, "part@GRAD", "sum"},
      {kDivide, "part", absl::StrCat(kGradient, kAgainSum), "part@GRAD", "sum"},
      {kTwice, "part", kGradient, "part@GRAD", "sum"},
      {kDivide, "part", kGradient, "part@GRAD", "avg"},
      {kDivide, "part", kGradient, "part@GRAD", ""},
      // Its value is another one than that of one device.
      {kDivide, "part", kGradient, "part@GRAD", "sum",
       "    Out=[loss] = elementwise_mul(X=[loss], Y=[part]) role=forward\n"},
      {kDivide, "part", kGradient, "part@GRAD", "sum",
       "    Out=[t] = exp(X=[part])\n    Out=[state] = assign(X=[t])\n"},
      {kDivide, "part", kGradient, "part@GRAD", "sum",
       "    Out=[part] = c_allreduce_sum(X=[part]) {use_calc_stream=true}\n"
       "    Out=[state] = assign(X=[part])\n"},
  };
  for (const Parts& parts : wrong) {
    EXPECT_THAT(FoundIn(parts), Contains(StartsWith("error: W")))
        << parts.divide << parts.divide_gradient << parts.reduction << parts.after;
  }
  EXPECT_THAT(FoundIn({}, 4), Contains(StartsWith("error: W")));
  EXPECT_THAT(FoundIn(wrong[0]), Contains(HasSubstr("W312")));
}

// A loss that is a sum, and a decay of the weights.
TEST(Batch, WhatAllRanksHaveIsNotAddedBeforeASum) {
  constexpr char kStep[] = R"(
    var decay : fp32[4, 1]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = reduce_sum(X=[y]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)";
  constexpr char kSums[] =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  constexpr char kDecay[] =
      "    Out=[decay] = scale(X=[w]) role=backward {scale=0.25}\n"
      "    Out=[w@GRAD] = sum(X=[w@GRAD, decay]) role=backward\n";
  const auto found = [&](const std::string& rewritten) {
    return Differences(absl::StrCat(kVars, kStep, kDecay, kUpdate),
                       absl::StrCat(kVars, kStep, rewritten, kUpdate), ForRanks(2));
  };
  EXPECT_THAT(found(absl::StrCat(kSums, kDecay)), IsEmpty());
  EXPECT_THAT(found(absl::StrCat(kDecay, kSums)),
              IsSupersetOf({StartsWith("error: W315"), StartsWith("error: W601")}));
}

// What is reported is the sum of all ranks; gradients are those of the rank's own.
TEST(Batch, ALossThatIsReducedForTheReportIsASumNevertheless) {
  const auto found = [&](const std::string& how) {
    const std::string step = absl::StrCat(kVars, R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = reduce_sum(X=[y]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)");
    std::string rewritten =
        absl::StrCat(step, "    Out=[w@GRAD] = c_allreduce_", how,
                     "(X=[w@GRAD]) role=backward {use_calc_stream=true}\n", kUpdate);
    rewritten.insert(rewritten.find("    Out=[loss@GRAD]"),
                     "    Out=[loss] = c_allreduce_sum(X=[loss]) {use_calc_stream=true}\n");
    return Differences(absl::StrCat(step, kUpdate), rewritten, ForRanks(2));
  };
  EXPECT_THAT(found("sum"), IsEmpty());
  EXPECT_THAT(found("avg"), Contains(StartsWith("error: W702")));
}

// The original divides by 2 on one device, too.
TEST(Batch, ADivisionOfTheOriginalByAConstantIsNotThatByTheNumberOfRanks) {
  const std::string two = "    Out=[t] = fill_constant() {shape=longs[], dtype=5, value=2.0}\n";
  const std::string halve = "    Out=[s] = elementwise_div(X=[s], Y=[t])\n";
  const auto found = [&](const std::vector<std::string>& original,
                         const std::vector<std::string>& rewritten) {
    const Program before =
        ProgramOf(absl::StrCat(kVars, kForward, kUpdate, absl::StrJoin(original, "")));
    const Program after =
        ProgramOf(absl::StrCat(kVars, kForward, kReduce, kUpdate, absl::StrJoin(rewritten, "")));
    VerifyOptions options = ForRanks(2);
    options.layers = {Layer::kBatch};
    options.original.main = &before;
    return testing::Lines(Verify({{&after, nullptr}}, options));
  };
  EXPECT_THAT(found({kMean, two, halve, kAccumulate}, {kMean, kSum, two, halve, kAccumulate}),
              Contains(HasSubstr("state")));
  EXPECT_THAT(found({kMean, kAccumulate}, {kMean, kSum, two, halve, kAccumulate}), IsEmpty());
  EXPECT_THAT(found({kMean, two, halve, kAccumulate}, {kMean, kAverage, two, halve, kAccumulate}),
              IsEmpty());
  // The division of the rewrite may be another op, after that of the original.
  const std::string scale = "    Out=[s] = scale(X=[s]) {scale=0.5}\n";
  EXPECT_THAT(
      found({kMean, two, halve, kAccumulate}, {kMean, two, halve, kSum, scale, kAccumulate}),
      IsEmpty());
}

// DDX of a penalty on gradients, which Paddle leaves out so.
TEST(Batch, AGradientThatIsNotThereIsZero) {
  constexpr char kStep[] = R"(
    var d, dd : fp32[4, 1]
    Out=[u] = fill_constant() {shape=longs[4, 1], dtype=5, value=1.0}
    Y@GRAD=[d] = elementwise_mul_grad(X=[w], Y=[u], Out@GRAD=[u]) {axis=-1}
    Out=[y] = mul(X=[x], Y=[d])
    Out=[loss] = reduce_sum(X=[y]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    Y@GRAD=[dd] = mul_grad(X=[x], Y=[d], Out@GRAD=[y@GRAD]) role=backward
    X@GRAD=[w@GRAD] = elementwise_mul_grad_grad(X=[w], Y=[u], DOut=[u], DDX=[@EMPTY@], DDY=[dd]) role=backward {axis=-1}
)";
  constexpr char kSum[] =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const std::string step = absl::StrCat(kVars, kStep);
  EXPECT_THAT(
      Differences(absl::StrCat(step, kUpdate), absl::StrCat(step, kSum, kUpdate), ForRanks(2)),
      IsEmpty());
}

// The loss with the role is a mean, but the gradient is that of a sum.
TEST(Batch, TheGradientOfASumBesideAMeanIsNotAveraged) {
  constexpr char kStep[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[m] = mean(X=[y]) role=forward|loss
    Out=[loss] = reduce_sum(X=[y]) {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[loss@GRAD] = fill_constant() role=backward {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)";
  const std::string step = absl::StrCat(kVars, "    var m : fp32[]\n", kStep);
  EXPECT_THAT(
      Differences(absl::StrCat(step, kUpdate), absl::StrCat(step, kReduce, kUpdate), ForRanks(2)),
      ElementsAre(StartsWith("error: W702: op 7 (sgd): gradient w@GRAD is 1/n of")));
}

// No op has the role of a loss, as after paddle.static.gradients.
TEST(Batch, TheGradientOfASumIsNotAveragedWhereNoLossIsMarked) {
  const auto found = [](const std::string& forward, const std::string& backward) {
    const std::string step = absl::StrCat(
        kVars, "    Out=[y] = mul(X=[x], Y=[w])\n", forward,
        "    Out=[loss@GRAD] = fill_constant() role=backward {shape=longs[], dtype=5, value=1.0}\n",
        backward,
        "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n");
    return Differences(absl::StrCat(step, kUpdate), absl::StrCat(step, kReduce, kUpdate),
                       ForRanks(2));
  };
  const std::string all = "{reduce_all=true, dim=ints[0], keep_dim=false}\n";
  EXPECT_THAT(found("    Out=[loss] = reduce_sum(X=[y]) " + all,
                    "    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[loss@GRAD]) "
                    "role=backward " +
                        all),
              ElementsAre(StartsWith("error: W702: op 6 (sgd): gradient w@GRAD is 1/n of")));
  EXPECT_THAT(found("    Out=[loss] = mean(X=[y])\n",
                    "    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward\n"),
              IsEmpty());
}

TEST(Batch, LossesOfInnerBlocksAreLosses) {
  const auto found = [](const std::string& ops) {
    const Program main = ProgramOf(
        absl::StrCat(kVars, "    var l : fp32[]\n", kForward, kReduce, kUpdate,
                     "    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n"
                     "    Out=[l], Scope=[scopes] = conditional_block(Cond=[due], Input=[y]) "
                     "{sub_block=block(1), is_scalar_condition=true}\n",
                     "    block 1:\n", ops));
    VerifyOptions options = ForRanks(2);
    options.layers = {Layer::kBatch};
    return testing::Lines(Verify({{&main, nullptr}}, options));
  };
  EXPECT_THAT(found("    Out=[l] = mean(X=[y]) role=forward|loss\n"), IsEmpty());
  EXPECT_THAT(found("    Out=[s] = mean(X=[y])\n    Out=[l] = square(X=[s]) role=forward|loss\n"),
              ElementsAre(StartsWith("warning: W701: loss l is no mean and no sum")));
}

TEST(Batch, FetchOpsOfInnerBlocksHandOutValues) {
  const auto found = [](const std::string& fetched) {
    const Program main = ProgramOf(
        absl::StrCat(kVars, "    var list : fetch_list persistable\n", kForward,
                     "    Out=[s] = sqrt(X=[loss])\n", kReduce, kUpdate,
                     "    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}\n"
                     "    Scope=[scopes] = conditional_block(Cond=[due], Input=[s]) "
                     "{sub_block=block(1), is_scalar_condition=true}\n",
                     "    block 1:\n    Out=[list] = fetch(X=[", fetched, "]) {col=0}\n"));
    VerifyOptions options = ForRanks(2);
    options.layers = {Layer::kBatch};
    return testing::Lines(Verify({{&main, nullptr}}, options));
  };
  EXPECT_THAT(found("s"), ElementsAre(StartsWith("warning: W712: fetched s is unrelated")));
  EXPECT_THAT(found("w"), IsEmpty());
}

// The count begins with zero, so that it is the n-th part of that of one device in every step.
TEST(Batch, AnAveragedCountIsNoPart) {
  const Program startup = ProgramOf(
      "    var state : fp32[] persistable\n    var w : fp32[4, 1] persistable\n"
      "    var lr : fp32[1] persistable\n"
      "    Out=[state] = fill_constant() {shape=longs[], dtype=5, value=0.0}\n"
      "    Out=[w] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.5}\n"
      "    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}\n");
  const Program main = ProgramOf(absl::StrCat(kVars, kForward, kReduce, kUpdate, kCount, kAverage,
                                              "    Out=[state] = sum(X=[state, s])\n"));
  VerifyOptions options = ForRanks(2);
  options.layers = {Layer::kBatch};
  EXPECT_THAT(testing::Lines(Verify({{&main, &startup}}, options)),
              ElementsAre(StartsWith("warning: W703: state state")));
}

}  // namespace
}  // namespace weft::testing
