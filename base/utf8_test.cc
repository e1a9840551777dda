#include "base/utf8.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Utf8, AsciiAndMultiByteSequencesAreValid) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("fc_0.w_0@GRAD"));
  EXPECT_TRUE(IsValidUtf8("gewicht_\xc3\xa4"));
  EXPECT_TRUE(IsValidUtf8("12345678\xe6\x9d\x83\xe9\x87\x8d"));
  EXPECT_TRUE(IsValidUtf8("\xf0\x9f\x98\x80"));
}

TEST(Utf8, StrayAndCutSequencesAreNot) {
  EXPECT_FALSE(IsValidUtf8("\x80"));
  EXPECT_FALSE(IsValidUtf8("12345678\xff"));
  EXPECT_FALSE(IsValidUtf8("abc\xe6\x9d"));
  EXPECT_FALSE(IsValidUtf8("\xc3("));
}

TEST(Utf8, OverlongFormsSurrogatesAndTooLargeAreNot) {
  EXPECT_FALSE(IsValidUtf8("\xc0\xaf"));
  EXPECT_FALSE(IsValidUtf8("\xe0\x80\xaf"));
  EXPECT_FALSE(IsValidUtf8("\xed\xa0\x80"));
  EXPECT_FALSE(IsValidUtf8("\xf4\x90\x80\x80"));
}

}  // namespace
}  // namespace weft
