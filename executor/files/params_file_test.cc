#include "executor/files/params_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

using ::testing::_;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kInit[] = "tests/data/fit_a_line/init.params";
const std::vector<std::string>& FitALineNames() {
  static const auto& names =
      *new std::vector<std::string>{"fc_0.b_0", "fc_0.w_0", "learning_rate_0"};
  return names;
}

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

std::string MakeFile(const std::string& name, const std::string& bytes) {
  std::ofstream(TestPath(name), std::ios::binary) << bytes;
  return TestPath(name);
}

template <typename T>
std::string Le(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// An entry of the stream: fp32 with this description and data, after `lod` (levels and offsets).
std::string EntryBytes(const std::string& desc, const std::string& data,
                       const std::string& lod = Le<uint64_t>(0)) {
  return absl::StrCat(Le<uint32_t>(0), lod, Le<uint32_t>(0), Le<int32_t>(desc.size()), desc, data);
}
// A description: element type (pb::VarType::Type), then dimensions below 128.
std::string Desc(int type, const std::vector<int>& dims) {
  std::string desc = {'\x08', static_cast<char>(type)};
  for (int dim : dims) desc += {'\x10', static_cast<char>(dim)};
  return desc;
}

TEST(SaveCombineTest, FileThatPaddleWroteIsReadUnderItsNames) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, ReadSaveCombine(kInit, FitALineNames()));
  EXPECT_THAT(params["fc_0.w_0"].dims(), ElementsAre(13, 1));
  EXPECT_THAT(params["fc_0.b_0"].dims(), ElementsAre(1));
  EXPECT_THAT(params["learning_rate_0"].dims(), IsEmpty());
  EXPECT_EQ(*params["learning_rate_0"].data<float>(), 0.01f);
}

TEST(SaveCombineTest, WritingWhatPaddleWroteGivesTheSameBytes) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, ReadSaveCombine(kInit, FitALineNames()));
  const std::string path = TestPath("again.params");
  WEFT_ASSERT_OK(SaveParams(path, params));
  EXPECT_EQ(Contents(path), Contents(kInit));
}

TEST(SaveCombineTest, WrongNumberOfNamesSaysHowManyTensorsThereAre) {
  EXPECT_THAT(ReadSaveCombine(kInit, {"a", "b"}),
              StatusIs(kInvalid,
                       "tests/data/fit_a_line/init.params: the file holds 3 tensors, "
                       "but there are 2 names"));
  EXPECT_THAT(ReadSaveCombine(kInit, {"a", "b", "c", "d"}),
              StatusIs(kInvalid, HasSubstr("holds 3 tensors, but there are 4 names")));
}

TEST(SaveCombineTest, RepeatedNameIsRefused) {
  EXPECT_THAT(ReadSaveCombine(kInit, {"a", "b", "a"}),
              StatusIs(kInvalid, HasSubstr("variable 'a' is named twice")));
}

TEST(SaveCombineTest, TruncationNamesTheVariable) {
  const std::string bytes = Contents(kInit);
  EXPECT_THAT(ReadSaveCombine(MakeFile("cut.params", bytes.substr(0, 60)), FitALineNames()),
              StatusIs(kInvalid, AllOf(HasSubstr("tensor 1 (fc_0.w_0): truncated: data of "
                                                 "fp32[13, 1] takes 52 bytes"))));
}

TEST(SaveCombineTest, EveryTruncationIsAnError) {
  const std::string bytes = Contents(kInit);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ReadSaveCombine(MakeFile("cut.params", bytes.substr(0, size)), FitALineNames()),
                StatusIs(kInvalid, HasSubstr("cut.params: ")))
        << size;
  }
}

TEST(SaveCombineTest, LodOffsetsAreSkipped) {
  const std::string lod = absl::StrCat(Le<uint64_t>(2), Le<uint64_t>(16), Le<uint64_t>(0),
                                       Le<uint64_t>(2), Le<uint64_t>(8), Le<uint64_t>(0));
  const std::string path =
      MakeFile("lod.params", absl::StrCat(EntryBytes(Desc(5, {2}), Le(1.5f) + Le(2.5f), lod),
                                          EntryBytes(Desc(3, {1}), Le<int64_t>(7))));
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, ReadSaveCombine(path, {"a", "b"}));
  EXPECT_EQ(params["a"].data<float>()[1], 2.5f);
  EXPECT_EQ(params["b"].data<int64_t>()[0], 7);
}

