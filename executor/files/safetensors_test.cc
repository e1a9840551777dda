#include "executor/files/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "executor/files/params_file.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

std::string MakeFile(const std::string& name, const std::string& bytes) {
  std::ofstream(TestPath(name), std::ios::binary) << bytes;
  return TestPath(name);
}

// A file in memory, for many contents: those on a disk take their time.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("test", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(fd_); }

  // Returns the path.
  std::string Set(const std::string& bytes) {
    EXPECT_EQ(ftruncate(fd_, 0), 0);
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return absl::StrCat("/proc/self/fd/", fd_);
  }

 private:
  const int fd_;
};

std::string FileBytesOf(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return absl::StrCat(std::string(reinterpret_cast<const char*>(&size), 8), header, data);
}

// The error of a file with this header and data.
absl::Status ErrorOf(const std::string& header, const std::string& data) {
  return ReadSafetensors(MakeFile("bad.safetensors", FileBytesOf(header, data))).status();
}

Tensor TensorOf(DType dtype, const Dims& dims) {
  Tensor tensor;
  tensor.Resize(dtype, dims);
  auto* const bytes = static_cast<uint8_t*>(tensor.raw());
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? i % 2 : 7 * i + 1);
  }
  return tensor;
}

std::map<std::string, Tensor> TensorsOfAllTypes() {
  std::map<std::string, Tensor> tensors;
  for (DType dtype : {DType::kBool, DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32,
                      DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                      DType::kFloat64, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    tensors[std::string(DTypeName(dtype))] = TensorOf(dtype, {2, 3});
  }
  tensors["scalar"] = TensorOf(DType::kFloat32, {});
  tensors["empty"] = TensorOf(DType::kFloat32, {0, 3});
  tensors["\u00e4/\"b\"\n"] = TensorOf(DType::kInt64, {1});
  return tensors;
}

TEST(SafetensorsTest, AllElementTypesAndMetadataComeBack) {
  const auto tensors = TensorsOfAllTypes();
  const std::string path = TestPath("all.safetensors");
  WEFT_ASSERT_OK(WriteSafetensors(path, tensors, {{"a", "1"}, {"b", "\u00e4\n"}}));
  WEFT_ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("a", "1"), Pair("b", "\u00e4\n")));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto read, ReadSafetensors(path));
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, expected] : tensors) {
    const Tensor& found = read.at(name);
    EXPECT_EQ(found.dtype(), expected.dtype()) << name;
    EXPECT_EQ(found.dims(), expected.dims()) << name;
    EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0) << name;
  }
  EXPECT_THAT(file.Read("c"), IsNotFound("tensor 'c'"));
}

// As Hugging Face's library writes it: larger elements first, then by name, padded to 8 bytes.
TEST(SafetensorsTest, BytesAreThoseOfTheFormat) {
  std::map<std::string, Tensor> tensors;
  tensors["a"] = TensorOf(DType::kUint8, {2});
  tensors["b"] = TensorOf(DType::kFloat32, {1, 1});
  const std::string path = TestPath("bytes.safetensors");
  WEFT_ASSERT_OK(WriteSafetensors(path, tensors, {{"format", "pt"}}));
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(Contents(path), FileBytesOf(padded, "\x01\x08\x0f\x16\x01\x08"));
}

