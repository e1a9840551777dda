#include "transpiler/passes/gradients/exact_loss.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/text_edits.h"

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

// The mean beside a sum: both are sums then, of the parts of the ranks.
std::string MeanAndSum(const std::string& changes) {
  return absl::StrCat(R"(
    var x : fp32[-1, 2] need_check_feed
    var w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    var h, h@GRAD, h@GRAD@0, h@GRAD@1 : fp32[-1, 2]
    var m, m@GRAD, s, s@GRAD : fp32[]
    Out=[h] = mul(X=[x], Y=[w])
    Out=[m] = mean(X=[h])
    Out=[s] = reduce_sum(X=[h]) {reduce_all=true})",
                      changes, R"(
    X@GRAD=[h@GRAD@0] = mean_grad(Out@GRAD=[m@GRAD], X=[h]) role=backward
    X@GRAD=[h@GRAD@1] = reduce_sum_grad(Out@GRAD=[s@GRAD], X=[h]) role=backward {reduce_all=true}
    Out=[h@GRAD] = sum(X=[h@GRAD@0, h@GRAD@1]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
)");
}

constexpr char kMeanAndSum[] = R"(
    Out=[loss] = elementwise_add(X=[m], Y=[s]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}
    X@GRAD=[m@GRAD], Y@GRAD=[s@GRAD] = elementwise_add_grad(Out@GRAD=[loss@GRAD], X=[m], Y=[s]) role=backward)";

TEST(ExactLoss, AMeanIsDividedWhereItIsAddedToASum) {
  ExpectRewrite("exact-loss", MeanAndSum(R"(
  + var m@PART, m@PART@GRAD : fp32[]
  + Out=[m@PART] = scale(X=[m]) {nranks=4, scale=0.25}
  - Out=[loss] = elementwise_add(X=[m], Y=[s]) role=forward|loss
  + Out=[loss] = elementwise_add(X=[m@PART], Y=[s]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}
  - X@GRAD=[m@GRAD], Y@GRAD=[s@GRAD] = elementwise_add_grad(Out@GRAD=[loss@GRAD], X=[m], Y=[s]) role=backward
  + X@GRAD=[m@PART@GRAD], Y@GRAD=[s@GRAD] = elementwise_add_grad(Out@GRAD=[loss@GRAD], X=[m@PART], Y=[s]) role=backward
  + Out=[m@GRAD] = scale(X=[m@PART@GRAD]) role=backward {nranks=4, scale=0.25})"),
                OnRanks(4));
}

// Where nobody knows what to divide by, or the gradient of another loss is divided, every rank
// computes the loss of one device. The gradient of a sum is the sum of those of the ranks.
TEST(ExactLoss, ASumBesideAMeanIsSummedWithItsGradient) {
  const std::string summed = MeanAndSum(R"(
  + Out=[s] = c_allreduce_sum(X=[s]) {use_calc_stream=true}
    Out=[loss] = elementwise_add(X=[m], Y=[s]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}
    X@GRAD=[m@GRAD], Y@GRAD=[s@GRAD] = elementwise_add_grad(Out@GRAD=[loss@GRAD], X=[m], Y=[s]) role=backward
  + Out=[s@GRAD] = c_allreduce_sum(X=[s@GRAD]) role=backward {use_calc_stream=true})");
  const std::string mean = "    Out=[m] = mean(X=[h])\n";
  const std::string averaged = absl::StrReplaceAll(
      summed, {{mean, mean + "  + Out=[m] = c_allreduce_avg(X=[m]) {use_calc_stream=true}\n"}});
  ExpectRewrite("exact-loss", averaged);
  ExpectRewrite("exact-loss", absl::StrCat(averaged, R"(
    Out=[other] = mean(X=[h]) role=forward|loss
    Out=[other@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}
)"),
                OnRanks(4));
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

// The mean over the samples of what a compares with b.
std::string Contrastive(const std::string& batch) {
  return absl::StrCat("    var x : fp32[", batch, ", 2] need_check_feed\n    var a, b : fp32[",
                      batch, ", 2]\n", R"(
    var w, v : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[a] = mul(X=[x], Y=[w])
    Out=[b] = mul(X=[x], Y=[v])
  + var a@GATHERED, b@GATHERED, a@GATHERED@GRAD, b@GATHERED@GRAD : fp32[-1, 2]
  - Out=[s] = matmul_v2(X=[a], Y=[b]) {trans_x=false, trans_y=true}
  + Out=[a@GATHERED] = c_allgather(X=[a]) {nranks=2, use_calc_stream=true}
  + Out=[b@GATHERED] = c_allgather(X=[b]) {nranks=2, use_calc_stream=true}
  + Out=[s] = matmul_v2(X=[a@GATHERED], Y=[b@GATHERED]) {trans_x=false, trans_y=true}
    Out=[e] = exp(X=[s])
    Out=[loss] = mean(X=[e]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}
    X@GRAD=[e@GRAD] = mean_grad(Out@GRAD=[loss@GRAD], X=[e]) role=backward
    X@GRAD=[s@GRAD] = exp_grad(Out=[e], Out@GRAD=[e@GRAD]) role=backward
  - X@GRAD=[a@GRAD], Y@GRAD=[b@GRAD] = matmul_v2_grad(Out@GRAD=[s@GRAD], X=[a], Y=[b]) role=backward {trans_x=false, trans_y=true}
  + X@GRAD=[a@GATHERED@GRAD], Y@GRAD=[b@GATHERED@GRAD] = matmul_v2_grad(Out@GRAD=[s@GRAD], X=[a@GATHERED], Y=[b@GATHERED]) role=backward {trans_x=false, trans_y=true}
  + Out=[a@GRAD] = c_reducescatter(X=[a@GATHERED@GRAD]) role=backward {nranks=2, use_calc_stream=true}
  + Out=[b@GRAD] = c_reducescatter(X=[b@GATHERED@GRAD]) role=backward {nranks=2, use_calc_stream=true}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[a@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[b@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
)");
}

TEST(ExactLoss, SamplesThatALossComparesAreGathered) {
  ExpectRewrite("exact-loss{gather_negatives=on}", Contrastive("-1"), OnRanks(2));
}

// What follows is declared with the batch of one rank.
TEST(ExactLoss, ADeclaredNumberOfSamplesIsNotGathered) {
  EXPECT_THAT(
      RewriteStatus("exact-loss{gather_negatives=on}", TextBefore(Contrastive("4")), OnRanks(2)),
      IsFailedPrecondition("expected variable a, whose samples are gathered, with an open "
                           "batch (-1), found 4"));
}

}  // namespace
}  // namespace weft::testing
