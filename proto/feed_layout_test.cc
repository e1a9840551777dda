#include "proto/feed_layout.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(FeedLayout, TextIsChecked) {
  EXPECT_TRUE(ParseFeedLayouts("").ok());
  EXPECT_EQ(ToString(ParseFeedLayouts("a=b=axis:3")->at("a=b")), "axis:3");
  for (const char* text : {"x", "x=", "x=axis", "x=axis:-1", "x=axis:q", "x=whole,x=whole"}) {
    EXPECT_FALSE(ParseFeedLayouts(text).ok()) << text;
  }
}

}  // namespace
}  // namespace weft
