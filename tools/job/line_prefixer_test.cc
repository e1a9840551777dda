#include "tools/job/line_prefixer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

std::string Prefix(const std::vector<std::string>& pieces) {
  LinePrefixer lines("> ");
  std::string out;
  for (const std::string& piece : pieces) lines.Add(piece, &out);
  lines.Finish(&out);
  lines.Finish(&out);
  return out;
}

TEST(LinePrefixerTest, LinesMayComeInPieces) {
  EXPECT_EQ(Prefix({}), "");
  EXPECT_EQ(Prefix({"a\nb\n"}), "> a\n> b\n");
  EXPECT_EQ(Prefix({"a", "b", "\n", "", "c\nd", "e"}), "> ab\n> c\n> de\n");
  EXPECT_EQ(Prefix({"\n\n"}), "> \n> \n");
}

TEST(LinePrefixerTest, LinesAreWrittenAsSoonAsTheyAreComplete) {
  LinePrefixer lines("> ");
  std::string out;
  lines.Add("a\nb", &out);
  EXPECT_EQ(out, "> a\n");
  lines.Add("c\n", &out);
  EXPECT_EQ(out, "> a\n> bc\n");
}

TEST(LinePrefixerTest, AnEndlessLineDoesNotFillTheMemory) {
  LinePrefixer lines("> ");
  std::string out;
  const std::string piece(LinePrefixer::kMaxLine / 4, 'x');
  for (int i = 0; i < 12; ++i) lines.Add(piece, &out);
  lines.Finish(&out);
  const std::string part = piece + piece + piece + piece + piece;
  EXPECT_TRUE(out == "> " + part + "\n> " + part + "\n> " + piece + piece + "\n");
}

}  // namespace
}  // namespace weft
