#include "base/mapped_files.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Reads a file of two pages, of which the second is taken away.
void ReadShrunkFile(const std::string& path) {
  ReportShrunkFiles("tool");
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  if (!file.ok() || truncate(path.c_str(), 1) != 0) std::exit(3);
  file->Unload();
  volatile char byte = file->bytes.back();
  std::exit(byte == 'x' ? 4 : 5);
}

TEST(MappedFiles, FilesThatShrinkAreNamed) {
  const std::string path = ::testing::TempDir() + "/shrinks";
  WEFT_ASSERT_OK(WriteFile(path, std::string(3 << 13, 'x')));
  EXPECT_EXIT(ReadShrunkFile(path), ::testing::ExitedWithCode(1),
              "tool: error: .*/shrinks: has changed while it was read");
}

// Also of the signal, for all else.
TEST(MappedFiles, OtherLostPagesEndTheProcess) {
  EXPECT_EXIT(
      {
        ReportShrunkFiles("tool");
        raise(SIGBUS);
        raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedFiles, ManyFilesMayBeMapped) {
  const std::string path = ::testing::TempDir() + "/many";
  WEFT_ASSERT_OK(WriteFile(path, "x"));
  std::vector<FileBytes> files;
  for (int i = 0; i < 300; ++i) {
    WEFT_ASSERT_OK_AND_ASSIGN(FileBytes file, ReadFile(path));
    files.push_back(std::move(file));
  }
  files.clear();  // their slots are free again
  WEFT_ASSERT_OK(WriteFile(path, std::string(3 << 13, 'x')));
  EXPECT_EXIT(ReadShrunkFile(path), ::testing::ExitedWithCode(1), "has changed");
}

}  // namespace
}  // namespace weft
