// What only shows a program shows a malformed one, and says what is wrong.
#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/framework.pb.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

namespace pb = ::paddle::framework::proto;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";

ProcessResult Weft(std::vector<std::string> args) {
  args.insert(args.begin(), "tools/weft");
  return RunProcess(args);
}

// A block with this parent, and an op whose block is missing.
std::string Malformed(const std::string& name, int parent) {
  pb::ProgramDesc desc;
  EXPECT_TRUE(desc.ParseFromString(std::string(ReadFile(kMain)->bytes)));
  pb::BlockDesc* block = desc.add_blocks();
  block->set_idx(1);
  block->set_parent_idx(parent);
  pb::OpDesc* op = desc.mutable_blocks(0)->add_ops();
  op->set_type("while");
  pb::OpDesc::Attr* attr = op->add_attrs();
  attr->set_name("sub_block");
  attr->set_type(pb::BLOCK);
  attr->set_block_idx(9);
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << desc.SerializeAsString();
  return path;
}

// The JSON text in a page.
std::string DataOf(const std::string& page) {
  constexpr char kBegin[] = R"(id="data">)";
  const size_t begin = page.find(kBegin) + sizeof(kBegin) - 1;
  std::string packed;
  EXPECT_TRUE(absl::Base64Unescape(page.substr(begin, page.find('<', begin) - begin), &packed));
  std::string text(1 << 20, '\0');
  uLongf size = text.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  text.resize(size);
  return text;
}

TEST(MalformedProgramsTest, AreShown) {
  const std::string bad = Malformed("bad.pb", 7);
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"show", bad}, {"stats", bad}, {"view", bad, "-o", "-"}, {"diff", bad, bad}}) {
    const ProcessResult result = Weft(args);
    EXPECT_EQ(result.status, 0) << args[0] << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("bad.pb: block 1: parent block 7 is missing; shown with parent 0"),
                      HasSubstr("bad.pb: op 13 (while): sub-block 9 is missing; the program has 2 "
                                "blocks; shown without attribute sub_block")))
        << args[0];
  }
}

TEST(MalformedProgramsTest, BytesTellTheFormatAndNotTheName) {
  const std::string bad = Malformed("bad.json", 7), good = ::testing::TempDir() + "/good.prog";
  std::ofstream(good, std::ios::binary) << ReadFile(kMain)->bytes;
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"show"}, {"stats"}, {"view", "-o", "-"}, {"diff", kMain}}) {
    for (const std::string& path : {bad, good}) {
      std::vector<std::string> with_path = args;
      with_path.push_back(path);
      const ProcessResult result = Weft(with_path);
      EXPECT_EQ(result.status, args[0] == "diff" && path == bad ? 1 : 0) << args[0] << result.err;
      EXPECT_EQ(path == bad, absl::StrContains(result.err, "bad.json: block 1: parent block 7"))
          << args[0] << result.err;
    }
  }
}

TEST(MalformedProgramsTest, AreNeverCalledRight) {
  const std::string bad = Malformed("bad.pb", 7), worse = Malformed("worse.pb", 8);
  EXPECT_THAT(DataOf(Weft({"view", bad, "-o", "-"}).out), HasSubstr(R"("verdict":"wrong: )"));
  const ProcessResult diff = Weft({"diff", bad, worse});
  EXPECT_EQ(diff.status, 1);
  EXPECT_EQ(diff.out, "malformed in other places: see the warnings\n");
}

TEST(MalformedProgramsTest, AreNotRun) {
  const std::string bad = Malformed("bad.pb", 7);
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"run", bad, "--steps", "1"}, {"verify", bad}}) {
    const ProcessResult result = Weft(args);
    EXPECT_EQ(result.status, 1) << args[0];
    EXPECT_THAT(result.err, HasSubstr("error: ")) << args[0];
    EXPECT_THAT(result.err, HasSubstr("block 1: parent block 7 is missing")) << args[0];
  }
}

// Pairs of parameter and gradient of which one is missing count no gradients.
TEST(MalformedProgramsTest, StatisticsLeaveOutPairsThatAreNone) {
  pb::ProgramDesc desc;
  ASSERT_TRUE(desc.ParseFromString(std::string(ReadFile(kMain)->bytes)));
  for (pb::OpDesc::Attr& attr : *desc.mutable_blocks(0)->mutable_ops(10)->mutable_attrs()) {
    if (attr.name() == "op_role_var") attr.add_strings("w");
  }
  const std::string path = ::testing::TempDir() + "/odd.pb";
  std::ofstream(path, std::ios::binary) << desc.SerializeAsString();
  const ProcessResult result = Weft({"stats", path});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("odd.pb: op 10 (mul_grad): attribute op_role_var: expected "
                                    "pairs of parameter and gradient, found 3 names"));
}

}  // namespace
}  // namespace weft::testing
