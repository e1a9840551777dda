// Layers 3, 5 and 6, which need each other: communication, calls across ranks, equivalence.
#include "transpiler/verify/verify.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_text.h"
#include "transpiler/verify/example_program.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Program Parse(const std::string& text) {
  absl::StatusOr<Program> program = ParseProgramText(text);
  if (!program.ok()) ADD_FAILURE() << program.status() << "\n" << text;
  return *std::move(program);
}

// "W312 error: ..." of all findings but notes.
std::vector<std::string> Texts(const Findings& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings.all()) {
    if (finding.severity != Severity::kNote) texts.push_back(ToString(finding));
  }
  return texts;
}

VerifyOptions ForRanks(int nranks) {
  VerifyOptions options;
  options.nranks = nranks;
  return options;
}

std::vector<std::string> Found(const std::string& main, VerifyOptions options = ForRanks(2)) {
  const Program program = Parse(main);
  return Texts(Verify({{&program, nullptr}}, options));
}

std::vector<std::string> Differences(const std::string& original, const std::string& main,
                                     VerifyOptions options = ForRanks(2)) {
  const Program before = Parse(original);
  const Program after = Parse(main);
  options.original.main = &before;
  return Texts(Verify({{&after, nullptr}}, options));
}

const char kOriginal[] = WEFT_EXAMPLE_BEGIN WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END;
// The rewrite: divided, summed, used.
const char kReduced[] = WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD
    R"(    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5, nranks=2}
)" WEFT_EXAMPLE_BACKWARD
    R"(    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END;

TEST(VerifyTest, ARightRewriteIsVerified) {
  EXPECT_THAT(Differences(kOriginal, kReduced), IsEmpty());
  // The number of ranks is what the program says.
  EXPECT_THAT(Differences(kOriginal, kReduced, VerifyOptions()), IsEmpty());
}

TEST(VerifyTest, AveragingIsRightForAnyNumberOfRanks) {
  const std::string averaged =
      absl::StrReplaceAll(WEFT_EXAMPLE_BEGIN R"(    Out=[w@GRAD] = AVG
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
                          {{"AVG", "c_allreduce_avg(X=[w@GRAD]) {use_calc_stream=true}"}});
  EXPECT_THAT(Differences(kOriginal, averaged, VerifyOptions()), IsEmpty());
  EXPECT_THAT(Differences(kOriginal, averaged, ForRanks(7)), IsEmpty());
}

TEST(VerifyTest, AProgramForOneDeviceIsNotAskedToCommunicate) {
  EXPECT_THAT(Found(kOriginal, VerifyOptions()), IsEmpty());
  EXPECT_THAT(Found(kOriginal, ForRanks(1)), IsEmpty());
  EXPECT_THAT(Found(kOriginal, ForRanks(2)), ElementsAre(HasSubstr("W310")));
}

TEST(VerifyTest, DistributedParametersMayBeUpdatedByEachRank) {
  VerifyOptions options = ForRanks(2);
  options.distributed_params = {"w"};
  EXPECT_THAT(Found(kOriginal, options), IsEmpty());
}

TEST(VerifyTest, SumsMayBeWanted) {
  const std::string summed = absl::StrReplaceAll(kReduced, {{"scale=0.5", "scale=1.0"}});
  EXPECT_THAT(Found(summed), Contains(HasSubstr("W312")));
  VerifyOptions options = ForRanks(2);
  options.gradients_are_summed = true;
  EXPECT_THAT(Found(summed, options), IsEmpty());
}

// Rules about the number of divisions cannot see a factor that is just wrong; the original shows
// it.
TEST(VerifyTest, AWrongFactorIsADifference) {
  const std::string wrong = absl::StrReplaceAll(kReduced, {{"scale=0.5", "scale=0.25"}});
  EXPECT_THAT(Differences(kOriginal, wrong),
              Contains(AllOf(HasSubstr("W601"), HasSubstr("0.5 *(mul_grad"))));
}

