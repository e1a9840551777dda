#include "tools/flags/flag_names.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(FlagNames, MarkedOptionsAreFlags) {
  EXPECT_EQ(WithFlags("option:mode none, or with option:sparse dense (option:nranks)"),
            "--mode none, or with --sparse dense (--nranks)");
  EXPECT_EQ(WithFlags("; option:place 'param:w=cpu'"), "; --place 'param:w=cpu'");
}

TEST(FlagNames, OtherTextStays) {
  for (const char* text : {"", "option: expected one", "adoption:rate", "my_option:x",
                           "option:", "a.pb: op 3 (mul)", "option:3"}) {
    EXPECT_EQ(WithFlags(text), text);
  }
}

}  // namespace
}  // namespace weft
