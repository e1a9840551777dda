#include "tools/view/page.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "tools/view/page_text.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string PageOf(const Program& program, const std::string& name) {
  ViewOptions options;
  options.name = name;
  return *ViewPage(ProgramView::Of(program, options));
}

TEST(ViewPageTest, NamesOfProgramsAreNoMarkup) {
  const std::string evil = "</script><script>alert(1)</script><!--";
  const Program program = BlockProgram(absl::StrReplaceAll(
      "    var \"$\" : fp32[4] persistable\n"
      "    Out=[\"$.y\"] = relu(X=[\"$\"]) role=forward {op_namescope=\"/$/\", note=\"$\"}\n",
      {{"$", evil}}));
  const std::string page = PageOf(program, evil);
  ASSERT_GT(page.size(), PageHead().size() + PageTail().size());
  EXPECT_EQ(page.substr(0, PageHead().size()), PageHead());
  EXPECT_EQ(page.substr(page.size() - PageTail().size()), PageTail());
  // Between them is base64.
  const std::string data =
      page.substr(PageHead().size(), page.size() - PageHead().size() - PageTail().size());
  EXPECT_EQ(
      data.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="),
      std::string::npos);
}

TEST(ViewPageTest, PageNeedsNothingElse) {
  const std::string frame = absl::StrCat(PageHead(), PageTail());
  for (const char* reference : {"http:", "https:", "src=", "@import", "url(", "<link", "import(",
                                "fetch(", "XMLHttpRequest", "WebSocket", "innerHTML", "eval("}) {
    EXPECT_THAT(frame, Not(HasSubstr(reference)));
  }
  EXPECT_THAT(frame, HasSubstr("default-src 'none'; script-src 'sha256-"));
}

TEST(ViewPageTest, EqualProgramsHaveEqualPages) {
  const char* const text = "    Out=[y] = relu(X=[x]) role=forward {}\n";
  EXPECT_EQ(PageOf(BlockProgram(text), "p"), PageOf(BlockProgram(text), "p"));
}

TEST(ViewPageTest, ProgramWithoutOpsHasAPage) {
  EXPECT_THAT(PageOf(BlockProgram(""), "empty"), HasSubstr("<!doctype html>"));
}

}  // namespace
}  // namespace weft::testing
