#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "base/temporary_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/file_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    DIR* dir = opendir(dir_.c_str());
    while (const dirent* entry = readdir(dir)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    closedir(dir);
    return names;
  }

  std::string dir_;
};

TEST_F(FileTest, WrittenBytesAreReadBack) {
  const std::string bytes("a\0b\xff", 4);
  WEFT_ASSERT_OK(WriteFile(Path("f"), bytes));
  WEFT_ASSERT_OK_AND_ASSIGN(FileBytes file, ReadFile(Path("f")));
  EXPECT_EQ(file.bytes, bytes);
}

TEST_F(FileTest, EmptyFileIsReadAsNoBytes) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), ""));
  WEFT_ASSERT_OK_AND_ASSIGN(FileBytes file, ReadFile(Path("f")));
  EXPECT_THAT(file.bytes, IsEmpty());
}

// Also if it is gone from the directory.
TEST_F(FileTest, UnloadedBytesAreReadAgain) {
  const std::string bytes(3 << 20, 'w');
  WEFT_ASSERT_OK(WriteFile(Path("f"), bytes));
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes file, ReadFile(Path("f")));
  ASSERT_EQ(unlink(Path("f").c_str()), 0);
  const auto resident = [] {
    int64_t pages = 0, mapped = 0;
    std::ifstream("/proc/self/statm") >> pages >> mapped;
    return mapped * sysconf(_SC_PAGESIZE);
  };
  const int64_t before = resident();
  file.Unload();
  EXPECT_LT(resident(), before - (2 << 20));
  EXPECT_TRUE(file.bytes == bytes);
  FileBytes memory;
  memory.bytes = bytes;
  memory.Unload();
  EXPECT_TRUE(memory.bytes == file.bytes);
}

TEST_F(FileTest, TargetStaysUntilCommit) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), "old"));
  {
    WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(Path("f")));
    WEFT_ASSERT_OK(file.Write("new"));
    EXPECT_EQ(Read(Path("f")), "old");
  }
  EXPECT_EQ(Read(Path("f")), "old");
  EXPECT_THAT(Names(), ElementsAre("f"));
}

// As where the second of two files cannot be replaced.
TEST_F(FileTest, ReplacedTargetsComeBackUnlessTheyAreKept) {
  WEFT_ASSERT_OK(WriteFile(Path("old"), "old"));
  for (const bool keeps : {false, true}) {
    {
      std::vector<AtomicFile> files;
      for (const char* name : {"old", "none"}) {
        WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(Path(name)));
        WEFT_ASSERT_OK(file.Write("new"));
        WEFT_ASSERT_OK(file.Replace());
        EXPECT_EQ(Read(Path(name)), "new");
        files.push_back(std::move(file));
      }
      for (AtomicFile& file : files) {
        if (keeps) file.Keep();
      }
    }
    EXPECT_EQ(Read(Path("old")), keeps ? "new" : "old");
    if (keeps) {
      EXPECT_THAT(Names(), ElementsAre("none", "old"));
    } else {
      EXPECT_THAT(Names(), ElementsAre("old"));
    }
  }
}

TEST_F(FileTest, FilesAreReplacedTogetherOrNot) {
  for (const bool fails : {true, false}) {
    WEFT_ASSERT_OK(WriteFile(Path("a"), "old"));
    std::vector<std::pair<std::string, AtomicFile>> files;
    for (const char* name : {"a", "b"}) {
      WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(Path(name)));
      WEFT_ASSERT_OK(file.Write("new"));
      files.emplace_back(Path(name), std::move(file));
    }
    for (const std::string& name : Names()) {
      if (fails && name[0] == 'b') {  // the temporary file
        ASSERT_EQ(unlink(Path(name).c_str()), 0);
      }
    }
    const absl::Status status = ReplaceTogether(std::move(files));
    if (fails) {
      EXPECT_THAT(std::string(status.message()), StartsWith(Path("b") + ": cannot replace"));
    } else {
      WEFT_EXPECT_OK(status);
      EXPECT_EQ(Read(Path("b")), "new");
    }
    EXPECT_EQ(Read(Path("a")), fails ? "old" : "new");
  }
}

int last_signal = 0;

