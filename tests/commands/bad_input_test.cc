// transpile and programs that are none: one line that says what is wrong, exit status 1, files as
// they were, and memory in proportion to the input.
#include <functional>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"
#include "proto/testing/wire_bytes.h"
#include "tests/commands/transpile_command.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string RandomBytes(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// --- Bytes that are no program ------------------------------------------------------------------

struct BadBytes {
  std::string name;
  std::string bytes;
  std::string message;
};

class RefusesBytes : public testing::TranspileCommandTest,
                     public ::testing::WithParamInterface<BadBytes> {};

TEST_P(RefusesBytes, AsMainAndAsStartupProgram) {
  MakeFile("bad.pb", GetParam().bytes);
  ExpectRefuses("bad.pb", absl::StrCat("bad.pb: ", GetParam().message));
  MakeFile("main.pb", MainBytes());
  ExpectRefuses("main.pb", absl::StrCat("bad.pb: ", GetParam().message),
                {"--startup_in", Path("bad.pb"), "--startup_out", Path("startup.pb")});
}

std::string Repeat(const std::string& bytes, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += bytes;
  return result;
}

std::string NestedBlocks(int depth) {
  ProgramBuilder builder;
  for (int i = 0; i < depth; ++i) builder.NewBlock(i);
  return builder.desc().SerializeAsString();
}

INSTANTIATE_TEST_SUITE_P(
    BadInputTest, RefusesBytes,
    ::testing::Values(
        BadBytes{"Empty", "", "the program is empty: no blocks"},
        BadBytes{"OneByte", "\x0a", "block at byte 0: malformed"},
        BadBytes{"Zeros", std::string(1000, '\0'), "byte 1: malformed"},
        BadBytes{"Random", RandomBytes(10000), ""},
        BadBytes{"Length2To31", WireTag(1, 2) + WireVarint(uint64_t{1} << 31) + "x",
                 "block at byte 0: malformed"},
        BadBytes{"Length2To63", WireTag(1, 2) + WireVarint(uint64_t{1} << 63) + "x",
                 "block at byte 0: malformed"},
        BadBytes{"LengthBeyondTheBlock", WireProgram(WireTag(4, 2) + WireVarint(0x7ffffff0)),
                 "block at byte 0, byte 15: malformed"},
        BadBytes{"LengthBeyondTheOp", WireProgram(WireOp(WireTag(3, 2) + WireVarint(0x7ffffff0))),
                 "op 0, byte 17: malformed"},
        BadBytes{"LengthBeyondTheName",
                 WireProgram(testing::WireVar(WireTag(1, 2) + WireVarint(0x7ffffff0))),
                 "variable 0, byte 17: malformed"},
        BadBytes{"MillionNestedGroups", WireProgram(WireNestedGroups(900, 1000000)),
                 "block at byte 0, byte 18: malformed"},
        BadBytes{"MillionNestedMessages", Repeat("\x0a\xff\xff\xff\x0f", 1000000),
                 "block at byte 0: malformed"},
        BadBytes{"DeeplyNestedBlocks", NestedBlocks(50000),
                 "block 257: blocks are nested deeper than 256"},
        BadBytes{"NameThatIsNotUtf8", WireProgram(WireOp(WireBytes(3, "mul\xc3("))),
                 "the name 'mul\\303(' is not valid UTF-8"},
        BadBytes{
            "TextNamedAsBinary", "programs version=2006002 {\n  block 0 parent=-1 {\n  }\n}\n",
            "byte 2: malformed or truncated protobuf (it looks like text; text programs are named "
            ".pbtxt or .prog)"},
        BadBytes{"LineBreaksInNames", WireProgram(WireOp(WireBytes(3, "a\nb") + "\x80")),
                 "op 0 (a\\nb), byte"}),
    [](const auto& info) { return info.param.name; });

class BadInputTest : public testing::TranspileCommandTest {};

TEST_F(BadInputTest, TruncatedProgramIsRefused) {
  const std::string whole = MainBytes();
  for (const size_t size : {whole.size() / 4, whole.size() / 2, whole.size() - 1}) {
    MakeFile("bad.pb", whole.substr(0, size));
    ExpectRefuses("bad.pb", "malformed or truncated protobuf");
  }
}

