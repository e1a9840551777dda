#include "executor/files/pickle.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "executor/files/params_file.h"

namespace weft::testing {
namespace {

using ::testing::Key;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kPickles[] = "tests/data/pickles/";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

absl::StatusOr<std::map<std::string, Tensor>> ReadBytes(const std::string& bytes) {
  const std::string path = TestPath("bytes.pdparams");
  std::ofstream(path, std::ios::binary) << bytes;
  return ReadPickle(path);
}

std::vector<float> Floats(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

// `bytes` after the start of protocol 4.
std::string Pickle(const std::string& bytes) { return absl::StrCat("\x80\x04", bytes); }

TEST(PickleTest, FilesOfPaddleAndNumPyHaveTheSameParameters) {
  for (const char* name : {"static", "protocol2", "layer", "fortran"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto tensors,
                              ReadPickle(absl::StrCat(kPickles, name, ".pdparams")));
    ASSERT_THAT(tensors, ElementsAre(Key("b"), Key("w"))) << name;
    EXPECT_THAT(tensors.at("w").dims(), ElementsAre(2, 3)) << name;
    EXPECT_THAT(Floats(tensors.at("w")), ElementsAre(0, 1, 2, 3, 4, 5)) << name;
    EXPECT_THAT(Floats(tensors.at("b")), ElementsAre(0, 1, 2)) << name;
  }
}

TEST(PickleTest, StateOfAnOptimizerHasNoScheduler) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto tensors, ReadPickle(absl::StrCat(kPickles, "layer.pdopt")));
  EXPECT_THAT(tensors, ElementsAre(Key("b_velocity_0"), Key("w_velocity_0")));
}

TEST(PickleTest, ParametersComeWithTheStateBesideThem) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto tensors,
                            LoadParams(absl::StrCat(kPickles, "static.pdparams"), ""));
  EXPECT_THAT(tensors, ElementsAre(Key("b"), Key("b_velocity_0"), Key("learning_rate_0"), Key("w"),
                                   Key("w_velocity_0")));
}

TEST(PickleTest, UnsignedIntegersAreBf16) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto tensors,
                            ReadPickle(absl::StrCat(kPickles, "bf16.pdparams")));
  // The name that Paddle gave to the tensor itself.
  ASSERT_THAT(tensors, ElementsAre(Key("eager_tmp_0")));
  const Tensor& ones = tensors.begin()->second;
  ASSERT_EQ(ones.dtype(), DType::kBFloat16);
  EXPECT_EQ(static_cast<float>(ones.data<BFloat16>()[1]), 1);
}

TEST(PickleTest, TensorsOfAllTypesReadBack) {
  std::map<std::string, Tensor> tensors;
  for (const DType dtype :
       {DType::kBool, DType::kInt8, DType::kUint8, DType::kInt16, DType::kInt32, DType::kInt64,
        DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    Tensor& tensor = tensors[std::string(DTypeName(dtype))];
    tensor.Resize(dtype, {2, 1, 300});
    for (size_t i = 0; i < tensor.bytes(); ++i) {
      static_cast<char*>(tensor.raw())[i] = static_cast<char>(i % 2);
    }
  }
  tensors["scalar"].Resize(DType::kInt64, {});
  *tensors["scalar"].data<int64_t>() = std::numeric_limits<int64_t>::min();
  tensors["empty"].Resize(DType::kFloat32, {0, 3});
  const std::string path = TestPath("all.pdparams");
  WEFT_ASSERT_OK(WritePickles({{path, &tensors}}));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto read, ReadPickle(path));
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor& found = read.at(name);
    EXPECT_EQ(found.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(found.dims(), tensor.dims()) << name;
    EXPECT_EQ(std::string(static_cast<const char*>(found.raw()), found.bytes()),
              std::string(static_cast<const char*>(tensor.raw()), tensor.bytes()))
        << name;
  }
}

TEST(PickleTest, FilesChangeTogetherOrNot) {
  std::map<std::string, Tensor> tensors;
  tensors["a"].Resize(DType::kFloat32, {1});
  *tensors["a"].data<float>() = 1;
  const std::string path = TestPath("together.pdopt");
  WEFT_ASSERT_OK(WritePickles({{path, &tensors}}));
  const std::string folder = TestPath("together.pdparams");
  rmdir(folder.c_str());  // of a test before
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::map<std::string, Tensor> none;
  EXPECT_THAT(std::string(WritePickles({{path, &none}, {folder, &none}}).message()),
              ::testing::StartsWith(folder));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto read, ReadPickle(path));
  EXPECT_EQ(read.count("a"), 1);
}

