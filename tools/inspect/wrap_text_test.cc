#include "tools/inspect/wrap_text.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(WrapText, LinesEndBeforeTheWidth) {
  EXPECT_EQ(WrapText("", 8), "");
  EXPECT_EQ(WrapText("ab cd ef", 8), "ab cd ef");
  EXPECT_EQ(WrapText("ab cd ef", 7), "ab cd\nef");
}

TEST(WrapText, LongWordsHaveALineOfTheirOwn) {
  EXPECT_EQ(WrapText("a bcdefghi j", 4), "a\nbcdefghi\nj");
}

TEST(WrapText, IndentedLinesAreShorter) {
  EXPECT_EQ(WrapText("ab cd ef gh", 7, 2), "ab cd\n  ef gh");
}

}  // namespace
}  // namespace weft