TEST_F(BadInputTest, DeeplyNestedTextIsRefused) {
  MakeFile("bad.pbtxt", Repeat("blocks {", 1000000));
  ExpectRefuses("bad.pbtxt", "bad.pbtxt: protobuf text: line 1");
  MakeFile("bad.prog", "program {\n" + Repeat("{[(", 1000000));
  ExpectRefuses("bad.prog", "bad.prog: line 2");
}

// Millions of the smallest possible messages must not take the memory of as many real ones.
TEST_F(BadInputTest, MemoryIsBoundedByTheSizeOfTheFile) {
  const std::string tiny_op = WireOp(WireBytes(3, ""));
  MakeFile("ops.pb", WireProgram(Repeat(tiny_op, 500000)));
  ExpectRefuses("ops.pb", "no gradients");
  MakeFile("slots.pb",
           WireProgram(WireOp(WireBytes(3, "x") + Repeat(WireBytes(1, WireBytes(1, "")), 500000))));
  ExpectRefuses("slots.pb", "no gradients");
  const std::string tiny_attr = WireBytes(4, WireBytes(1, "") + testing::WireNumber(2, 0));
  MakeFile("attrs.pb", WireProgram(WireOp(WireBytes(3, "x") + Repeat(tiny_attr, 300000))));
  ExpectRefuses("attrs.pb", "no gradients");
  std::string blocks;
  for (int i = 0; i < 200000; ++i) {
    blocks += WireBytes(1, testing::WireNumber(1, i) +
                               testing::WireNumber(2, i == 0 ? static_cast<uint64_t>(-1) : 0));
  }
  MakeFile("blocks.pb", blocks);
  ExpectRefuses("blocks.pb", "no gradients");
}

// The number of ways through the blocks is 2^60.
TEST_F(BadInputTest, SubBlocksOnManyWaysAreWalkedOnce) {
  pb::ProgramDesc desc = MainDesc();
  pb::BlockDesc* block = desc.mutable_blocks(0);
  for (int i = 1; i <= 61; ++i) {
    for (int times = i < 61 ? 2 : 0; times > 0; --times) {
      *block->add_ops() = ProgramBuilder().Op("while", {}, {}).BlockAttr("sub_block", i).last_op();
    }
    block = desc.add_blocks();
    block->set_idx(i);
    block->set_parent_idx(i - 1);
  }
  MakeFile("in.pb", desc.SerializeAsString());
  const ProcessResult result = GradAllReduce("in.pb", {"--verify", "false"});
  EXPECT_EQ(result.status, 0) << result.err;
}

// --- Programs that contradict themselves --------------------------------------------------------

struct BadProgram {
  std::string name;
  std::function<void(pb::ProgramDesc*)> damage;  // to fit_a_line's main program
  std::string message;
};

class RefusesProgram : public testing::TranspileCommandTest,
                       public ::testing::WithParamInterface<BadProgram> {};

TEST_P(RefusesProgram, InEveryFormat) {
  pb::ProgramDesc desc = MainDesc();
  GetParam().damage(&desc);
  MakeFile("bad.pb", desc.SerializePartialAsString());
  ExpectRefuses("bad.pb", absl::StrCat("bad.pb: ", GetParam().message));
  std::string text;
  google::protobuf::TextFormat::PrintToString(desc, &text);
  MakeFile("bad.pbtxt", text);
  ExpectRefuses("bad.pbtxt", absl::StrCat("bad.pbtxt: ", GetParam().message));
}

// Mode none copies what protobuf can read, and says what is wrong.
TEST_P(RefusesProgram, ButCopiesIt) {
  pb::ProgramDesc desc = MainDesc();
  GetParam().damage(&desc);
  MakeFile("bad.pb", desc.SerializePartialAsString());
  const ProcessResult result = Run({"--mode", "none", Path("bad.pb"), Path("copy.pb")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Read("copy.pb") == Read("bad.pb"));
  // A copy has no need of pairs of parameter and gradient.
  if (absl::StrContains(GetParam().message, "op_role_var")) return;
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: "), HasSubstr("bad.pb: ")));
}

// The first op of a type.
pb::OpDesc* OpOf(pb::ProgramDesc* desc, const std::string& type) {
  for (pb::OpDesc& op : *desc->mutable_blocks(0)->mutable_ops()) {
    if (op.type() == type) return &op;
  }
  ADD_FAILURE() << "no op " << type;
  return desc->mutable_blocks(0)->mutable_ops(0);
}

pb::OpDesc::Attr* AttrOf(pb::OpDesc* op, const std::string& name) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  pb::OpDesc::Attr* attr = op->add_attrs();
  attr->set_name(name);
  return attr;
}

