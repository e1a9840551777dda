#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/inspect/run_report.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

std::string Contents(std::FILE* file) {
  std::rewind(file);
  std::string text(1000, 0);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(ProgressLineTest, IsWrittenOverAndTakenAway) {
  std::FILE* file = std::tmpfile();
  {
    ProgressLine progress(file, /*is_terminal=*/true);
    EXPECT_TRUE(progress.IsDue());
    progress.Show("one");
    EXPECT_FALSE(progress.IsDue());
    progress.Show("too soon");
    progress.Clear();
    progress.Clear();
  }
  EXPECT_EQ(Contents(file), "\r\x1b[Kone\r\x1b[K");
  std::fclose(file);
}

TEST(ProgressLineTest, AFileGetsNothing) {
  std::FILE* file = std::tmpfile();
  {
    ProgressLine progress(file);
    EXPECT_FALSE(progress.IsDue());
    progress.Show("one");
  }
  EXPECT_THAT(Contents(file), IsEmpty());
  std::fclose(file);
}

TEST(FormatProgressTest, ShowsProgress) {
  EXPECT_EQ(FormatProgress(25, 100, "loss 0.5", 4567),
            "[=====>              ]  25% step 25/100  loss 0.5  4567 samples/s");
  EXPECT_EQ(FormatProgress(3, 3, "loss 0.5", 0), "[====================] 100% step 3/3  loss 0.5");
}

}  // namespace
}  // namespace weft
