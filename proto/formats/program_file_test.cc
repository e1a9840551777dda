#include "proto/formats/program_file.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

#include "base/file.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Program Example(const std::string& op = "mul") {
  ProgramBuilder builder;
  builder.Param("w", {13, 1}).Op(op, {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  return builder.FloatAttr("scale", 0.1f).Build();
}

// A program with a field that framework.proto does not have.
Program WithUnknownField() {
  ProgramBuilder builder;
  builder.Op("mul", {}, {});
  builder.last_op().mutable_unknown_fields()->AddVarint(900, 1);
  return builder.Build();
}

class ProgramFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/program_file_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  // Writes a file with these bytes and gives its path.
  std::string FileOf(const std::string& name, const std::string& bytes) const {
    WEFT_EXPECT_OK(WriteFile(Path(name), bytes));
    return Path(name);
  }

  std::string Read(const std::string& name) const {
    const absl::StatusOr<FileBytes> file = ReadFile(Path(name));
    WEFT_EXPECT_OK(file);
    return file.ok() ? std::string(file->bytes) : "";
  }

  // All names in the directory, temporary files among them.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    DIR* dir = opendir(dir_.c_str());
    while (const dirent* entry = readdir(dir)) names.insert(entry->d_name);
    closedir(dir);
    names.erase(".");
    names.erase("..");
    return names;
  }

  std::string dir_;
};

// --- Formats ------------------------------------------------------------------------------------

TEST(ProgramFormatTest, FormatFollowsFromTheName) {
  for (const char* path : {"a.pb", "dir/a.pdmodel", "__model__", "dir.prog/__model__", "-"}) {
    EXPECT_THAT(ProgramFormatOf(path), IsOkAndHolds(ProgramFormat::kBinary)) << path;
  }
  EXPECT_THAT(ProgramFormatOf("dir/a.pbtxt"), IsOkAndHolds(ProgramFormat::kProtoText));
  EXPECT_THAT(ProgramFormatOf("a.pb.prog"), IsOkAndHolds(ProgramFormat::kProgramText));
  EXPECT_THAT(ProgramFormatOf("main.json"), IsOkAndHolds(ProgramFormat::kPir));
}

TEST(ProgramFormatTest, OtherNamesAreRefusedWithAListOfThoseThatAreNot) {
  for (const char* path : {"a.txt", "a", "a.PB", "my__model__x", "dir.pb/a", ""}) {
    EXPECT_THAT(ProgramFormatOf(path),
                IsInvalidArgument(AllOf(HasSubstr(".pb, .pdmodel, __model__ or -"),
                                        HasSubstr(".pbtxt"), HasSubstr(".prog"))))
        << path;
  }
}

TEST_F(ProgramFileTest, EveryFormatReadsBackAsItWasWritten) {
  const Program program = Example();
  for (const char* name : {"a.pb", "a.pdmodel", "__model__", "a.pbtxt", "a.prog"}) {
    SCOPED_TRACE(name);
    WEFT_ASSERT_OK(WriteProgram(program, Path(name)));
    WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ReadProgram(Path(name)));
    EXPECT_EQ(again.Serialize(), program.Serialize());
  }
}

TEST_F(ProgramFileTest, BinaryFileHoldsTheSerializedProgram) {
  WEFT_ASSERT_OK(WriteProgram(Example(), Path("a.pb")));
  EXPECT_EQ(Read("a.pb"), Example().Serialize());
}

TEST_F(ProgramFileTest, UnknownFieldsTravelInAllButProtobufText) {
  const Program program = WithUnknownField();
  for (const char* name : {"a.pb", "a.prog"}) {
    SCOPED_TRACE(name);
    WEFT_ASSERT_OK(WriteProgram(program, Path(name)));
    WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ReadProgram(Path(name)));
    EXPECT_EQ(again.Serialize(), program.Serialize());
  }
  EXPECT_THAT(WriteProgram(program, Path("a.pbtxt")),
              IsInvalidArgument(
                  AllOf(HasSubstr("a.pbtxt: the program holds fields or enum numbers that this "
                                  "version does not know"),
                        HasSubstr("write .pb or .prog"))));
  EXPECT_THAT(Names(), ElementsAre("a.pb", "a.prog"));
}