TEST(SaveCombineTest, PackedDimensionsAreRead) {
  const std::string desc("\x08\x05\x12\x02\x02\x01", 6);
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto params,
      ReadSaveCombine(MakeFile("packed.params", EntryBytes(desc, Le(1.f) + Le(2.f))), {"a"}));
  EXPECT_THAT(params["a"].dims(), ElementsAre(2, 1));
}

TEST(SaveCombineTest, SelectedRowsAreRefusedByName) {
  // 100 rows, at the position where a dense tensor has its number of LoD levels.
  std::string rows = absl::StrCat(Le<uint32_t>(0), Le<uint64_t>(100));
  for (int64_t row = 0; row < 100; ++row) rows += Le(row);
  EXPECT_THAT(ReadSaveCombine(MakeFile("rows.params", rows), {"emb"}),
              StatusIs(kInvalid, HasSubstr("tensor 0 (emb): 100 LoD levels; expected a dense "
                                           "tensor (SelectedRows are not supported)")));
}

TEST(SaveCombineTest, SelectedRowsAreNotWritten) {
  Tensor rows;
  rows.ResizeRows(DType::kFloat32, {4, 1}, 1);
  EXPECT_THAT(SaveParams(TestPath("rows.params"), {{"g", rows}}),
              StatusIs(kInvalid, HasSubstr("variable 'g' holds SelectedRows")));
}

TEST(SaveCombineTest, UnknownElementTypeIsRefused) {
  EXPECT_THAT(ReadSaveCombine(MakeFile("new.params", EntryBytes(Desc(99, {1}), "1234")), {"w"}),
              StatusIs(kInvalid, HasSubstr("tensor 0 (w): the description has no element type")));
  // LOD_TENSOR is a type of variables, not of elements.
  EXPECT_THAT(ReadSaveCombine(MakeFile("kind.params", EntryBytes(Desc(7, {1}), "1234")), {"w"}),
              StatusIs(kInvalid, HasSubstr("element type 7 is not supported")));
}

TEST(SaveCombineTest, HugeAndNegativeDimensionsAreRefused) {
  const std::string negative("\x08\x05\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13);
  EXPECT_THAT(ReadSaveCombine(MakeFile("neg.params", EntryBytes(negative, "")), {"w"}),
              StatusIs(kInvalid, HasSubstr("dimensions [-1] are not all known")));
  const std::string huge(
      "\x08\x05\x10\x80\x80\x80\x80\x80\x80\x01\x10\x80\x80\x80\x80\x80\x80\x01");
  EXPECT_THAT(ReadSaveCombine(MakeFile("huge.params", EntryBytes(huge, "")), {"w"}),
              StatusIs(kInvalid, HasSubstr("too large")));
}

TEST(SaveCombineTest, TextFileIsRefused) {
  EXPECT_THAT(ReadSaveCombine(MakeFile("text.params", "hello, this is a text"), {"w"}),
              StatusIs(kInvalid, HasSubstr("is this a save_combine file?")));
}

TEST(NameListTest, LinesAndJsonGiveTheSame) {
  EXPECT_THAT(ReadNameList(MakeFile("n.txt", "b\r\n\n  a_0 \nc")),
              IsOkAndHolds(ElementsAre("b", "a_0", "c")));
  EXPECT_THAT(ReadNameList(MakeFile("n.json", " [\"b\",\n \"a_0\", \"c\"]\n")),
              IsOkAndHolds(ElementsAre("b", "a_0", "c")));
}

TEST(NameListTest, JsonOfAnotherFormIsRefused) {
  for (const char* text : {"[1, 2]", "[\"a\"", "[\"a\"] x"}) {
    EXPECT_THAT(ReadNameList(MakeFile("bad.json", text)),
                StatusIs(kInvalid, HasSubstr("bad.json: expected a JSON list of names")))
        << text;
  }
}

TEST(LoadParamsTest, ExtensionDecidesTheFormat) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, ReadSaveCombine(kInit, FitALineNames()));
  WEFT_ASSERT_OK(SaveParams(TestPath("p.npz"), params));
  WEFT_ASSERT_OK(SaveParams(TestPath("p.params"), params));
  EXPECT_EQ(Contents(TestPath("p.npz")).substr(0, 2), "PK");
  EXPECT_EQ(Contents(TestPath("p.params")), Contents(kInit));

  WEFT_ASSERT_OK_AND_ASSIGN(auto npz, LoadParams(TestPath("p.npz"), ""));
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto stream, LoadParams(TestPath("p.params"), "tests/data/fit_a_line/persistables.txt"));
  EXPECT_EQ(npz["fc_0.w_0"].data<float>()[5], stream["fc_0.w_0"].data<float>()[5]);
}

