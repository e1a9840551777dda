#include "transpiler/verifier/equivalence/equivalence.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

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

TEST(Equivalence, ARightRewriteIsVerified) {
  EXPECT_THAT(Differences(OneDeviceStep(), TwoRankStep()), IsEmpty());
  // The number of ranks is what the program says.
  EXPECT_THAT(Differences(OneDeviceStep(), TwoRankStep(), VerifyOptions()), IsEmpty());
}

TEST(Equivalence, AveragingIsRightForAnyNumberOfRanks) {
  const std::string averaged =
      OneDeviceStep("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {use_calc_stream=true}\n");
  EXPECT_THAT(Differences(OneDeviceStep(), averaged, VerifyOptions()), IsEmpty());
  EXPECT_THAT(Differences(OneDeviceStep(), averaged, ForRanks(7)), IsEmpty());
}

// Rules about the number of divisions cannot see a factor that is just wrong; the original shows
// it.
TEST(Equivalence, AWrongFactorIsADifference) {
  const std::string wrong = absl::StrReplaceAll(TwoRankStep(), {{"scale=0.5", "scale=0.25"}});
  EXPECT_THAT(Differences(OneDeviceStep(), wrong),
              Contains(AllOf(HasSubstr("W601"), HasSubstr("0.5 *(mul_grad"))));
}

// A step of sgd whose ops `loss` make the loss l of the mean m, and `backward` the gradient of m.
std::string DividedStep(absl::string_view loss, absl::string_view backward,
                        absl::string_view reduction) {
  return absl::StrCat(R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var y, y@GRAD : fp32[-1, 1]
    var m, m@GRAD, l, l@GRAD, n : fp32[]
    var w@GRAD : fp32[4, 1]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[m] = mean(X=[y])
)",
                      loss, R"(
    Out=[l@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
)",
                      backward, R"(
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[m@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)",
                      reduction, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)");
}
constexpr char kSumGradient[] =
    "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n";
constexpr char kFillN[] = "    Out=[n] = fill_constant() {shape=longs[], dtype=5, value=2.0}\n";

std::string Undivided(absl::string_view reduction) {
  return DividedStep("    Out=[l] = scale(X=[m]) role=forward|loss {scale=1.0}\n",
                     "    Out=[m@GRAD] = scale(X=[l@GRAD]) role=backward {scale=1.0}\n", reduction);
}
std::string DividedByScale(absl::string_view scale, absl::string_view reduction) {
  return DividedStep(
      absl::StrCat("    Out=[l] = scale(X=[m]) role=forward|loss {scale=", scale, "}\n"),
      absl::StrCat("    Out=[m@GRAD] = scale(X=[l@GRAD]) role=backward {scale=", scale, "}\n"),
      reduction);
}

TEST(Equivalence, ALossMayBeDividedInTheForwardPass) {
  EXPECT_THAT(Differences(Undivided(""), DividedByScale("0.5", kSumGradient)), IsEmpty());
  const std::string by_constant = DividedStep(
      absl::StrCat(kFillN, "    Out=[l] = elementwise_div(X=[m], Y=[n]) role=forward|loss\n"),
      "    X@GRAD=[m@GRAD] = elementwise_div_grad(X=[m], Y=[n], Out=[l], Out@GRAD=[l@GRAD]) "
      "role=backward\n",
      kSumGradient);
  EXPECT_THAT(Differences(Undivided(""), by_constant), IsEmpty());
  // For another number of ranks it is wrong.
  EXPECT_THAT(Differences(Undivided(""), by_constant, ForRanks(4)), Contains(HasSubstr("W312")));
}

TEST(Equivalence, ALossThatIsDividedInTheForwardPassMayNotBeAveraged) {
  const std::string average = absl::StrReplaceAll(kSumGradient, {{"_sum", "_avg"}});
  EXPECT_THAT(Differences(Undivided(""), DividedByScale("0.5", average)),
              Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(Undivided(""), DividedByScale("0.25", kSumGradient)),
              Contains(HasSubstr("W601")));
}

// Of a state, what is left over adds up.
TEST(Equivalence, W614FactorsThatCountAsOneAreNoted) {
  const auto decays = [](const std::string& step, absl::string_view scale) {
    return absl::StrCat(step, "    Out=[w] = scale(X=[w]) role=optimize {scale=", scale, "}\n");
  };
  const std::string original = Undivided("");
  const std::string averaged =
      Undivided(absl::StrReplaceAll(std::string(kSumGradient), {{"_sum", "_avg"}}));
  const auto found = [](const std::string& before, const std::string& after) {
    const Program of_original = ProgramOf(before), of_ranks = ProgramOf(after);
    VerifyOptions options = ForRanks(2);
    options.original.main = &of_original;
    std::vector<std::string> lines;
    for (const std::string& line : AllLines(Verify({{&of_ranks, nullptr}}, options))) {
      if (absl::StrContains(line, " W6")) lines.push_back(line);
    }
    return lines;
  };
  EXPECT_THAT(found(original, decays(averaged, "0.9999999")),
              ElementsAre(AllOf(HasSubstr("W614"), HasSubstr("(scale) multiplies by 0.99999988"),
                                HasSubstr("to 0.88"))));
  EXPECT_THAT(found(decays(original, "0.9999999"), averaged),
              ElementsAre(AllOf(HasSubstr("W614"), HasSubstr("here, nothing does"))));
  EXPECT_THAT(found(decays(original, "0.9999999"), decays(averaged, "0.9999999")), IsEmpty());
  EXPECT_THAT(found(original, decays(averaged, "1.0")), IsEmpty());
  EXPECT_THAT(found(original, decays(averaged, "0.999999")), Contains(HasSubstr("W601")));
}

// Of gradients that begin with 1/n, or that an op divides before the backward pass.
TEST(Equivalence, TheFirstGradientMayBeDividedByTheNumberOfRanks) {
  const auto begins = [](absl::string_view value, absl::string_view then = "") {
    return absl::StrReplaceAll(
        Undivided(kSumGradient),
        {{"    Out=[l@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, "
          "value=1.0}\n",
          absl::StrCat(kFillN,
                       "    Out=[l@GRAD] = fill_constant() role=backward|loss {shape=longs[], "
                       "dtype=5, value=",
                       value, "}\n", then)}});
  };
  EXPECT_THAT(Differences(Undivided(""), begins("0.5")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), begins("1.0, str_value=\"0.5\"")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), begins("0.25")), Contains(HasSubstr("W601")));
  for (const char* by : {"elementwise_div", "elementwise_mul"}) {
    const std::string then =
        absl::StrCat("    Out=[l@GRAD] = ", by, "(X=[l@GRAD], Y=[n]) role=backward\n");
    const bool is_right = std::string(by) == "elementwise_div";
    const auto found = Differences(Undivided(""), begins("1.0", then));
    EXPECT_EQ(found.empty(), is_right) << by;
  }
}

// A reduction in two collectives: the division stands between them, or after parts are summed.
TEST(Equivalence, AGradientMayBeReducedInParts) {
  const auto reduced = [](absl::string_view ops) {
    return absl::StrReplaceAll(Undivided(ops),
                               {{"    var w@GRAD",
                                 "    var half : fp32[2, 1]\n    var both : fp32[8, 1]\n"
                                 "    var g1, g2 : fp32[4, 1]\n    var w@GRAD"}});
  };
  const auto scattered = [&](absl::string_view scale) {
    return reduced(absl::StrCat(
        "    Out=[half] = c_reducescatter(X=[w@GRAD]) {ring_id=0, use_calc_stream=true, nranks=2}\n"
        "    Out=[half] = scale(X=[half]) {scale=",
        scale,
        "}\n    Out=[w@GRAD] = c_allgather(X=[half]) {ring_id=0, use_calc_stream=true, "
        "nranks=2}\n"));
  };
  EXPECT_THAT(Differences(Undivided(""), scattered("0.5")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), scattered("1.0")), Contains(HasSubstr("W601")));
  const auto gathered = [&](absl::string_view scale) {
    return reduced(absl::StrCat(
        "    Out=[both] = c_allgather(X=[w@GRAD]) {ring_id=0, use_calc_stream=true, nranks=2}\n"
        "    Out=[g1, g2] = split(X=[both]) {num=2, axis=0}\n    Out=[w@GRAD] = sum(X=[g1, g2])\n"
        "    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=",
        scale, "}\n"));
  };
  EXPECT_THAT(Differences(Undivided(""), gathered("0.5")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), gathered("1.0")), Contains(HasSubstr("W601")));
}

// One device has the factor, too: that it is 1/n does not make it a division by n.
TEST(Equivalence, AFactorOfTheLossIsNoDivisionByTheNumberOfRanks) {
  const std::string average = absl::StrReplaceAll(kSumGradient, {{"_sum", "_avg"}});
  const std::string halved = DividedByScale("0.5", "");
  EXPECT_THAT(Differences(halved, DividedByScale("0.5", average)), IsEmpty());
  EXPECT_THAT(Differences(halved, DividedByScale("0.5", kSumGradient)),
              IsSupersetOf({HasSubstr("W312"), HasSubstr("W601")}));
}

// The gradient of a sum is complete once ranks have added it up.
TEST(Equivalence, ALossThatIsASumMayNotBeDividedInTheForwardPass) {
  const auto of_sum = [](const std::string& step) {
    return absl::StrReplaceAll(step,
                               {{"mean(X=[y])", "reduce_sum(X=[y]) {reduce_all=true, dim=ints[0]}"},
                                {"mean_grad(X=[y], Out@GRAD=[m@GRAD]) role=backward",
                                 "reduce_sum_grad(X=[y], Out@GRAD=[m@GRAD]) role=backward "
                                 "{reduce_all=true, dim=ints[0]}"}});
  };
  EXPECT_THAT(Differences(of_sum(Undivided("")), of_sum(DividedByScale("0.5", kSumGradient))),
              Contains(StartsWith("error: ")));
}

TEST(Equivalence, AGradientMayBeDividedByAConstantThatAnOpMakes) {
  const auto after = [](absl::string_view op, absl::string_view value) {
    return Undivided(absl::StrCat(
        kSumGradient, "    Out=[n] = fill_constant() {shape=longs[], dtype=5, value=", value,
        "}\n    Out=[w@GRAD] = ", op, "(X=[w@GRAD], Y=[n])\n"));
  };
  EXPECT_THAT(Differences(Undivided(""), after("elementwise_div", "2.0")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), after("elementwise_mul", "0.5")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), after("elementwise_div", "4.0")),
              Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(Undivided(""), after("elementwise_mul", "2.0")),
              Contains(HasSubstr("W601")));
}

