#include "proto/setting.h"

#include <string>
#include <utility>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

Setting Full() {
  Setting setting;
  setting.nranks = 4;
  setting.rank = 1;
  setting.groups["w\"1"] = {1, 3};
  setting.distributed_params = {"emb", "\xce\xb8"};
  setting.shares["w_share"] = {{"w", {2, 3}}, {"", {2}}};
  setting.common["b1"] = {"b1", "b2"};
  setting.feeds = {{"x", FeedLayout{1}}, {"mask", FeedLayout::Whole()}};
  setting.reduction = Setting::Reduction::kSum;
  setting.averaging = AveragingSchedule{4, 8, 3};
  setting.low_rank = LowRankGradients{3, {"a@RESIDUAL", "b@RESIDUAL"}};
  setting.gradients_are_rounded = true;
  setting.ordered_by_data = true;
  setting.assumptions["my_op"].is_linear = true;
  return setting;
}

TEST(Setting, TextHoldsAllFields) {
  const std::string text = ToJson(Full());
  EXPECT_EQ(
      text,
      R"({"nranks":4,"rank":1,"groups":{"w\"1":[1,3]},"distributed_params":["emb",")"
      "\xce\xb8"
      R"("],"shares":{"w_share":[["w",[2,3]],["",[2]]]},"common":{"b1":["b1","b2"]},"feeds":{"mask":"whole","x":"axis:1"},"reduction":"sum",)"
      R"("averaging":{"period":4,"first_step":8,"begin_step":3},)"
      R"("low_rank":{"first_step":3,"residuals":["a@RESIDUAL","b@RESIDUAL"]},"rounded_gradients":true,)"
      R"("ordered_by_data":true,"assumptions":{"my_op":"linear"}})");
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting read, ParseSetting(text));
  EXPECT_EQ(read, Full());
}

TEST(Setting, DefaultsAreLeftOut) {
  EXPECT_EQ(ToJson({}), "");
  Setting setting;
  setting.averaging = AveragingSchedule::InTurn();
  EXPECT_EQ(ToJson(setting), R"({"averaging":"in_turn"})");
  setting.averaging = AveragingSchedule{4};
  setting.averaging->fragments = 2;
  setting.averaging->outer = {OuterOptimizer::Rule::kNesterov, 0.7, 0.9};
  setting.averaging->delay = 1;
  setting.averaging->mix = 0.1;
  setting.averaging->sent = AveragingSchedule::Sent::kBf16;
  EXPECT_EQ(
      ToJson(setting),
      R"({"averaging":{"period":4,"first_step":1,"fragments":2,"outer":"nesterov{lr=0.7,momentum=0.9}",)"
      R"("delay":1,"mix":0.1,"sent":"bf16"}})");
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting read, ParseSetting(ToJson(setting)));
  EXPECT_EQ(read, setting);
  EXPECT_EQ(ParseSetting(ToJson(setting)).value(), setting);
}

TEST(Setting, EachFieldDistinguishes) {
  using Change = void (*)(Setting*);
  const Change changes[] = {
      [](Setting* of) { of->nranks = 8; },
      [](Setting* of) { of->rank = 2; },
      [](Setting* of) { of->groups.clear(); },
      [](Setting* of) { of->distributed_params.clear(); },
      [](Setting* of) { of->shares["w_share"][0].dims = {6}; },
      [](Setting* of) { of->shares["w_share"][0].name = "v"; },
      [](Setting* of) { of->common.clear(); },
      [](Setting* of) { of->feeds["x"] = FeedLayout::Whole(); },
      [](Setting* of) { of->reduction = Setting::Reduction::kMean; },
      [](Setting* of) { of->averaging->period = 5; },
      [](Setting* of) { of->averaging->first_step = 5; },
      [](Setting* of) { of->averaging->begin_step = 1; },
      [](Setting* of) {
        of->averaging->outer = {OuterOptimizer::Rule::kSgd, 0.5};
      },
      [](Setting* of) { of->low_rank->first_step = 4; },
      [](Setting* of) { of->low_rank->residuals = {"a@RESIDUAL"}; },
      [](Setting* of) { of->gradients_are_rounded = false; },
      [](Setting* of) { of->ordered_by_data = false; },
      [](Setting* of) { of->assumptions["my_op"] = {}; },
  };
  for (const Change change : changes) {
    Setting changed = Full();
    change(&changed);
    EXPECT_NE(changed, Full()) << ToJson(changed);
    EXPECT_EQ(ParseSetting(ToJson(changed)).value(), changed);
  }
}

TEST(Setting, GroupsAreKept) {
  Setting setting;
  setting.averaging = AveragingSchedule{4};
  setting.averaging->group_size = 2;
  setting.averaging->rounds = 3;
  EXPECT_EQ(ToJson(setting),
            R"({"averaging":{"period":4,"first_step":1,"group_size":2,"rounds":3}})");
  EXPECT_EQ(ParseSetting(ToJson(setting)).value(), setting);
  setting.averaging->rounds = 1;
  EXPECT_THAT(ParseSetting(ToJson(setting)).status(), IsInvalidArgument("expected rounds"));
}

TEST(Setting, EachFieldOfStreamingDistinguishes) {
  Setting setting;
  setting.averaging = AveragingSchedule{4};
  setting.averaging->outer = {OuterOptimizer::Rule::kSgd, 0.5};
  using Change = void (*)(AveragingSchedule*);
  const Change changes[] = {
      [](AveragingSchedule* of) { of->delay = 1; },
      [](AveragingSchedule* of) { of->mix = 0.5; },
      [](AveragingSchedule* of) { of->sent = AveragingSchedule::Sent::kFp16; },
  };
  for (const Change change : changes) {
    Setting changed = setting;
    change(&*changed.averaging);
    EXPECT_NE(changed, setting) << ToJson(changed);
    EXPECT_EQ(ParseSetting(ToJson(changed)).value(), changed);
  }
}