TEST_F(FileTest, SignalsWaitForFilesThatAreReplacedTogether) {
  last_signal = 0;
  signal(SIGHUP, [](int number) { last_signal = number; });
  EXPECT_FALSE(HoldSignal(SIGHUP));
  for (const bool keeps : {false, true}) {
    {
      std::vector<AtomicFile> files;
      for (const char* name : {"a", "b"}) {
        WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(Path(name)));
        EXPECT_FALSE(!files.empty() && !HoldSignal(SIGHUP));
        WEFT_ASSERT_OK(file.Replace());
        files.push_back(std::move(file));
      }
      EXPECT_TRUE(HoldSignal(SIGHUP));
      if (keeps) files[0].Keep();
      EXPECT_EQ(last_signal, 0);
      if (keeps) files[1].Keep();
    }
    EXPECT_EQ(std::exchange(last_signal, 0), SIGHUP);
    EXPECT_FALSE(HoldSignal(SIGHUP));
  }
  signal(SIGHUP, SIG_DFL);
}

TEST_F(FileTest, CommitLeavesOnlyTheTarget) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), "old"));
  WEFT_ASSERT_OK(WriteFile(Path("f"), "new"));
  EXPECT_EQ(Read(Path("f")), "new");
  EXPECT_THAT(Names(), ElementsAre("f"));
}

TEST_F(FileTest, ManyPiecesAreWrittenInOrder) {
  std::vector<std::string> texts;
  std::string all;
  for (int i = 0; i < 5000; ++i) {
    texts.push_back(std::to_string(i) + ",");
    all += texts.back();
  }
  const std::vector<absl::string_view> pieces(texts.begin(), texts.end());
  WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(Path("f")));
  WEFT_ASSERT_OK(file.Write(pieces));
  WEFT_ASSERT_OK(file.Commit());
  EXPECT_EQ(Read(Path("f")), all);
}

// Large files go past the page cache, in aligned buffers.
TEST_F(FileTest, LargeFileOfUnevenPiecesIsWrittenInOrder) {
  std::string expected;
  std::vector<std::string> pieces;
  for (size_t size : {1u, 4095u, 9u << 20, 17u, (16u << 20) + 3, 40u << 20, 12345u}) {
    std::string piece(size, '\0');
    for (size_t i = 0; i < size; ++i)
      piece[i] = static_cast<char>((expected.size() + i) * 40503 >> 7);
    expected += piece;
    pieces.push_back(std::move(piece));
  }
  ASSERT_GT(expected.size(), 64 << 20);
  WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(Path("large")));
  WEFT_ASSERT_OK(file.Write(std::vector<absl::string_view>(pieces.begin(), pieces.end())));
  WEFT_ASSERT_OK(file.Write("and more"));
  WEFT_ASSERT_OK(file.Commit());
  EXPECT_TRUE(Read(Path("large")) == expected + "and more");  // not printed where it differs
}

TEST_F(FileTest, LinkIsFollowedAndStays) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), "old"));
  ASSERT_EQ(symlink("f", Path("link").c_str()), 0);
  WEFT_ASSERT_OK(WriteFile(Path("link"), "new"));
  EXPECT_EQ(Read(Path("f")), "new");
  struct stat info;
  ASSERT_EQ(lstat(Path("link").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
}

TEST_F(FileTest, ModeOfTheTargetIsKept) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), "old"));
  ASSERT_EQ(chmod(Path("f").c_str(), 0600), 0);
  WEFT_ASSERT_OK(WriteFile(Path("f"), "new"));
  struct stat info;
  ASSERT_EQ(stat(Path("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
}

TEST_F(FileTest, MissingFileAndDirectoryAreErrors) {
  EXPECT_THAT(ReadFile(Path("none")), IsNotFound("open"));
  EXPECT_THAT(ReadFile(dir_), StatusIs(absl::StatusCode::kInvalidArgument, "is a directory"));
  EXPECT_THAT(WriteFile(dir_, ""), StatusIs(absl::StatusCode::kInvalidArgument, "is a directory"));
  EXPECT_THAT(WriteFile(Path("none/f"), ""), IsNotFound(""));
}

TEST_F(FileTest, WhatIsNoRegularFileIsWrittenDirectly) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), "old"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0666), 0);
  ASSERT_EQ(symlink("/dev/null", Path("null").c_str()), 0);
  for (const std::string& path : {std::string("-"), Path("pipe"), Path("null")}) {
    EXPECT_TRUE(AtomicFile::WritesDirectly(path)) << path;
  }
  for (const std::string& path : {dir_, Path("f"), Path("new")}) {
    EXPECT_FALSE(AtomicFile::WritesDirectly(path)) << path;
  }
}

