#include "ops/analysis/training/host_values.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "lr: expected feeds it, found does not set it", of two declarations of the rate of an update.
std::vector<std::string> Compare(const std::string& expected, const std::string& found) {
  std::vector<Program> programs;
  for (const std::string& declaration : {expected, found}) {
    absl::StatusOr<Program> program = ParseProgramText(absl::StrCat(
        "program {\n  block 0 parent=-1 {\n    var w : fp32[1] parameter persistable\n"
        "    var x : fp32[1] need_check_feed\n    ",
        declaration, "\n    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])\n  }\n}\n"));
    WEFT_EXPECT_OK(program.status());
    programs.push_back(*std::move(program));
  }
  std::vector<std::string> lines;
  for (const HostValueDifference& difference : CompareHostValues(programs[0], programs[1])) {
    lines.push_back(absl::StrCat(difference.variable, ": expected ", difference.expected,
                                 ", found ", difference.found));
  }
  return lines;
}

TEST(HostValues, OfOneScheduleInAnyFormAreEqual) {
  EXPECT_THAT(
      Compare("var lr : fp32[1] persistable {lr_schedule=\"step{learning_rate=1,step_size=9}\"}",
              "var lr : fp32[1] persistable {lr_schedule=\"step{step_size=9,learning_rate=1.0}\"}"),
      IsEmpty());
}

TEST(HostValues, SchedulesFeedsAndStatesDiffer) {
  const std::string schedule =
      "var lr : fp32[1] persistable {lr_schedule=\"step{learning_rate=1,step_size=9}\"}";
  const std::string state = "var lr : fp32[1] persistable";
  const std::string feed = "var lr : fp32[1] need_check_feed";
  const std::string text = "sets it by the schedule step{learning_rate=1,step_size=9}";
  EXPECT_THAT(Compare(schedule, state),
              ElementsAre(absl::StrCat("lr: expected ", text, ", found does not set it")));
  EXPECT_THAT(Compare(state, schedule),
              ElementsAre(absl::StrCat("lr: expected does not set it, found ", text)));
  EXPECT_THAT(Compare(feed, schedule),
              ElementsAre(absl::StrCat("lr: expected feeds it, found ", text)));
  EXPECT_THAT(Compare(state, feed), ElementsAre("lr: expected does not set it, found feeds it"));
  EXPECT_THAT(Compare(feed, feed), IsEmpty());
}

}  // namespace
}  // namespace weft
