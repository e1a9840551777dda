// Every program of the archives, as Paddle wrote it, through text and back.
#include "absl/strings/match.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gtest/gtest.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

// Calls `check` with each program of the archive; returns how many there are.
template <typename Check>
int ForEachProgram(const std::string& archive, Check check) {
  const auto files = testing::ReadTarXz(archive);
  EXPECT_TRUE(files.ok()) << files.status();
  if (!files.ok()) return 0;
  int count = 0;
  for (const auto& [name, bytes] : *files) {
    if (!absl::EndsWith(name, ".pb")) continue;
    SCOPED_TRACE(name);
    const absl::StatusOr<Program> program = Program::Parse(bytes);
    EXPECT_TRUE(program.ok()) << program.status();
    if (program.ok()) check(*program);
    ++count;
  }
  return count;
}

void ExpectTextReadsBackEqual(const Program& program) {
  WEFT_ASSERT_OK_AND_ASSIGN(const pb::ProgramDesc read, ParseProgramDescText(ProgramText(program)));
  // Not EXPECT_EQ, which would print them.
  EXPECT_TRUE(read.SerializeAsString() == program.ToProto().SerializeAsString());
}

TEST(ProgramTextCorpusTest, TextOfEveryModelReadsBackEqual) {
  EXPECT_GE(ForEachProgram("tests/data/programs.tar.xz", ExpectTextReadsBackEqual), 54);
}

TEST(ProgramTextCorpusTest, TextOfEveryGoldenReadsBackEqual) {
  EXPECT_GE(ForEachProgram("tests/data/goldens.tar.xz", ExpectTextReadsBackEqual), 500);
}

TEST(ProgramTextCorpusTest, NoModelNeedsALiteral) {
  ForEachProgram("tests/data/programs.tar.xz", [](const Program& program) {
    const std::string text = ProgramText(program);
    EXPECT_EQ(text.find("extra="), std::string::npos);
    EXPECT_EQ(text.find("name: "), std::string::npos);
    EXPECT_EQ(text.find("type: "), std::string::npos);
  });
}

TEST(ProgramTextCorpusTest, MessageAndProgramPrintAlike) {
  ForEachProgram("tests/data/programs.tar.xz", [](const Program& program) {
    EXPECT_TRUE(testing::MessageText(program.ToProto()) == ProgramText(program));
  });
}

}  // namespace
}  // namespace weft