TEST_F(FileTest, FullDiskIsAnError) {
  EXPECT_THAT(WriteFile("/dev/full", "x"), IsResourceExhausted("cannot write"));
}

// As of a shell's <(command).
TEST_F(FileTest, PipeIsReadToItsEnd) {
  int ends[2];
  const auto fill = [&ends](const std::string& bytes) {
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(ends[1]);
  };
  fill("abc");
  WEFT_ASSERT_OK_AND_ASSIGN(FileBytes file, ReadFile("/dev/fd/" + std::to_string(ends[0])));
  EXPECT_EQ(file.bytes, "abc");
  close(ends[0]);
  fill("abc");
  EXPECT_THAT(ReadFile("/dev/fd/" + std::to_string(ends[0]), 2),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 2 bytes"));
  close(ends[0]);
}

TEST_F(FileTest, DeviceWithoutEndIsRefused) {
  for (const char* device : {"/dev/zero", "/dev/urandom", "/dev/null"}) {
    EXPECT_THAT(ReadFile(device), StatusIs(absl::StatusCode::kInvalidArgument, "is a device"));
  }
}

TEST_F(FileTest, DeviceWithoutEndIsRefusedAsStandardInput) {
  const int kept = dup(STDIN_FILENO), zero = open("/dev/zero", O_RDONLY);
  ASSERT_GE(zero, 0);
  ASSERT_EQ(dup2(zero, STDIN_FILENO), STDIN_FILENO);
  EXPECT_THAT(ReadFile("-"), StatusIs(absl::StatusCode::kInvalidArgument, "is a device"));
  close(zero);
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  } else {
    close(STDIN_FILENO);
  }
}

TEST_F(FileTest, SameFileIsRecognizedThroughLinks) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), ""));
  WEFT_ASSERT_OK(WriteFile(Path("g"), ""));
  ASSERT_EQ(link(Path("f").c_str(), Path("hard").c_str()), 0);
  EXPECT_TRUE(IsSameFile(Path("f"), dir_ + "/./f"));
  EXPECT_TRUE(IsSameFile(Path("f"), Path("hard")));
  EXPECT_FALSE(IsSameFile(Path("f"), Path("g")));
  EXPECT_FALSE(IsSameFile(Path("f"), Path("none")));
}

TEST_F(FileTest, SameFileToBeIsRecognized) {
  ASSERT_EQ(symlink("new", Path("link").c_str()), 0);
  EXPECT_TRUE(IsSameFile(Path("new"), dir_ + "/./new"));
  EXPECT_TRUE(IsSameFile(Path("new"), Path("link")));
  EXPECT_FALSE(IsSameFile(Path("new"), Path("other")));
  EXPECT_FALSE(IsSameFile(Path("none/new"), Path("new")));
  EXPECT_FALSE(IsSameFile("-", "-"));
}

