#include "transpiler/passes/gradients/gradient_scale.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr char kUndivided[] =
    "Out=[g] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, value=1.0}\n";
constexpr char kDivided[] =
    "Out=[g] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, value=1.0}\n"
    "Out=[g] = scale(X=[g]) role=backward {scale=0.5, nranks=2}\n";

PassContext Ranks(int nranks) {
  ClusterSpec spec;
  if (nranks > 0) spec.nranks = nranks;
  PassContext context;
  context.target.cluster = *Cluster::Create(spec);
  return context;
}

absl::StatusOr<bool> Averages(GradientScale scale, const char* program, int nranks) {
  return ReductionAverages(scale, CompactProgram(program), Ranks(nranks));
}

TEST(GradientScale, LossGradientIsDividedWhereTheNumberOfRanksIsKnown) {
  EXPECT_EQ(*Resolve(GradientScale::kAuto, Ranks(2)), GradientScale::kLossGrad);
  EXPECT_EQ(*Resolve(GradientScale::kAuto, Ranks(0)), GradientScale::kAvg);
  EXPECT_EQ(*Resolve(GradientScale::kNone, Ranks(2)), GradientScale::kNone);
  EXPECT_THAT(Resolve(GradientScale::kLossGrad, Ranks(0)).status(),
              IsInvalidArgument("which is unknown"));
}

TEST(GradientScale, NobodyDividesTheGradientsOfSums) {
  PassContext context = Ranks(2);
  EXPECT_EQ(GradientsUnder(GradientScale::kAuto, context), Claims::Gradients::kAveraged);
  context.target.forecast.sum_losses = {{"g"}, /*are_all=*/true};
  EXPECT_EQ(GradientsUnder(GradientScale::kAuto, context), Claims::Gradients::kByLoss);
  EXPECT_EQ(GradientsUnder(GradientScale::kAvg, context), Claims::Gradients::kAveraged);
  EXPECT_EQ(*Resolve(GradientScale::kAuto, context), GradientScale::kNone);
  EXPECT_FALSE(*ReductionAverages(GradientScale::kAuto, CompactProgram(kUndivided), context));
}

// Beside g, the gradient of a mean.
TEST(GradientScale, OnlyTheGradientsOfMeansAreDividedBesideSums) {
  const std::string sum =
      "Out=[s] = fill_constant() role=backward|loss {shape=longs[1], value=1.0}\n";
  const Program undivided = CompactProgram(sum + kUndivided);
  const Program divided = CompactProgram(sum + kDivided);
  PassContext context = Ranks(2);
  context.target.forecast.sum_losses = {{"s"}, /*are_all=*/false};
  EXPECT_EQ(GradientsUnder(GradientScale::kAuto, context), Claims::Gradients::kByLoss);
  EXPECT_EQ(GradientsUnder(GradientScale::kNone, context), Claims::Gradients::kSummed);
  EXPECT_EQ(*Resolve(GradientScale::kAuto, context), GradientScale::kLossGrad);
  EXPECT_FALSE(*ReductionAverages(GradientScale::kAuto, divided, context));
  EXPECT_THAT(ReductionAverages(GradientScale::kAuto, undivided, context).status(),
              StatusIs(kRefused, HasSubstr("scale auto: loss gradient g is not divided by the "
                                           "number of ranks, although other losses are sums")));
  // What the user asks for is for all losses.
  EXPECT_TRUE(*ReductionAverages(GradientScale::kAvg, undivided, context));
  EXPECT_THAT(ReductionAverages(GradientScale::kLossGrad, divided, context).status(),
              StatusIs(kRefused, HasSubstr("loss gradient s is not divided")));
  context.target.cluster = Ranks(0).target.cluster;
  EXPECT_THAT(Resolve(GradientScale::kAuto, context).status(),
              StatusIs(kRefused, HasSubstr("s is the gradient of a loss that is a sum")));
}

TEST(GradientScale, ReductionAveragesUnlessTheLossGradientIsDivided) {
  EXPECT_TRUE(*Averages(GradientScale::kAuto, kUndivided, 2));
  EXPECT_FALSE(*Averages(GradientScale::kAuto, kDivided, 2));
  EXPECT_FALSE(*Averages(GradientScale::kAuto, kDivided, 0));
  EXPECT_FALSE(*Averages(GradientScale::kNone, kUndivided, 2));
  EXPECT_TRUE(*Averages(GradientScale::kAvg, kUndivided, 2));
}

TEST(GradientScale, DividingTwiceNeverOrForOtherRanksIsRefused) {
  EXPECT_THAT(
      Averages(GradientScale::kAvg, kDivided, 2).status(),
      StatusIs(kRefused, HasSubstr("it is already divided; to divide no more, use scale none, or "
                                   "reduce_method sum of pass grad-reduce")));
  EXPECT_THAT(Averages(GradientScale::kLossGrad, kUndivided, 2).status(),
              StatusIs(kRefused, HasSubstr("is not divided by the number of ranks")));
  EXPECT_THAT(Averages(GradientScale::kAuto, kDivided, 4).status(),
              StatusIs(kRefused, HasSubstr("for 2 ranks, expected 4")));
}

TEST(GradientScale, DividedLossGradientIsNotDividedAgain) {
  WEFT_EXPECT_OK(RefuseScaledLossGradient(CompactProgram(kUndivided), 2));
  EXPECT_THAT(RefuseScaledLossGradient(CompactProgram(kDivided), 2),
              StatusIs(kRefused, HasSubstr("op 1 (scale)")));
}

// Of a factor that is 1/n, only the user knows.
TEST(GradientScale, AFactorOfTheProgramsOwnIsNoDivision) {
  for (const char* role : {"backward", "backward|loss"}) {
    const std::string own =
        absl::StrCat(kUndivided, "Out=[g] = scale(X=[g]) role=", role, " {scale=0.5}\n");
    WEFT_EXPECT_OK(RefuseScaledLossGradient(CompactProgram(own), 4));
    EXPECT_TRUE(*Averages(GradientScale::kAuto, own.c_str(), 4));
    EXPECT_THAT(RefuseScaledLossGradient(CompactProgram(own), 2),
                StatusIs(kRefused, HasSubstr("use scale none if it is one, scale avg if the factor "
                                             "is the program's own")));
    EXPECT_THAT(Averages(GradientScale::kAuto, own.c_str(), 2).status(),
                StatusIs(kRefused, HasSubstr("does not say for how many ranks")));
    EXPECT_TRUE(*Averages(GradientScale::kAvg, own.c_str(), 2));
  }
  const std::string affine =
      absl::StrCat(kUndivided, "Out=[g] = scale(X=[g]) role=backward {scale=0.5, bias=0.25}\n");
  WEFT_EXPECT_OK(RefuseScaledLossGradient(CompactProgram(affine), 2));
}

}  // namespace
}  // namespace weft::testing
