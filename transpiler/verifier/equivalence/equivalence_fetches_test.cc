// Fetched values of rewritten programs and of their originals.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/equivalence/equivalence.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kVars[] =
    "    var fetch : fetch_list persistable\n    var old : fp32[1, 1]\n    var m : fp32[]\n";
constexpr char kReduce[] = "    Out=[m] = reduce_mean(X=[x]) {reduce_all=true, dim=ints[0]}\n";
constexpr char kAverage[] =
    "    Out=[m] = c_allreduce_avg(X=[m]) {ring_id=0, use_calc_stream=true}\n";
constexpr char kCopy[] = "    Out=[old] = assign(X=[w])\n";

std::string Fetch(absl::string_view variable, int column = 0) {
  return absl::StrCat("    Out=[fetch] = fetch(X=[", variable, "]) {col=", column, "}\n");
}

// A step with ops before its backward pass, before its update and at its end.
std::string Step(absl::string_view first, absl::string_view before, absl::string_view last) {
  return absl::StrCat(kStepVars, kVars, first, kStepLossGrad, kStepBackward, before, kStepUpdate,
                      last);
}

std::string TwoRanks(absl::string_view first, absl::string_view before, absl::string_view last) {
  return absl::StrCat(kStepVars, kVars, first, kStepLossGrad, kStepDivide, kStepBackward, kStepSum,
                      before, kStepUpdate, last);
}

// Whatever layer 7 says of them.
auto HasNone() { return Not(Contains(AnyOf(HasSubstr("W607"), HasSubstr("W610")))); }

TEST(FetchedValues, OfTheSameOpsAreEqual) {
  const std::string w = Fetch("w");
  EXPECT_THAT(Differences(Step("", "", w), TwoRanks("", "", w)), IsEmpty());
  EXPECT_THAT(Differences(Step("", w, ""), TwoRanks("", w, "")), IsEmpty());
  EXPECT_THAT(Differences(Step("", w, ""), TwoRanks("", kCopy, Fetch("old"))), IsEmpty());
  EXPECT_THAT(Differences(Step("", "", w), TwoRanks(Fetch("w", 1), "", w)), IsEmpty());
  const std::string gradient = Fetch("w@GRAD");
  EXPECT_THAT(Differences(Step("", gradient, ""), TwoRanks("", gradient, "")), HasNone());
}

TEST(FetchedValues, OfOtherOpsDiffer) {
  const auto is_found = [](const char* expected, const char* found) {
    return ElementsAre(AllOf(HasSubstr("error: W610"),
                             HasSubstr(absl::StrCat("expected ", expected)),
                             HasSubstr(absl::StrCat(", found ", found))));
  };
  const std::string w = Fetch("w");
  EXPECT_THAT(Differences(Step("", "", w), TwoRanks("", w, "")), is_found("sgd", "w"));
  EXPECT_THAT(Differences(Step("", w, ""), TwoRanks("", "", w)), is_found("w", "sgd"));
  EXPECT_THAT(Differences(Step("", "", w), TwoRanks("", kCopy, Fetch("old"))),
              is_found("sgd", "w"));
  EXPECT_THAT(Differences(Step("", w, ""), TwoRanks("", "", Fetch("lr"))), is_found("w", "lr"));
  // Of two ops that fetch into one column, the last counts.
  EXPECT_THAT(Differences(Step(w, "", ""), TwoRanks(w, "", w)), is_found("w", "sgd"));
}

// Layer 7 says that a rank's part of a mean is one.
TEST(FetchedValues, MayBePartsOfWhatOneDeviceHas) {
  const std::string mean = absl::StrCat(kReduce, Fetch("m"));
  const std::string averaged = absl::StrCat(kReduce, kAverage, Fetch("m"));
  EXPECT_THAT(Differences(Step(mean, "", ""), TwoRanks(mean, "", "")), HasNone());
  EXPECT_THAT(Differences(Step(mean, "", ""), TwoRanks(averaged, "", "")), IsEmpty());
  const std::string gradient = Fetch("w@GRAD");
  EXPECT_THAT(Differences(Step("", gradient, ""),
                          absl::StrCat(kStepVars, kVars, kStepLossGrad, kStepDivide, kStepBackward,
                                       gradient, kStepSum, kStepUpdate)),
              HasNone());
}