// Constants that several ops make, also in one variable.
TEST(Equivalence, ADivisorMayBeMadeInSeveralWays) {
  const auto divided = [](absl::string_view make_n, absl::string_view op = "") {
    return absl::StrReplaceAll(
        Undivided(absl::StrCat(
            kSumGradient, make_n,
            op.empty() ? "    Out=[w@GRAD] = elementwise_div(X=[w@GRAD], Y=[n])\n" : op)),
        {{"    var w@GRAD",
          "    var k : int64[]\n    var a, b, c : fp32[1]\n    var r : fp32[4]\n    var q : "
          "fp32[2, 3] "
          "persistable\n    var dims : int32[2]\n    var dim : int32[]\n    var g : fp16[]\n    "
          "var w@GRAD"}});
  };
  constexpr char kScale[] = "    Out=[w@GRAD] = scale(X=[w@GRAD], ScaleTensor=[n]) {scale=1.0}\n";
  constexpr char kFill[] = "    Out=[n] = fill_constant() {shape=longs[], dtype=5, value=";
  struct Case {
    std::string before, value, after;
    const char* right;
    const char* wrong;
    absl::string_view op = "";
  };
  const std::vector<Case> cases = {
      {"    Out=[n] = assign_value() {shape=ints[], dtype=5, fp32_values=floats[", "", "]}\n",
       "2.0", "4.0"},
      {"    Out=[n] = fill_any_like(X=[l@GRAD]) {value=", "", "}\n", "2.0", "1.0"},
      {kFill, "", "}\n    Out=[n] = sqrt(X=[n])\n", "4.0", "2.0"},
      {"    Out=[k] = fill_constant() {shape=longs[], dtype=3, value=", "",
       "}\n    Out=[n] = cast(X=[k]) {in_dtype=3, out_dtype=5}\n", "2.0", "3.0"},
      {kFill, "", "}\n    Out=[n] = c_allreduce_sum(X=[n]) {ring_id=0, use_calc_stream=true}\n",
       "1.0", "2.0"},
      {kFill, "", "}\n    Out=[n] = scale(X=[n]) {scale=2.0, bias=-2.0}\n", "2.0", "4.0"},
      {kFill, "", "}\n", "0.5", "2.0", kScale},
      // The kernel of an integer takes 1.5 for 1, and 0.5 for 0.
      {"    Out=[k] = fill_constant() {shape=longs[], dtype=3, value=2.0}\n    Out=[k] = "
       "scale(X=[k]) "
       "{bias=",
       "", ", scale=1.0}\n    Out=[n] = cast(X=[k]) {in_dtype=3, out_dtype=5}\n", "0.0", "0.5"},
      {kFill, "", "}\n    Out=[n] = rsqrt(X=[n])\n    Out=[n] = reciprocal(X=[n])\n", "4.0", "2.0"},
      {kFill, "", "}\n    Out=[n] = clip(X=[n]) {min=1.0, max=8.0}\n", "2.0", "4.0"},
      {kFill, "", "}\n    Out=[n] = sum(X=[n, n])\n", "1.0", "2.0"},
      {kFill, "", "}\n    Out=[n] = increment(X=[n]) {step=1.0}\n", "1.0", "2.0"},
      // Elements of lists.
      {"    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=0.0}\n    Out=[b] = "
       "fill_constant() {shape=longs[1], dtype=5, value=4.0}\n    Out=[c] = fill_constant() "
       "{shape=longs[1], dtype=5, value=1.0}\n    Out=[r] = range(Start=[a], End=[b], Step=[c])\n  "
       "  "
       "Out=[n] = slice(Input=[r]) {axes=ints[0], decrease_axis=ints[0], starts=ints[",
       "", "]}\n", "2], ends=ints[3", "3], ends=ints[4"},
      // An element that is 4 after the roundings of fp32, and 2 before.
      {"    Out=[b] = fill_constant() {shape=longs[1], dtype=5, value=4.0}\n    Out=[c] = "
       "fill_constant() {shape=longs[1], dtype=5, value=",
       "",
       "}\n    Out=[r] = range(Start=[a], End=[b], Step=[c])\n    Out=[n] = slice(Input=[r]) "
       "{axes=ints[0], decrease_axis=ints[0], starts=ints[3], ends=ints[4]}\n",
       "1.0}\n    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=-1.0",
       "16777218.0}\n    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=-50331652.0"},
      // As numbers of fp16, 2049 is 2048.
      {"    Out=[g] = fill_constant() {shape=longs[], dtype=4, value=1.0}\n    Out=[g] = "
       "scale(X=[g]) {scale=",
       "", "}\n    Out=[n] = cast(X=[g]) {in_dtype=4, out_dtype=5}\n", "1.0, bias=1.0",
       "2049.0, bias=-2047.0"},
      {"    Out=[dims] = shape(Input=[q])\n    Out=[dim] = slice(Input=[dims]) {axes=ints[0], "
       "decrease_axis=ints[0], starts=ints[",
       "", "]}\n    Out=[n] = cast(X=[dim]) {in_dtype=2, out_dtype=5}\n", "0], ends=ints[1",
       "1], ends=ints[2"},
      // What is made of the number of ranks need not be it.
      {"    Out=[n] = fill_constant() {shape=longs[], dtype=5, value=1.0}\n    Out=[n] = "
       "c_allreduce_sum(X=[n]) {ring_id=0, use_calc_stream=true}\n    Out=[n] = scale(X=[n]) "
       "{scale=1.0, bias=",
       "", "}\n", "0.0", "-1.0"},
  };
  for (const Case& one : cases) {
    const auto with = [&](absl::string_view value) {
      return divided(absl::StrCat(one.before, value, one.after), one.op);
    };
    EXPECT_THAT(Differences(Undivided(""), with(one.right)), IsEmpty()) << one.before << one.after;
    EXPECT_THAT(Differences(Undivided(""), with(one.wrong)), Contains(HasSubstr("W601")))
        << one.before << one.after;
  }
  // Ones of a half type may add up to no more than 256.
  const std::string counted = divided(
      "    Out=[g] = fill_constant() {shape=longs[], dtype=4, value=1.0}\n    Out=[g] = "
      "c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=true}\n    Out=[n] = "
      "cast(X=[g]) {in_dtype=4, out_dtype=5}\n");
  EXPECT_THAT(Differences(Undivided(""), counted, ForRanks(256)), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), counted, ForRanks(512)), Contains(HasSubstr("W601")));
  // The mean of ones is 1 in fp32 for any number of ranks; in a half type, for 256 at most.
  const auto times_mean_of_ones = [](absl::string_view type, absl::string_view dtype) {
    return absl::StrReplaceAll(
        Undivided(absl::StrCat(
            "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n"
            "    Out=[g] = fill_constant() {shape=longs[], dtype=",
            dtype,
            ", value=1.0}\n    Out=[g] = c_allreduce_avg(X=[g]) {ring_id=0, use_calc_stream=true}\n"
            "    Out=[n] = cast(X=[g]) {in_dtype=",
            dtype, ", out_dtype=5}\n    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[n])\n")),
        {{"    var w@GRAD", absl::StrCat("    var g : ", type, "[]\n    var w@GRAD")}});
  };
  EXPECT_THAT(Differences(Undivided(""), times_mean_of_ones("fp32", "5"), VerifyOptions()),
              IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), times_mean_of_ones("fp16", "4"), ForRanks(256)),
              IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), times_mean_of_ones("fp16", "4"), VerifyOptions()),
              Contains(HasSubstr("W601")));
  // Ten times a tenth is 1.0000001 in fp32, if it is added up in a row.
  const std::string tenths = divided(
      absl::StrCat(kFill,
                   "0.1}\n    Out=[n] = c_allreduce_sum(X=[n]) {ring_id=0, use_calc_stream=true}\n"
                   "    Out=[n] = scale(X=[n]) {scale=10.0, bias=0.0}\n"));
  EXPECT_THAT(Differences(Undivided(""), tenths, ForRanks(10)), Contains(HasSubstr("W601")));
  // Nobody knows what comes from outside.
  EXPECT_THAT(Differences(Undivided(""), divided("    Out=[n] = reshape(X=[lr]) {shape=ints[]}\n")),
              Contains(HasSubstr("W601")));
}

// A number that an op in a block may change is none; one of the block is.
TEST(Equivalence, ADivisorThatABranchChangesIsNoConstant) {
  const auto step = [](absl::string_view inside) {
    return absl::StrReplaceAll(
        Undivided(
            absl::StrCat(kSumGradient, kFillN,
                         "    Out=[n], Scope=[scope] = conditional_block(Cond=[due], Input=[]) "
                         "{sub_block=block(1), is_scalar_condition=true}\n"
                         "    Out=[w@GRAD] = elementwise_div(X=[w@GRAD], Y=[n])\n")) +
            absl::StrCat("    block 1:\n    Out=[", inside,
                         "] = fill_constant() {shape=longs[], dtype=5, value=2.0}\n"),
        {{"    var w@GRAD",
          "    var due : bool[1] persistable\n    var scope : step_scopes\n"
          "    var o : fp32[]\n    var w@GRAD"}});
  };
  EXPECT_THAT(Differences(Undivided(""), step("n")), Contains(HasSubstr("W601")));
}

// What an op prints, or shares the memory of, is a constant until something writes that memory.
TEST(Equivalence, AConstantMayBePrinted) {
  const auto divided = [](absl::string_view make, absl::string_view by, absl::string_view blocks) {
    return absl::StrReplaceAll(
        Undivided(absl::StrCat(kSumGradient, kFillN, make,
                               "    Out=[w@GRAD] = elementwise_div(X=[w@GRAD], Y=[", by, "])\n")) +
            std::string(blocks),
        {{"    var w@GRAD",
          "    var due : bool[1] persistable\n    var scope : step_scopes\n"
          "    var p, q : fp32[]\n    var w@GRAD"}});
  };
  constexpr char kDouble[] = " = scale(X=[n]) {scale=2.0}\n";
  constexpr char kBranch[] =
      "    Out=[n], Scope=[scope] = conditional_block(Cond=[due], Input=[n]) "
      "{sub_block=block(1), is_scalar_condition=true}\n";
  constexpr char kInside[] =
      "    block 1:\n    Out=[n] = fill_constant() {shape=longs[], dtype=5, value=4.0}\n";
  for (const char* op : {"Out=[p] = print(In=[n])", "Out=[p] = share_data(X=[n])"}) {
    SCOPED_TRACE(op);
    const std::string shares = absl::StrCat("    ", op, "\n");
    const auto found = [&](absl::string_view make, absl::string_view by,
                           absl::string_view blocks = "") {
      return Differences(Undivided(""), divided(make, by, blocks));
    };
    EXPECT_THAT(found(shares, "p"), IsEmpty());
    // What is read is not changed.
    EXPECT_THAT(found(shares, "n"), IsEmpty());
    EXPECT_THAT(found(shares + "    Out=[q] = print(In=[p])\n", "q"), IsEmpty());
    EXPECT_THAT(found(absl::StrCat(shares, "    Out=[n]", kDouble), "p"),
                Contains(HasSubstr("W601")));
    EXPECT_THAT(found(absl::StrCat(shares, "    Out=[p]", kDouble), "n"),
                Contains(HasSubstr("W601")));
    EXPECT_THAT(found(absl::StrCat("    Out=[n]", kDouble, shares), "p"),
                Contains(HasSubstr("W601")));
    EXPECT_THAT(found(absl::StrCat(shares, kBranch), "p", kInside), Contains(HasSubstr("W601")));
    EXPECT_THAT(found(absl::StrCat(kBranch, shares), "p", kInside), Contains(HasSubstr("W601")));
  }
}

// Another name of one value, unless something writes the memory of both.
TEST(Equivalence, AGradientMayBeReducedUnderAnotherName) {
  const auto reduced = [](absl::string_view reduction, absl::string_view last,
                          absl::string_view before_last = "") {
    return absl::StrReplaceAll(
        Undivided(absl::StrCat("    Out=[g] = share_data(X=[w@GRAD])\n    Out=[g] = ", reduction,
                               "(X=[g]) {ring_id=0, use_calc_stream=true}\n", before_last, last)),
        {{"    var w@GRAD", "    var g : fp32[4, 1]\n    var w@GRAD"}});
  };
  constexpr char kBack[] = "    Out=[w@GRAD] = assign(X=[g])\n";
  EXPECT_THAT(Differences(Undivided(""), reduced("c_allreduce_avg", kBack)), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), reduced("c_allreduce_sum", kBack)),
              Contains(HasSubstr("W312")));
  EXPECT_THAT(Differences(Undivided(""), reduced("c_allreduce_sum", kBack,
                                                 "    Out=[g] = scale(X=[g]) {scale=0.5}\n")),
              IsEmpty());
  // Right in the order of the program, which Paddle's executor does not keep.
  EXPECT_THAT(Differences(Undivided(""), reduced("c_allreduce_avg", "")),
              ElementsAre(HasSubstr("W412")));
  EXPECT_THAT(Differences(Undivided(""), reduced("c_allreduce_sum", "")),
              IsSupersetOf({HasSubstr("W412"), HasSubstr("W312")}));
  EXPECT_THAT(Differences(Undivided(""),
                          reduced("c_allreduce_avg", "    Out=[g] = share_data(X=[w@GRAD])\n",
                                  "    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=2.0}\n")),
              Contains(HasSubstr("W601")));
}

