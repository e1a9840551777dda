#include "ops/analysis/core/startup_buffers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kVars[] = R"(
    var flat : fp32[10] persistable
    var a : fp32[2, 3] persistable
    var b : fp32[4] persistable
    var c : fp32[4] persistable
    var x : fp32[10]
    var cond : bool[1]
)";

Program Parse(const std::string& ops, const std::string& blocks = "") {
  absl::StatusOr<Program> program = ParseProgramText(absl::StrCat(
      "program version=2006002 {\n  block 0 parent=-1 {", kVars, ops, "\n  }\n", blocks, "}"));
  WEFT_EXPECT_OK(program.status());
  return *std::move(program);
}

constexpr char kMakesFlat[] =
    "FusedOutput=[flat], Output=[a, b] = coalesce_tensor(Input=[a, b]) {copy_data=true, dtype=5, "
    "use_align=false}\n";

std::string Text(const StartupBuffer& buffer) {
  std::string text = absl::StrCat(buffer.name, "[", buffer.size, "]");
  for (const StartupBuffer::Part& part : buffer.parts) {
    absl::StrAppend(&text, " ", part.name, " ", part.begin, "+", part.count);
  }
  return text;
}

TEST(StartupBuffersTest, PartsAreFound) {
  const auto buffers = FindStartupBuffers(Parse(kMakesFlat));
  ASSERT_EQ(buffers.size(), 1);
  EXPECT_EQ(Text(buffers[0]), "flat[10] a 0+6 b 6+4");
}

TEST(StartupBuffersTest, PartThatMovesIsOfTheLastBuffer) {
  const auto buffers = FindStartupBuffers(
      Parse(absl::StrCat(kMakesFlat,
                         "FusedOutput=[c], Output=[b] = coalesce_tensor(Input=[b]) "
                         "{copy_data=true, dtype=5, use_align=false}\n")));
  ASSERT_EQ(buffers.size(), 2);
  EXPECT_EQ(Text(buffers[0]), "c[4] b 0+4");
  EXPECT_EQ(Text(buffers[1]), "flat[10] a 0+6");
}

TEST(StartupBuffersTest, BuffersOfOneStepDoNotCount) {
  EXPECT_THAT(FindStartupBuffers(Parse("FusedOutput=[x], Output=[a, b] = coalesce_tensor(Input=[a, "
                                       "b]) {copy_data=true, dtype=5, use_align=false}\n")),
              IsEmpty());
}

StartupBufferUse UseOf(const Program& main) {
  return FindStartupBufferUses(main, FindStartupBuffers(Parse(kMakesFlat)))[0];
}

TEST(StartupBufferUseTest, UpdatesOfParts) {
  const StartupBufferUse use = UseOf(Parse("Out=[a] = scale(X=[a])\n"));
  EXPECT_FALSE(use.writes_buffer);
  EXPECT_FALSE(use.reads_copy);
  EXPECT_EQ(use.conflict, "");
}

TEST(StartupBufferUseTest, BufferMayBeReadBeforePartsAreWritten) {
  const StartupBufferUse use = UseOf(Parse("Out=[x] = relu(X=[flat])\nOut=[a] = scale(X=[a])\n"));
  EXPECT_TRUE(use.reads_copy);
  EXPECT_EQ(use.conflict, "");
}

TEST(StartupBufferUseTest, BufferThatIsReadLaterIsAConflict) {
  const StartupBufferUse use = UseOf(Parse("Out=[a] = scale(X=[a])\nOut=[x] = relu(X=[flat])\n"));
  EXPECT_EQ(use.conflict,
            "op 1 (relu) reads flat after op 0 (scale) has written a: the startup program makes a "
            "a part of flat");
}

TEST(StartupBufferUseTest, OpsOfBlocksCountWhereTheirBlockRuns) {
  const StartupBufferUse use = UseOf(
      Parse("Out=[x], Scope=[] = conditional_block(Cond=[cond], Input=[]) {sub_block=block(1)}\n",
            "block 1 parent=0 {\nOut=[x] = relu(X=[flat])\nOut=[a] = scale(X=[a])\n}\n"));
  EXPECT_THAT(use.conflict, HasSubstr("reads flat after block 1, op 1 (scale) has written a"));
}

TEST(StartupBufferUseTest, BufferMayBeTheOneThatIsWritten) {
  const StartupBufferUse use =
      UseOf(Parse("Out=[x] = relu(X=[a])\nOut=[flat] = scale(X=[flat])\n"));
  EXPECT_TRUE(use.writes_buffer);
  EXPECT_TRUE(use.reads_copy);
  EXPECT_EQ(use.conflict, "");
  EXPECT_THAT(UseOf(Parse("Out=[flat] = scale(X=[flat])\nOut=[x] = relu(X=[b])\n")).conflict,
              HasSubstr("op 1 (relu) reads b after op 0 (scale) has written flat"));
}

TEST(StartupBufferUseTest, WritesOfBothAreAConflict) {
  EXPECT_EQ(UseOf(Parse("Out=[flat] = scale(X=[flat])\nOut=[b] = scale(X=[b])\n")).conflict,
            "op 0 (scale) writes flat, and op 1 (scale) writes b, which the startup program "
            "makes a part of it");
}

TEST(StartupBufferUseTest, BuffersOfTheMainProgram) {
  EXPECT_TRUE(UseOf(Parse(kMakesFlat)).is_remade);
  const StartupBufferUse use =
      UseOf(Parse("FusedOutput=[x], Output=[a, b] = coalesce_tensor(Input=[a, b]) {copy_data=true, "
                  "dtype=5, use_align=false}\n"));
  EXPECT_TRUE(use.moves_parts);
  EXPECT_FALSE(use.is_remade);
}

TEST(StartupBufferUseTest, WritesOfAnotherBufferWriteTheParts) {
  constexpr char kMakesX[] =
      "FusedOutput=[x], Output=[a, b] = coalesce_tensor(Input=[a, b]) {copy_data=true, dtype=5, "
      "use_align=false}\n";
  EXPECT_THAT(
      UseOf(Parse(absl::StrCat(kMakesX, "Out=[x] = scale(X=[x])\n", "Out=[c] = relu(X=[flat])\n")))
          .conflict,
      HasSubstr("op 2 (relu) reads flat after op 1 (scale) has written x"));
  EXPECT_THAT(UseOf(Parse(absl::StrCat(kMakesX, "Out=[x] = scale(X=[x])\n",
                                       "Out=[flat] = relu(X=[flat])\n")))
                  .conflict,
              HasSubstr("op 2 (relu) writes flat, and op 1 (scale) writes x"));
}

}  // namespace
}  // namespace weft