// Paddle reads protobuf text, too, and refuses fields that it does not know.
TEST_F(ProgramFileTest, SettingsTravelInAllButProtobufText) {
  Program program = Example();
  program.set_setting(R"({"nranks":2})");
  for (const char* name : {"a.pb", "a.prog", "a.pbtxt"}) {
    SCOPED_TRACE(name);
    WEFT_ASSERT_OK(WriteProgram(program, Path(name)));
    WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ReadProgram(Path(name)));
    EXPECT_EQ(again.setting(), std::string(name) == "a.pbtxt" ? "" : program.setting());
  }
}

// --- Reading ------------------------------------------------------------------------------------

TEST_F(ProgramFileTest, MissingFileIsNotFound) {
  EXPECT_THAT(ReadProgram(Path("none.pb")), IsNotFound("No such file"));
}

TEST_F(ProgramFileTest, DirectoryIsRefused) {
  ASSERT_EQ(mkdir(Path("d.pb").c_str(), 0777), 0);
  EXPECT_THAT(ReadProgram(Path("d.pb")),
              StatusIs(absl::StatusCode::kInvalidArgument, "is a directory"));
}

TEST_F(ProgramFileTest, EmptyFileIsRefusedInEveryFormat) {
  for (const char* name : {"a.pb", "__model__", "a.pbtxt", "a.prog"}) {
    EXPECT_THAT(ReadProgram(FileOf(name, "")), IsInvalidArgument(Not(IsEmpty()))) << name;
  }
  EXPECT_THAT(ReadProgram(Path("a.pb")), IsInvalidArgument("no blocks"));
}

TEST_F(ProgramFileTest, EqualFilesGiveOneProgram) {
  WEFT_ASSERT_OK(WriteProgram(Example("a"), Path("0.pb")));
  WEFT_ASSERT_OK(WriteProgram(Example("b"), Path("1.pb")));
  WEFT_ASSERT_OK(WriteProgram(Example("a"), Path("2.pb")));
  WEFT_ASSERT_OK(WriteProgram(Example("a"), Path("3.prog")));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::vector<std::shared_ptr<const Program>> programs,
      ReadPrograms({Path("0.pb"), Path("1.pb"), Path("2.pb"), Path("3.prog")}));
  ASSERT_EQ(programs.size(), 4);
  EXPECT_EQ(programs[0], programs[2]);
  EXPECT_NE(programs[0], programs[1]);
  EXPECT_NE(programs[0], programs[3]);
  EXPECT_EQ(programs[1]->Serialize(), Example("b").Serialize());
}

TEST_F(ProgramFileTest, ErrorOfSeveralProgramsBeginsWithThePath) {
  WEFT_ASSERT_OK(WriteProgram(Example(), Path("0.pb")));
  EXPECT_THAT(ReadPrograms({Path("0.pb"), FileOf("1.pb", "")}),
              IsInvalidArgument("1.pb: the program is empty"));
  EXPECT_THAT(ReadPrograms({Path("0.pb"), Path("none.pb")}), IsNotFound("none.pb: cannot open"));
  EXPECT_THAT(ReadPrograms({FileOf("a.txt", "words")}), IsInvalidArgument("a.txt: unknown kind"));
  EXPECT_THAT(ReadPrograms({FileOf("a.json", "{}")}),
              IsInvalidArgument("a.json: expected a program of Paddle 3"));
}

TEST_F(ProgramFileTest, BytesTellTheFormatAndNotTheName) {
  for (const char* of : {"a.pb", "a.pbtxt", "a.prog"}) {
    WEFT_ASSERT_OK(WriteProgram(Example(), Path(of)));
    for (const char* name : {"b.pb", "b.pbtxt", "b.prog", "b.json", "b.txt", "b"}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ReadProgram(FileOf(name, Read(of))));
      EXPECT_EQ(program.Serialize(), Example().Serialize()) << of << " " << name;
    }
  }
  WEFT_EXPECT_OK(ReadProgram(FileOf("a", "\n # a comment\n" + Read("a.prog"))).status());
  EXPECT_THAT(ReadProgram(FileOf("a.pb", "words")),
              IsInvalidArgument("it looks like text; text programs are named .pbtxt or .prog"));
  EXPECT_THAT(ReadProgram(FileOf("a.prog", "words")), IsInvalidArgument("line 1, column 1: "));
  EXPECT_THAT(ReadProgram(FileOf("a.npz", "PK\3\4")),
              IsInvalidArgument("unknown kind of program file; expected .pb"));
  EXPECT_THAT(ReadProgram(FileOf("a.npz", "PK\3\4")),
              IsInvalidArgument("begins with field blocks"));
}