// As fleet writes it after the reduction of a fused buffer.
TEST(Equivalence, ADependIsItsOperandX) {
  const auto depends = [](absl::string_view x, absl::string_view dep) {
    return Undivided(absl::StrCat(kSumGradient,
                                  "    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=0.5}\n",
                                  "    Out=[w@GRAD] = depend(Dep=[", dep, "], X=[", x, "])\n"));
  };
  EXPECT_THAT(Differences(Undivided(""), depends("w@GRAD", "m, w")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), depends("w", "w@GRAD")), Contains(HasSubstr("W601")));
}

// y@GRAD is persistable to be fetched.
TEST(Equivalence, AGradientOfAnActivationMayBeKept) {
  const auto kept = [](const std::string& step) {
    return absl::StrReplaceAll(step, {{"    var y, y@GRAD : fp32[-1, 1]\n",
                                       "    var y : fp32[-1, 1]\n"
                                       "    var y@GRAD : fp32[-1, 1] persistable\n"}});
  };
  const auto divided = [&](absl::string_view scale) {
    return kept(DividedStep(
        "    Out=[l] = scale(X=[m]) role=forward|loss {scale=1.0}\n",
        absl::StrCat("    Out=[m@GRAD] = scale(X=[l@GRAD]) role=backward {scale=", scale,
                     ", nranks=2}\n"),
        kSumGradient));
  };
  const Program original = ProgramOf(kept(Undivided("")));
  const Program startup = ProgramOf(
      "    var w : fp32[4, 1] parameter persistable\n    var lr : fp32[1] persistable\n"
      "    Out=[w] = fill_constant() {shape=longs[4, 1], dtype=5, value=1.0}\n"
      "    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}\n"
      "    c_comm_init_all() {ring_id=0}\n");
  const auto errors = [&](const std::string& main) {
    const Program program = ProgramOf(main);
    return Errors({{&program, &startup}}, &original);
  };
  EXPECT_THAT(errors(divided("0.5")), IsEmpty());
  EXPECT_THAT(errors(divided("0.25")),
              Contains(AllOf(HasSubstr("W602"), HasSubstr("variable y@GRAD"))));
}

TEST(Equivalence, ALossThatIsDividedInTheForwardPassIsNoted) {
  const auto notes = [](const std::string& main) {
    const Program before = ProgramOf(Undivided("")), after = ProgramOf(main);
    VerifyOptions options = ForRanks(2);
    options.original.main = &before;
    return AllLines(Verify({{&after, nullptr}}, options));
  };
  EXPECT_THAT(notes(DividedByScale("0.5", kSumGradient)),
              Contains(StartsWith("note: W612: loss l: each rank has the n-th part")));
  EXPECT_THAT(notes(DividedByScale("1.0", absl::StrReplaceAll(kSumGradient, {{"_sum", "_avg"}}))),
              Not(Contains(HasSubstr("W612"))));
}

// A rate that is divided by the number of ranks makes up for a sum of gradients, but not in states
// that add up gradients.
TEST(Equivalence, ARateMayBeDividedInsteadOfTheGradient) {
  const auto divided = [](const std::string& step, absl::string_view scale) {
    return absl::StrReplaceAll(
        step, {{"    ParamOut", absl::StrCat("    Out=[rate] = scale(X=[lr]) role=optimize {scale=",
                                             scale, "}\n    ParamOut")},
               {"LearningRate=[lr]", "LearningRate=[rate]"}});
  };
  const std::string summed = Undivided(kSumGradient);
  EXPECT_THAT(Differences(Undivided(""), divided(summed, "0.5")), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), divided(summed, "0.25")), Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(Undivided(""), divided(Undivided(""), "0.5")),
              Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(Undivided(""), summed), Contains(HasSubstr("W601")));
  const auto with_velocity = [](const std::string& step) {
    return absl::StrReplaceAll(
        step, {{"var lr :", "var v : fp32[4, 1] persistable\n    var lr :"},
               {"ParamOut=[w] = sgd(Param=[w], ",
                "ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], "},
               {" role=optimize\n", " role=optimize {mu=0.9}\n"}});
  };
  EXPECT_THAT(Differences(with_velocity(Undivided("")), with_velocity(divided(summed, "0.5"))),
              Contains(HasSubstr("W602")));
}

// 1/3 in half precision is another number, which the text of the program does not show.
TEST(Equivalence, AConstantOfHalfPrecisionIsNoFactor) {
  const auto step = [](int dtype, absl::string_view type, absl::string_view value) {
    return absl::StrReplaceAll(
        Undivided(absl::StrCat(
            kSumGradient, "    Out=[n] = fill_constant() {shape=longs[], dtype=", dtype,
            ", value=", value, "}\n    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[n])\n")),
        {{"l@GRAD, n : fp32", absl::StrCat("l@GRAD : fp32[]\n    var n : ", type)},
         {"w@GRAD : fp32", absl::StrCat("w@GRAD : ", type)}});
  };
  const std::string third = "0.3333333432674408";
  EXPECT_THAT(Differences(Undivided(""), step(5, "fp32", third), ForRanks(3)), IsEmpty());
  EXPECT_THAT(Differences(Undivided(""), step(4, "fp16", third), ForRanks(3)),
              Contains(HasSubstr("W601")));
}

// Another op changes what the first has made.
TEST(Equivalence, AVariableThatTwoOpsWriteIsNoConstant) {
  const std::string changed =
      Undivided(absl::StrCat(kSumGradient, kFillN, "    Out=[n] = scale(X=[n]) {scale=2.0}\n",
                             "    Out=[w@GRAD] = elementwise_div(X=[w@GRAD], Y=[n])\n"));
  EXPECT_THAT(Differences(Undivided(""), changed), Contains(HasSubstr("W601")));
}

TEST(Equivalence, AGradientOfALossThatIsFetchedIsNoState) {
  const auto fetched = [](const std::string& step) {
    return absl::StrReplaceAll(
        step, {{"    var w@GRAD : fp32[4, 1]\n",
                "    var w@GRAD : fp32[4, 1]\n    var kept : fp32[] persistable\n"},
               {"l@GRAD", "kept"},
               {"m@GRAD, l, l@GRAD, n", "m@GRAD, l, n"}});
  };
  const std::string original = fetched(Undivided(""));
  const std::string divided =
      absl::StrReplaceAll(fetched(Undivided(kSumGradient)),
                          {{"    Out=[m@GRAD] = scale(X=[kept])",
                            "    Out=[kept] = scale(X=[kept]) role=backward {scale=0.5, nranks=2}\n"
                            "    Out=[m@GRAD] = scale(X=[kept])"}});
  EXPECT_THAT(Differences(original, divided),
              ElementsAre(AllOf(StartsWith("warning: W703: state kept"), HasSubstr("1/n"))));
}

TEST(Equivalence, WholeExpressionsArePrintedOnDemand) {
  const std::string wrong = absl::StrReplaceAll(TwoRankStep(), {{"scale=0.5", "scale=0.25"}});
  EXPECT_THAT(Differences(OneDeviceStep(), wrong), Not(Contains(HasSubstr("as a whole"))));
  VerifyOptions options = ForRanks(2);
  options.expression_depth = 2;
  EXPECT_THAT(Differences(OneDeviceStep(), wrong, options),
              Contains(HasSubstr(
                  "; as a whole, expected sgd#1(mul_grad#1(fill_constant, x, w), lr, w), found "
                  "sgd#1(0.5 *(mul_grad#1(...)), lr, w)")));
}

// Two parameters, whose gradients get `between` before the updates.
std::string TwoGradientsStep(absl::string_view between) {
  return absl::StrCat(R"(
    var x : fp32[4, 3] need_check_feed
    var w : fp32[3, 2] parameter persistable
    var v : fp32[3, 2] parameter persistable
    var lr : fp32[1] persistable
    var w@GRAD : fp32[3, 2]
    var flat, other : fp32[6]
    var all : fp32[12]
    var both : fp32[6, 2]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], dtype=5, value=1.0}
    Out=[z@GRAD] = scale(X=[y@GRAD]) role=backward {scale=3.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[z@GRAD]) role=backward
)",
                      between, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
)");
}

constexpr char kFlattened[] = R"(
    Out=[flat] = reshape2(X=[w@GRAD]) {shape=ints[6]}
    Out=[other] = reshape2(X=[v@GRAD]) {shape=ints[6]}
    Out=[all] = concat(X=[flat, other]) {axis=0}
    Out=[all] = c_allreduce_avg(X=[all]) {use_calc_stream=true}
    Out=[flat, other] = split(X=[all]) {axis=0, sections=ints[6, 6], num=0}
    Out=[w@GRAD] = reshape2(X=[flat]) {shape=ints[3, 2]}
    Out=[v@GRAD] = reshape2(X=[other]) {shape=ints[3, 2]}
)";

// What Weft writes for PIR: a buffer in place would be a race there.
TEST(Equivalence, ASplitUndoesAConcatAndAReshapeAReshape) {
  const std::string original = TwoGradientsStep("");
  EXPECT_THAT(Differences(original, TwoGradientsStep(kFlattened)), IsEmpty());
  // By number, and along an axis that counts from the end.
  EXPECT_THAT(Differences(original, TwoGradientsStep(R"(
    Out=[both] = concat(X=[w@GRAD, v@GRAD]) {axis=-2}
    Out=[both] = c_allreduce_avg(X=[both]) {use_calc_stream=true}
    Out=[w@GRAD, v@GRAD] = split(X=[both]) {axis=0, num=2}
)")),
              IsEmpty());
}

TEST(Equivalence, OtherPartsThanThoseThatWereConcatenatedAreADifference) {
  const std::string original = TwoGradientsStep("");
  const auto with = [](absl::string_view from, absl::string_view to) {
    const std::string changed = absl::StrReplaceAll(kFlattened, {{from, to}});
    EXPECT_NE(changed, kFlattened);
    return TwoGradientsStep(changed);
  };
  for (const std::string& wrong : {
           with("Out=[flat, other] = split", "Out=[other, flat] = split"),
           with("sections=ints[6, 6]", "sections=ints[5, 7]"),
           with("Out=[w@GRAD] = reshape2(X=[flat]) {shape=ints[3, 2]}",
                "Out=[w@GRAD] = reshape2(X=[flat]) {shape=ints[2, 3]}"),
           with("concat(X=[flat, other])", "concat(X=[other, other])"),
       }) {
    EXPECT_THAT(Differences(original, wrong), Contains(HasSubstr("W601"))) << wrong;
  }
  // Parts of another factor.
  EXPECT_THAT(
      Differences(original, TwoGradientsStep(absl::StrCat(
                                "    Out=[v@GRAD] = scale(X=[v@GRAD]) {scale=2.0}\n", kFlattened))),
      Contains(HasSubstr("W601: variable v,")));
}

// A step whose gradient of the loss is multiplied by `loss_scale`. `joined` has two gradients of
// activations, the second `factor` times the first; two parameters are updated through a bucket.
std::string ScaledPartsStep(absl::string_view loss_scale, absl::string_view factor,
                            absl::string_view between) {
  return absl::StrCat(R"(
    var x : fp32[4, 3] need_check_feed
    var w : fp32[3, 4] parameter persistable
    var b : fp32[3, 2] parameter persistable
    var lr : fp32[1] persistable
    var flat : fp32[12]
    var other : fp32[6]
    var all : fp32[18]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], dtype=5, value=1.0}
)",
                      loss_scale,
                      "    Out=[z@GRAD] = scale(X=[y@GRAD]) role=backward {scale=", factor, R"(}
    Out=[joined] = concat(X=[y@GRAD, z@GRAD]) role=backward {axis=1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[joined]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[z@GRAD]) role=backward
)",
                      between, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
)");
}

