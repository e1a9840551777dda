#include "tools/schedules/plateau_schedule.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
const std::vector<std::string> kNames = {"loss", "accuracy"};

Tensor MakeTensor(const std::vector<double>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<double>());
  return tensor;
}

absl::Status Add(double loss, double accuracy, PlateauSchedule* schedule) {
  StepResult result;
  result.values.push_back(MakeTensor({loss}));
  result.values.push_back(MakeTensor({accuracy}));
  result.names = &kNames;
  return schedule->Add(result);
}

TEST(PlateauScheduleTest, RatesAreThoseOfPaddle) {
  std::ifstream file("tests/data/lr_schedules/plateau_cases.jsonl");
  int cases = 0, falls = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto json = nlohmann::json::parse(line);
    const auto text = json["schedule"].get<std::string>();
    WEFT_ASSERT_OK_AND_ASSIGN(PlateauSchedule schedule, PlateauSchedule::Parse(text));
    for (size_t i = 0; i < json["metrics"].size(); ++i) {
      WEFT_ASSERT_OK(Add(json["metrics"][i].get<double>(), 0, &schedule));
      const double before = schedule.rate();
      EXPECT_EQ(schedule.RateAt(static_cast<int64_t>(i) + 1), json["rates"][i].get<double>())
          << text << ", metric " << i;
      if (schedule.rate() < before) ++falls;
    }
  }
  EXPECT_EQ(cases, 10);
  EXPECT_GT(falls, 20);
}

TEST(PlateauScheduleTest, MetricIsTheMeanOverRanksAndStepsOfAPeriod) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      PlateauSchedule schedule,
      PlateauSchedule::Parse("reduce_on_plateau{learning_rate=1,every=2,patience=0,factor=0.5,"
                             "threshold=0,metric=accuracy,mode=max}"));
  EXPECT_EQ(schedule.RateAt(0), 1);
  // Two ranks, two steps: 2.5.
  for (double accuracy : {1.0, 2.0, 3.0, 4.0}) WEFT_ASSERT_OK(Add(9, accuracy, &schedule));
  EXPECT_EQ(schedule.RateAt(2), 1);
  for (double accuracy : {2.0, 2.0, 3.0, 3.5}) WEFT_ASSERT_OK(Add(9, accuracy, &schedule));
  EXPECT_EQ(schedule.RateAt(4), 1);  // 2.625 is better
  for (double accuracy : {4.0, 4.0, 1.0, 1.0}) WEFT_ASSERT_OK(Add(9, accuracy, &schedule));
  EXPECT_EQ(schedule.RateAt(6), 0.5);
}

TEST(PlateauScheduleTest, StateGoesOnFromAnyResult) {
  const std::string text =
      "reduce_on_plateau{learning_rate=0.1,every=3,patience=1,factor=0.3,cooldown=1}";
  const auto metric = [](int i) { return 1 + std::sin(i * 0.7) / 3; };
  WEFT_ASSERT_OK_AND_ASSIGN(PlateauSchedule whole, PlateauSchedule::Parse(text));
  WEFT_ASSERT_OK_AND_ASSIGN(PlateauSchedule part, PlateauSchedule::Parse(text));
  for (int step = 0; step < 40; ++step) {
    EXPECT_EQ(part.RateAt(step), whole.RateAt(step)) << step;
    WEFT_ASSERT_OK(Add(metric(step), 0, &whole));
    WEFT_ASSERT_OK(Add(metric(step), 0, &part));
    EXPECT_EQ(part.State(), whole.State());
    WEFT_ASSERT_OK_AND_ASSIGN(PlateauSchedule next, PlateauSchedule::Parse(text));
    WEFT_ASSERT_OK(next.Restore(part.State()));
    part = next;
  }
  EXPECT_LT(whole.rate(), 0.1);
}