TEST_F(ProgramFileTest, OtherProgramsAreNotWrittenAsArchivesOfPyTorch) {
  const absl::Status status = WriteProgram(Example(), Path("a.pt2"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a.pt2: expected a program that was read from a .pt2 file of PyTorch"));
  EXPECT_FALSE(ReadFile(Path("a.pt2")).ok());
}

constexpr char kPir[] =
    R"({"base_code":{"magic":"pir","trainable":true,"version":4},"program":{"regions":[{"#":"r",)"
    R"("blocks":[{"#":"b","args":[],"ops":[{"#":"1.barrier","A":[],"I":[],"O":[],"OA":[]}]}]}]}})";

TEST_F(ProgramFileTest, PirIsReadByContentAndWrittenByName) {
  for (const char* name : {"a.json", "a.pdmodel"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ReadProgram(FileOf(name, kPir)));
    EXPECT_EQ(program.num_ops(), 1u);
    WEFT_ASSERT_OK(WriteProgram(program, Path("b.json")));
    EXPECT_EQ(Read("b.json"), kPir);
    WEFT_ASSERT_OK(WriteProgram(program, Path("b.pb")));
    WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ReadProgram(Path("b.pb")));
    EXPECT_THAT(WriteProgram(again, Path("c.json")),
                IsInvalidArgument("c.json: expected a program that was read from a .json file"));
  }
}

TEST_F(ProgramFileTest, ByteOrderMarkBeforeATextIsSkipped) {
  const std::string mark = "\xEF\xBB\xBF";
  for (const char* of : {"a.pbtxt", "a.prog"}) {
    WEFT_ASSERT_OK(WriteProgram(Example(), Path(of)));
    const std::string marked = mark + Read(of);
    for (const char* name : {of, "b"}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ReadProgram(FileOf(name, marked)));
      EXPECT_EQ(program.Serialize(), Example().Serialize()) << of << " " << name;
    }
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Program pir, ReadProgram(FileOf("a", mark + kPir)));
  WEFT_ASSERT_OK(WriteProgram(pir, Path("b.json")));
  EXPECT_EQ(Read("b.json"), kPir);
  // Of a binary program it is a part.
  EXPECT_THAT(ReadProgram(FileOf("a.pb", mark)),
              IsInvalidArgument("malformed or truncated protobuf"));
}

TEST_F(ProgramFileTest, DamagedBinaryGetsNoHint) {
  const std::string bytes = Example().Serialize();
  EXPECT_THAT(ReadProgram(FileOf("a.pb", bytes.substr(0, bytes.size() - 3))),
              IsInvalidArgument(Not(HasSubstr("text"))));
}

TEST_F(ProgramFileTest, MistakesInProtobufTextAreFoundByLine) {
  EXPECT_THAT(ReadProgram(FileOf("a.pbtxt", "blocks {\n  idx: zero\n}\n")),
              IsInvalidArgument("protobuf text: line 2, column 8: "));
  EXPECT_THAT(ReadProgram(FileOf("b.pbtxt", "blocks { idx: 0 }")),
              IsInvalidArgument("parent_idx is missing"));
}

TEST_F(ProgramFileTest, FileBeyondTwoGigabytesIsRefusedUnread) {
  // A file of holes takes no space.
  ASSERT_EQ(truncate(FileOf("a.pb", "").c_str(), off_t{3} << 30), 0);
  EXPECT_THAT(ReadProgram(Path("a.pb")), IsResourceExhausted("3221225472 bytes"));
}