constexpr char kHalfLoss[] =
    "    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5, nranks=2}\n";
constexpr char kSummedBucket[] = R"(
    Out=[flat] = reshape2(X=[w@GRAD]) {shape=ints[12]}
    Out=[other] = reshape2(X=[b@GRAD]) {shape=ints[6]}
    Out=[all] = concat(X=[flat, other]) {axis=0}
    Out=[all] = c_allreduce_sum(X=[all]) {use_calc_stream=true}
    Out=[flat, other] = split(X=[all]) {axis=0, sections=ints[12, 6], num=0}
    Out=[w@GRAD] = reshape2(X=[flat]) {shape=ints[3, 4]}
    Out=[b@GRAD] = reshape2(X=[other]) {shape=ints[3, 2]}
)";

// Attention that scales its queries: a joined gradient has parts of several factors, and so has a
// bucket.
TEST(Equivalence, PartsOfSeveralFactorsKeepThem) {
  for (const char* factor : {"0.25", "3.0", "0.3333333"}) {
    const std::string original = ScaledPartsStep("", factor, "");
    EXPECT_THAT(Differences(original, ScaledPartsStep(kHalfLoss, factor, kSummedBucket)), IsEmpty())
        << factor;
  }
}

// Five percent after 20,000 steps.
TEST(Equivalence, ASmallFactorInEveryStepIsADifference) {
  const auto with = [](const std::string& step, const char* factor) {
    return absl::StrCat(step, "    Out=[w] = scale(X=[w]) role=optimize {scale=", factor, "}\n");
  };
  EXPECT_THAT(Differences(with(OneDeviceStep(), "0.999995"), TwoRankStep()),
              ElementsAre(AllOf(HasSubstr("W601"), HasSubstr("expected 0.999995 *(sgd"))));
  EXPECT_THAT(Differences(OneDeviceStep(), with(TwoRankStep(), "1.000001")),
              ElementsAre(AllOf(HasSubstr("W601"), HasSubstr("found 1.000001"))));
  EXPECT_THAT(Differences(with(OneDeviceStep(), "0.999995"), with(TwoRankStep(), "0.999995")),
              IsEmpty());
  // Rounding of many factors is none.
  std::string many = TwoRankStep();
  for (const char* factor : {"0.33333334", "3.0", "0.14285715", "7.0", "0.1", "10.0", "0.7",
                             "1.4285715", "0.0009765625", "1024.0"}) {
    many = with(many, factor);
  }
  EXPECT_THAT(Differences(OneDeviceStep(), many), IsEmpty());
}

TEST(Equivalence, PartsOfOtherFactorsAreADifference) {
  const std::string original = ScaledPartsStep("", "0.25", "");
  const auto with = [](absl::string_view from, absl::string_view to) {
    const std::string right = ScaledPartsStep(kHalfLoss, "0.25", kSummedBucket);
    const std::string changed = absl::StrReplaceAll(right, {{from, to}});
    EXPECT_NE(changed, right);
    return changed;
  };
  for (const std::string& wrong : {
           // The factor of one part, in the joined gradient or in the bucket.
           ScaledPartsStep(kHalfLoss, "0.5", kSummedBucket),
           ScaledPartsStep(kHalfLoss, "-0.25", kSummedBucket),
           with("Out=[other] = reshape2(X=[b@GRAD]) {shape=ints[6]}\n",
                "Out=[other] = reshape2(X=[b@GRAD]) {shape=ints[6]}\n"
                "    Out=[other] = scale(X=[other]) {scale=4.0}\n"),
           // Both parts are multiples of one another, but not of the right ones.
           with("concat(X=[y@GRAD, z@GRAD])", "concat(X=[z@GRAD, y@GRAD])"),
           with("concat(X=[y@GRAD, z@GRAD])", "concat(X=[z@GRAD, z@GRAD])"),
           // All parts.
           with("Out=[all] = c_allreduce_sum(X=[all]) {use_calc_stream=true}\n",
                "Out=[all] = c_allreduce_sum(X=[all]) {use_calc_stream=true}\n"
                "    Out=[all] = scale(X=[all]) {scale=0.25}\n"),
       }) {
    EXPECT_THAT(Differences(original, wrong), Contains(HasSubstr("W601"))) << wrong;
  }
}

// loss is the mean; what divides its gradient writes another variable, as in PIR.
std::string RenamedGradientStep(absl::string_view vars, absl::string_view scales,
                                absl::string_view seed, absl::string_view between) {
  return absl::StrCat(R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var mean, loss, loss@GRAD@RENAME@7, loss@GRAD@RENAME@8, mean@GRAD : fp32[]
    Out=[y] = mul(X=[x], Y=[w])
)",
                      vars,
                      "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], "
                      "dtype=5, value=1.0}\n",
                      scales, "    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[", seed,
                      R"(]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
)",
                      between, kStepUpdate);
}

TEST(Equivalence, ADivisionMayWriteAnotherVariable) {
  const std::string mean = "    Out=[loss] = mean(X=[y]) role=forward|loss\n";
  // One device computes half a mean.
  const std::string half =
      "    Out=[mean] = mean(X=[y])\n"
      "    Out=[loss] = scale(X=[mean]) role=forward|loss {scale=0.5}\n";
  const std::string sum =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const auto scale = [](absl::string_view in, absl::string_view out) {
    return absl::StrCat("    Out=[", out, "] = scale(X=[", in, "]) role=backward {scale=0.5}\n");
  };
  const std::string divide = scale("loss@GRAD", "loss@GRAD@RENAME@7");
  const std::string own = scale("loss@GRAD", "mean@GRAD");
  const auto found = [&](const std::string& vars, const std::string& scales,
                         absl::string_view seed) {
    return Found(RenamedGradientStep(vars, scales, seed, sum), ForRanks(2));
  };
  EXPECT_THAT(found(mean, divide, "loss@GRAD@RENAME@7"), IsEmpty());
  // Nobody divides; or somebody does twice.
  EXPECT_THAT(found(mean, "", "loss@GRAD"), Contains(HasSubstr("W312")));
  EXPECT_THAT(found(half, own, "mean@GRAD"), Contains(HasSubstr("W312")));
  EXPECT_THAT(
      found(mean, divide + scale("loss@GRAD@RENAME@7", "loss@GRAD@RENAME@8"), "loss@GRAD@RENAME@8"),
      Contains(HasSubstr("W314")));
  // The original says what is its own.
  const std::string original = RenamedGradientStep(mean, "", "loss@GRAD", "");
  EXPECT_THAT(Differences(original, RenamedGradientStep(mean, divide, "loss@GRAD@RENAME@7", sum)),
              IsEmpty());
  EXPECT_THAT(Differences(RenamedGradientStep(mean, divide, "loss@GRAD@RENAME@7", ""),
                          RenamedGradientStep(mean, divide, "loss@GRAD@RENAME@7", sum)),
              Contains(HasSubstr("W601")));
}

// Accumulates gradients, which backward multiplies by `factor` of its own, over two steps.
std::string AccumulatingStep(absl::string_view factor, absl::string_view divide,
                             absl::string_view reduce) {
  return absl::StrCat(kStepVars, R"(    var merged : fp32[1, 1] persistable
    var step : int64[1] persistable
    var rest : int64[1]
    var due : bool[1]
    var scope : step_scopes
)",
                      kStepLossGrad, divide, "    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {",
                      factor, "}\n", kStepBackward, R"(
    Out=[merged] = elementwise_add(X=[merged], Y=[w@GRAD]) role=backward vars=[w, merged] {axis=-1}
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=2.0}
    Out=[none] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[step] = increment(X=[step]) {step=1.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) {axis=-1}
    Out=[due] = equal(X=[rest], Y=[none])
    Out=[w, merged], Scope=[scope] = conditional_block(Cond=[due], Input=[w, merged, lr]) role=optimize {sub_block=block(1), is_scalar_condition=true}
    block 1:
)",
                      reduce, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[merged], LearningRate=[lr]) role=optimize
    Out=[merged] = fill_constant() role=optimize {shape=longs[1, 1], dtype=5, value=0.0}
)");
}

// Ranks divide what is accumulated. What one device multiplies by, too, as the backward pass of
// scaled attention does, is no such division.
TEST(Equivalence, FactorsOfBackwardDoNotDivideWhatIsAccumulated) {
  constexpr char kSum[] =
      "    Out=[merged] = c_allreduce_sum(X=[merged]) {ring_id=0, use_calc_stream=true}\n";
  constexpr char kMean[] =
      "    Out=[merged] = c_allreduce_avg(X=[merged]) {ring_id=0, use_calc_stream=true}\n";
  for (const char* factor : {"scale=1.0", "scale=0.125", "scale=3.0"}) {
    const std::string one_device = AccumulatingStep(factor, "", "");
    EXPECT_THAT(Differences(one_device, AccumulatingStep(factor, kStepDivide, kSum)),
                Not(Contains(HasSubstr("W60"))))
        << factor;
    EXPECT_THAT(Differences(one_device, AccumulatingStep(factor, "", kMean)),
                Not(Contains(HasSubstr("W60"))))
        << factor;
    EXPECT_THAT(Differences(one_device, AccumulatingStep("scale=0.75", "", kMean)),
                Contains(HasSubstr("W601")))
        << factor;
  }
}

TEST(Equivalence, GatheredGradientsAreAMeanIfEveryRankCountsOnce) {
  const std::string gathered = OneDeviceStep(
      R"(    Out=[all] = c_allgather(X=[w@GRAD]) {nranks=2, ring_id=0, use_calc_stream=true}
    Out=[a, b] = split(X=[all]) {num=2, axis=0}
    Out=[w@GRAD] = sum(X=[a, b])
    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=0.5, nranks=2}
)",
      "",
      R"(    var all : fp32[2, 1]
    var a : fp32[1, 1]
)");
  EXPECT_THAT(Differences(OneDeviceStep(), gathered), IsEmpty());
  const std::string twice = absl::StrReplaceAll(gathered, {{"sum(X=[a, b])", "sum(X=[a, a])"}});
  EXPECT_THAT(Differences(OneDeviceStep(), twice),
              AllOf(Contains(HasSubstr("W311")), Contains(HasSubstr("W601"))));
}

TEST(Equivalence, ClippingComesAfterTheMean) {
  const std::string clip = "    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}\n";
  const std::string update = kStepUpdate;
  const std::string reduce = "    Out=[w@GRAD] = c_allreduce_sum";
  const std::string original = absl::StrReplaceAll(OneDeviceStep(), {{update, clip + update}});
  EXPECT_THAT(Differences(original, absl::StrReplaceAll(TwoRankStep(), {{update, clip + update}})),
              IsEmpty());
  EXPECT_THAT(Differences(original, absl::StrReplaceAll(TwoRankStep(), {{reduce, clip + reduce}})),
              AllOf(Contains(HasSubstr("W313")), Contains(HasSubstr("W601"))));
}