// A checkpoint of a version that took the mean over the ranks for the metric.
TEST(PlateauScheduleTest, MeansOfAnOlderStateBecomeSums) {
  const std::string text = "reduce_on_plateau{learning_rate=1,every=1,patience=0,factor=0.5}";
  WEFT_ASSERT_OK_AND_ASSIGN(PlateauSchedule schedule, PlateauSchedule::Parse(text));
  WEFT_ASSERT_OK(schedule.Restore("state{rate=1,best=2,num_bad=0,cooldown_left=0,sum=0,count=0}"));
  schedule.AddUpRanks(4);
  WEFT_ASSERT_OK(Add(1.5, 0, &schedule));  // 6, better than 8
  EXPECT_EQ(schedule.RateAt(1), 1);
  WEFT_ASSERT_OK(Add(1.6, 0, &schedule));
  EXPECT_EQ(schedule.RateAt(2), 0.5);
}

TEST(PlateauScheduleTest, MistakesAreNamedWithTheirOption) {
  const std::pair<const char*, const char*> cases[] = {
      {"reduce_on_plateau{every=1}", "learning_rate: missing"},
      {"reduce_on_plateau{learning_rate=1}", "every: missing"},
      {"reduce_on_plateau{learning_rate=1,every=0}",
       "every: expected a number of steps, 1 or more"},
      {"reduce_on_plateau{learning_rate=1,every=1,mode=least}", "mode: expected one of min, max"},
      {"reduce_on_plateau{learning_rate=1,every=1,factor=1}",
       "factor: expected a number between 0 and 1, found 1"},
      {"reduce_on_plateau{learning_rate=1,every=1,patience=-1}",
       "patience: expected a number of periods, found -1"},
      {"reduce_on_plateau{learning_rate=1,every=1,threshold_mode=sum}",
       "threshold_mode: expected one of rel, abs, found sum"},
      {"reduce_on_plateau{learning_rate=1,every=1,gamma=1}", "gamma: unknown option"},
      {"reduce_on_plateau{learning_rate=1,every=1},cosine", "expected nothing after it"},
      {"start_at{step=1},reduce_on_plateau{learning_rate=1,every=1}",
       "expected reduce_on_plateau{OPTION=VALUE,...}, found start_at"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_TRUE(PlateauSchedule::IsNamedIn(text)) << text;
    EXPECT_THAT(PlateauSchedule::Parse(text).status(), StatusIs(kInvalid, HasSubstr(message)))
        << text;
  }
  EXPECT_FALSE(PlateauSchedule::IsNamedIn("cosine{learning_rate=1,T_max=1}"));
  EXPECT_FALSE(PlateauSchedule::IsNamedIn("{"));
}

TEST(PlateauScheduleTest, MetricThatIsNotFetchedOrNoNumberIsAnError) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      PlateauSchedule schedule,
      PlateauSchedule::Parse("reduce_on_plateau{learning_rate=1,every=1,metric=recall}"));
  EXPECT_THAT(Add(1, 1, &schedule),
              StatusIs(kInvalid, HasSubstr("metric recall: expected a fetched variable, one of "
                                           "loss, accuracy (--fetch)")));
  WEFT_ASSERT_OK_AND_ASSIGN(schedule,
                            PlateauSchedule::Parse("reduce_on_plateau{learning_rate=1,every=1}"));
  StepResult result;
  result.names = &kNames;
  result.values.emplace_back().Resize(DType::kBool, {2});
  EXPECT_THAT(schedule.Add(result),
              StatusIs(kInvalid, HasSubstr("metric loss: expected numbers, found 2 elements of")));
}

TEST(PlateauScheduleTest, DamagedStateIsAnErrorAndChangesNothing) {
  WEFT_ASSERT_OK_AND_ASSIGN(PlateauSchedule schedule,
                            PlateauSchedule::Parse("reduce_on_plateau{learning_rate=1,every=1}"));
  for (const char* state : {"", "state", "state{rate=2,sum=0,count=x}", "state{rate=2,sum=nan}"}) {
    EXPECT_THAT(schedule.Restore(state), ::testing::Not(IsOk())) << state;
  }
  EXPECT_EQ(schedule.rate(), 1);
}

}  // namespace
}  // namespace weft::testing
