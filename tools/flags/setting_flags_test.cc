#include "tools/flags/setting_flags.h"

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/averaging_schedule.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/setting.h"

namespace weft::testing {
namespace {

constexpr char kTraining[] = R"(
    var x, y : fp32[-1, 2] need_check_feed
    Out=[h] = mul(X=[x], Y=[w])
    Out=[d] = elementwise_sub(X=[h], Y=[y])
    Out=[loss] = mean(X=[d])
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[d@GRAD] = mean_grad(X=[d], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[h@GRAD] = elementwise_sub_grad(X=[h], Y=[y], Out@GRAD=[d@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

Program WithSetting(const Setting& setting) {
  Program program = CompactProgram(kTraining);
  program.set_setting(ToJson(setting));
  return program;
}

// The flags as a command with an original reads them. CHECK-fails for a wrong line.
SettingFlags Parse(const std::string& line) {
  CLI::App app;
  SettingFlags flags;
  std::string original = "original.pb";
  AddSettingFlags(&app, &flags, app.add_option("--original", original));
  app.parse(line + " --original original.pb");
  return flags;
}

absl::StatusOr<GivenSetting> SettingFor(const std::string& line,
                                        const std::vector<Program>& ranks) {
  std::vector<std::string> paths;
  std::vector<ConstProgramPair> pairs;
  for (const Program& rank : ranks) {
    paths.push_back("rank" + std::to_string(paths.size()) + ".pb");
    pairs.push_back({&rank, nullptr});
  }
  return weft::SettingFor(Parse(line), paths, pairs, nullptr);
}

TEST(SettingFlags, ProgramsWithoutASettingSayNothing) {
  WEFT_ASSERT_OK_AND_ASSIGN(const GivenSetting given, SettingFor("", {WithSetting({})}));
  EXPECT_FALSE(given.setting.nranks.has_value());
  EXPECT_THAT(
      given.feeds,
      ElementsAre("each rank gets a part of x along axis 0, y along axis 0 (--feed_layout)"));
  EXPECT_THAT(given.claims, IsEmpty());
}

// Every claim that makes the verifier expect something else has its line.
TEST(SettingFlags, FilesSayWhatAVerdictRestsOn) {
  Setting file;
  file.nranks = 4;
  file.rank = 1;
  file.groups["w"] = {0, 1};
  file.distributed_params = {"w"};
  file.feeds["y"].axis.reset();
  file.reduction = Setting::Reduction::kSum;
  file.averaging = AveragingSchedule{3, 1, 5};
  file.gradients_are_rounded = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const GivenSetting given, SettingFor("", {WithSetting(file)}));
  EXPECT_EQ(given.setting.nranks, 4);
  EXPECT_EQ(given.setting.averaging, file.averaging);
  EXPECT_THAT(given.feeds, ElementsAre("each rank gets the whole of y (setting of the file)",
                                       "each rank gets a part of x along axis 0 (--feed_layout)"));
  EXPECT_THAT(
      given.claims,
      ElementsAre(
          "the program is rank 1's: other ranks' programs are not checked (setting of the file)",
          "ranks share parameters in groups, w among ranks 0, 1: no rank is compared with one "
          "device as a whole (setting of the file)",
          "w: is not replicated (setting of the file)",
          "gradients are summed over the ranks, whatever losses are (setting of the file)",
          "parameters are averaged every 3 steps, and in every step before step 5; these steps are "
          "not checked without --original (setting of the file)",
          "gradients may be rounded to half precision and back (setting of the file)"));
}

TEST(SettingFlags, FlagsReplaceWhatTheFileSays) {
  Setting file;
  file.reduction = Setting::Reduction::kSum;
  file.averaging = AveragingSchedule{3, 1, 5};
  file.gradients_are_rounded = true;
  file.feeds["y"].axis.reset();
  WEFT_ASSERT_OK_AND_ASSIGN(
      const GivenSetting given,
      SettingFor("--summed_gradients=false --rounded_gradients=false --k_steps 2 --begin_step 7 "
                 "--first_average 1 --feed_layout y=axis:0 --nranks 2",
                 {WithSetting(file)}));
  EXPECT_EQ(given.setting.nranks, 2);
  EXPECT_EQ(given.setting.reduction, Setting::Reduction::kMean);
  EXPECT_EQ(given.setting.averaging, (AveragingSchedule{2, 1, 7}));
  EXPECT_FALSE(given.setting.gradients_are_rounded);
  EXPECT_EQ(given.setting.feeds.at("y").axis, 0);
  EXPECT_THAT(given.claims, IsEmpty());
}

// A flag alone keeps the rest of the schedule, which then still is the file's.
TEST(SettingFlags, OneFlagOfAScheduleKeepsTheRest) {
  Setting file;
  file.averaging = AveragingSchedule{3, 1, 5};
  WEFT_ASSERT_OK_AND_ASSIGN(const GivenSetting given,
                            SettingFor("--k_steps 2", {WithSetting(file)}));
  EXPECT_EQ(given.setting.averaging, (AveragingSchedule{2, 1, 5}));

  // No flag replaces the outer optimizer.
  file.averaging->outer = {OuterOptimizer::Rule::kSgd, 0.5};
  WEFT_ASSERT_OK_AND_ASSIGN(
      const GivenSetting outer,
      SettingFor("--k_steps 2 --begin_step 1 --first_average 1", {WithSetting(file)}));
  EXPECT_EQ(outer.setting.averaging->outer, file.averaging->outer);
  EXPECT_THAT(outer.claims,
              ElementsAre("parameters are synchronized every 2 steps, by sgd{lr=0.5}: after these "
                          "steps they are equal on all ranks, and the state of the outer optimizer "
                          "is so always; neither these steps nor the formulas of the outer "
                          "optimizer are checked without --original (setting of the file)"));

  file.averaging = AveragingSchedule::InTurn();
  WEFT_ASSERT_OK_AND_ASSIGN(const GivenSetting replaced,
                            SettingFor("--k_steps 2", {WithSetting(file)}));
  EXPECT_EQ(replaced.setting.averaging, (AveragingSchedule{2, 1, 1}));
}

TEST(SettingFlags, StreamingIsAClaim) {
  Setting file;
  file.averaging = AveragingSchedule{4};
  file.averaging->outer = {OuterOptimizer::Rule::kSgd, 0.5};
  file.averaging->delay = 1;
  file.averaging->mix = 0.25;
  file.averaging->sent = AveragingSchedule::Sent::kBf16;
  const GivenSetting given = SettingFor("", {WithSetting(file)}).value();
  EXPECT_EQ(given.setting.averaging, file.averaging);
  EXPECT_THAT(given.claims,
              ElementsAre("parameters are synchronized every 4 steps, by sgd{lr=0.5}, by the outer "
                          "gradients of 1 step before, mixed with 0.25 of the rank's own, sent as "
                          "bf16: they differ between ranks, but the state of the outer optimizer "
                          "is equal on all ranks always; what a rank sends and what it keeps are "
                          "its outer gradient; neither these steps nor the formulas of the outer "
                          "optimizer are checked without --original (setting of the file)"));
}

TEST(SettingFlags, ContradictionsAreErrors) {
  Setting file;
  file.averaging = AveragingSchedule{4};
  file.averaging->fragments = 2;
  EXPECT_THAT(SettingFor("--k_steps 8", {WithSetting(file)}),
              IsInvalidArgument("in 2 fragments in turn; expected no other --k_steps"));
  file.averaging = AveragingSchedule{4};
  file.averaging->outer = {OuterOptimizer::Rule::kSgd, 0.5};
  file.averaging->delay = 1;
  EXPECT_THAT(SettingFor("--k_steps 8", {WithSetting(file)}),
              IsInvalidArgument("by the outer gradients of 1 step before; expected no other"));
  file.averaging = absl::nullopt;
  file.nranks = 4;
  EXPECT_THAT(
      SettingFor("--nranks 2", {WithSetting(file)}),
      IsInvalidArgument("--nranks: expected 4, for which the program was rewritten (setting "
                        "of the file), found 2"));
  EXPECT_THAT(
      SettingFor("", {WithSetting(file), WithSetting(file)}),
      IsInvalidArgument("programs: expected 4, for which the program was rewritten (setting "
                        "of the file), found 2"));
  EXPECT_THAT(SettingFor("--feed_layout x=axis:7", {WithSetting({})}),
              IsInvalidArgument(HasSubstr("rank0.pb: ")));
  file.rank = 4;
  EXPECT_THAT(SettingFor("", {WithSetting(file)}), IsInvalidArgument(HasSubstr("rank0.pb: ")));
}

// What concerns ranks one by one adds up; a file that has lost its setting says nothing.
TEST(SettingFlags, SettingsOfRanksAreMerged) {
  Setting first, third;
  first.nranks = third.nranks = 3;
  first.rank = 0;
  first.groups["w"] = {0, 1};
  third.rank = 2;
  third.distributed_params = {"w"};
  WEFT_ASSERT_OK_AND_ASSIGN(
      const GivenSetting given,
      SettingFor("", {WithSetting(first), WithSetting({}), WithSetting(third)}));
  EXPECT_FALSE(given.setting.rank.has_value());
  EXPECT_THAT(given.setting.groups, ElementsAre(Pair("w", ElementsAre(0, 1))));
  EXPECT_THAT(given.setting.distributed_params, ElementsAre("w"));
}

TEST(SettingFlags, SettingsOfRanksMustAgree) {
  Setting first, second;
  first.groups["w"] = {0, 1};
  second.groups["w"] = {0};
  EXPECT_THAT(SettingFor("", {WithSetting(first), WithSetting(second)}),
              IsInvalidArgument("rank1.pb: group of w: expected ranks 0, 1, as other ranks have, "
                                "found rank 0"));
  second.groups.clear();
  second.rank = 0;
  EXPECT_THAT(SettingFor("", {WithSetting(first), WithSetting(second)}),
              IsInvalidArgument("rank1.pb: expected the program of rank 1, found the program of "
                                "rank 0 (setting of the file)"));
  second.rank = 1;
  second.reduction = Setting::Reduction::kSum;
  EXPECT_THAT(SettingFor("", {WithSetting(first), WithSetting(second)}),
              IsInvalidArgument(HasSubstr("rank1.pb: expected the setting ")));
}

// A layout that is given decides where files differ.
TEST(SettingFlags, GivenLayoutsMakeRanksAgree) {
  Setting first, second;
  first.feeds["y"].axis.reset();
  second.feeds["y"].axis = 0;
  first.nranks = second.nranks = 2;
  const std::vector<Program> ranks = {WithSetting(first), WithSetting(second)};
  EXPECT_THAT(SettingFor("", ranks), IsInvalidArgument(HasSubstr("expected the setting")));
  WEFT_ASSERT_OK_AND_ASSIGN(const GivenSetting given, SettingFor("--feed_layout y=axis:0", ranks));
  EXPECT_EQ(given.setting.feeds.at("y").axis, 0);
}

TEST(SettingFlags, ParameterFilesNameGroups) {
  const std::string path = ::testing::TempDir() + "/attrs.json";
  WEFT_ASSERT_OK(WriteFile(path, R"({"groups": {"g": [0, 1]}, "w": {"group": "g"}})"));
  WEFT_ASSERT_OK_AND_ASSIGN(const GivenSetting given,
                            SettingFor("--nranks 4 --param_attrs " + path, {WithSetting({})}));
  EXPECT_THAT(given.setting.groups, ElementsAre(Pair("w", ElementsAre(0, 1))));
  EXPECT_THAT(given.claims,
              ElementsAre("ranks share parameters in groups, w among ranks 0, 1: no rank is "
                          "compared with one device as a whole (--param_attrs)"));
  WEFT_ASSERT_OK(WriteFile(path, R"({"groups": {"g": [0, 1]}, "v": {"group": "g"}})"));
  EXPECT_THAT(SettingFor("--nranks 4 --param_attrs " + path, {WithSetting({})}),
              IsInvalidArgument(HasSubstr(path)));
}

TEST(SettingFlags, FlagsAboutAveragingNeedAnOriginal) {
  CLI::App app;
  SettingFlags flags;
  AddSettingFlags(&app, &flags, nullptr);
  EXPECT_THROW(app.parse("--k_steps 2"), CLI::ParseError);
  EXPECT_THROW(Parse("--in_turn --k_steps 2"), CLI::ParseError);
}

}  // namespace
}  // namespace weft::testing