TEST(Equivalence, PartsOfAGradientMayBeReducedAlone) {
  const auto step = [](const std::string& ops) {
    const std::string split = "    Out=[a, b] = split(X=[w@GRAD]) role=backward {num=2, axis=1}\n";
    return absl::StrReplaceAll(
        OneDeviceStep(ops.empty() ? "" : split + ops),
        {{"w : fp32[1, 1]", "w : fp32[1, 2]"}, {"longs[4, 1]", "longs[4, 2]"}});
  };
  const std::string reduce_a =
      "    Out=[a] = c_allreduce_avg(X=[a]) role=backward {use_calc_stream=true}\n";
  const std::string reduce_b = absl::StrReplaceAll(reduce_a, {{"[a]", "[b]"}});
  const auto join = [](const char* parts) {
    return absl::StrCat("    Out=[w@GRAD] = concat(X=[", parts, "]) role=backward {axis=1}\n");
  };
  EXPECT_THAT(Differences(step(""), step(reduce_a + reduce_b + join("a, b"))), IsEmpty());
  EXPECT_THAT(Differences(step(""), step(reduce_a + join("a, b"))), Contains(HasSubstr("W310")));
  for (const char* parts : {"b, a", "a, a"}) {
    EXPECT_THAT(Differences(step(""), step(reduce_a + reduce_b + join(parts))),
                Contains(HasSubstr("W601")));
  }
}

// A sign, or a gradient divided by its norm, is the same for every positive multiple.
TEST(Equivalence, ASignLosesTheNumberOfRanks) {
  const std::string update = absl::StrReplaceAll(kStepUpdate, {{"Grad=[w@GRAD]", "Grad=[s]"}});
  const auto with = [&](const std::string& program, const std::string& ops) {
    return absl::StrReplaceAll(program,
                               {{kStepUpdate, ops + update}, {kStepVars, absl::StrCat(kStepVars, R"(
    var a, n, s : fp32[1, 1]
)")}});
  };
  const std::string sum = OneDeviceStep(kStepSum);
  const std::string norm = R"(
    Out=[a] = abs(X=[w@GRAD]) role=optimize
    Out=[n] = reduce_max(X=[a]) role=optimize {dim=ints[0], keep_dim=true}
)";
  const std::string divide = "    Out=[s] = elementwise_div(X=[w@GRAD], Y=[n]) role=optimize\n";
  for (const std::string& ops :
       {std::string("    Out=[s] = sign(X=[w@GRAD]) role=optimize\n"), norm + divide}) {
    const std::string original = with(OneDeviceStep(), ops);
    EXPECT_THAT(Differences(original, with(sum, ops)), IsEmpty());
    EXPECT_THAT(Differences(original, with(TwoRankStep(), ops)), IsEmpty());
    EXPECT_THAT(Differences(original, original), Contains(HasSubstr("W310")));
  }
  const std::string more = "    Out=[n] = scale(X=[n]) role=optimize {scale=1.0, bias=1e-03}\n";
  for (const std::string& ops : {norm + more + divide,  // another number of each multiple
                                 std::string("    Out=[s] = abs(X=[w@GRAD]) role=optimize\n")}) {
    EXPECT_THAT(Differences(with(OneDeviceStep(), ops), with(sum, ops)),
                Contains(HasSubstr("W601")));
  }
  const std::string sign = "    Out=[s] = sign(X=[a]) role=optimize\n";
  const auto times = [](const char* factor) {
    return absl::StrCat("    Out=[a] = scale(X=[w@GRAD]) role=optimize {scale=", factor, "}\n");
  };
  const std::string original = with(OneDeviceStep(), times("1.0") + sign);
  EXPECT_THAT(Differences(original, with(sum, times("3.0") + sign)), IsEmpty());
  EXPECT_THAT(Differences(original, with(sum, times("-1.0") + sign)), Contains(HasSubstr("W601")));
}

// A step for two gradients whose loss scale follows what is not finite.
std::string ScaledStep(absl::string_view searched, absl::string_view zeroed) {
  return absl::StrCat(
      R"(
    var v, w : fp32[2] parameter persistable
    var lr, scale : fp32[1] persistable
    var good, bad : int32[1] persistable
    var gv, gw : fp32[2]
    Out=[gv] = fill_constant() role=backward {shape=longs[2], dtype=5, value=1.0}
    Out=[gw] = fill_constant() role=backward {shape=longs[2], dtype=5, value=2.0}
    Out=)",
      searched, ", FoundInfinite=[found] = check_finite_and_unscale(X=", searched,
      R"(, Scale=[scale]) role=optimize
    Out=)",
      zeroed,
      ", LossScaling=[scale], OutGoodSteps=[good], OutBadSteps=[bad] = "
      "update_loss_scaling(X=",
      zeroed,
      R"(, FoundInfinite=[found], PrevLossScaling=[scale], InGoodSteps=[good], InBadSteps=[bad]) role=optimize {incr_every_n_steps=4, decr_every_n_nan_or_inf=1, incr_ratio=2.0, decr_ratio=0.5}
    ParamOut=[v] = sgd(Param=[v], Grad=[gv], LearningRate=[lr]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[gw], LearningRate=[lr]) role=optimize
)");
}

TEST(Equivalence, GradientsShareALossScaleInAnyOrder) {
  const std::string original = ScaledStep("[gv, gw]", "[gv, gw]");
  EXPECT_THAT(Differences(original, ScaledStep("[gw, gv]", "[gw, gv]")), IsEmpty());
  EXPECT_THAT(Differences(original, ScaledStep("[gv]", "[gv, gw]")), Not(IsEmpty()));
  // In which order they are searched decides what is left where one is not finite.
  EXPECT_THAT(Differences(ScaledStep("[gv, gw]", "[gv]"), ScaledStep("[gw, gv]", "[gv]")),
              Not(IsEmpty()));
}

// A search that tells nobody what it has found is any function of its list.
TEST(Equivalence, ASearchMayHaveNoFlag) {
  const auto step = [](const std::string& searched) {
    const std::string scaled = absl::StrReplaceAll(
        ScaledStep(searched, "[gv]"), {{", FoundInfinite=[found] = check", " = check"}});
    const size_t update = scaled.find("    Out=[gv], LossScaling");
    return scaled.substr(0, update) + scaled.substr(scaled.find("    ParamOut=[v]"));
  };
  EXPECT_THAT(Differences(step("[gv, gw]"), step("[gv, gw]")), IsEmpty());
  EXPECT_THAT(Differences(step("[gv, gw]"), step("[gw, gv]")), Not(IsEmpty()));
}

// Meant per rank, a clip is no mistake, but what it gives is not what one device has.
TEST(Equivalence, ClippingPerRankIsNotClippingTheMean) {
  const std::string clip =
      "    Out=[w@GRAD] = clip(X=[w@GRAD]) role=backward {min=-1.0, max=1.0, per_rank=true}\n";
  const std::string update = kStepUpdate;
  const std::string reduce = "    Out=[w@GRAD] = c_allreduce_sum";
  const std::string original = absl::StrReplaceAll(OneDeviceStep(), {{update, clip + update}});
  const std::string per_rank = absl::StrReplaceAll(TwoRankStep(), {{reduce, clip + reduce}});
  EXPECT_THAT(Differences(original, per_rank),
              AllOf(Not(Contains(HasSubstr("W313"))), Contains(HasSubstr("W60"))));
  // Only elementwise functions can be meant so.
  const std::string softmax =
      "    Out=[w@GRAD] = softmax(X=[w@GRAD]) role=backward {axis=-1, per_rank=true}\n";
  EXPECT_THAT(Differences(OneDeviceStep(),
                          absl::StrReplaceAll(TwoRankStep(), {{reduce, softmax + reduce}})),
              Contains(HasSubstr("W313")));
}

// A step that updates by a gradient times a number made of its rows, or of the dense gradient.
std::string ScaledByItself(bool has_rows, absl::string_view number) {
  const std::string take = has_rows ? R"(
    Out=[merged] = merge_selected_rows(X=[w@GRAD]) role=optimize
    Out=[values] = get_tensor_from_selected_rows(X=[merged]) role=optimize
)"
                                    : R"(
    Out=[merged] = assign(X=[w@GRAD]) role=optimize
    Out=[values] = assign(X=[merged]) role=optimize
)";
  const std::string type = has_rows ? "selected_rows<fp32[100, 2]>" : "fp32[100, 2]";
  return absl::StrCat(R"(
    var w : fp32[100, 2] parameter persistable
    var lr : fp32[1] persistable
    var values : fp32[100, 2]
    var number : fp32[1]
    var w@GRAD : )",
                      type, "\n    var merged : ", type, R"(
    Out=[ids] = fill_constant() {shape=longs[5], dtype=3, value=7.0}
    Out=[y@GRAD] = fill_constant() role=backward {shape=longs[5, 2], dtype=5, value=1.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD] {is_sparse=)",
                      has_rows ? "true}" : "false}", take, "    Out=[number] = ", number,
                      R"((X=[values]) role=optimize
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[number]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)");
}

TEST(Equivalence, ANormOfRowsIsThatOfTheDenseGradientAndAMeanIsNot) {
  EXPECT_THAT(Differences(ScaledByItself(true, "squared_l2_norm"),
                          ScaledByItself(false, "squared_l2_norm")),
              IsEmpty());
  EXPECT_THAT(Differences(ScaledByItself(true, "mean"), ScaledByItself(false, "mean")),
              Contains(HasSubstr("W601")));
}

TEST(Equivalence, ANormOfRowsThatAreNotMergedIsAnother) {
  const std::string merged = ScaledByItself(true, "squared_l2_norm");
  const std::string apart = absl::StrReplaceAll(
      merged,
      {{"get_tensor_from_selected_rows(X=[merged])", "get_tensor_from_selected_rows(X=[w@GRAD])"}});
  EXPECT_THAT(Differences(apart, apart), IsEmpty());
  EXPECT_THAT(Differences(merged, apart), Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(ScaledByItself(false, "squared_l2_norm"), apart),
              Contains(HasSubstr("W601")));
}

TEST(Equivalence, RowsStayMergedOrNotInCopiesMultiplesAndSums) {
  constexpr char kTake[] = "    Out=[values] = get_tensor_from_selected_rows(X=[merged])";
  const std::string merged = ScaledByItself(true, "squared_l2_norm");
  const std::string role = " role=optimize";
  for (const std::string& op :
       {"Out=[merged] = assign(X=[merged])" + role, "Out=[merged] = sum(X=[merged])" + role,
        "Out=[merged] = scale(X=[merged])" + role + " {scale=0.5}",
        "Out=[merged] = elementwise_mul(X=[merged], Y=[lr])" + role,
        "Out=[merged] = sum(X=[merged, merged])" + role}) {
    const std::string kept =
        absl::StrReplaceAll(merged, {{kTake, absl::StrCat("    ", op, "\n", kTake)}});
    const std::string apart =
        absl::StrReplaceAll(kept, {{"merge_selected_rows(X=[w@GRAD])", "assign(X=[w@GRAD])"}});
    EXPECT_NE(kept, apart);
    EXPECT_THAT(Differences(kept, kept), IsEmpty()) << op;
    EXPECT_THAT(Differences(apart, apart), IsEmpty()) << op;
    EXPECT_THAT(Differences(kept, apart), Contains(HasSubstr("W601"))) << op;
  }
  // Rows of one index twice, or once with twice the value: other norms.
  const auto with = [&](const std::string& op) {
    return absl::StrReplaceAll(merged, {{kTake, absl::StrCat("    ", op, "\n", kTake)}});
  };
  const std::string twice = with("Out=[merged] = sum(X=[merged, merged]) role=optimize");
  const std::string doubled = with("Out=[merged] = scale(X=[merged]) role=optimize {scale=2.0}");
  const std::string merged_twice = with(
      "Out=[merged] = sum(X=[merged, merged]) role=optimize\n"
      "    Out=[merged] = merge_selected_rows(X=[merged]) role=optimize");
  EXPECT_THAT(Differences(doubled, twice), Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(doubled, merged_twice), IsEmpty());
}

