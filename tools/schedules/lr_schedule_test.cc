#include "tools/schedules/lr_schedule.h"

#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(LrScheduleTest, RatesAreThoseOfPaddle) {
  std::ifstream file("tests/data/lr_schedules/cases.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto json = nlohmann::json::parse(line);
    const auto text = json["schedule"].get<std::string>();
    WEFT_ASSERT_OK_AND_ASSIGN(const LrSchedule schedule, ParseLrSchedule(text));
    for (size_t step = 0; step < json["rates"].size(); ++step) {
      const auto expected = json["rates"][step].get<double>();
      // Paddle computes the cosine from step to step, so its rounding errors grow.
      EXPECT_NEAR(schedule(static_cast<int64_t>(step)), expected, 1e-12 + 1e-13 * expected)
          << text << ", step " << step;
    }
  }
  EXPECT_EQ(cases, 28);
}

// megengine/multistep, megengine/multistep_gamma and megengine113/multistep/not_ascending of the
// conformance vectors: rates by steps, in fp32.
TEST(LrScheduleTest, MultiStepIsThatOfMegEngine) {
  const std::tuple<const char*, const char*, std::vector<double>> cases[] = {
      {"megengine/multistep",
       "multi_step{learning_rate=0.1,milestones=2:4,gamma=0.1}",
       {0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.001, 0.001}},
      {"megengine/multistep_gamma",
       "multi_step{learning_rate=0.1,milestones=1:3:6,gamma=0.5}",
       {0.1, 0.05, 0.05, 0.025, 0.025, 0.025, 0.0125, 0.0125}}};
  for (const auto& [id, text, rates] : cases) {
    SCOPED_TRACE(id);
    WEFT_ASSERT_OK_AND_ASSIGN(const LrSchedule schedule, ParseLrSchedule(text));
    for (size_t step = 0; step < rates.size(); ++step) {
      EXPECT_NEAR(schedule(static_cast<int64_t>(step)), rates[step], 1e-6 * rates[step]) << step;
    }
  }
  EXPECT_THAT(ParseLrSchedule("multi_step{learning_rate=0.1,milestones=4:2}").status(),
              StatusIs(kInvalid, HasSubstr("milestones: expected numbers of steps, each larger")))
      << "megengine113/multistep/not_ascending";
}

TEST(LrScheduleTest, MistakesAreNamedWithTheirOption) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected NAME{OPTION=VALUE,...}, found nothing"},
      {"cosinelearning_rate=0.1",
       "found cosinelearning_rate=0.1; quote it, as shells expand braces"},
      {"slower{gamma=1}", "slower: unknown schedule; expected one of noam, "},
      {"cosine", "cosine: learning_rate: missing"},
      {"cosine{learning_rate=fast,T_max=1}",
       "cosine: learning_rate: expected a number, found fast"},
      {"cosine{learning_rate=nan,T_max=1}", "learning_rate: expected a number, found nan"},
      {"cosine{learning_rate=1,T_max=0}",
       "cosine: T_max: expected a number of steps, 1 or more, found 0"},
      {"cosine{learning_rate=1,T_max=1.5}", "T_max: expected a number of steps, 1 or more"},
      {"cosine{learning_rate=1,T_max=5,gamma=1}",
       "cosine: gamma: unknown option; known options: T_max, eta_min, learning_rate"},
      {"cosine{lr=0.1,T_max=10}",
       "cosine: lr: unknown option; known options: T_max, eta_min, learning_rate"},
      {"exponential{learning_rate=1,gamma=1}", "gamma: expected a number between 0 and 1, found 1"},
      {"exponential{gamma=0.1,gamma=0.2,learning_rate=1}", "gamma: given twice"},
      {"piecewise{boundaries=3:7,values=1:2}",
       "piecewise: values: expected 3 numbers, one more than boundaries, found 2"},
      {"piecewise{boundaries=7:3,values=1:2:3}",
       "boundaries: expected numbers of steps, each larger than the one before, found 3"},
      {"piecewise{boundaries=,values=1}", "boundaries: expected a number, found nothing"},
      {"polynomial{learning_rate=1,decay_steps=5,cycle=perhaps}",
       "cycle: expected true or false, found perhaps"},
      {"linear_warmup{warmup_steps=5,start_lr=1,end_lr=0.5}",
       "linear_warmup: end_lr: expected more than start_lr, 1, found 0.5"},
      {"linear_warmup{warmup_steps=5,start_lr=0,end_lr=1,learning_rate=1},cosine{learning_rate=1,"
       "T_max=5}",
       "linear_warmup: learning_rate: unknown option"},
      {"cosine{learning_rate=1,T_max=5},step{learning_rate=1,step_size=2}",
       "cosine: only linear_warmup and start_at may precede another schedule"},
      {"cosine{learning_rate=1", "expected NAME{OPTION=VALUE,...}, found cosine{learning_rate=1"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseLrSchedule(text).status(), StatusIs(kInvalid, HasSubstr(message))) << text;
  }
}

// Optimizers that use these rates.
ProgramBuilder Updates(const std::vector<std::string>& rates) {
  ProgramBuilder builder;
  builder.Param("lr", {1}).Param("other_lr", {1}).Param("w");
  builder.Op("scale", {{"X", {"lr"}}}, {{"Out", {"half_lr"}}});
  builder.Op("elementwise_mul", {{"X", {"lr"}}, {"Y", {"other_lr"}}}, {{"Out", {"product"}}});
  builder.Op("scale", {{"X", {"b"}}}, {{"Out", {"a"}}});
  builder.Op("scale", {{"X", {"a"}}}, {{"Out", {"b"}}});
  for (const std::string& rate : rates) {
    builder.Op("sgd", {{"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {rate}}},
               {{"ParamOut", {"w"}}}, kRoleOptimize);
  }
  return builder;
}

TEST(FindLearningRateTest, OptimizersTakeItAsItIsOrScaled) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string name,
                            FindLearningRate(Updates({"lr", "half_lr", "lr"}).Build()));
  EXPECT_EQ(name, "lr");
}

TEST(FindLearningRateTest, NoneSeveralAndComputedOnesAreErrors) {
  EXPECT_THAT(FindLearningRate(Updates({}).Build()),
              StatusIs(kInvalid, "no optimizer has a learning rate"));
  EXPECT_THAT(
      FindLearningRate(Updates({"other_lr", "half_lr"}).Build()),
      StatusIs(kInvalid, "the program has 2 learning rates: lr, other_lr; name one with --lr_var"));
  EXPECT_THAT(FindLearningRate(Updates({"product"}).Build()),
              StatusIs(kInvalid,
                       "the program computes its own learning rate: op 1 (elementwise_mul) "
                       "writes product"));
  // Without a final value.
  EXPECT_THAT(FindLearningRate(Updates({"a"}).Build()),
              StatusIs(kInvalid, HasSubstr("the program computes its own learning rate")));
}

}  // namespace
}  // namespace weft::testing