TEST(PickleTest, OnlyTheClassesOfArraysMayBeNamed) {
  EXPECT_THAT(ReadBytes(Pickle("cos\nsystem\nX\x04\0\0\0true\x85R.")),
              StatusIs(kInvalid, HasSubstr("bytes.pdparams: instruction at byte 2 ('c'): names "
                                           "os.system, which arrays do not need")));
  // Not every class that is known is a function.
  EXPECT_THAT(ReadBytes(Pickle("cnumpy\nndarray\n)R.")),
              StatusIs(kInvalid, HasSubstr("calls what is no function of arrays")));
}

TEST(PickleTest, DamagedFilesAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "no pickle of protocol 2 or later"},
      {"PK", "no pickle of protocol 2 or later"},
      {"\x80\x05}.", "protocol 5; expected 2 to 4"},
      {Pickle("}"), "truncated: the pickle has no end"},
      {Pickle("."), "does not end with one object"},
      {Pickle("]."), "expected a dictionary of arrays"},
      {Pickle("}K\x01N"
              "s."),
       "expected a dictionary of arrays by name"},
      {Pickle("s."), "takes an object, but there is none"},
      {Pickle("u."), "takes a mark, but there is none"},
      {Pickle("}(Nu."), "a key without a value"},
      {Pickle("h\x07."), "was not remembered"},
      {Pickle("}q\x07."), "out of order"},
      {Pickle("B\xff\xff\xff\xff"), "truncated: takes 4294967295 bytes, but 0 are left"},
      {Pickle("i."), "an instruction that arrays do not need"},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_THAT(ReadBytes(bytes), StatusIs(kInvalid, HasSubstr(expected)));
  }
}

TEST(PickleTest, EveryPrefixOfAFileIsRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes file,
                            ReadFile(absl::StrCat(kPickles, "protocol2.pdparams")));
  for (size_t size = 0; size < file.bytes.size(); ++size) {
    EXPECT_THAT(ReadBytes(std::string(file.bytes.substr(0, size))),
                StatusIs(kInvalid, HasSubstr("bytes.pdparams: ")))
        << size;
  }
}

TEST(PickleTest, ArrayWhoseBytesAreNotThoseOfItsShapeIsRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes file,
                            ReadFile(absl::StrCat(kPickles, "static.pdparams")));
  std::string bytes(file.bytes);
  const size_t dims = bytes.find("K\x02K\x03\x86");
  ASSERT_NE(dims, std::string::npos);
  bytes[dims + 1] = 7;
  EXPECT_THAT(ReadBytes(bytes),
              StatusIs(kInvalid, HasSubstr("fp32[7, 3] takes 84 bytes, found 24")));
}

// Few instructions must not make many bytes of what the file has once.
TEST(PickleTest, MemoryIsBoundedByTheFile) {
  const std::string kZero(1, '\0'), kZeros(3, '\0');
  // A text of 96 bytes, which is remembered, as is the name of the encoding.
  std::string decodes = absl::StrCat("c_codecs\nencode\nq", kZero, "X\x60", kZeros,
                                     std::string(96, 'x'), "q\x01", "X\x06", kZeros, "latin1q\x02");
  for (int i = 0; i < 100; ++i) absl::StrAppend(&decodes, "h", kZero, "h\x01h\x02\x86R");
  EXPECT_THAT(ReadBytes(Pickle(decodes + "}.")),
              StatusIs(kInvalid, HasSubstr("decodes more text than the pickle has")));

  EXPECT_THAT(ReadBytes(Pickle(std::string(1 << 20, 'N') + ".")),
              StatusIs(kInvalid, HasSubstr("the objects take")));

  // An array that is there once, under several names, as tied weights are.
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {1000});
  std::fill_n(tensor.data<float>(), 1000, 1.5f);
  const std::string path = TestPath("shared.pdparams");
  const std::map<std::string, Tensor> tensors = {{"a", tensor}};
  WEFT_ASSERT_OK(WritePickles({{path, &tensors}}));
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes one, ReadFile(path));
  std::string shared(one.bytes);
  ASSERT_TRUE(absl::EndsWith(shared, "bu."));
  shared.resize(shared.size() - 2);
  absl::StrAppend(&shared, "q", kZero);  // remembers the array
  const auto with_name = [&](const char* name) {
    absl::StrAppend(&shared, "\x8c\x01", name, "h", kZero);
    return ReadBytes(shared + "u.");
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const auto two, with_name("b"));
  EXPECT_EQ(Floats(two.at("b")), Floats(tensor));
  EXPECT_THAT(with_name("c"),
              StatusIs(kInvalid, HasSubstr("the arrays have 12000 bytes, but the pickle has 41")));
}

TEST(PickleTest, CheckRefusesBeforeMemoryIsTaken) {
  EXPECT_THAT(ReadPickle(absl::StrCat(kPickles, "static.pdparams"),
                         [](const std::string& name, const TensorType&) {
                           return absl::InvalidArgumentError(name + ": not this one");
                         }),
              StatusIs(kInvalid, HasSubstr("static.pdparams: b: not this one")));
}

}  // namespace
}  // namespace weft::testing