// Rows of one index on several ranks become their sum.
TEST(Equivalence, AnAllReduceMergesRows) {
  constexpr char kMerge[] = "    Out=[merged] = merge_selected_rows(X=[w@GRAD]) role=optimize";
  constexpr char kCopy[] = "    Out=[merged] = assign(X=[w@GRAD]) role=optimize";
  constexpr char kReduce[] =
      "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const std::string merged = ScaledByItself(true, "squared_l2_norm");
  const std::string apart = absl::StrReplaceAll(merged, {{kMerge, kCopy}});
  const auto reduced = [&](const std::string& merge) {
    return absl::StrReplaceAll(merged, {{kMerge, absl::StrCat(kReduce, merge)}});
  };
  EXPECT_THAT(Differences(merged, reduced(kMerge)), IsEmpty());
  EXPECT_THAT(Differences(merged, reduced(kCopy)), IsEmpty());
  EXPECT_THAT(Differences(apart, reduced(kMerge)), Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(apart, reduced(kCopy)), Contains(HasSubstr("W601")));
  // What was merged is so after the sum.
  const std::string late = absl::StrReplaceAll(
      merged, {{kMerge, absl::StrCat(kMerge, "\n",
                                     "    Out=[merged] = c_allreduce_avg(X=[merged]) "
                                     "role=optimize {use_calc_stream=true}")}});
  EXPECT_THAT(Differences(merged, late), IsEmpty());
}

TEST(Equivalence, AFunctionOfEachRowDiffersBeforeAndAfterAMerge) {
  constexpr char kMerge[] = "    Out=[merged] = merge_selected_rows(X=[w@GRAD]) role=optimize";
  const std::string merged = ScaledByItself(true, "squared_l2_norm");
  const auto with = [&](absl::string_view type, absl::string_view attrs, bool merges) {
    return absl::StrReplaceAll(
        merged,
        {{kMerge, absl::StrCat(merges ? kMerge
                                      : "    Out=[merged] = assign(X=[w@GRAD]) "
                                        "role=optimize",
                               "\n    Out=[merged] = ", type, "(X=[merged]) role=optimize ", attrs,
                               "\n    Out=[merged] = merge_selected_rows(X=[merged]) "
                               "role=optimize")}});
  };
  EXPECT_THAT(Differences(with("square", "", true), with("square", "", false)),
              Contains(HasSubstr("W601")));
  // An all-reduce merges them.
  constexpr char kReduce[] =
      "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const auto reduced = [&](const std::string& program) {
    const size_t at = program.find("    Out=[merged] = ");
    return absl::StrCat(program.substr(0, at), kReduce, program.substr(at));
  };
  const std::string apart = with("square", "", false);
  EXPECT_THAT(Differences(apart, reduced(apart)), Contains(HasSubstr("W601")));
  EXPECT_THAT(Differences(with("square", "", true), reduced(apart)), IsEmpty());
  // It merges them first.
  constexpr char kNorm[] = "{max_norm=1.0}";
  EXPECT_THAT(Differences(with("clip_by_norm", kNorm, true), with("clip_by_norm", kNorm, false)),
              IsEmpty());
}

// An update by a gradient with rows, or by the dense one.
std::string UpdateByRows(bool has_rows, absl::string_view update) {
  return absl::StrCat(R"(
    var w : fp32[100, 2] parameter persistable
    var m, n : fp32[100, 2] persistable
    var lr, p, q : fp32[1] persistable
    var w@GRAD : )",
                      has_rows ? "selected_rows<fp32[100, 2]>" : "fp32[100, 2]", R"(
    Out=[ids] = fill_constant() {shape=longs[5], dtype=3, value=7.0}
    Out=[y@GRAD] = fill_constant() role=backward {shape=longs[5, 2], dtype=5, value=1.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD] {is_sparse=)",
                      has_rows ? "true}\n" : "false}\n", "    ", update, "\n");
}

TEST(Equivalence, AnUpdateOfTheRowsAloneDiffersFromThatByADenseGradient) {
  const std::string adam =
      "ParamOut=[w], Moment1Out=[m], Moment2Out=[n], Beta1PowOut=[p], Beta2PowOut=[q] = "
      "adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[n], Beta1Pow=[p], "
      "Beta2Pow=[q]) role=optimize";
  const std::string ftrl =
      "ParamOut=[w], SquaredAccumOut=[m], LinearAccumOut=[n] = ftrl(Param=[w], Grad=[w@GRAD], "
      "LearningRate=[lr], SquaredAccumulator=[m], LinearAccumulator=[n]) role=optimize";
  const std::string sgd =
      "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize";
  for (const std::string& update : {adam + " {lazy_mode=true}", ftrl}) {
    for (const bool has_rows : {true, false}) {
      const std::string original = UpdateByRows(has_rows, update);
      EXPECT_THAT(Differences(original, original), Not(Contains(HasSubstr("W60")))) << original;
      EXPECT_THAT(Differences(original, UpdateByRows(!has_rows, update)),
                  Contains(AllOf(HasSubstr("W601: variable w"), HasSubstr("rows("))))
          << original;
    }
  }
  for (const std::string& update : {adam + " {lazy_mode=false}", sgd}) {
    EXPECT_THAT(Differences(UpdateByRows(true, update), UpdateByRows(false, update)),
                Not(Contains(HasSubstr("W60"))))
        << update;
  }
}

TEST(Equivalence, RowsOfZerosCountForAnUpdateOfTheRowsAlone) {
  const std::string original = UpdateByRows(
      true,
      "Out=[zeros] = scale(X=[w@GRAD]) role=backward {scale=0.0}\n"
      "    Out=[w@GRAD] = sum(X=[w@GRAD, zeros]) role=backward\n"
      "    ParamOut=[w], SquaredAccumOut=[m], LinearAccumOut=[n] = ftrl(Param=[w], Grad=[w@GRAD], "
      "LearningRate=[lr], SquaredAccumulator=[m], LinearAccumulator=[n]) role=optimize");
  const auto of = [&](absl::string_view type) {
    return absl::StrReplaceAll(
        original, {{"    var lr", absl::StrCat("    var zeros : ", type, "\n    var lr")}});
  };
  const std::string rows = of("selected_rows<fp32[100, 2]>");
  EXPECT_THAT(Differences(rows, rows), IsEmpty());
  EXPECT_THAT(Differences(rows, absl::StrReplaceAll(rows, {{"w@GRAD, zeros", "w@GRAD"}})),
              Contains(HasSubstr("W601: variable w")));
}

// A gradient may be rounded on its way if the caller says so; a parameter may not.
TEST(Equivalence, OnlyGradientsMayBeRounded) {
  const auto rounded = [](const std::string& name) {
    return absl::StrCat("    Out=[half] = cast(X=[", name,
                        "]) role=backward {in_dtype=5, out_dtype=4}\n    Out=[", name,
                        "] = cast(X=[half]) role=backward {in_dtype=4, out_dtype=5}\n");
  };
  const std::string reduce = "    Out=[w@GRAD] = c_allreduce_sum";
  const std::string update = kStepUpdate;
  VerifyOptions options = ForRanks(2);
  for (const bool may_round : {false, true}) {
    options.setting.gradients_are_rounded = may_round;
    const auto differences = [&](const std::string& before, const std::string& name) {
      const std::string two =
          absl::StrReplaceAll(TwoRankStep(), {{before, rounded(name) + before}});
      EXPECT_THAT(two, HasSubstr("half"));
      return Differences(OneDeviceStep(), two, options);
    };
    EXPECT_THAT(differences(reduce, "w@GRAD").empty(), may_round);
    EXPECT_THAT(differences(update, "w"), Contains(HasSubstr("W601")));
  }
}

TEST(Equivalence, SumsMayBeReassociated) {
  const std::string update = kStepUpdate;
  const auto with = [&](const std::string& program, const std::string& ops) {
    return absl::StrReplaceAll(program, {{update, ops + update}});
  };
  const std::string shared = "    Out=[v@GRAD] = square(X=[w])\n";
  EXPECT_THAT(
      Differences(with(OneDeviceStep(), shared + "    Out=[w@GRAD] = sum(X=[w@GRAD, v@GRAD])\n"),
                  with(TwoRankStep(), shared + "    Out=[w@GRAD] = elementwise_add(X=[v@GRAD], "
                                               "Y=[w@GRAD])\n")),
      IsEmpty());
}

// --- Values of some ranks ------------------------------------------------------------------------

TEST(Equivalence, TheStateOfOneRankIsNotThatOfOneDevice) {
  const std::string statistic = "    Out=[size] = reduce_mean(X=[x]) {reduce_all=true}\n";
  const std::string var = "    var size : fp32[1] persistable\n";
  const auto step = [&](const std::string& more) {
    return OneDeviceStep("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {use_calc_stream=true}\n",
                         statistic + more, var);
  };
  const std::string original = OneDeviceStep("", statistic, var);
  EXPECT_THAT(Differences(original, step("")), Not(Contains(HasSubstr("error"))));
  EXPECT_THAT(Differences(original, step("    Out=[size] = c_broadcast(X=[size]) "
                                         "{root=1, use_calc_stream=true}\n")),
              Contains(AllOf(HasSubstr("W602"), HasSubstr("rank_1_of"))));
}

// --- Values of branches --------------------------------------------------------------------------

// Runs block `block` if `due`.
std::string If(int block, absl::string_view out) {
  return absl::StrCat("    Out=[", out,
                      "], Scope=[scope] = conditional_block(Cond=[due], Input=[]) ",
                      "{sub_block=block(", block, "), is_scalar_condition=true}\n");
}

constexpr char kBranchVars[] = "    var due : bool[1] persistable\n    var scope : step_scopes\n";
constexpr char kStepMean[] =
    "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n";

TEST(Equivalence, AGradientOfABranchIsAnotherUnlessTheUpdateHasTheSameCondition) {
  const std::string start = absl::StrCat(kStepVars, kBranchVars, kStepLossGrad);
  const std::string moved =
      absl::StrCat(start, If(1, "w@GRAD"), kStepMean, kStepUpdate, "    block 1:\n", kStepBackward);
  const std::vector<std::string> lines = Differences(OneDeviceStep(), moved);
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("W107"), HasSubstr("w@GRAD"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("W601: variable w"), HasSubstr("select(due"))));
  // One device also updates by the gradient of an earlier step.
  EXPECT_THAT(Differences(absl::StrReplaceAll(moved, {{kStepMean, ""}}), moved),
              Not(Contains(HasSubstr("W60"))));
  const std::string guarded = absl::StrCat(start, If(1, "w@GRAD"), If(2, "w"), "    block 1:\n",
                                           kStepBackward, "    block 2:\n", kStepUpdate);
  EXPECT_THAT(
      Differences(guarded,
                  absl::StrReplaceAll(
                      guarded, {{"    block 2:\n", absl::StrCat("    block 2:\n", kStepMean)}})),
      IsEmpty());
}

// Runs block 1 while `due`.
std::string Looping(absl::string_view inputs, absl::string_view outputs, absl::string_view start,
                    absl::string_view body) {
  return absl::StrCat(R"(
    var due : bool[1] persistable
    var scope : step_scopes
    var a, b : fp32[2] need_check_feed
    var u, v : fp32[2] persistable
    var s, t : fp32[2]
)",
                      start, "    Out=[", outputs,
                      "], StepScopes=[scope] = while(Condition=[due], X=[", inputs,
                      R"(]) {sub_block=block(1)}
    Out=[u] = assign(X=[s])
    Out=[v] = assign(X=[t])
    block 1:
)",
                      body, "    Out=[due] = less_than(X=[due], Y=[due])\n");
}

