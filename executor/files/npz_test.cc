#include "executor/files/npz.h"

#include <zip.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "executor/files/npy.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

template <typename T>
Tensor MakeTensor(const Dims& dims, const std::vector<T>& values) {
  Tensor tensor;
  tensor.Resize(DTypeOf<T>::value, dims);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

template <typename T>
absl::Span<const T> Values(const Tensor& tensor) {
  return absl::MakeConstSpan(tensor.data<T>(), tensor.size());
}

// An archive with one entry of these bytes, as any zip tool writes it.
std::string MakeZip(const std::string& file, const std::string& entry, const std::string& bytes,
                    int method = ZIP_CM_STORE) {
  const std::string path = TestPath(file);
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  const zip_int64_t index = zip_file_add(archive, entry.c_str(), source, 0);
  zip_set_file_compression(archive, index, method, 0);
  EXPECT_EQ(zip_close(archive), 0);
  return path;
}

std::string NpyBytes(const Dims& dims, const std::vector<float>& values) {
  return absl::StrCat(
      *NpyHeaderFor(DType::kFloat32, dims),
      absl::string_view(reinterpret_cast<const char*>(values.data()), values.size() * 4));
}

TEST(NpzTest, RoundTrip) {
  const std::string path = TestPath("round_trip.npz");
  std::map<std::string, Tensor> tensors;
  tensors["w"] = MakeTensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  tensors["0/ids"] = MakeTensor<int64_t>({2}, {-1, int64_t{1} << 40});
  tensors["scalar"] = MakeTensor<double>({}, {0.5});
  tensors["none"] = MakeTensor<int32_t>({0, 4}, {});
  tensors["mask"] = MakeTensor<bool>({2}, {true, false});
  WEFT_ASSERT_OK(WriteNpz(path, tensors));

  WEFT_ASSERT_OK_AND_ASSIGN(auto read, ReadNpz(path));
  ASSERT_EQ(read.size(), 5u);
  EXPECT_THAT(read["w"].dims(), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(read["w"]), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Values<int64_t>(read["0/ids"]), ElementsAre(-1, int64_t{1} << 40));
  EXPECT_THAT(read["scalar"].dims(), IsEmpty());
  EXPECT_THAT(Values<double>(read["scalar"]), ElementsAre(0.5));
  EXPECT_THAT(read["none"].dims(), ElementsAre(0, 4));
  EXPECT_THAT(Values<bool>(read["mask"]), ElementsAre(true, false));
}

TEST(NpzTest, ArrayLargerThanTheHeaderPrefixIsReadWhole) {
  const std::string path = TestPath("large.npz");
  std::vector<int32_t> values(100000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7);
  WEFT_ASSERT_OK(WriteNpz(path, {{"x", MakeTensor<int32_t>({100000}, values)}}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto read, ReadNpz(path));
  EXPECT_EQ(Values<int32_t>(read["x"]), absl::MakeConstSpan(values));
}

TEST(NpzTest, FileThatNumPyWroteIsRead) {
  WEFT_ASSERT_OK_AND_ASSIGN(NpzFile file, NpzFile::Open("tests/data/fit_a_line/feeds.npz"));
  EXPECT_EQ(file.names().size(), 20u);
  EXPECT_THAT(file.names(), Contains("9/y"));
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor x, file.Read("0/x"));
  EXPECT_EQ(x.dtype(), DType::kFloat32);
  EXPECT_THAT(x.dims(), ElementsAre(20, 13));
}

TEST(NpzTest, DeflatedEntriesAreRead) {
  const std::string path = MakeZip(
      "deflated.npz", "x.npy", NpyBytes({1000}, std::vector<float>(1000, 2.5f)), ZIP_CM_DEFLATE);
  EXPECT_LT(Contents(path).size(), 1000u);
  WEFT_ASSERT_OK_AND_ASSIGN(auto read, ReadNpz(path));
  EXPECT_EQ(read["x"].data<float>()[999], 2.5f);
}

TEST(NpzTest, EqualArraysGiveEqualBytesWhateverTheTime) {
  const std::map<std::string, Tensor> tensors = {{"b", MakeTensor<float>({1}, {1})},
                                                 {"a", MakeTensor<float>({1}, {2})}};
  WEFT_ASSERT_OK(WriteNpz(TestPath("first.npz"), tensors));
  WEFT_ASSERT_OK(WriteNpz(TestPath("second.npz"), tensors));
  const std::string bytes = Contents(TestPath("first.npz"));
  EXPECT_EQ(bytes, Contents(TestPath("second.npz")));
  // Name order, and the date field of the first local header: 1 January 1980, midnight.
  EXPECT_LT(bytes.find("a.npy"), bytes.find("b.npy"));
  EXPECT_EQ(bytes.substr(10, 4), std::string("\0\0\x21\0", 4));
}

TEST(NpzTest, NoArraysMakeAnEmptyArchive) {
  WEFT_ASSERT_OK(WriteNpz(TestPath("empty.npz"), {}));
  WEFT_ASSERT_OK_AND_ASSIGN(NpzFile file, NpzFile::Open(TestPath("empty.npz")));
  EXPECT_THAT(file.names(), IsEmpty());
}

TEST(NpzTest, NamesMayBeAnyUtf8) {
  const std::string path = TestPath("utf8.npz"), name = "0/0/\xc3\xa4\xe2\x88\x87w";
  WEFT_ASSERT_OK(WriteNpz(path, {{name, MakeTensor<float>({1}, {1})}}));
  WEFT_ASSERT_OK_AND_ASSIGN(NpzFile file, NpzFile::Open(path));
  EXPECT_THAT(file.names(), ElementsAre(name));
  // The entry says that its name is UTF-8 (bit 11 of the flags), as Python's zipfile wants it.
  EXPECT_EQ(Contents(path)[7] & 8, 8);
}

TEST(NpzWriterTest, ArraysComeInTheirOrderAndTheFileAtTheEnd) {
  const std::string path = TestPath("steps.npz");
  std::ofstream(path) << "old";
  WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter writer, NpzWriter::Create(path));
  for (int step : {0, 1, 10, 2}) {
    WEFT_ASSERT_OK(writer.Add(absl::StrCat(step), MakeTensor<int32_t>({1}, {step})));
  }
  EXPECT_EQ(Contents(path), "old");
  WEFT_ASSERT_OK(writer.Finish());
  const std::string bytes = Contents(path);
  EXPECT_LT(bytes.find("10.npy"), bytes.find("2.npy"));
  WEFT_ASSERT_OK_AND_ASSIGN(auto read, ReadNpz(path));
  EXPECT_THAT(Values<int32_t>(read["10"]), ElementsAre(10));
}