TEST(VerifyTest, GatheredGradientsAreAMeanIfEveryRankCountsOnce) {
  const std::string gathered = WEFT_EXAMPLE_VARS
      R"(    var all : fp32[2, 1]
    var a : fp32[1, 1]
    var b : fp32[1, 1]
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
      R"(    Out=[all] = c_allgather(X=[w@GRAD]) {nranks=2, ring_id=0, use_calc_stream=true}
    Out=[a, b] = split(X=[all]) {num=2, axis=0}
    Out=[w@GRAD] = sum(X=[a, b])
    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=0.5, nranks=2}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END;
  EXPECT_THAT(Differences(kOriginal, gathered), IsEmpty());
  const std::string twice = absl::StrReplaceAll(gathered, {{"sum(X=[a, b])", "sum(X=[a, a])"}});
  EXPECT_THAT(Differences(kOriginal, twice),
              AllOf(Contains(HasSubstr("W311")), Contains(HasSubstr("W601"))));
}

TEST(VerifyTest, ClippingComesAfterTheMean) {
  const std::string clip = "    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}\n";
  const std::string update = WEFT_EXAMPLE_UPDATE;
  const std::string reduce = "    Out=[w@GRAD] = c_allreduce_sum";
  const std::string original = absl::StrReplaceAll(kOriginal, {{update, clip + update}});
  EXPECT_THAT(Differences(original, absl::StrReplaceAll(kReduced, {{update, clip + update}})),
              IsEmpty());
  EXPECT_THAT(Differences(original, absl::StrReplaceAll(kReduced, {{reduce, clip + reduce}})),
              AllOf(Contains(HasSubstr("W313")), Contains(HasSubstr("W601"))));
}

TEST(VerifyTest, SumsMayBeReassociated) {
  const std::string two = "    var v@GRAD : fp32[1, 1]\n    var w@GRAD : fp32[1, 1]\n";
  const std::string one = "    var w@GRAD : fp32[1, 1]\n";
  const std::string update = WEFT_EXAMPLE_UPDATE;
  const auto with = [&](const std::string& program, const std::string& ops) {
    return absl::StrReplaceAll(program, {{one, two}, {update, ops + update}});
  };
  const std::string shared = "    Out=[v@GRAD] = square(X=[w])\n";
  EXPECT_THAT(Differences(with(kOriginal, shared + "    Out=[w@GRAD] = sum(X=[w@GRAD, v@GRAD])\n"),
                          with(kReduced, shared + "    Out=[w@GRAD] = elementwise_add(X=[v@GRAD], "
                                                  "Y=[w@GRAD])\n")),
              IsEmpty());
}

// --- LocalSGD ----------------------------------------------------------------------------------

const char kLocal[] = WEFT_EXAMPLE_BEGIN WEFT_EXAMPLE_UPDATE
    R"(    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0, use_calc_stream=true}
    Out=[w] = scale(X=[w]) {scale=0.5, nranks=2}
)" WEFT_EXAMPLE_END;

TEST(VerifyTest, ParametersMayBeAveragedInsteadOfGradients) {
  EXPECT_THAT(Differences(kOriginal, kLocal), IsEmpty());
}

TEST(VerifyTest, ParametersThatAreSummedAreAnotherValue) {
  const std::string summed = absl::StrReplaceAll(kLocal, {{"scale=0.5", "scale=1.0"}});
  EXPECT_THAT(Differences(kOriginal, summed), Contains(HasSubstr("W601")));
}

// As Paddle writes it: the mean of how far every rank went.
TEST(VerifyTest, ParametersMayBeAveragedThroughASnapshot) {
  const std::string snapshot =
      WEFT_EXAMPLE_VARS R"(    var s : fp32[1, 1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
                        R"(    Out=[w] = elementwise_sub(X=[s], Y=[w]) role=optimize
    Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=0, use_calc_stream=true}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.5}
    Out=[w] = elementwise_sub(X=[s], Y=[w]) role=optimize
    Out=[s] = assign(X=[w]) role=optimize
)" WEFT_EXAMPLE_END;
  EXPECT_THAT(Differences(kOriginal, snapshot), IsEmpty());
  const std::string wrong = absl::StrReplaceAll(snapshot, {{"scale=0.5", "scale=0.4"}});
  EXPECT_THAT(Differences(kOriginal, wrong), Contains(HasSubstr("W601")));
}

// --- Ranks with programs of their own ----------------------------------------------------------