TEST(Setting, OtherTextIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "JSON"},
      {"[]", "JSON object"},
      {R"({"nrank":4})", "key 'nrank' is unknown"},
      {R"({"nranks":4,"nranks":5})", "found it twice"},
      {R"({"nranks":0})", "'nranks'"},
      {R"({"nranks":4294967297})", "'nranks'"},
      {R"({"nranks":"4"})", "'nranks'"},
      {R"({"nranks":2,"rank":2})", "rank: expected less than nranks, 2, found 2"},
      {R"({"nranks":2,"groups":{"w":[0,2]}})", "group of w: expected ranks below 2, found 2"},
      {R"({"groups":{"w":[1,0]}})", "ascending"},
      {R"({"groups":{"w":[]}})", "list of ranks"},
      {R"({"groups":{"w":{}}})", "list of ranks"},
      {R"({"groups":[]})", "'groups'"},
      {R"({"feeds":{"x":"half"}})", "whole or axis:N"},
      {R"({"feeds":{"x":1}})", "'x'"},
      {R"({"distributed_params":"w"})", "'distributed_params'"},
      {R"({"distributed_params":[1]})", "'distributed_params'"},
      {R"({"shares":{"s":[]}})", "list of tensors"},
      {R"({"shares":{"s":["w"]}})", "a name and a list of dimensions"},
      {R"({"shares":{"s":[["w",[-1]]]}})", "an integer >= 0"},
      {R"({"nranks":2,"shares":{"s":[["w",[3]]]}})", "a multiple of 2, found 3 elements"},
      {R"({"shares":{"s":[["w",[2]]]}})", "expected nranks beside shares"},
      {R"({"nranks":2,"shares":{"s":[["w",[2000000000,2000000000]]]}})", "at most 2^48"},
      {R"({"nranks":2,"shares":{"s":[["w",[2]],["w",[2]]]}})", "expected one share"},
      {R"({"common":{"b":[]}})", "list of names"},
      {R"({"common":{"b":["c"],"d":["c"]}})", "to stand for c alone"},
      {R"({"reduction":"average"})", "by_loss, mean or sum"},
      {R"({"averaging":4})", "'averaging'"},
      {R"({"averaging":{"period":4}})", "'averaging'"},
      {R"({"averaging":{"period":4,"first_step":1,"outer":"adam"}})", "outer: expected averaging"},
      {R"({"averaging":{"period":4,"first_step":1,"fragments":3}})",
       "averaging: fragments: expected a divisor of k_steps 4, found 3"},
      {R"({"averaging":{"period":4,"first_step":2,"fragments":2}})", "neither begin_step"},
      {R"({"averaging":{"period":4,"first_step":1,"outer":"sgd{lr=1}","delay":4}})",
       "delay: expected less than the 4 steps between two turns, found 4"},
      {R"({"averaging":{"period":4,"first_step":2,"outer":"sgd{lr=1}","delay":1}})",
       "delay: expected neither begin_step"},
      {R"({"averaging":{"period":4,"first_step":1,"mix":0.5}})",
       "mix: expected an outer optimizer with it, found averaging"},
      {R"({"averaging":{"period":4,"first_step":1,"outer":"sgd{lr=1}","mix":1.5}})",
       "mix: expected at least 0 and at most 1, found 1.5"},
      {R"({"averaging":{"period":4,"first_step":1,"outer":"sgd{lr=1}","mix":-0.5}})",
       "mix: expected at least 0 and at most 1, found -0.5"},
      {R"({"averaging":{"period":4,"first_step":1,"outer":"sgd{lr=1}","sent":"fp32"}})", "'sent'"},
      {R"({"averaging":{"period":0,"first_step":1}})", "'period'"},
      {R"({"averaging":{"period":2,"begin_step":1}})", "'averaging'"},
      {R"({"averaging":{"period":2,"first_step":1,"begin_step":0}})", "'begin_step'"},
      {R"({"low_rank":{"first_step":2}})", "'low_rank'"},
      {R"({"low_rank":{"first_step":0,"residuals":["r"]}})", "'first_step'"},
      {R"({"low_rank":{"first_step":2,"residuals":[]}})", "'residuals'"},
      {R"({"rounded_gradients":1})", "true or false"},
      {R"({"assumptions":"my_op"})", "'assumptions'"},
      {R"({"assumptions":{"my_op":"pure"}})", "my_op: expected elementwise"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseSetting(text).status(), IsInvalidArgument(message)) << text;
  }
}

TEST(Setting, ProgramCarriesIt) {
  Program program = ProgramBuilder().Op("relu", {{"X", {"a"}}}, {{"Out", {"b"}}}).Build();
  EXPECT_EQ(SettingOf(program).value(), Setting());
  program.set_setting(ToJson(Full()));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program read, Program::Parse(program.Serialize()));
  EXPECT_EQ(SettingOf(read).value(), Full());
  EXPECT_EQ(AssumptionsOf(read), Full().assumptions);
  program.set_setting("{}}");
  EXPECT_THAT(SettingOf(program).status(), IsInvalidArgument("setting of the file: "));
  EXPECT_TRUE(AssumptionsOf(program).empty());
}

}  // namespace
}  // namespace weft::testing