TEST(FetchedValues, WithAWrongFactorDiffer) {
  const std::string mean = absl::StrCat(kReduce, Fetch("m"));
  for (const char* scale : {"scale=3.0, bias=0.0", "scale=2.0, bias=0.0", "scale=0.5, bias=1.0"}) {
    const std::string scaled =
        absl::StrCat(kReduce, kAverage, "    Out=[m] = scale(X=[m]) {", scale, "}\n", Fetch("m"));
    EXPECT_THAT(Differences(Step(mean, "", ""), TwoRanks(scaled, "", "")),
                ElementsAre(HasSubstr("error: W610")))
        << scale;
  }
}

// Also where ranks have parts of the value, and of gradients, which count as averaged.
TEST(FetchedValues, OfRanksWithAWrongFactorDiffer) {
  const auto is_found = Contains(HasSubstr("error: W610"));
  const auto scaled = [](absl::string_view variable, absl::string_view factor) {
    return absl::StrCat("    Out=[old] = scale(X=[", variable, "]) {scale=", factor, "}\n",
                        Fetch("old"));
  };
  const std::string mean = absl::StrCat(kReduce, Fetch("m")), gradient = Fetch("w@GRAD");
  for (const char* factor : {"3.0", "0.37", "-1.0", "0.0"}) {
    EXPECT_THAT(Differences(Step(mean, "", ""),
                            TwoRanks(absl::StrCat(kReduce, scaled("m", factor)), "", "")),
                is_found)
        << factor;
    EXPECT_THAT(Differences(Step("", gradient, ""), TwoRanks("", scaled("w@GRAD", factor), "")),
                is_found)
        << factor;
  }
}

TEST(FetchedValues, AreFetchedInBoth) {
  EXPECT_THAT(Differences(Step("", "", Fetch("w")), TwoRanks("", "", "")),
              ElementsAre(AllOf(HasSubstr("error: W610"), HasSubstr("the original fetches it"))));
}

// A step on two ranks, with ops at its end.
std::string StepWithLoss(absl::string_view last) {
  const std::string step = SgdStepText(absl::StrCat(kWaitCompute, kAllReduce, kWaitComm));
  return absl::StrReplaceAll(step, {{"  }\n}", absl::StrCat(last, "  }\n}")}});
}

// The gradients are averaged: nothing of the loss needs a division.
TEST(FetchedValues, ALossIsNoNthPart) {
  const std::string half = "    Out=[loss] = scale(X=[loss]) {scale=0.5}\n";
  EXPECT_THAT(Differences(SgdStepText(), StepWithLoss(half), ForRanks(2)),
              Contains(AllOf(HasSubstr("error: W610"), HasSubstr("loss loss: expected"))));
}

// Each rank updates by its own gradient, and parameters are averaged.
TEST(FetchedValues, OfAveragedParametersAreCompared) {
  const auto averaged = [](absl::string_view last) {
    return absl::StrCat(kStepVars, kVars, "    var sum : fp32[1, 1]\n", kStepLossGrad,
                        kStepBackward, kCopy, kStepUpdate,
                        "    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}\n",
                        last);
  };
  constexpr char kAdd[] = "    Out=[sum] = elementwise_add(X=[w], Y=[old])\n";
  const std::string original = Step("", kCopy, Fetch("w"));
  EXPECT_THAT(Differences(original, averaged(Fetch("w"))), HasNone());
  EXPECT_THAT(Differences(original, averaged(absl::StrCat(kAdd, Fetch("sum")))),
              Contains(HasSubstr("error: W610")));
  const std::string added =
      absl::StrReplaceAll(Step("", kCopy, absl::StrCat(kAdd, Fetch("sum"))),
                          {{"    var old", "    var sum : fp32[1, 1]\n    var old"}});
  EXPECT_THAT(Differences(added, averaged(absl::StrCat(kAdd, Fetch("sum")))), HasNone());
}

