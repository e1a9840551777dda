#include "transpiler/passes/gradients/exact_loss.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kVariables[] = R"(
    var x, weight : fp32[-1, 2] need_check_feed
    var w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    var h, h@GRAD, p, p@GRAD : fp32[-1, 2]
    var w@GRAD : fp32[2, 2]
    var n, n@GRAD, d, e, loss@GRAD : fp32[]
)";

// The mean of h, weighted; `between` ends with the divisor d.
std::string WeightedMean(const std::string& between, const std::string& divisor,
                         const std::string& scale_of_gradient = "") {
  return absl::StrCat(R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[p] = elementwise_mul(X=[h], Y=[weight])
    Out=[n] = reduce_sum(X=[p]) {reduce_all=true}
    Out=[d] = reduce_sum(X=[weight]) {reduce_all=true})",
                      between, "\n    Out=[loss] = elementwise_div(X=[n], Y=[", divisor,
                      "]) role=forward|loss",
                      R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0})",
                      scale_of_gradient,
                      "\n    X@GRAD=[n@GRAD] = elementwise_div_grad(Out=[loss], "
                      "Out@GRAD=[loss@GRAD], X=[n], Y=[",
                      divisor, R"(]) role=backward
    X@GRAD=[p@GRAD] = reduce_sum_grad(Out@GRAD=[n@GRAD], X=[p]) role=backward {reduce_all=true}
    X@GRAD=[h@GRAD] = elementwise_mul_grad(Out@GRAD=[p@GRAD], X=[h], Y=[weight]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
)");
}

constexpr char kEpsilon[] = "\n    Out=[e] = scale(X=[d]) {bias=0.5}";

TEST(ExactLoss, TheDivisorOfAWeightedMeanIsAveraged) {
  ExpectRewrite("exact-loss", kVariables + WeightedMean("", "d"),
                WeightedMean("\n    Out=[d] = c_allreduce_avg(X=[d]) {use_calc_stream=true}", "d"));
}

// n / (d + 0.5) needs d as one device has it, and a mean needs its n-th part.
TEST(ExactLoss, AFunctionOfTheDivisorGetsTheSum) {
  const std::string summed =
      absl::StrCat("\n    Out=[d] = c_allreduce_sum(X=[d]) {use_calc_stream=true}", kEpsilon);
  ExpectRewrite("exact-loss", kVariables + WeightedMean(kEpsilon, "e"), WeightedMean(summed, "e"));
  ExpectRewrite(
      "exact-loss", kVariables + WeightedMean(kEpsilon, "e"),
      "    var e@PART : fp32[]\n" +
          WeightedMean(summed + "\n    Out=[e@PART] = scale(X=[e]) {nranks=4, scale=0.25}",
                       "e@PART"),
      OnRanks(4));
}

TEST(ExactLoss, MeansAndSumsStayAsTheyAre) {
  ExpectNoRewrite("exact-loss", std::string(kVariables) + R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[loss] = mean(X=[h]) role=forward|loss
)");
  ExpectNoRewrite("exact-loss", std::string(kVariables) + R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[loss] = reduce_sum(X=[h]) role=forward|loss {reduce_all=true}
)");
}

TEST(ExactLoss, OffChangesNothing) {
  ExpectNoRewrite("exact-loss{exact_loss=off}", kVariables + WeightedMean("", "d"));
}

TEST(ExactLoss, RemarksNameTheVariables) {
  const auto result = ExpectRewrite(
      "exact-loss", kVariables + WeightedMean("", "d"),
      WeightedMean("\n    Out=[d] = c_allreduce_avg(X=[d]) {use_calc_stream=true}", "d"));
  EXPECT_THAT(RemarkTexts(result), ElementsAre("d averaged: the loss is no linear function of it "
                                               "for=op 3 (reduce_sum)"));
}

// The quotient is a sum over the batch if the number of ranks is unknown: nobody may divide.
TEST(ExactLoss, LaterPassesFollowTheQuotient) {
  const std::string summed =
      absl::StrCat("\n    Out=[d] = c_allreduce_sum(X=[d]) {use_calc_stream=true}", kEpsilon);
  const std::string before = WeightedMean(kEpsilon, "e");
  const auto with_reduction = [](std::string text, const std::string& reduction) {
    const std::string update = "    ParamOut=[w] = sgd";
    return text.insert(text.find(update), reduction);
  };
  const std::string wait = "    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward\n";
  const std::string done = "    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward\n";
  ExpectRewrite(
      "exact-loss,grad-all-reduce", kVariables + before,
      with_reduction(
          WeightedMean(summed, "e"),
          wait + "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward\n" + done));
}

TEST(ExactLoss, PaddleDialectIsRefused) {
  EXPECT_THAT(RewriteStatus("exact-loss", kVariables + WeightedMean("", "d"),
                            OnEndpoints(2, Dialect::kPaddle)),
              StatusIs(kRefused, HasSubstr("weft dialect only")));
}

}  // namespace
}  // namespace weft::testing
