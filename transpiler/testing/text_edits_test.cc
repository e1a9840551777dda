#include "transpiler/testing/text_edits.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(TextEdits, MarginsSayInWhichTextALineStands) {
  constexpr char kEdits[] = R"(
    a
  - b
  + c
  )";
  EXPECT_TRUE(HasMargins(kEdits));
  EXPECT_EQ(TextBefore(kEdits), "a\nb\n");
  EXPECT_EQ(TextAfter(kEdits), "a\nc\n");
  EXPECT_FALSE(HasMargins("Out=[-x] = relu(X=[+x])"));
}

TEST(TextEdits, LinesThatAreNotListedStay) {
  EXPECT_THAT(Edited("a\nb\n\n  c\nd", "+ first\nb\n+ x\n- d\n+ last"),
              IsOkAndHolds("first\na\nb\nx\nc\nlast\n"));
  EXPECT_THAT(Edited("a\nb\na", "- a"), IsOkAndHolds("b\na\n"));
  EXPECT_THAT(Edited("a\nb\na", "b\n- a\n+ c"), IsOkAndHolds("a\nb\nc\n"));
}

TEST(TextEdits, ListedLineThatTheTextDoesNotHaveThereIsAnError) {
  for (const char* edits : {"c", "- c", "b\na"}) {
    EXPECT_THAT(Edited("a\nb", edits), IsInvalidArgument("expected this line")) << edits;
  }
}

TEST(TextEdits, ErasedVariablesAreNamed) {
  EXPECT_THAT(ErasedVars("- var a, b\n- var c, d : fp32[2]\n+ var d : fp16[2]"),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(Edited("x\nvar a : fp32[2]\ny", "- var b\n- var a : fp32[2]\n+ var a : fp16[2]\n- x"),
              IsOkAndHolds("var a : fp16[2]\ny\n"));
}

TEST(LineDiff, KeepsWhatIsCommon) {
  EXPECT_EQ(LineDiff("a\nb\nc", "a\nx\nc\nd"), "  a\n- b\n+ x\n  c\n+ d\n");
  EXPECT_EQ(LineDiff("a\nb", "a\nb"), "");
}

}  // namespace
}  // namespace weft::testing