TEST(Equivalence, ABranchOnTheOppositeConditionMaySwapItsValues) {
  const auto step = [](absl::string_view first, absl::string_view condition,
                       absl::string_view inside) {
    return absl::StrCat(R"(
    var due : bool[1] persistable
    var not_due : bool[1]
    var scope : step_scopes
    var a, b : fp32[2] need_check_feed
    var u : fp32[2] persistable
    Out=[not_due] = logical_not(X=[due])
    Out=[u] = assign(X=[)",
                        first, "])\n    Out=[u], Scope=[scope] = conditional_block(Cond=[",
                        condition,
                        "], Input=[]) {sub_block=block(1), is_scalar_condition=true}\n"
                        "    block 1:\n    Out=[u] = exp(X=[",
                        inside, "])\n    Out=[u] = assign(X=[", inside, "])\n");
  };
  const std::string original = step("a", "due", "b");
  EXPECT_THAT(Differences(original, step("b", "not_due", "a"), ForRanks(1)), IsEmpty());
  EXPECT_THAT(Differences(original, step("a", "not_due", "b"), ForRanks(1)),
              Contains(HasSubstr("W602")));
}

// A step with a branch on each of two conditions: one updates w, the other makes it smaller.
std::string Branching(absl::string_view conditions, absl::string_view first,
                      absl::string_view first_condition, absl::string_view second,
                      absl::string_view second_condition) {
  const auto branch = [](absl::string_view condition, int block) {
    return absl::StrCat("    Out=[w], Scope=[scope] = conditional_block(Cond=[", condition,
                        "], Input=[w]) {sub_block=block(", block, "), is_scalar_condition=true}\n");
  };
  return absl::StrCat(R"(
    var t : int64[1] persistable
    var five, six : int64[1]
    var due, not_due, late : bool[1]
    var scope : step_scopes
    var a : fp32[2] need_check_feed
    var w, v : fp32[2] persistable
    Out=[t] = increment(X=[t]) {step=1.0}
    Out=[five] = fill_constant() {shape=longs[1], dtype=3, value=5.0}
    Out=[six] = fill_constant() {shape=longs[1], dtype=3, value=6.0}
    Out=[due] = less_than(X=[t], Y=[five])
)",
                      conditions, branch(first_condition, 1), branch(second_condition, 2),
                      "    block 1:\n", first, "    block 2:\n", second);
}

TEST(Equivalence, BranchesOfWhichOneRunsHaveNoOrder) {
  constexpr char kNot[] = "    Out=[not_due] = logical_not(X=[due])\n";
  constexpr char kOther[] = "    Out=[not_due] = less_than(X=[five], Y=[t])\n";
  constexpr char kAdd[] = "    Out=[w] = elementwise_add(X=[w], Y=[v])\n";
  constexpr char kExp[] = "    Out=[w] = exp(X=[w])\n";
  constexpr char kHalve[] = "    Out=[w] = scale(X=[w]) {scale=0.5}\n";
  constexpr char kSetV[] = "    Out=[v] = exp(X=[w])\n    Out=[w] = exp(X=[v])\n";
  for (const char* second : {kExp, kHalve, kSetV}) {
    SCOPED_TRACE(second);
    const std::string original = Branching(kNot, kAdd, "due", second, "not_due");
    const auto found = [&](const std::string& main) {
      return Differences(original, main, ForRanks(1));
    };
    EXPECT_THAT(found(Branching(kNot, second, "not_due", kAdd, "due")), IsEmpty());
    EXPECT_THAT(found(Branching(kNot, second, "due", kAdd, "not_due")),
                Contains(HasSubstr("W602")));
    EXPECT_THAT(found(Branching(kNot, second, "due", kAdd, "due")), Contains(HasSubstr("W602")));
    EXPECT_THAT(found(Branching(kOther, second, "not_due", kAdd, "due")),
                Contains(HasSubstr("W602")));
    // A condition that is computed anew in between is another one.
    const std::string between = absl::StrCat(kNot, "    Out=[due] = less_than(X=[t], Y=[six])\n");
    EXPECT_THAT(found(Branching(between, second, "not_due", kAdd, "due")),
                Contains(HasSubstr("W602")));
  }
  // Both may run.
  for (const char* conditions : {kOther, "    Out=[not_due] = less_than(X=[t], Y=[six])\n"}) {
    EXPECT_THAT(Differences(Branching(conditions, kAdd, "due", kHalve, "not_due"),
                            Branching(conditions, kHalve, "not_due", kAdd, "due"), ForRanks(1)),
                Contains(HasSubstr("W602")));
  }
}

// Only ranks with a condition of one value for all of them may follow it so.
TEST(Equivalence, TheMeanOfAConditionOverTheRanksIsNoConditionOfARank) {
  const auto step = [](absl::string_view reduces, absl::string_view first,
                       absl::string_view second) {
    return absl::StrCat(R"(
    var x : fp32[-1, 2] need_check_feed
    var m, k : fp32[]
    var due, late, not_late : bool[]
    var scope : step_scopes
    var w, v : fp32[2] persistable
    Out=[m] = mean(X=[x])
    Out=[k] = fill_constant() {shape=longs[], dtype=5, value=0.5}
    Out=[due] = less_than(X=[m], Y=[k])
)",
                        reduces, R"(    Out=[late] = less_than(X=[m], Y=[k])
    Out=[not_late] = logical_not(X=[late])
    Out=[w], Scope=[scope] = conditional_block(Cond=[)",
                        first, R"(], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[w], Scope=[scope] = conditional_block(Cond=[)",
                        second, R"(], Input=[w]) {sub_block=block(2), is_scalar_condition=true}
    block 1:
    Out=[w] = )",
                        first == "due" ? "elementwise_add(X=[w], Y=[v])" : "exp(X=[w])",
                        "\n    block 2:\n    Out=[w] = ",
                        second == "due" ? "elementwise_add(X=[w], Y=[v])\n" : "exp(X=[w])\n");
  };
  constexpr char kAverage[] = "    Out=[m] = c_allreduce_avg(X=[m]) {use_calc_stream=true}\n";
  // Where both are of the rank, or both the mean.
  EXPECT_THAT(Differences(step("", "due", "not_late"), step("", "not_late", "due"), ForRanks(1)),
              IsEmpty());
  EXPECT_THAT(
      Differences(step("", "due", "not_late"), step(kAverage, "not_late", "due"), ForRanks(2)),
      Contains(HasSubstr("W602")));
}

TEST(Equivalence, ALoopMayRunZeroTimes) {
  constexpr char kStart[] = "    Out=[s] = assign(X=[a])\n    Out=[t] = assign(X=[b])\n";
  constexpr char kOtherStart[] = "    Out=[s] = assign(X=[b])\n    Out=[t] = assign(X=[b])\n";
  constexpr char kBody[] = "    Out=[s] = exp(X=[a])\n    Out=[t] = exp(X=[t])\n";
  const std::string original = Looping("a, t", "s, t", kStart, kBody);
  EXPECT_THAT(Differences(original, original, ForRanks(1)), IsEmpty());
  EXPECT_THAT(Differences(original, Looping("a, t", "s, t", kOtherStart, kBody), ForRanks(1)),
              Contains(HasSubstr("variable u")));
}

TEST(Equivalence, OrderInWhichAnOpListsWhatItsBlockUsesDoesNotMatter) {
  constexpr char kStart[] = "    Out=[s] = assign(X=[a])\n    Out=[t] = assign(X=[b])\n";
  constexpr char kBody[] =
      "    Out=[s] = elementwise_sub(X=[s], Y=[a])\n    Out=[t] = elementwise_sub(X=[s], Y=[t])\n";
  const std::string original = Looping("a, s, t", "s, t", kStart, kBody);
  for (const char* inputs : {"s, a, t", "t, s, a"}) {
    EXPECT_THAT(Differences(original, Looping(inputs, "t, s", kStart, kBody), ForRanks(1)),
                IsEmpty());
  }
  EXPECT_THAT(Differences(original, Looping("a, s, t", "s, b", kStart, kBody), ForRanks(1)),
              Not(IsEmpty()));
  // The block does not use a and b.
  constexpr char kOwn[] = "    Out=[s] = exp(X=[s])\n    Out=[t] = sqrt(X=[t])\n";
  constexpr char kSwapped[] = "    Out=[s] = sqrt(X=[s])\n    Out=[t] = exp(X=[t])\n";
  const std::string unused = Looping("a, b, s, t", "s, t", kStart, kOwn);
  EXPECT_THAT(Differences(unused, Looping("b, s, a, t", "s, t", kStart, kOwn), ForRanks(1)),
              IsEmpty());
  EXPECT_THAT(Differences(unused, Looping("b, s, a, t", "s, t", kStart, kSwapped), ForRanks(1)),
              Not(IsEmpty()));
}

// --- States of blocks ----------------------------------------------------------------------------

// Counts in a variable that block 1 declares.
std::string Counting(absl::string_view op, absl::string_view step) {
  return absl::StrCat(R"(
    var due : bool[1] persistable
    var one : fp32[1] persistable
    var scope : step_scopes
    Out=[one], )",
                      op, R"( {sub_block=block(1), is_scalar_condition=true}
    block 1:
    var count : fp32[1] persistable
    Out=[count] = increment(X=[count]) {step=)",
                      step, R"(}
    Out=[one] = assign(X=[one])
)");
}

TEST(Equivalence, StatesThatBlocksDeclareAreCompared) {
  for (absl::string_view op : {"Scope=[scope] = conditional_block(Cond=[due], Input=[one])",
                               "StepScopes=[scope] = while(Condition=[due], X=[one])"}) {
    const std::string original = Counting(op, "1.0");
    EXPECT_THAT(Differences(original, original), Not(Contains(HasSubstr("error")))) << op;
    EXPECT_THAT(Differences(original, Counting(op, "7.0")),
                Contains(AllOf(HasSubstr("error: W60"), HasSubstr("variable count"))))
        << op;
    EXPECT_THAT(Differences(original, absl::StrReplaceAll(original, {{"count : fp32[1] persistable",
                                                                      "count : fp32[1]"}})),
                Contains(AllOf(HasSubstr("W603"), HasSubstr("variable count"))))
        << op;
    // Two declarations of one variable.
    EXPECT_THAT(Differences(original,
                            absl::StrReplaceAll(original, {{"    var due",
                                                            "    var count : fp32[1] persistable\n"
                                                            "    var due"}})),
                Contains(AllOf(HasSubstr("W607"), HasSubstr("variable count"))))
        << op;
  }
}

// --- LocalSGD ----------------------------------------------------------------------------------

std::string LocalStep() {
  return OneDeviceStep("",
                       R"(    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0, use_calc_stream=true}
    Out=[w] = scale(X=[w]) {scale=0.5, nranks=2}
)");
}

TEST(Equivalence, ParametersMayBeAveragedInsteadOfGradients) {
  EXPECT_THAT(Differences(OneDeviceStep(), LocalStep()), IsEmpty());
}

TEST(Equivalence, ParametersThatAreSummedAreAnotherValue) {
  const std::string summed = absl::StrReplaceAll(LocalStep(), {{"scale=0.5", "scale=1.0"}});
  EXPECT_THAT(Differences(OneDeviceStep(), summed), Contains(HasSubstr("W601")));
}