std::string TwoRings(const std::string& first, const std::string& second) {
  const auto reduce = [](const std::string& ring, const std::string& variable) {
    return absl::StrCat("    Out=[", variable, "] = c_allreduce_avg(X=[", variable,
                        "]) {ring_id=", ring, ", use_calc_stream=true}\n");
  };
  return absl::StrCat(R"(program {
  block 0 parent=-1 {
    var a : fp32[4] persistable
    var b : fp32[4] persistable
)",
                      reduce(first, first == "0" ? "a" : "b"),
                      reduce(second, second == "0" ? "a" : "b"), "  }\n}");
}

std::vector<std::string> AcrossRanks(const std::vector<std::string>& texts) {
  std::vector<Program> programs;
  for (const std::string& text : texts) programs.push_back(Parse(text));
  std::vector<RankPrograms> ranks;
  for (const Program& program : programs) ranks.push_back({&program, nullptr});
  return Texts(Verify(ranks));
}

TEST(VerifyTest, RanksThatCallTheSameAreFine) {
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), TwoRings("0", "1")}), IsEmpty());
}

TEST(VerifyTest, ContradictingOrdersOfRingsMayLockUp) {
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), TwoRings("1", "0")}),
              ElementsAre(HasSubstr("W502")));
}

TEST(VerifyTest, CallsOfARingMustBeTheSame) {
  const std::string shorter = absl::StrReplaceAll(TwoRings("0", "1"), {{"fp32[4]", "fp32[3]"}});
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), shorter}),
              Contains(AllOf(HasSubstr("W501"), HasSubstr("rank 1 makes all-reduce avg of 3 fp32"),
                             HasSubstr("rank 0 makes all-reduce avg of 4 fp32"))));
  EXPECT_THAT(AcrossRanks({TwoRings("0", "1"), TwoRings("0", "0")}),
              Contains(HasSubstr("makes nothing")));
}

TEST(VerifyTest, WhatTheStartupProgramDoesNotMakeIsMissing) {
  const std::string made = R"(program {
  block 0 parent=-1 {
    var w : fp32[1, 1] parameter persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}
    c_comm_init_all() {ring_id=0}
  }
})";
  const Program before = Parse(kOriginal), after = Parse(kReduced), with = Parse(made);
  const Program without = Parse(absl::StrReplaceAll(
      made, {{"Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}\n    ", ""}}));
  VerifyOptions options = ForRanks(2);
  options.original = {&before, &with};
  EXPECT_THAT(Texts(Verify({{&after, &with}}, options)), IsEmpty());
  EXPECT_THAT(Texts(Verify({{&after, &without}}, options)),
              ElementsAre(AllOf(HasSubstr("W606"), HasSubstr("found nothing"))));
}

TEST(VerifyTest, EveryRankOfARingJoinsItOnce) {
  const auto startup = [](int rank) {
    return Parse(absl::StrCat(R"(program {
  block 0 parent=-1 {
    var id : raw
    Out=[id] = c_gen_nccl_id() {endpoint="a:1", other_endpoints=strings["b:1"], rank=0}
    c_comm_init(X=[id]) {nranks=2, rank=)",
                              rank, R"(, ring_id=0}
  }
})"));
  };
  const Program main = Parse(kReduced);
  const Program zero = startup(0), one = startup(1);
  EXPECT_THAT(Texts(Verify({{&main, &zero}, {&main, &one}})), Not(Contains(HasSubstr("W507"))));
  EXPECT_THAT(Texts(Verify({{&main, &zero}, {&main, &zero}})), Contains(HasSubstr("W507")));
}

TEST(VerifyTest, FindingsAreCountedBeyondTheFirstOnes) {
  std::string text = "program {\n  block 0 parent=-1 {\n    var a : fp32[4] persistable\n";
  for (int i = 0; i < 30; ++i) {
    text += "    Out=[a] = c_broadcast(X=[a]) {root=9, use_calc_stream=true}\n";
  }
  const Program program = Parse(text + "  }\n}");
  const Findings findings = Verify({{&program, nullptr}}, ForRanks(2));
  EXPECT_EQ(findings.all().size(), Findings::kMaxPerRule);
  EXPECT_EQ(findings.NumOmitted("W303"), 10);
  EXPECT_THAT(ToStatus(findings).message(), HasSubstr("(and 29 more)"));
}

}  // namespace
}  // namespace weft