TEST(LoadParamsTest, NamesAreForSaveCombineOnly) {
  EXPECT_THAT(LoadParams(kInit, ""), StatusIs(kInvalid, HasSubstr("needs a list of its names")));
  EXPECT_THAT(LoadParams("x.npz", "names.txt"), StatusIs(kInvalid, HasSubstr("takes no list")));
}

// Both formats know the types of their tensors before they read them.
TEST(LoadParamsTest, FolderHasAFileForEachVariable) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto params, ReadSaveCombine(kInit, FitALineNames()));
  const std::string folder = TestPath("folder.d");
  std::filesystem::create_directories(folder + "/encoder");
  WEFT_ASSERT_OK(SaveParams(folder + "/fc_0.w_0", {{"fc_0.w_0", params.at("fc_0.w_0")}}));
  WEFT_ASSERT_OK(SaveParams(folder + "/encoder/b_0", {{"b_0", params.at("fc_0.b_0")}}));
  MakeFile("folder.d/__model__", "a program");
  MakeFile("folder.d/.hidden", "no tensor");

  EXPECT_TRUE(HasNames(folder));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto read, LoadParams(folder + "/", ""));
  EXPECT_THAT(read, ElementsAre(Pair("encoder/b_0", _), Pair("fc_0.w_0", _)));
  EXPECT_EQ(read.at("fc_0.w_0").data<float>()[5], params.at("fc_0.w_0").data<float>()[5]);

  EXPECT_THAT(LoadParams(folder, "names.txt"), StatusIs(kInvalid, HasSubstr("takes no list")));
  MakeFile("folder.d/notes", "text, which is longer than a version");
  EXPECT_THAT(LoadParams(folder, ""), StatusIs(kInvalid, HasSubstr("folder.d/notes: tensor 0")));
  std::filesystem::create_directories(TestPath("empty.d"));
  EXPECT_THAT(LoadParams(TestPath("empty.d"), ""), StatusIs(kInvalid, HasSubstr("empty folder")));
}

TEST(LoadParamsTest, BytesTellTheFormatWhateverTheName) {
  std::map<std::string, Tensor> tensors;
  tensors["a"].Resize(DType::kFloat32, {2, 3});
  for (const char* const extension : {".npz", ".safetensors", ".pdparams"}) {
    SCOPED_TRACE(extension);
    const std::string named = TestPath(absl::StrCat("named", extension));
    WEFT_ASSERT_OK(SaveParams(named, tensors));
    for (const char* const other : {"bare", "other.npz", "other.pdparams"}) {
      const std::string path = TestPath(other);
      std::filesystem::copy_file(named, path, std::filesystem::copy_options::overwrite_existing);
      EXPECT_TRUE(HasNames(path));
      WEFT_ASSERT_OK_AND_ASSIGN(const auto read, LoadParams(path, ""));
      EXPECT_THAT(read, ElementsAre(Pair("a", _)));
    }
  }
}

TEST(LoadParamsTest, CheckSeesAllTypesAndItsErrorHasThePath) {
  const std::string npz = TestPath("checked.npz"), stream = TestPath("checked.params");
  std::map<std::string, Tensor> tensors;
  tensors["a"].Resize(DType::kFloat32, {2, 3});
  tensors["b"].Resize(DType::kInt64, {});
  WEFT_ASSERT_OK(SaveParams(npz, tensors));
  WEFT_ASSERT_OK(SaveParams(stream, tensors));
  const std::string names = MakeFile("checked.txt", "a\nb\n");
  for (const auto& [path, names_path] :
       {std::make_pair(npz, std::string()), std::make_pair(stream, names)}) {
    std::string seen;
    const auto result =
        LoadParams(path, names_path, [&](const std::string& name, const TensorType& type) {
          absl::StrAppend(&seen, name, " ", ToString(type), ";");
          return name == "b" ? absl::InvalidArgumentError("no b") : absl::OkStatus();
        });
    EXPECT_THAT(result, StatusIs(kInvalid, path + ": no b"));
    EXPECT_EQ(seen, "a fp32[2, 3];b int64[];");
  }
}

}  // namespace
}  // namespace weft::testing
