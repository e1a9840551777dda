#include "tools/view/packed_columns.h"

#include <zlib.h>

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

std::string Unpacked(const std::string& packed) {
  std::string plain(4096, '\0');
  uLongf size = plain.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  plain.resize(size);
  return plain;
}

TEST(PackedColumnsTest, IntegersAreZigzagDifferencesInLeb128) {
  PackedColumns columns;
  const std::vector<int64_t> values = {3, 2, 2, 200, -100};
  columns.AddIntegers("n", values.size(), [&](size_t i) { return values[i]; });
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string packed, columns.Pack({{"name", "x"}}));
  const std::string header =
      "{\"name\":\"x\",\"columns\":[{\"name\":\"n\",\"kind\":\"integers\",\"count\":5,\"size\":7}]"
      "}";
  const std::string size = {static_cast<char>(header.size()), 0, 0, 0};
  // 3, -1, 0, 198, -300: 6, 1, 0, 396, 599.
  EXPECT_EQ(Unpacked(packed), size + header + std::string("\x06\x01\x00\x8c\x03\xd7\x04", 7));
}

TEST(PackedColumnsTest, StringsAreLengthsAndBytes) {
  PackedColumns columns;
  const std::vector<std::string> values = {"ab", "", "c"};
  columns.AddStrings("s", values.size(), [&](size_t i) { return absl::string_view(values[i]); });
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string packed, columns.Pack({}));
  const std::string plain = Unpacked(packed);
  EXPECT_EQ(plain.substr(plain.size() - 6), std::string("\x02\x00\x01"
                                                        "abc",
                                                        6));
}

}  // namespace
}  // namespace weft