// As Paddle writes it: the mean of how far every rank went.
TEST(Equivalence, ParametersMayBeAveragedThroughASnapshot) {
  const std::string snapshot =
      OneDeviceStep("", R"(    Out=[w] = elementwise_sub(X=[s], Y=[w]) role=optimize
    Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=0, use_calc_stream=true}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.5}
    Out=[w] = elementwise_sub(X=[s], Y=[w]) role=optimize
    Out=[s] = assign(X=[w]) role=optimize
)",
                    "    var s : fp32[1, 1] persistable\n");
  EXPECT_THAT(Differences(OneDeviceStep(), snapshot), IsEmpty());
  const std::string wrong = absl::StrReplaceAll(snapshot, {{"scale=0.5", "scale=0.4"}});
  EXPECT_THAT(Differences(OneDeviceStep(), wrong), Contains(HasSubstr("W601")));
}

// --- Updates of parts ----------------------------------------------------------------------------

// Each rank updates one half of w, by one half of the mean of gradients, and all get both halves.
constexpr absl::string_view kHalves = R"(
    var x : fp32[4] need_check_feed stop_gradient
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var w@GRAD : fp32[4]
    var w_half : fp32[2]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    Out=[w_half@GRAD] = c_reducescatter(X=[w@GRAD]) {ring_id=0, nranks=2, use_calc_stream=true}
    Out=[w_half@GRAD] = scale(X=[w_half@GRAD]) role=backward {scale=0.5, nranks=2}
    Out=[w_half] = c_reducescatter(X=[w]) {ring_id=0, nranks=2, use_calc_stream=true}
    Out=[w_half] = scale(X=[w_half]) role=optimize {scale=0.5, nranks=2}
    ParamOut=[w_half] = sgd(Param=[w_half], Grad=[w_half@GRAD], LearningRate=[lr]) role=optimize
    Out=[w] = c_allgather(X=[w_half]) {ring_id=0, nranks=2, use_calc_stream=true}
)";

constexpr absl::string_view kWhole = R"(
    var x : fp32[4] need_check_feed stop_gradient
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var w@GRAD : fp32[4]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(Equivalence, HalvesThatMakeUpTheUpdateOfTheWhole) {
  const Program original = ProgramOf(kWhole), program = ProgramOf(kHalves);
  EXPECT_THAT(Errors({{&program}}, &original), IsEmpty());
}

TEST(Equivalence, HalvesThatHaveToBeUpdatedByTheMeanGradient) {
  const Program original = ProgramOf(kWhole);
  const Program program = ProgramOf(kHalves, {{"role=backward {scale=0.5, nranks=2}",  //
                                               "role=backward {scale=0.25, nranks=2}"}});
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(StartsWith("error: W312: "), StartsWith("error: W601: ")));
}

// Two tensors, of which each rank has a part of both.
constexpr absl::string_view kTwoTensors = R"(
    var w : fp32[2, 3] parameter persistable
    var b : fp32[2] parameter persistable
    var s, t : fp32[2, 3] persistable
    Out=[s] = tanh(X=[w])
    Out=[t] = relu(X=[w])
)";

// Reads what is gathered once for each use: in two reshapes of a part, or in two splits.
constexpr absl::string_view kTwoReaders = R"(
    var share : fp32[4] persistable
    var s, t : fp32[2, 3] persistable
    var whole : fp32[8]
    var flat, flat2 : fp32[6]
    var b, b2 : fp32[2]
    var w, w2 : fp32[2, 3]
    Out=[whole] = c_allgather(X=[share]) {nranks=2, ring_id=0, use_calc_stream=true}
    Out=[flat, b] = split(X=[whole]) {axis=0, sections=ints[6, 2]}
    Out=[w] = reshape2(X=[flat]) {shape=ints[2, 3]}
    Out=[flat2, b2] = split(X=[whole]) {axis=0, sections=ints[6, 2]}
    Out=[w2] = reshape2(X=[flat2]) {shape=ints[2, 3]}
    Out=[s] = tanh(X=[w])
    Out=[t] = relu(X=[w2])
)";

TEST(Equivalence, GatheredTensorsHaveAnyNumberOfReaders) {
  VerifyOptions options = ForRanks(2);
  options.setting.shares["share"] = {{"w", {2, 3}}, {"b", {2}}};
  const auto differences = [&](const Edits& edits) {
    const Program original = ProgramOf(kTwoTensors), program = ProgramOf(kTwoReaders, edits);
    options.original = {&original, nullptr};
    return Lines(Verify({{&program}}, options));
  };
  EXPECT_THAT(differences({}), IsEmpty());
  EXPECT_THAT(differences({{"reshape2(X=[flat2])", "reshape2(X=[flat])"}}), IsEmpty());
  EXPECT_THAT(differences({{"Out=[flat2, b2] = split(X=[whole]) {axis=0, sections=ints[6, 2]}",
                            "Out=[b2, flat2] = split(X=[whole]) {axis=0, sections=ints[2, 6]}"}}),
              Not(IsEmpty()));
  EXPECT_THAT(differences({{"relu(X=[w2])", "tanh(X=[w2])"}}), Not(IsEmpty()));
  EXPECT_THAT(differences({{"[w2] = reshape2(X=[flat2])", "[w2] = reshape2(X=[s])"}}),
              Not(IsEmpty()));
}

// --- Where only an attribute differs -------------------------------------------------------------

TEST(Equivalence, DifferentAttributesOfAnUpdateAreNamed) {
  const Program original = ProgramOf(kWhole, {{"value=1.0", "value=2.0"}}),
                program = ProgramOf(kHalves);
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("error: W601: variable w, last written by op 7"),
                                HasSubstr("expected 2 *(elementwise_mul_grad#1(fill_constant, "
                                          "x, w)), found elementwise_mul_grad#1("))));
}

constexpr absl::string_view kStatistic = R"(
    var w : fp32[4] persistable
    var largest : fp32[4] persistable
    Out=[largest] = clip(X=[w]) {min=0.0, max=1.0}
)";

TEST(Equivalence, DifferentAttributesOfAStateAreNamed) {
  const Program original = ProgramOf(kStatistic);
  const Program program = ProgramOf(kStatistic, {{"max=1.0", "max=2.0"}});
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("error: W602: variable largest"),
                                HasSubstr("expected clip{max=1.0}(w), found clip{max=2.0}(w)"))));
}

constexpr char kVars[] =
    "    var w : fp32[4] persistable\n    var w@GRAD : fp32[4]\n"
    "    var v : fp32[4] parameter persistable\n    var lr : fp32[1] persistable\n"
    "    var x : fp32[4] need_check_feed\n";
constexpr char kMomentum[] =
    "    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], "
    "LearningRate=[lr]) role=optimize {mu=0.9}\n";

TEST(ComparedVariablesTest, WhatAnOptimizerUpdatesIsAParameterAndItsStateIsNot) {
  const Program program = ProgramOf(absl::StrCat(kVars, kMomentum));
  const ComparedVariables variables(program, {});
  EXPECT_TRUE(variables.IsParam("w"));
  EXPECT_FALSE(variables.IsParam("v"));  // although it is marked as one
  EXPECT_FALSE(variables.IsParam("lr"));
  EXPECT_TRUE(variables.HasOptimizer("w"));
  EXPECT_FALSE(variables.HasOptimizer("v"));
  EXPECT_FALSE(variables.IsSkipped("w"));
}

TEST(ComparedVariablesTest, ShardedParametersAreSkippedWithTheirStates) {
  const Program program = ProgramOf(absl::StrCat(kVars, kMomentum));
  const ComparedVariables variables(program, {"w"});
  EXPECT_TRUE(variables.IsSkipped("w"));
  EXPECT_TRUE(variables.IsSkipped("v"));
  EXPECT_FALSE(variables.IsSkipped("lr"));
}

TEST(ComparedVariablesTest, OtherOpsMayUpdateParameters) {
  const std::string update =
      "    Out=[w] = elementwise_sub(X=[w], Y=[w@GRAD]) role=optimize {axis=-1}\n";
  const Program updated = ProgramOf(absl::StrCat(kVars, update));
  EXPECT_TRUE(ComparedVariables(updated, {}).IsParam("w"));
  // What the forward pass writes is a state.
  const Program written =
      ProgramOf(absl::StrCat(kVars, "    Out=[w] = relu(X=[x]) role=forward\n", update));
  EXPECT_FALSE(ComparedVariables(written, {}).IsParam("w"));
}

bool IsShownByOneWalk(absl::string_view original, absl::string_view rewritten) {
  const Program before = testing::ProgramOf(original), after = testing::ProgramOf(rewritten);
  RankValuesOptions options;
  options.setting.nranks = 2;
  Equivalence equivalence({{&before, nullptr}, {&after, nullptr}, options, ProgramRef()});
  equivalence.AttachTo(&options);
  return equivalence.IsShownBy(RankValues::Of(after, options));
}

TEST(EquivalenceInOneWalk, HoldsForGradientsThatAreReduced) {
  EXPECT_TRUE(IsShownByOneWalk(OneDeviceStep(), TwoRankStep()));
}

TEST(EquivalenceInOneWalk, FailsWhereNothingIsReduced) {
  EXPECT_FALSE(IsShownByOneWalk(OneDeviceStep(), OneDeviceStep()));
}

TEST(EquivalenceInOneWalk, FailsForAnotherUpdate) {
  const std::string clipped = absl::StrReplaceAll(
      TwoRankStep(), {{testing::kStepUpdate,
                       "    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}\n"
                       "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr])\n"}});
  EXPECT_FALSE(IsShownByOneWalk(OneDeviceStep(), clipped));
}

// Mixed precision casts what is fed, whatever its type is.
TEST(Equivalence, DataKeepsItsElementType) {
  const std::string rest =
      "    var h : fp16[4]\n    var s : fp16[4] persistable\n"
      "    Out=[h] = cast(X=[x]) {in_dtype=5, out_dtype=4}\n    Out=[s] = assign(X=[h])\n";
  const std::string single = "    var x : fp32[4] need_check_feed\n" + rest;
  const std::string twice = "    var x : fp64[4] need_check_feed\n" + rest;
  EXPECT_THAT(Differences(single, single, ForRanks(1)), IsEmpty());
  EXPECT_THAT(Differences(single, twice, ForRanks(1)),
              ElementsAre(AllOf(HasSubstr("W608: variable x"),
                                HasSubstr("found one of type fp64 instead of fp32"))));
  const std::string kept = "    var x : fp32[4] persistable need_check_feed\n" + rest;
  EXPECT_THAT(Differences(kept, kept, ForRanks(1)), IsEmpty());
  EXPECT_THAT(
      Differences(single, kept, ForRanks(1)),
      ElementsAre(AllOf(HasSubstr("W608: variable x"), HasSubstr("found a persistable one"))));
}

TEST(Equivalence, HostSetsVariablesAsInTheOriginal) {
  const auto with = [](const std::string& text, const std::string& rate) {
    return absl::StrReplaceAll(text,
                               {{"var lr : fp32[1] persistable", "var lr : fp32[1] " + rate}});
  };
  const std::string scheduled = "persistable {lr_schedule=\"step{learning_rate=1,step_size=9}\"}";
  const auto compare = [&](const std::string& original, const std::string& rewritten) {
    return Differences(with(OneDeviceStep(), original), with(TwoRankStep(), rewritten));
  };
  EXPECT_THAT(compare(scheduled, scheduled), IsEmpty());
  const std::string host = "W602: variable lr: before each step, the host ";
  EXPECT_THAT(compare(scheduled, "persistable"),
              ElementsAre(HasSubstr(host + "does not set it; in the original, it sets it by the")));
  EXPECT_THAT(compare("persistable", scheduled),
              ElementsAre(HasSubstr(host + "sets it by the schedule")));
}

}  // namespace
}  // namespace weft::testing
