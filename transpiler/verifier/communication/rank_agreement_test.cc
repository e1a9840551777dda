#include "transpiler/verifier/communication/rank_agreement.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A startup program of `rank`, with ops of the main program's variables after the set-up of ring 0.
Program Startup(int rank, const std::string& ops) {
  return ProgramOf(absl::StrCat(
      "    var w : fp32[1, 1] parameter persistable\n    var lr : fp32[1] persistable\n"
      "    var id : raw\n    Out=[id] = c_gen_nccl_id() {endpoint=\"",
      rank == 0 ? "a:1" : "b:1", "\", other_endpoints=strings[\"", rank == 0 ? "b:1" : "a:1",
      "\"], rank=", rank, "}\n    c_comm_init(X=[id]) {nranks=2, rank=", rank, ", ring_id=0}\n",
      ops));
}

// The findings if the ranks initialize by these ops and run these steps.
std::vector<std::string> Check(const std::string& start0, const std::string& start1,
                               const std::string& main0 = TwoRankStep(),
                               const std::string& main1 = TwoRankStep()) {
  const Program startup0 = Startup(0, start0), startup1 = Startup(1, start1);
  const Program step0 = ProgramOf(main0), step1 = ProgramOf(main1);
  return Lines(Verify({{&step0, &startup0}, {&step1, &startup1}}), /*one_program_for_all=*/false);
}

std::string Constant(const std::string& variable, double value) {
  return absl::StrCat("    Out=[", variable,
                      "] = fill_constant() {shape=longs[1], dtype=5, value=", value, "}\n");
}
std::string Draw(int seed) {
  return absl::StrCat("    Out=[w] = uniform_random() {shape=longs[1, 1], dtype=5, seed=", seed,
                      "}\n");
}
constexpr char kBroadcast[] =
    "    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}\n";

TEST(RankAgreement, RanksBeginWithTheSameConstants) {
  EXPECT_THAT(Check(Constant("lr", 0.5), Constant("lr", 0.5)), IsEmpty());
  EXPECT_THAT(Check(Constant("lr", 0.5), Constant("lr", 0.25)),
              ElementsAre("error: W510: rank 1: startup program: variable lr begins with "
                          "fill_constant{value=0.25} on rank 1, fill_constant{value=0.5} on rank "
                          "0"));
  EXPECT_THAT(Check(Constant("lr", 0.5), ""),
              ElementsAre(HasSubstr("variable lr begins with nothing on rank 1")));
}

// The original draws what the root of the broadcast does; other ranks' own draws do not count.
TEST(RankAgreement, TheDrawOfTheRootIsThatOfTheOriginal) {
  const auto check = [](int root_seed) {
    const Program startup0 = Startup(0, Draw(root_seed) + kBroadcast);
    const Program startup1 = Startup(1, Draw(6) + kBroadcast);
    const Program step = ProgramOf(TwoRankStep());
    const Program original = ProgramOf(OneDeviceStep());
    const Program original_startup =
        testing::ProgramOf(absl::StrCat("    var w : fp32[1, 1] persistable\n", Draw(5)));
    VerifyOptions options;
    options.original = {&original, &original_startup};
    return Lines(Verify({{&step, &startup0}, {&step, &startup1}}, options),
                 /*one_program_for_all=*/false);
  };
  EXPECT_THAT(check(5), IsEmpty());
  EXPECT_THAT(check(7), ElementsAre(HasSubstr("error: W606: rank 0: startup program")));
}

TEST(RankAgreement, SeedsAreTheSameOrTheDrawIsBroadcast) {
  EXPECT_THAT(Check(Draw(5), Draw(5)), IsEmpty());
  EXPECT_THAT(Check(Draw(5), Draw(6)), ElementsAre(HasSubstr("W510")));
  EXPECT_THAT(Check(Draw(5) + kBroadcast, Draw(6) + kBroadcast), IsEmpty());
  // What follows the broadcast is compared again.
  const std::string twice = "    Out=[w] = scale(X=[w]) {scale=2.0}\n";
  EXPECT_THAT(Check(Draw(5) + kBroadcast + twice, Draw(6) + kBroadcast + twice), IsEmpty());
  EXPECT_THAT(Check(Draw(5) + kBroadcast + twice, Draw(6) + kBroadcast),
              ElementsAre(HasSubstr("W510: rank 1: startup program: variable w")));
}

TEST(RankAgreement, VariablesThatNoOpUsesMayDiffer) {
  const std::string var = "    var rank : fp32[1] persistable\n";
  EXPECT_THAT(Check(var + Constant("rank", 0.5), var + Constant("rank", 1.5)), IsEmpty());
}

TEST(RankAgreement, StepsLeaveTheSameValues) {
  const std::string update = "    ParamOut=[w]";
  const auto step = [&](const std::string& scale) {
    return std::string(TwoRankStep())
        .insert(TwoRankStep().find(update),
                "    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=" + scale + "}\n");
  };
  EXPECT_THAT(Check("", "", step("3.0"), step("3.0")), IsEmpty());
  EXPECT_THAT(Check("", "", step("3.0"), step("5.0")),
              ElementsAre(StartsWith("error: W510: rank 1: variable w after a step: ")));
}

