// Fetched values of rewritten programs and of their originals.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/equivalence/equivalence.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::weft::testing::Differences;
using ::weft::testing::kStepBackward;
using ::weft::testing::kStepDivide;
using ::weft::testing::kStepLossGrad;
using ::weft::testing::kStepSum;
using ::weft::testing::kStepUpdate;
using ::weft::testing::kStepVars;

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

}  // namespace
}  // namespace weft