TEST(NpzWriterTest, FullDiskIsAnErrorThatNamesTheFileOnce) {
  WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter writer, NpzWriter::Create("/dev/full"));
  EXPECT_THAT(writer.Add("a", MakeTensor<float>({1000, 1000}, std::vector<float>(1000000))),
              IsResourceExhausted(StartsWith("/dev/full: cannot write")));
}

TEST(NpzTest, FailedWriteLeavesTheOldFile) {
  const std::string path = TestPath("kept.npz");
  WEFT_ASSERT_OK(WriteNpz(path, {{"a", MakeTensor<float>({1}, {1})}}));
  const std::string before = Contents(path);
  EXPECT_THAT(WriteNpz(path, {{"a", MakeTensor<float>({1}, {3})}, {"b", Tensor()}}),
              StatusIs(kInvalid, AllOf(HasSubstr(path), HasSubstr("array 'b'"))));
  EXPECT_EQ(Contents(path), before);
}

TEST(NpzTest, SelectedRowsAreRefusedByName) {
  Tensor rows;
  rows.ResizeRows(DType::kFloat32, {4, 1}, 1);
  EXPECT_THAT(WriteNpz(TestPath("rows.npz"), {{"g", rows}}),
              StatusIs(kInvalid, HasSubstr("array 'g': holds SelectedRows")));
}

TEST(NpzTest, TypeIsReadFromTheHeaderAlone) {
  // The data is damaged, which only reading detects.
  const std::string path = TestPath("typed.npz");
  WEFT_ASSERT_OK(WriteNpz(path, {{"x", MakeTensor<int32_t>({2, 1}, {0x12345678, 1})}}));
  std::string bytes = Contents(path);
  bytes[bytes.find("\x78\x56\x34\x12")] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  WEFT_ASSERT_OK_AND_ASSIGN(NpzFile file, NpzFile::Open(path));
  WEFT_ASSERT_OK_AND_ASSIGN(TensorType type, file.Type("x"));
  EXPECT_EQ(ToString(type), "int32[2, 1]");
  EXPECT_THAT(file.Read("x"), StatusIs(kInvalid, HasSubstr("CRC")));
  EXPECT_THAT(file.Type("y"), IsNotFound("array 'y'"));
}

TEST(NpzTest, MissingArrayIsNotFound) {
  WEFT_ASSERT_OK_AND_ASSIGN(NpzFile file, NpzFile::Open("tests/data/fit_a_line/feeds.npz"));
  EXPECT_THAT(file.Read("0/z"), IsNotFound(AllOf(HasSubstr("fit_a_line/feeds.npz: array '0/z'"))));
}

