#include "proto/text/text_words.h"

#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

std::string Quoted(absl::string_view bytes) {
  std::string text;
  AppendQuoted(bytes, &text);
  return text;
}

std::string Name(absl::string_view name) {
  std::string text;
  AppendName(name, &text);
  return text;
}

std::string Float(float value) {
  std::string text;
  AppendFloat(value, &text);
  return text;
}

std::string Double(double value) {
  std::string text;
  AppendFloat(value, &text);
  return text;
}

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST(TextWordsTest, NamesOfPaddleNeedNoQuotes) {
  for (const char* name : {"fc_0.w_0@GRAD", "@EMPTY@", "x@GRAD@RENAME@block0@0", "a/b", "gpt-2"}) {
    EXPECT_EQ(Name(name), name);
  }
}

TEST(TextWordsTest, OtherNamesAreQuoted) {
  EXPECT_EQ(Name(""), "\"\"");
  EXPECT_EQ(Name("a b"), "\"a b\"");
  EXPECT_EQ(Name("x#1"), "\"x#1\"");
  EXPECT_EQ(Name("w\xc3\xa4"), "\"w\xc3\xa4\"");
}

TEST(TextWordsTest, QuotesBackslashesAndControlCharactersAreEscaped) {
  EXPECT_EQ(Quoted("a\"b\\c\n\t\r"), R"("a\"b\\c\n\t\r")");
  EXPECT_EQ(Quoted(absl::string_view("\0\x01\x7f", 3)), R"("\000\001\177")");
}

TEST(TextWordsTest, Utf8StaysReadableAndOtherBytesAreEscaped) {
  EXPECT_EQ(Quoted("\xe6\x97\xa5"), "\"\xe6\x97\xa5\"");
  EXPECT_EQ(Quoted("\xe6\x97"), R"("\346\227")");
}

TEST(TextWordsTest, EveryByteSurvivesQuoting) {
  std::string bytes;
  for (int first = 0; first < 256; ++first) {
    bytes.push_back(static_cast<char>(first));
    bytes.append("7");  // a digit after an escape must not become part of it
  }
  const std::string quoted = Quoted(bytes);
  std::string read;
  ASSERT_TRUE(absl::CUnescape(absl::string_view(quoted).substr(1, quoted.size() - 2), &read));
  EXPECT_EQ(read, bytes);
}

TEST(TextWordsTest, FloatsAreShortAndNeverLookLikeIntegers) {
  EXPECT_EQ(Float(1.0f), "1.0");
  EXPECT_EQ(Float(-0.0f), "-0.0");
  EXPECT_EQ(Float(0.1f), "0.1");
  EXPECT_EQ(Float(1e-5f), "1e-05");
  EXPECT_EQ(Float(1e20f), "1e+20");
  EXPECT_EQ(Double(0.1), "0.1");
  EXPECT_EQ(Double(static_cast<double>(0.1f)), "0.10000000149011612");
}

TEST(TextWordsTest, InfinityAndNanHaveNames) {
  EXPECT_EQ(Float(std::numeric_limits<float>::infinity()), "inf");
  EXPECT_EQ(Double(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(Float(FromBits(0x7fc00000)), "nan");
  EXPECT_EQ(Float(FromBits(0xffc00001)), "nan_ffc00001");
}

TEST(TextWordsTest, FloatsOfAnyBitsReadBack) {
  std::mt19937 random(1);
  std::vector<uint32_t> patterns = {0,          0x80000000, 1,          0x807fffff,
                                    0x00800000, 0x7f7fffff, 0x7f800000, 0xff800000,
                                    0x7fc00000, 0x7f800001, 0xffffffff, 0x7fffffff};
  for (int i = 0; i < 20000; ++i) patterns.push_back(random());
  for (uint32_t bits : patterns) {
    const std::string text = Float(FromBits(bits));
    float read;
    ASSERT_TRUE(ReadNumber(text, &read)) << text;
    EXPECT_EQ(Bits(read), bits) << text;
  }
}

TEST(TextWordsTest, DoublesOfAnyBitsReadBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value, read;
    std::memcpy(&value, &bits, sizeof(value));
    const std::string text = Double(value);
    ASSERT_TRUE(ReadNumber(text, &read)) << text;
    EXPECT_EQ(std::memcmp(&read, &value, sizeof(value)), 0) << text;
  }
}

TEST(TextWordsTest, NonNumbersAreRefused) {
  float f;
  for (const char* word : {"", "abc", "1.0x", "infinity", "nan(1)", "nan_1", "nan_7f800000",
                           "nan_xyz", "1e99", "+1", "0x10"}) {
    EXPECT_FALSE(ReadNumber(word, &f)) << word;
  }
  int32_t i;
  for (const char* word : {"", "-", "1.0", "2147483648", "-2147483649", "+1", "1a"}) {
    EXPECT_FALSE(ReadNumber(word, &i)) << word;
  }
  uint32_t bits;
  for (const char* word : {"0x", "12", "0x1g", "0x100000000", "x1"}) {
    EXPECT_FALSE(ReadHex(word, &bits)) << word;
  }
}

TEST(TextWordsTest, IntegersReachTheirLimits) {
  int32_t narrow;
  EXPECT_TRUE(ReadNumber("-2147483648", &narrow));
  EXPECT_EQ(narrow, std::numeric_limits<int32_t>::min());
  int64_t wide;
  EXPECT_TRUE(ReadNumber("9223372036854775807", &wide));
  EXPECT_EQ(wide, std::numeric_limits<int64_t>::max());
  uint64_t unsigned_wide;
  EXPECT_TRUE(ReadNumber("18446744073709551615", &unsigned_wide));
  EXPECT_EQ(unsigned_wide, std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace weft