// Of two losses, one is divided in the forward pass, and its gradients are added up.
TEST(FetchedValues, EachLossIsAnNthPartByItsOwnGradients) {
  const auto losses = [](absl::string_view l, absl::string_view sum_w, absl::string_view k) {
    return absl::StrCat(R"(
    var x : fp32[-1, 4] need_check_feed
    var w, v : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var y, y@GRAD, z, z@GRAD : fp32[-1, 1]
    var m, m@GRAD, l, l@GRAD, n, n@GRAD, k, k@GRAD : fp32[]
    var w@GRAD, v@GRAD : fp32[4, 1]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[z] = mul(X=[x], Y=[v])
    Out=[m] = mean(X=[y])
    Out=[n] = mean(X=[z])
    Out=[l] = scale(X=[m]) role=forward|loss {scale=)",
                        l, "}\n    Out=[k] = scale(X=[n]) role=forward|loss {scale=", k, R"(}
    Out=[l@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    Out=[k@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    Out=[m@GRAD] = scale(X=[l@GRAD]) role=backward {scale=)",
                        l, R"(}
    Out=[n@GRAD] = scale(X=[k@GRAD]) role=backward {scale=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[m@GRAD]) role=backward
    X@GRAD=[z@GRAD] = mean_grad(X=[z], Out@GRAD=[n@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[z@GRAD]) role=backward
)",
                        sum_w, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
)");
  };
  constexpr char kReductions[] =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n"
      "    Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) {ring_id=0, use_calc_stream=true}\n";
  const std::string original = losses("1.0", "", "1.0");
  EXPECT_THAT(Differences(original, losses("0.5", kReductions, "1.0")), IsEmpty());
  EXPECT_THAT(Differences(original, losses("0.5", kReductions, "0.5")),
              Contains(AllOf(HasSubstr("error: W610"), HasSubstr("loss k: expected"))));
}

// What users see of a step without fetch ops.
TEST(FetchedValues, ALossIsOne) {
  const std::string original = SgdStepText();
  const auto of_loss = [](absl::string_view op) {
    return absl::StrCat("    Out=[loss] = ", op, "\n");
  };
  for (const std::string& right :
       {std::string(), of_loss("c_allreduce_avg(X=[loss]) {use_calc_stream=true}"),
        absl::StrCat(of_loss("c_allreduce_sum(X=[loss]) {use_calc_stream=true}"),
                     of_loss("scale(X=[loss]) {scale=0.5, nranks=2}"))}) {
    EXPECT_THAT(Differences(original, StepWithLoss(right)), IsEmpty()) << right;
  }
  for (const std::string& wrong :
       {of_loss("scale(X=[loss]) {scale=3.0, bias=1.0}"), of_loss("scale(X=[loss]) {scale=3.0}"),
        of_loss("scale(X=[loss]) {scale=0.99}"), of_loss("reduce_mean(X=[w]) {reduce_all=true}"),
        absl::StrCat(of_loss("c_allreduce_avg(X=[loss]) {use_calc_stream=true}"),
                     of_loss("scale(X=[loss]) {scale=3.0}")),
        of_loss("c_broadcast(X=[loss]) {root=0, use_calc_stream=true}")}) {
    EXPECT_THAT(Differences(original, StepWithLoss(wrong)),
                Contains(AllOf(HasSubstr("error: W610"), HasSubstr("loss loss: expected"))))
        << wrong;
  }
}

TEST(FetchedValues, ALossMayBeAnotherOrNone) {
  const std::string original = SgdStepText();
  const auto edited = [](absl::string_view from, absl::string_view to) {
    return absl::StrReplaceAll(StepWithLoss(""), {{from, to}});
  };
  // The gradient of the mean is a constant, so that training stays right.
  EXPECT_THAT(Differences(original, edited("Out=[loss] = reduce_mean", "Out=[loss] = reduce_sum")),
              Contains(AllOf(HasSubstr("W610"), HasSubstr("loss loss: expected reduce_mean"))));
  EXPECT_THAT(Differences(original, edited("Out=[loss] = reduce_mean(X=[y]) role=forward|loss",
                                           "Out=[y] = relu(X=[y]) role=forward")),
              Contains(HasSubstr("no op computes it here")));
  // Only a copy is marked.
  const auto marked = [&](absl::string_view copy) {
    return edited("    Out=[loss@GRAD]", absl::StrCat("    Out=[shown] = ", copy,
                                                      " role=forward|loss\n    Out=[loss@GRAD]"));
  };
  const auto declared = [](std::string step) {
    return absl::StrReplaceAll(step,
                               {{"    var loss :", "    var shown : fp32[]\n    var loss :"}});
  };
  EXPECT_THAT(Differences(original, declared(marked("assign(X=[loss])"))), IsEmpty());
  EXPECT_THAT(Differences(original, declared(absl::StrReplaceAll(
                                        marked("scale(X=[loss])"),
                                        {{"scale(X=[loss]) role=forward|loss",
                                          "scale(X=[loss]) role=forward|loss {scale=3.0}"}}))),
              Contains(HasSubstr("the value of no loss of the original")));
}

}  // namespace
}  // namespace weft::testing
