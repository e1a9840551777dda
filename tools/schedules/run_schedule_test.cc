#include "tools/schedules/run_schedule.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The notes for a program whose rate is a parameter, or not.
std::vector<std::string> Notes(const RunSchedule& schedule, bool is_parameter,
                               const std::vector<std::string>& fed = {}) {
  ProgramBuilder p;
  p.Param("w").Var("w@GRAD");
  is_parameter ? p.Param("rate", {1}) : p.Var("rate", {1});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"rate"}}},
       {{"ParamOut", {"w"}}}, kRoleOptimize);
  std::vector<std::string> notes;
  const auto note = [&notes](const std::string& text) { notes.push_back(text); };
  EXPECT_TRUE(HostSettingsOf(schedule, p.Build(), fed, 0, 3, note).ok());
  return notes;
}

// As Paddle 3 writes it where a scheduler sets it.
TEST(RunScheduleTest, ARateThatIsAParameterAndStaysConstantIsNoted) {
  RunSchedule schedule;
  EXPECT_THAT(Notes(schedule, true), ElementsAre(StartsWith("rate stays constant: ")));
  EXPECT_THAT(Notes(schedule, true, {"rate"}), IsEmpty());
  EXPECT_THAT(Notes(schedule, false), IsEmpty());
  schedule.set = {"rate=0.5"};
  EXPECT_THAT(Notes(schedule, true), IsEmpty());
  schedule.set = {};
  schedule.lr_schedule = "exponential{learning_rate=0.5,gamma=0.1}";
  EXPECT_THAT(Notes(schedule, true), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
