// weft view as users run it. What the page shows is tested in tools/view.
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string MakeFile(const std::string& name, const std::string& text) {
  std::ofstream(TestPath(name), std::ios::binary) << text;
  return TestPath(name);
}

std::string Contents(const std::string& path) { return std::string(ReadFile(path)->bytes); }

ProcessResult View(std::vector<std::string> args) {
  args.insert(args.begin(), {"tools/weft", "view"});
  return RunProcess(args);
}

TEST(WeftViewTest, EqualInputsGiveEqualPages) {
  const std::string first = TestPath("first.html"), second = TestPath("second.html");
  ASSERT_EQ(View({kMain, "-o", first}).status, 0);
  ASSERT_EQ(View({kMain, "-o", second}).status, 0);
  EXPECT_THAT(Contents(first), StartsWith("<!doctype html>"));
  EXPECT_EQ(Contents(first), Contents(second));
}

TEST(WeftViewTest, PageGoesToStandardOutput) {
  const ProcessResult result = View({kMain, "-o", "-"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("<!doctype html>"));
}

TEST(WeftViewTest, TraceOfAnotherProgramLeavesThePageAsItWas) {
  const std::string page = MakeFile("old.html", "old");
  const std::string trace = MakeFile("other.json", R"json({"traceEvents":[
          {"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"args":{"op":"op 0 (tanh)"}}]})json");
  const ProcessResult result = View({kMain, "--trace", trace, "-o", page});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("other.json: event 0: expected an op of this program, found "
                                    "op 0 (tanh)"));
  EXPECT_EQ(Contents(page), "old");
}

TEST(WeftViewTest, PageMustNotReplaceAnInput) {
  const std::string program = MakeFile("input.pb", Contents(kMain));
  const ProcessResult result = View({program, "-o", program});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(Contents(program), Contents(kMain));
}

TEST(WeftViewTest, FlagsThatNeedOthersAreUsageErrors) {
  EXPECT_EQ(View({kMain}).status, 2);
  EXPECT_EQ(View({kMain, "--explain", "why.json", "-o", TestPath("page.html")}).status, 2);
  EXPECT_EQ(
      View({kMain, "--original", kMain, "--original_startup", "s.pb", "-o", TestPath("page.html")})
          .status,
      2);
}

}  // namespace
}  // namespace weft::testing