// Data that every rank gets whole is the same on all, what ranks make of it need not be.
TEST(RankAgreement, StepsMakeTheSameOfWholeData) {
  const auto step = [](const std::string& of_rate) {
    return absl::StrReplaceAll(
               TwoRankStep(),
               {{"    var lr : fp32[1] persistable\n",
                 "    var lr : fp32[1] need_check_feed\n    var state : fp32[1] persistable\n"}}) +
           of_rate;
  };
  const auto scaled = [&](const char* factor) {
    return step(absl::StrCat("    Out=[state] = scale(X=[lr]) {scale=", factor, "}\n"));
  };
  EXPECT_THAT(Check("", "", scaled("2.0"), scaled("2.0")), IsEmpty());
  EXPECT_THAT(Check("", "", scaled("2.0"), scaled("3.0")),
              ElementsAre(StartsWith("error: W510: rank 1: variable state")));
}

TEST(RankAgreement, RanksMayGiveDifferentValuesToACollective) {
  const auto step = [](int seed) {
    std::string text = TwoRankStep();
    text.insert(
        text.find(testing::kStepSum),
        absl::StrCat("    Out=[noise] = uniform_random() {shape=longs[1, 1], dtype=5, seed=", seed,
                     "}\n    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], "
                     "Y=[noise]) role=backward\n"));
    return text;
  };
  EXPECT_THAT(Check("", "", step(1), step(2)), IsEmpty());
}

// What rank 1 does not use, ranks 0 and 2 may begin with.
TEST(RankAgreement, EachRankIsComparedWithTheFirst) {
  const auto startup = [](double value) {
    return ProgramOf(
        absl::StrCat("    var ext : fp32[1] persistable\n    c_comm_init_all() {"
                     "ring_id=0}\n",
                     Constant("ext", value)));
  };
  const auto step = [](const std::string& ops) {
    std::string text = TwoRankStep();
    text.insert(text.find("    Out=[y@GRAD]"),
                "    var ext : fp32[1] persistable\n    var t : fp32[1]\n");
    return ProgramOf(text + ops);
  };
  const Program uses = step("    Out=[t] = scale(X=[ext]) {scale=2.0}\n"), ignores = step("");
  const Program start0 = startup(1.5), start1 = startup(1.5), start2 = startup(2.5);
  EXPECT_THAT(Lines(Verify({{&uses, &start0}, {&ignores, &start1}, {&uses, &start2}}),
                    /*one_program_for_all=*/false),
              ::testing::Contains(HasSubstr("W510: rank 2: startup program: variable ext begins")));
}

TEST(RankAgreement, StatesThatOneRankWritesDiffer) {
  const auto step = [](const std::string& ops) {
    std::string text = TwoRankStep();
    text.insert(text.find("    Out=[y@GRAD]"), "    var ext : fp32[1, 1] persistable\n");
    return text + ops;
  };
  const std::string write = "    Out=[ext] = scale(X=[w]) {scale=2.0}\n";
  EXPECT_THAT(Check("", "", step(write), step(write)), IsEmpty());
  EXPECT_THAT(
      Check("", "", step(write), step("")),
      ElementsAre(StartsWith("error: W510: rank 1: variable ext after a step: ext on rank")));
  EXPECT_THAT(Check("", "", step(""), step(write)),
              ElementsAre(StartsWith("error: W510: rank 1: variable ext after a step: 2 *(")));
}

// What the host writes before a step is no part of a value's expression.
TEST(RankAgreement, HostSetsVariablesAlike) {
  const auto step = [](const std::string& attrs) {
    return absl::StrReplaceAll(TwoRankStep(),
                               {{"var lr : fp32[1] persistable", "var lr : fp32[1] " + attrs}});
  };
  const std::string start = Constant("lr", 0.5);
  const auto scheduled = [&](const std::string& gamma) {
    return step("persistable {lr_schedule=\"step{learning_rate=1,step_size=9,gamma=" + gamma +
                "}\"}");
  };
  EXPECT_THAT(Check(start, start, scheduled("0.1"), scheduled("0.10")), IsEmpty());
  EXPECT_THAT(Check(start, start, scheduled("0.1"), scheduled("0.9")),
              ElementsAre(StartsWith("error: W510: rank 1: variable lr: before each step, the host "
                                     "sets it by the schedule step{gamma=0.9")));
  EXPECT_THAT(Check(start, start, scheduled("0.1"), TwoRankStep()),
              ElementsAre(StartsWith("error: W510: rank 1: variable lr: before each step, the host "
                                     "does not set it on rank 1; on rank 0, it sets it by the "
                                     "schedule step{")));
}

// --- One program for all ranks -------------------------------------------------------------------

std::vector<std::string> CheckOne(const std::string& start, const std::string& more_vars,
                                  const std::string& more_ops) {
  const Program startup = Startup(0, start);
  std::string main = TwoRankStep();
  main.insert(main.find("    Out=[y@GRAD]"), more_vars);
  main += more_ops;
  const Program step = ProgramOf(main);
  return Lines(Verify({{&step, &startup}}, ForRanks(2)));
}

TEST(RankAgreement, StatesThatRanksDrawForThemselvesDiffer) {
  const std::string var = "    var noise : fp32[1] persistable\n",
                    use = "    Out=[lr] = elementwise_mul(X=[lr], Y=[noise])\n";
  const auto draw = [&](int seed) {
    return absl::StrCat(
        var, "    Out=[noise] = uniform_random() {shape=longs[1], dtype=5, seed=", seed, "}\n");
  };
  EXPECT_THAT(CheckOne(draw(0), var, ""), IsEmpty());  // no op uses it
  EXPECT_THAT(CheckOne(draw(5), var, use), IsEmpty());
  EXPECT_THAT(CheckOne(draw(0), var, use),
              ::testing::Contains(
                  "error: W510: startup program: variable noise begins with a value that each rank "
                  "computes for itself, last written by op 2 (uniform_random): expected a seed, or "
                  "a broadcast"));
}

}  // namespace
}  // namespace weft::testing
