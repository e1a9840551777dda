#include "tools/inspect/event_file.h"

#include "base/file.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

TEST(Crc32cTest, IsThatOfTheStandard) {
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aa);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283);
}

TEST(EventFileTest, RecordsHaveTheBytesOfTheFormat) {
  const std::string folder = ::testing::TempDir() + "/board";
  absl::StatusOr<EventFile> file = EventFile::Create(folder, 7, "weft");
  WEFT_ASSERT_OK(file);
  EXPECT_EQ(file->path(), folder + "/events.out.tfevents.0000000007.weft");
  WEFT_ASSERT_OK(file->Write(300, 1.0, {{"a", 2.0}}));
  const absl::StatusOr<FileBytes> found = ReadFile(file->path());
  WEFT_ASSERT_OK(found);
  const std::string bytes(found->bytes);
  // Length, its checksum, 9 bytes of time, field 3; checksum.
  ASSERT_GT(bytes.size(), 40u);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, 24), std::string("\x09\0\0\0\0\0\0\0\0\x1a\x0d"
                                              "brain.Event:2",
                                              24));
  const std::string second = bytes.substr(40);
  EXPECT_EQ(second.substr(12), std::string("\x09\0\0\0\0\0\0\xf0\x3f"  // 1.0
                                           "\x10\xac\x02"              // step 300
                                           "\x2a\x0a\x0a\x08\x0a\x01"
                                           "a"
                                           "\x15\0\0\0\x40",  // 2.0
                                           24) +
                                   second.substr(36));
  EXPECT_EQ(second.size(), 40u);
}

TEST(EventFileTest, AFolderThatCannotBeIsAnError) {
  EXPECT_THAT(EventFile::Create("/proc/none/board", 0, "weft").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/proc/none/board")));
}

}  // namespace
}  // namespace weft::testing