TEST(NpzTest, MissingFileIsNotFound) {
  EXPECT_THAT(NpzFile::Open(TestPath("nowhere.npz")), IsNotFound("nowhere.npz"));
}

TEST(NpzTest, EmptyTextAndDirectoryAreNoArchives) {
  std::ofstream(TestPath("zero.npz"));
  std::ofstream(TestPath("text.npz")) << "not a zip\n";
  EXPECT_THAT(NpzFile::Open(TestPath("zero.npz")), StatusIs(kInvalid, HasSubstr("empty")));
  EXPECT_THAT(NpzFile::Open(TestPath("text.npz")),
              StatusIs(kInvalid, HasSubstr("text.npz: not an .npz archive: Not a zip archive")));
  EXPECT_THAT(NpzFile::Open(::testing::TempDir()), StatusIs(kInvalid, HasSubstr("directory")));
}

TEST(NpzTest, EveryTruncationIsAnError) {
  const std::string path = TestPath("whole.npz");
  WEFT_ASSERT_OK(WriteNpz(path, {{"x", MakeTensor<float>({4}, {1, 2, 3, 4})}}));
  const std::string bytes = Contents(path);
  const std::string cut = TestPath("cut.npz");
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::ofstream(cut, std::ios::binary) << bytes.substr(0, size);
    EXPECT_THAT(ReadNpz(cut), StatusIs(kInvalid, HasSubstr("cut.npz: "))) << size;
  }
}

TEST(NpzTest, FlippedDataByteFailsTheChecksum) {
  const std::string path = TestPath("flipped.npz");
  WEFT_ASSERT_OK(WriteNpz(path, {{"x", MakeTensor<int32_t>({1}, {0x12345678})}}));
  std::string bytes = Contents(path);
  bytes[bytes.find("\x78\x56\x34\x12")] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT(ReadNpz(path), StatusIs(kInvalid, AllOf(HasSubstr("array 'x'"), HasSubstr("CRC"))));
}

TEST(NpzTest, ShapeThatDisagreesWithTheDataIsRefused) {
  EXPECT_THAT(ReadNpz(MakeZip("short.npz", "x.npy", NpyBytes({5}, {1, 2, 3}))),
              StatusIs(kInvalid, HasSubstr("short.npz: array 'x': shape [5] of fp32 takes 20 "
                                           "bytes, but 12 are present")));
  EXPECT_THAT(ReadNpz(MakeZip("long.npz", "x.npy", NpyBytes({2}, {1, 2, 3}))),
              StatusIs(kInvalid, HasSubstr("takes 8 bytes, but 12 are present")));
}

TEST(NpzTest, HugeShapeOverFewBytesTakesNoMemory) {
  EXPECT_THAT(ReadNpz(MakeZip("huge.npz", "x.npy", NpyBytes({1 << 30, 1 << 28}, {1}))),
              StatusIs(kInvalid, HasSubstr("takes 1152921504606846976 bytes, but 4 are present")));
}

TEST(NpzTest, DirectoryThatPromisesMoreThanDeflateCanGiveIsRefused) {
  const std::string path =
      MakeZip("bomb.npz", "x.npy", NpyBytes({4}, {1, 2, 3, 4}), ZIP_CM_DEFLATE);
  std::string bytes = Contents(path);
  // The uncompressed size in the central directory, 24 bytes from the start of its record.
  const size_t size_field = bytes.find("PK\1\2") + 24;
  bytes.replace(size_field, 4, "\xf0\xff\xff\x7f");
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT(ReadNpz(path), StatusIs(kInvalid, HasSubstr("bomb.npz: array 'x': ")));
}

TEST(NpzTest, EntryThatIsNotAnArrayIsRefused) {
  EXPECT_THAT(
      NpzFile::Open(MakeZip("other.npz", "readme.txt", "hello")),
      StatusIs(kInvalid, HasSubstr("entry 'readme.txt': expected a name that ends in .npy")));
  EXPECT_THAT(ReadNpz(MakeZip("bad.npz", "x.npy", "hello")),
              StatusIs(kInvalid, HasSubstr("array 'x': not .npy data")));
}

TEST(NpzTest, BooleanThatIsNeitherTrueNorFalseIsRefused) {
  const std::string bytes = absl::StrCat(*NpyHeaderFor(DType::kBool, {2}), "\x01\x02");
  EXPECT_THAT(ReadNpz(MakeZip("bool.npz", "m.npy", bytes)),
              StatusIs(kInvalid, HasSubstr("element 1")));
}

}  // namespace
}  // namespace weft::testing