TEST_F(ProgramFileTest, ProgramMayReplaceTheFileThatItWasReadFrom) {
  WEFT_ASSERT_OK(WriteProgram(Example(), Path("a.pb")));
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, ReadProgram(Path("a.pb")));
  Rewriter rewriter(&program);
  rewriter.Append(0, ProgramBuilder().Op("relu", {}, {}).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK(WriteProgram(program, Path("a.pb")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ReadProgram(Path("a.pb")));
  EXPECT_THAT(OpTexts(again), ElementsAre("mul(x, w -> y)", "relu( -> )"));
  EXPECT_EQ(program.Serialize(), again.Serialize());
}

// --- Writing ------------------------------------------------------------------------------------

TEST_F(ProgramFileTest, OnlyTheTargetsRemain) {
  const Program a = Example("a"), b = Example("b");
  WEFT_ASSERT_OK(WritePrograms({{&a, Path("main.pb")}, {&b, Path("startup.prog")}}));
  EXPECT_THAT(Names(), ElementsAre("main.pb", "startup.prog"));
  EXPECT_EQ(Read("main.pb"), a.Serialize());
}

TEST_F(ProgramFileTest, StagedProgramsReplaceNothingUntilCommit) {
  FileOf("old.pb", "old");
  const Program program = Example();
  {
    WEFT_ASSERT_OK(StagedPrograms::Write({{&program, Path("old.pb")}}).status());
    EXPECT_EQ(Read("old.pb"), "old");
  }
  EXPECT_THAT(Names(), ElementsAre("old.pb"));
  WEFT_ASSERT_OK_AND_ASSIGN(StagedPrograms staged,
                            StagedPrograms::Write({{&program, Path("old.pb")}}));
  EXPECT_EQ(Read("old.pb"), "old");
  WEFT_ASSERT_OK(staged.Commit());
  EXPECT_EQ(Read("old.pb"), program.Serialize());
  EXPECT_THAT(Names(), ElementsAre("old.pb"));
}

TEST_F(ProgramFileTest, StagedProgramReachesADeviceAtCommit) {
  ASSERT_EQ(symlink("/dev/full", Path("full.pb").c_str()), 0);
  const Program program = Example();
  WEFT_ASSERT_OK_AND_ASSIGN(
      StagedPrograms staged,
      StagedPrograms::Write({{&program, Path("new.pb")}, {&program, Path("full.pb")}}));
  EXPECT_THAT(staged.Commit(), IsResourceExhausted("full.pb: cannot write"));
  EXPECT_NE(access(Path("new.pb").c_str(), F_OK), 0);
}

// Every way in which the second of two outputs can fail.
struct BadOutput {
  std::string name;
  std::string path;  // within the directory, or absolute
  absl::StatusCode code;
};

class SecondOutputFails : public ProgramFileTest,
                          public ::testing::WithParamInterface<BadOutput> {};

TEST_P(SecondOutputFails, NothingIsWritten) {
  FileOf("old.pb", "old");
  FileOf("file", "");
  ASSERT_EQ(mkdir(Path("d.pb").c_str(), 0777), 0);
  const std::set<std::string> before = Names();
  const Program program = WithUnknownField();
  const std::string& path = GetParam().path;
  const std::string bad = path[0] == '/' ? path : Path(path);

  // As the last, and as the first.
  EXPECT_THAT(WritePrograms({{&program, Path("old.pb")}, {&program, bad}}),
              StatusIs(GetParam().code, HasSubstr(bad + ": ")));
  EXPECT_THAT(WritePrograms({{&program, bad}, {&program, Path("old.pb")}}),
              StatusIs(GetParam().code, HasSubstr(bad + ": ")));
  EXPECT_EQ(Read("old.pb"), "old");
  EXPECT_EQ(Names(), before);
}

INSTANTIATE_TEST_SUITE_P(
    ProgramFileTest, SecondOutputFails,
    ::testing::Values(
        BadOutput{"NoDirectory", "none/new.pb", absl::StatusCode::kNotFound},
        BadOutput{"FileAsDirectory", "file/new.pb", absl::StatusCode::kFailedPrecondition},
        BadOutput{"IsDirectory", "d.pb", absl::StatusCode::kInvalidArgument},
        BadOutput{"UnknownFormat", "new.txt", absl::StatusCode::kInvalidArgument},
        BadOutput{"UnknownFieldsInText", "new.pbtxt", absl::StatusCode::kInvalidArgument}),
    [](const auto& info) { return info.param.name; });

TEST_F(ProgramFileTest, FullDiskLeavesOtherOutputsAsTheyWere) {
  ASSERT_EQ(symlink("/dev/full", Path("full.pb").c_str()), 0);
  FileOf("old.pb", "old");
  const Program program = Example();
  EXPECT_THAT(WritePrograms({{&program, Path("old.pb")}, {&program, Path("full.pb")}}),
              IsResourceExhausted("full.pb: cannot write"));
  EXPECT_EQ(Read("old.pb"), "old");
  EXPECT_THAT(Names(), ElementsAre("full.pb", "old.pb"));
}

TEST_F(ProgramFileTest, SameProgramGivesTheSameBytes) {
  for (const char* extension : {".pb", ".pbtxt", ".prog"}) {
    WEFT_ASSERT_OK(WriteProgram(Example(), Path(std::string("a") + extension)));
    WEFT_ASSERT_OK(WriteProgram(Example(), Path(std::string("b") + extension)));
    EXPECT_EQ(Read(std::string("a") + extension), Read(std::string("b") + extension));
  }
}

}  // namespace
}  // namespace weft::testing