// An op of op_role_var that names the weight.
pb::OpDesc::Attr* PairsOfWeight(pb::ProgramDesc* desc) {
  return AttrOf(OpOf(desc, "mul_grad"), "op_role_var");
}

void AddSubBlock(pb::ProgramDesc* desc, int idx, int parent, int sub_block) {
  pb::BlockDesc* block = desc->add_blocks();
  block->set_idx(idx);
  block->set_parent_idx(parent);
  if (sub_block < 0) return;
  *block->add_ops() =
      ProgramBuilder().Op("while", {}, {}).BlockAttr("sub_block", sub_block).last_op();
}

INSTANTIATE_TEST_SUITE_P(
    BadInputTest, RefusesProgram,
    ::testing::Values(
        BadProgram{"NoBlocks", [](pb::ProgramDesc* p) { p->clear_blocks(); },
                   "the program has no blocks"},
        BadProgram{"BlockIsMissing", [](pb::ProgramDesc* p) { AddSubBlock(p, 2, 0, -1); },
                   "block 1: has idx 2"},
        BadProgram{"ParentIsMissing", [](pb::ProgramDesc* p) { AddSubBlock(p, 1, 7, -1); },
                   "block 1: parent block 7 is missing"},
        BadProgram{"SubBlockIsMissing", [](pb::ProgramDesc* p) { AddSubBlock(p, 1, 0, 5); },
                   "block 1, op 0 (while): sub-block 5 is missing"},
        BadProgram{"SubBlocksContainEachOther",
                   [](pb::ProgramDesc* p) {
                     AddSubBlock(p, 1, 0, 2);
                     AddSubBlock(p, 2, 0, 1);
                   },
                   "block 1: sub-blocks contain each other in a cycle"},
        BadProgram{"VariableDeclaredTwice",
                   [](pb::ProgramDesc* p) {
                     pb::BlockDesc* root = p->mutable_blocks(0);
                     *root->add_vars() = root->vars(0);
                   },
                   "block 0: variable '"},
        BadProgram{"VariableNotDeclared",
                   [](pb::ProgramDesc* p) {
                     OpOf(p, "sgd")->mutable_inputs(0)->set_arguments(0, "nobody");
                   },
                   "op 11 (sgd) input Grad: variable nobody is not declared (W101)"},
        BadProgram{"OpWithoutType",
                   [](pb::ProgramDesc* p) { p->mutable_blocks(0)->mutable_ops(3)->clear_type(); },
                   "op 3 has no type"},
        BadProgram{
            "RoleOfWrongType",
            [](pb::ProgramDesc* p) { AttrOf(OpOf(p, "sgd"), "op_role")->set_type(pb::STRING); },
            "op 11 (sgd): attribute op_role: expected type INT, found STRING"},
        BadProgram{"AttributeOfWrongType",
                   [](pb::ProgramDesc* p) {
                     AttrOf(OpOf(p, "mul"), "x_num_col_dims")->set_type(pb::STRINGS);
                   },
                   "op 0 (mul) attribute x_num_col_dims: expected type INT, found STRINGS (W105)"},
        BadProgram{"SlotWithoutVariable",
                   [](pb::ProgramDesc* p) { OpOf(p, "sgd")->mutable_inputs(0)->clear_arguments(); },
                   "op 11 (sgd) input Grad: expected a variable, found none (W102)"},
        BadProgram{"OddRoleVars", [](pb::ProgramDesc* p) { PairsOfWeight(p)->add_strings("w"); },
                   "op 10 (mul_grad): attribute op_role_var: expected pairs of parameter and "
                   "gradient, found 3 names: fc_0.w_0, fc_0.w_0@GRAD, w"},
        BadProgram{"GradientNotDeclared",
                   [](pb::ProgramDesc* p) { PairsOfWeight(p)->set_strings(1, "nobody"); },
                   "op 10 (mul_grad): attribute op_role_var: gradient nobody is not declared"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