TEST(SafetensorsTest, BadFilesAreRefused) {
  const std::string f32 = R"("dtype":"F32","shape":[1])";
  const struct {
    std::string header, data, message;
  } cases[] = {
      {"", "", "no JSON object"},
      {"[]", "", "no JSON object"},
      {"{} {}", "", "no JSON object"},
      {"{\"a\":", "", "no JSON object"},
      {R"({"a":1})", "", "tensor 'a': expected {\"dtype\""},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "1234", "tensor 'a': expected {\"dtype\""},
      {R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", "1234", "expected {\"dtype\""},
      {R"({"a":{"dtype":"U16","shape":[1],"data_offsets":[0,2]}})", "12",
       "element type U16 is not supported"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234", "no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "1234", "no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "1234",
       "no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234",
       "is too large"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234",
       "fp32[2] takes 8 bytes, but its data_offsets span 4"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[4,0]}}"), "1234", "[begin, end]"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[0]}}"), "1234", "[begin, end]"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[0,4]}}"), "123",
       "its data end at 4, but there are 3 bytes"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[0,4]}}"), "12345",
       "the last 1 bytes are of no tensor"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[1,5]}}"), "12345",
       "1 bytes before it are of no tensor"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[0,4]},\"b\":{", f32,
                    ",\"data_offsets\":[2,6]}}"),
       "123456", "tensor 'b': its data overlap"},
      {absl::StrCat("{\"a\":{", f32, ",\"data_offsets\":[0,4]},\"a\":{", f32,
                    ",\"data_offsets\":[4,8]}}"),
       "12345678", "has 'a' twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", "1234",
       "has 'shape' twice"},
      {R"({"__metadata__":{"a":1}})", "", "__metadata__ is no object of texts"},
      {R"({"a":{"dtype":"F32","shape":[[[1]]],"data_offsets":[0,4]}})", "1234", "too deeply"},
      {R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02",
       "element 1 is neither true nor false"},
  };
  for (const auto& [header, data, message] : cases) {
    EXPECT_THAT(ErrorOf(header, data), StatusIs(kInvalid, HasSubstr(message))) << header;
  }
  EXPECT_THAT(ErrorOf("{}", "").message(), "");
  EXPECT_THAT(ReadSafetensors(MakeFile("short.safetensors", "1234")),
              StatusIs(kInvalid, HasSubstr("short.safetensors: truncated: ")));
  EXPECT_THAT(ReadSafetensors(MakeFile("text.safetensors", "this is a text")),
              StatusIs(kInvalid, HasSubstr("is this a safetensors file?")));
  EXPECT_THAT(ReadSafetensors(TestPath("nowhere.safetensors")), IsNotFound("nowhere.safetensors"));
}

TEST(SafetensorsTest, TruncatedFilesAreRefusedAndDamagedOnesDoNotCrash) {
  const std::string path = TestPath("whole.safetensors");
  WEFT_ASSERT_OK(WriteSafetensors(path, TensorsOfAllTypes(), {{"a", "1"}}));
  const std::string whole = Contents(path);
  MemoryFile file;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = file.Set(whole.substr(0, size));
    ASSERT_THAT(ReadSafetensors(cut), StatusIs(kInvalid, StartsWith(cut + ": "))) << size;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (int changes = 0; changes <= i % 3; ++changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const std::string damaged = file.Set(bytes);
    const auto read = ReadSafetensors(damaged);
    if (read.ok()) continue;
    ASSERT_THAT(std::string(read.status().message()), StartsWith(damaged + ": "));
  }
}

TEST(SafetensorsTest, WhatCannotBeWrittenIsRefusedAndTheOldFileStays) {
  const std::string path = MakeFile("kept.safetensors", "old");
  const auto error = [&](const std::string& name, const Tensor& tensor) {
    return WriteSafetensors(path, {{name, tensor}});
  };
  Tensor rows;
  rows.ResizeRows(DType::kFloat32, {5, 2}, 1);
  EXPECT_THAT(error("w", rows), StatusIs(kInvalid, HasSubstr("tensor 'w': holds SelectedRows")));
  EXPECT_THAT(error("w", Tensor()), StatusIs(kInvalid, HasSubstr("tensor 'w': has no value")));
  EXPECT_THAT(error("w", TensorOf(DType::kComplex64, {1})),
              StatusIs(kInvalid, HasSubstr("no element type for complex64")));
  EXPECT_THAT(error("__metadata__", TensorOf(DType::kInt8, {1})),
              StatusIs(kInvalid, HasSubstr("__metadata__")));
  EXPECT_THAT(error("\xff", TensorOf(DType::kInt8, {1})),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
  EXPECT_EQ(Contents(path), "old");
}

// What .npz cannot hold.
TEST(SafetensorsTest, ParametersInBf16AreSavedAndLoadedByTheirExtension) {
  std::map<std::string, Tensor> params;
  params["w"] = TensorOf(DType::kBFloat16, {2, 3});
  EXPECT_THAT(SaveParams(TestPath("w.npz"), params), StatusIs(kInvalid, HasSubstr("bf16")));
  const std::string path = TestPath("w.safetensors");
  WEFT_ASSERT_OK(SaveParams(path, params));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto read, LoadParams(path, ""));
  EXPECT_EQ(read.at("w").dtype(), DType::kBFloat16);
  EXPECT_EQ(std::memcmp(read.at("w").raw(), params["w"].raw(), 12), 0);
  EXPECT_THAT(LoadParams(path, "names.txt"), StatusIs(kInvalid, HasSubstr("takes no list")));
  const TensorCheck check = [](const std::string& name, const TensorType& type) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", ToString(type)));
  };
  EXPECT_THAT(LoadParams(path, "", check), StatusIs(kInvalid, path + ": w bf16[2, 3]"));
}

}  // namespace
}  // namespace weft::testing
