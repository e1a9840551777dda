#include "executor/files/npy.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A header with this dictionary, version 1 to 3.
std::string Header(absl::string_view dict, int version = 1) {
  std::string header =
      absl::StrCat("\x93NUMPY", std::string(1, static_cast<char>(version)), std::string(1, '\0'));
  const size_t length = dict.size() + 1;
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    header.push_back(static_cast<char>(length >> (8 * i)));
  }
  return absl::StrCat(header, dict, "\n");
}

TEST(NpyHeaderTest, RoundTrip) {
  WEFT_ASSERT_OK_AND_ASSIGN(std::string bytes, NpyHeaderFor(DType::kInt64, {20, 13}));
  WEFT_ASSERT_OK_AND_ASSIGN(NpyHeader header, ParseNpyHeader(bytes));
  EXPECT_EQ(header.dtype, DType::kInt64);
  EXPECT_THAT(header.dims, ElementsAre(20, 13));
  EXPECT_EQ(header.header_bytes, bytes.size());
  EXPECT_EQ(header.data_bytes, 20u * 13 * 8);
}

TEST(NpyHeaderTest, WrittenHeaderIsPaddedTo64BytesAndEndsInNewline) {
  WEFT_ASSERT_OK_AND_ASSIGN(std::string bytes, NpyHeaderFor(DType::kFloat32, {3}));
  EXPECT_EQ(bytes.size() % 64, 0u);
  EXPECT_EQ(bytes.back(), '\n');
  EXPECT_THAT(bytes, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"));
}

TEST(NpyHeaderTest, ScalarHasEmptyShapeAndOneElement) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      NpyHeader header,
      ParseNpyHeader(Header("{'descr': '<f8', 'fortran_order': False, 'shape': ()}")));
  EXPECT_THAT(header.dims, IsEmpty());
  EXPECT_EQ(header.data_bytes, 8u);
}

TEST(NpyHeaderTest, Versions2And3HaveLengthsOf4Bytes) {
  for (int version : {2, 3}) {
    const std::string bytes =
        Header("{\"descr\": \"<i4\", \"fortran_order\": False, \"shape\": (2,)}", version);
    WEFT_ASSERT_OK_AND_ASSIGN(NpyHeader header, ParseNpyHeader(bytes));
    EXPECT_EQ(header.dtype, DType::kInt32);
    EXPECT_EQ(header.header_bytes, bytes.size());
  }
}

TEST(NpyHeaderTest, Version4IsRefused) {
  EXPECT_THAT(ParseNpyHeader(Header("{'descr': '<f4'}", 4)),
              StatusIs(kInvalid, HasSubstr("version 4; expected 1, 2 or 3")));
}

TEST(NpyHeaderTest, FortranOrderMattersFromTwoDimensionsOn) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const NpyHeader vector,
      ParseNpyHeader(Header("{'descr':'<f4','fortran_order':True,'shape':(7,)}")));
  EXPECT_FALSE(vector.is_fortran_order);
  WEFT_ASSERT_OK_AND_ASSIGN(
      const NpyHeader matrix,
      ParseNpyHeader(Header("{'descr':'<f4','fortran_order':True,'shape':(7,2)}")));
  EXPECT_TRUE(matrix.is_fortran_order);
}

TEST(NpyTest, FortranOrderIsCopiedIntoRowMajorOrder) {
  // a[i][j][k] = 100 i + 10 j + k of shape 2, 3, 2.
  std::vector<int16_t> fortran, expected, found(12);
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) fortran.push_back(static_cast<int16_t>(100 * i + 10 * j + k));
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 2; ++k) expected.push_back(static_cast<int16_t>(100 * i + 10 * j + k));
    }
  }
  CopyFromFortranOrder(reinterpret_cast<const char*>(fortran.data()), {2, 3, 2}, sizeof(int16_t),
                       reinterpret_cast<char*>(found.data()));
  EXPECT_EQ(found, expected);
}

TEST(NpyHeaderTest, UnsupportedElementTypesAreNamed) {
  for (const char* descr : {">f4", "|O", "<c8", "<U3"}) {
    EXPECT_THAT(ParseNpyHeader(Header(absl::StrCat("{'descr': '", descr,
                                                   "', 'fortran_order': False, 'shape': (2,)}"))),
                StatusIs(kInvalid, HasSubstr(absl::StrCat("element type '", descr, "'"))));
  }
}

TEST(NpyHeaderTest, StructuredElementTypeIsRefused) {
  EXPECT_THAT(
      ParseNpyHeader(Header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}")),
      StatusIs(kInvalid, HasSubstr("structure")));
}

TEST(NpyHeaderTest, ShapeWhoseSizeOverflowsIsRefused) {
  EXPECT_THAT(ParseNpyHeader(Header("{'descr': '<f4', 'fortran_order': False, "
                                    "'shape': (4294967296, 4294967296)}")),
              StatusIs(kInvalid, HasSubstr("too large")));
  EXPECT_THAT(ParseNpyHeader(Header("{'descr': '<f4', 'fortran_order': False, "
                                    "'shape': (4294967296, 4294967296, 0)}")),
              StatusIs(kInvalid, HasSubstr("too large")));
}

TEST(NpyHeaderTest, MissingKeyIsRefused) {
  EXPECT_THAT(ParseNpyHeader(Header("{'descr': '<f4', 'shape': (2,)}")),
              StatusIs(kInvalid, HasSubstr("expected the keys")));
}

TEST(NpyHeaderTest, NegativeDimensionIsRefused) {
  EXPECT_THAT(ParseNpyHeader(Header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}")),
              StatusIs(kInvalid, HasSubstr("key 'shape'")));
}

TEST(NpyHeaderTest, EveryTruncationIsRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(std::string bytes, NpyHeaderFor(DType::kFloat32, {2, 3}));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ParseNpyHeader(bytes.substr(0, size)), StatusIs(kInvalid, HasSubstr(".npy")))
        << size;
  }
}

TEST(NpyHeaderTest, HugeHeaderLengthIsRefused) {
  EXPECT_THAT(ParseNpyHeader(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)),
              StatusIs(kInvalid, HasSubstr("its length is 4294967295 bytes")));
  EXPECT_THAT(NpyHeaderBytes(Header("").substr(0, 11) + "x"),
              StatusIs(kInvalid, HasSubstr("its length is 1 bytes")));
}

TEST(NpyHeaderTest, BFloat16CannotBeWritten) {
  EXPECT_THAT(NpyHeaderFor(DType::kBFloat16, {2}),
              StatusIs(kInvalid, HasSubstr("no element type for bf16")));
}

TEST(NpyHeaderBytesTest, FirstBytesSayHowLongTheHeaderIs) {
  for (int version : {1, 2}) {
    const std::string header =
        Header("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", version);
    WEFT_ASSERT_OK_AND_ASSIGN(const size_t bytes,
                              NpyHeaderBytes(header.substr(0, kNpyPrefixBytes)));
    EXPECT_EQ(bytes, header.size());
  }
  EXPECT_THAT(NpyHeaderBytes("\x93NUMPY\1"), StatusIs(kInvalid, HasSubstr("truncated")));
  EXPECT_THAT(NpyHeaderBytes("\x93NUMPY\2\1\xff\xff\xff\xff"),
              StatusIs(kInvalid, HasSubstr("its length is 4294967295 bytes")));
  EXPECT_THAT(NpyHeaderBytes(Header("").substr(0, 11) + "x"),
              StatusIs(kInvalid, HasSubstr("its length is 1 bytes")));
}

}  // namespace
}  // namespace weft::testing
