#include "base/testing/archive.h"

#include <fstream>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Key;

TEST(ReadTarXzTest, GivesFilesByName) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/programs.tar.xz"));
  EXPECT_THAT(files, AllOf(::testing::Contains(Key("fit_a_line/main.pb")),
                           ::testing::Contains(Key("fit_a_line/startup.pb"))));
  EXPECT_THAT(files.at("fit_a_line/main.pb"), HasSubstr("fc_0.w_0"));
}

TEST(ReadTarXzTest, MissingFileIsNotFound) {
  EXPECT_THAT(ReadTarXz("tests/data/none.tar.xz"), IsNotFound("none.tar.xz"));
}

TEST(ReadTarXzTest, TruncatedArchiveIsDataLoss) {
  std::ifstream in("tests/data/programs.tar.xz", std::ios::binary);
  std::string bytes(10000, '\0');
  ASSERT_TRUE(in.read(&bytes[0], bytes.size()));
  const std::string path = ::testing::TempDir() + "/truncated.tar.xz";
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT(ReadTarXz(path), IsDataLoss(path));
}

}  // namespace
}  // namespace weft::testing