TEST_F(FileTest, LinkToNowhereIsFollowed) {
  ASSERT_EQ(mkdir(Path("d").c_str(), 0777), 0);
  ASSERT_EQ(symlink("d/second", Path("first").c_str()), 0);
  ASSERT_EQ(symlink("f", Path("d/second").c_str()), 0);
  WEFT_ASSERT_OK(WriteFile(Path("first"), "new"));
  EXPECT_EQ(Read(Path("d/f")), "new");
  struct stat info;
  ASSERT_EQ(lstat(Path("first").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
}

TEST_F(FileTest, LinkToItselfIsAnError) {
  ASSERT_EQ(symlink("loop", Path("loop").c_str()), 0);
  EXPECT_FALSE(WriteFile(Path("loop"), "new").ok());
  EXPECT_FALSE(ReadFile(Path("loop")).ok());
  EXPECT_THAT(Names(), ElementsAre("loop"));
}

TEST_F(FileTest, LongestNamesCanBeWritten) {
  const std::string name(255, 'n');
  WEFT_ASSERT_OK(WriteFile(Path(name), "old"));
  WEFT_ASSERT_OK(WriteFile(Path(name), "new"));
  EXPECT_EQ(Read(Path(name)), "new");
  EXPECT_THAT(Names(), ElementsAre(name));
}

TEST_F(FileTest, TemporaryFilesCanBeRemovedAllAtOnce) {
  WEFT_ASSERT_OK(WriteFile(Path("f"), "old"));
  WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile f, AtomicFile::Create(Path("f")));
  WEFT_ASSERT_OK_AND_ASSIGN(AtomicFile g, AtomicFile::Create(Path("g")));
  WEFT_ASSERT_OK(f.Write("new"));
  RemoveTemporaryFiles();
  EXPECT_THAT(Names(), ElementsAre("f"));
  EXPECT_EQ(Read(Path("f")), "old");
  EXPECT_THAT(f.Commit(), IsNotFound("cannot replace"));
}

// Starts a process that begins to write a file, and waits until it has.
pid_t StartWriter(const std::string& path) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t process = fork();
  if (process == 0) {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
    if (file.ok() && file->Write("half of it").ok()) (void)!write(pipe_ends[1], "x", 1);
    while (true) pause();
  }
  char byte;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return process;
}

void Kill(pid_t process) {
  kill(process, SIGKILL);
  EXPECT_EQ(waitpid(process, nullptr, 0), process);
}

TEST_F(FileTest, FilesOfAKilledProcessAreRemovedByTheNext) {
  Kill(StartWriter(Path("f")));
  Kill(StartWriter(Path("g")));
  EXPECT_EQ(Names().size(), 1u);  // g's writer has removed f's
  WEFT_ASSERT_OK(WriteFile(Path("f"), "whole"));
  EXPECT_THAT(Names(), ElementsAre("f"));
}

TEST_F(FileTest, FilesOfARunningProcessStay) {
  const pid_t writer = StartWriter(Path("f"));
  WEFT_ASSERT_OK(WriteFile(Path("f"), "whole"));
  EXPECT_EQ(Names().size(), 2u);
  Kill(writer);
  WEFT_ASSERT_OK(WriteFile(Path("f"), "whole"));
  EXPECT_THAT(Names(), ElementsAre("f"));
}

TEST_F(FileTest, LockedFileOfAnUnknownProcessStays) {
  // As of another container: no process of that number is here.
  const std::string path = Path("f.weft.999999999.0.tmp");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  WEFT_ASSERT_OK(WriteFile(Path("f"), ""));
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  close(fd);
  WEFT_ASSERT_OK(WriteFile(Path("f"), ""));
  EXPECT_THAT(Names(), ElementsAre("f"));
}

TEST_F(FileTest, FilesOfOtherProgramsStay) {
  const std::vector<std::string> others = {"f.tmp",
                                           "f.999999999.0.tmp",
                                           "f.weft.0.0.tmp",
                                           "f.weft.x.0.tmp",
                                           "f.weft.999999999.tmp",
                                           "f.weft.999999999.x.tmp",
                                           "f.weft.999999999.0.tmp.bak"};
  for (const std::string& name : others) std::ofstream(Path(name)) << "theirs";
  ASSERT_EQ(mkdir(Path("d.weft.999999999.0.tmp").c_str(), 0755), 0);
  ASSERT_EQ(symlink("f.tmp", Path("l.weft.999999999.0.tmp").c_str()), 0);
  WEFT_ASSERT_OK(WriteFile(Path("f"), ""));
  EXPECT_EQ(Names().size(), others.size() + 3);
  for (const std::string& name : others) EXPECT_EQ(Read(Path(name)), "theirs") << name;
}

TEST_F(FileTest, FilesThatWereWrittenAreNotRemoved) {
  for (int i = 0; i < 200; ++i) WEFT_ASSERT_OK(WriteFile(Path("f"), "new"));
  RemoveTemporaryFiles();
  EXPECT_THAT(Names(), ElementsAre("f"));
}

}  // namespace
}  // namespace weft::testing
