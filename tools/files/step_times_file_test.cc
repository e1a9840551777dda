#include "tools/files/step_times_file.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Program TwoOps() {
  ProgramBuilder builder;
  builder.Var("x", {2}).Var("y", {2}).Var("z", {2});
  builder.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  builder.Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}});
  return builder.Build();
}

TEST(CollectiveTable, IsPointsOrTheAlphaBetaModel) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const CollectiveTime points,
      ParseCollectiveTable(
          R"({"ranks": 2, "points": [{"bytes": 0, "seconds": 1}, {"bytes": 10, "seconds": 2}]})"));
  EXPECT_DOUBLE_EQ(points.Seconds(5), 1.5);
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime model,
                            ParseCollectiveTable(R"({"latency_s": 0.5, "bytes_per_s": 10})"));
  EXPECT_DOUBLE_EQ(model.Seconds(5), 1);
}

TEST(CollectiveTable, SaysWhatIsWrong) {
  EXPECT_THAT(ParseCollectiveTable("x"), StatusIs(kInvalid, "not a JSON file"));
  EXPECT_THAT(ParseCollectiveTable("[]"), StatusIs(kInvalid, "expected a JSON object"));
  EXPECT_THAT(ParseCollectiveTable("{}"), StatusIs(kInvalid, "expected a list 'points'"));
  EXPECT_THAT(ParseCollectiveTable(R"({"points": [{"bytes": 0}]})"),
              StatusIs(kInvalid, "expected a number 'seconds'"));
  EXPECT_THAT(ParseCollectiveTable(R"({"points": [1]})"),
              StatusIs(kInvalid, "expected a number 'bytes'"));
  EXPECT_THAT(ParseCollectiveTable(R"({"points": [{"bytes": 1e300, "seconds": 1}]})"),
              StatusIs(kInvalid, HasSubstr("expected bytes >= 0")));
  EXPECT_THAT(ParseCollectiveTable(R"({"latency_s": 1})"),
              StatusIs(kInvalid, "expected a number 'bytes_per_s'"));
}

std::string ProfileOf(const std::string& op, double seconds) {
  return absl::StrCat("{\"ops\": [{\"op\": \"", op, "\", \"seconds\": ", seconds, "}]}");
}

TEST(Profile, HasTheTimesOfOps) {
  EXPECT_THAT(*ParseProfile(ProfileOf("op 1 (relu)", 2.5), TwoOps()), ElementsAre(0, 2.5));
  EXPECT_THAT(*ParseProfile(ProfileOf("op 0 (relu) with op 1 (relu)", 2.5), TwoOps()),
              ElementsAre(2.5, 0));
  EXPECT_THAT(*ParseProfile(ProfileOf("op 1 (relu): transposing an image", 2.5), TwoOps()),
              ElementsAre(0, 2.5));
}

TEST(Profile, OfAnotherProgramIsAnError) {
  EXPECT_THAT(ParseProfile(ProfileOf("op 1 (mul)", 1), TwoOps()),
              StatusIs(kInvalid, HasSubstr("the program has no op 1 (mul)")));
  EXPECT_THAT(ParseProfile("{\"ops\": [{\"seconds\": 2.5}]}", TwoOps()),
              StatusIs(kInvalid, "expected a string 'op' in each of 'ops'"));
  EXPECT_THAT(ParseProfile("{\"ops\": []}", TwoOps()),
              StatusIs(kInvalid, "the profile has no times"));
  EXPECT_THAT(ParseProfile(ProfileOf("op 1 (relu)", -1), TwoOps()),
              StatusIs(kInvalid, HasSubstr("expected seconds from 0 to 1e9, found -1")));
}

}  // namespace
}  // namespace weft::testing
