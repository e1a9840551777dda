#include "tools/files/free_space.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

TEST(FreeSpaceTest, PersistableTensorsOfKnownSizeCount) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var w : fp32[4, 3] parameter persistable
    var count : int64[] persistable
    var table : fp32[-1, 8] persistable
    var h : fp32[100]
  }
})"));
  EXPECT_EQ(PersistableBytes(program), 4 * 3 * 4 + 8);
}

TEST(FreeSpaceTest, MoreThanTheFileSystemHasIsRefused) {
  const std::string path = ::testing::TempDir() + "/out.npz";
  constexpr int64_t kExbibyte = int64_t{1} << 60;
  WEFT_EXPECT_OK(CheckFreeSpace(path, 1));
  EXPECT_THAT(CheckFreeSpace(path, kExbibyte),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("out.npz: expected 1152921504606846976 free bytes")));
  WEFT_EXPECT_OK(CheckFreeSpace("/dev/null", kExbibyte));
  WEFT_EXPECT_OK(CheckFreeSpace("/no/such/directory/out.npz", kExbibyte));
}

}  // namespace
}  // namespace weft::testing
