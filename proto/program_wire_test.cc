// What Program makes of bytes: everything that libprotobuf reads comes out as it went in, and
// nothing else is accepted.
#include <climits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"
#include "proto/testing/wire_bytes.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Field numbers of framework.proto that the tests below write by hand.
constexpr int kOpInputs = 1, kOpOutputs = 2, kOpType = 3, kOpAttrs = 4;
constexpr int kAttrName = 1, kAttrType = 2, kAttrI = 3, kAttrFloats = 7, kAttrLongs = 15;
constexpr int kVarName = 1, kVarType = 2;
constexpr int kUnknown = 900;

std::string NamedOp(absl::string_view type, absl::string_view more = "") {
  return WireOp(absl::StrCat(WireBytes(kOpType, type), more));
}
std::string Attr(absl::string_view fields) { return WireBytes(kOpAttrs, fields); }
std::string IntList(int attr_type, absl::string_view fields) {
  return Attr(absl::StrCat(WireBytes(kAttrName, "list"), WireNumber(kAttrType, attr_type), fields));
}
// VarType that holds a dense tensor of FP32, with more fields.
std::string DenseType(absl::string_view more = "") {
  const std::string tensor = WireBytes(1, WireNumber(1, pb::VarType::FP32));
  return absl::StrCat(WireNumber(1, pb::VarType::LOD_TENSOR), WireBytes(3, tensor), more);
}
std::string NamedVar(absl::string_view name, absl::string_view type, absl::string_view more = "") {
  return WireVar(absl::StrCat(WireBytes(kVarName, name), WireBytes(kVarType, type), more));
}

// A program that was read gives back its bytes, and libprotobuf agrees about what they say.
void ExpectFaithful(const std::string& bytes, const Program& program) {
  ASSERT_EQ(program.Serialize(), bytes);
  pb::ProgramDesc desc;
  ASSERT_TRUE(desc.ParsePartialFromString(bytes));
  ASSERT_EQ(program.num_blocks(), desc.blocks_size());
  for (int b = 0; b < desc.blocks_size(); ++b) {
    const Block block = program.block(b);
    ASSERT_EQ(block.ops().size(), desc.blocks(b).ops_size());
    ASSERT_EQ(block.vars().size(), desc.blocks(b).vars_size());
    for (int i = 0; i < desc.blocks(b).ops_size(); ++i) {
      const Op op = program.op(block.ops()[i]);
      ASSERT_EQ(op.type(), desc.blocks(b).ops(i).type());
      ASSERT_EQ(op.ToProto().SerializePartialAsString(),
                desc.blocks(b).ops(i).SerializePartialAsString());
    }
    for (int i = 0; i < desc.blocks(b).vars_size(); ++i) {
      const Var var = program.var(block.vars()[i]);
      ASSERT_EQ(var.name(), desc.blocks(b).vars(i).name());
      ASSERT_EQ(var.ToProto().SerializePartialAsString(),
                desc.blocks(b).vars(i).SerializePartialAsString());
    }
  }
}

void ExpectKept(const std::string& bytes) {
  const absl::StatusOr<Program> program = Program::Parse(bytes);
  ASSERT_THAT(program, IsOk());
  ExpectFaithful(bytes, *program);
}

void ExpectRefused(const std::string& bytes, const std::string& message) {
  EXPECT_THAT(Program::Parse(bytes), IsInvalidArgument(message));
}

// Changes a block around the ops and variables that are there, so that it is written anew.
Program WithOneMoreOp(const std::string& bytes) {
  Program program = *Program::Parse(bytes);
  Rewriter rewriter(&program);
  rewriter.Append(0, ProgramBuilder().Op("new", {}, {}).last_op());
  WEFT_EXPECT_OK(rewriter.Commit());
  return program;
}

std::string SmallProgram() {
  ProgramBuilder builder;
  builder.Param("w", {13, 1}).Op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  builder.FloatAttr("scale", 0.5f).IntAttr("x_num_col_dims", 1);
  builder.Op("while", {{"Cond", {"c"}}}, {{"Out", {}}}).BlockAttr("sub_block", 1);
  builder.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  builder.Pairs({"w", "w@GRAD"}).NewBlock().Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}});
  return builder.desc().SerializeAsString();
}

// --- What is unknown or unusual is kept ---------------------------------------------------------

TEST(ProgramWireTest, UnknownFieldsAreKeptAtEveryLevel) {
  const std::string unknown = WireBytes(kUnknown, "new") + WireNumber(kUnknown + 1, 7) +
                              WireTag(kUnknown + 2, 5) + "abcd" + WireTag(kUnknown + 3, 1) +
                              "abcdefgh";
  const std::string slot = WireBytes(1, "X") + unknown + WireBytes(2, "v");
  const std::string attr = WireBytes(kAttrName, "a") + WireNumber(kAttrType, pb::INT) + unknown;
  const std::string op = NamedOp("mul", WireBytes(kOpInputs, slot) + unknown + Attr(attr));
  const std::string var = NamedVar("v", DenseType(unknown), unknown);
  const std::string bytes =
      unknown + WireProgram(absl::StrCat(unknown, var, unknown, op, unknown)) + unknown;
  ExpectKept(bytes);

  const Program changed = WithOneMoreOp(bytes);
  const pb::ProgramDesc desc = changed.ToProto();
  EXPECT_EQ(desc.unknown_fields().field_count(), 8);
  EXPECT_EQ(desc.blocks(0).unknown_fields().field_count(), 12);
  EXPECT_THAT(changed.Serialize(), HasSubstr(op));
  EXPECT_THAT(changed.Serialize(), HasSubstr(var));
}

TEST(ProgramWireTest, UnknownEnumNumbersAreKept) {
  const std::string attr = WireBytes(kAttrName, "a") + WireNumber(kAttrType, 77);
  const std::string scalar = IntList(pb::SCALAR, WireBytes(20, WireNumber(1, 99)));
  const std::string tensor = WireBytes(3, WireBytes(1, WireNumber(1, 78)));
  const std::string bytes =
      WireProgram(NamedOp("mul", Attr(attr) + scalar) +
                  NamedVar("dtype", WireNumber(1, pb::VarType::LOD_TENSOR) + tensor) +
                  NamedVar("type", WireNumber(1, 79)));
  ExpectKept(bytes);
  const Program program = *Program::Parse(bytes);
  EXPECT_EQ(program.op(program.block(0).ops()[0]).signature().attrs[0].type, 77);
  EXPECT_FALSE(program.var(program.block(0).vars()[0]).Tensor().has_value());
  EXPECT_EQ(program.var(program.block(0).vars()[1]).type(), 79);
  EXPECT_FALSE(program.var(program.block(0).vars()[1]).Tensor().has_value());
}

TEST(ProgramWireTest, PackedListsAreReadAndKept) {
  const std::string longs = WireBytes(kAttrLongs, WireVarint(3) + WireVarint(300, 4));
  const std::string dims = WireBytes(2, WireVarint(13) + WireVarint(uint64_t(-1)));
  const std::string tensor = WireBytes(3, WireBytes(1, WireNumber(1, pb::VarType::FP32) + dims));
  const std::string bytes =
      WireProgram(NamedVar("v", WireNumber(1, pb::VarType::LOD_TENSOR) + tensor) +
                  NamedOp("reshape", IntList(pb::LONGS, longs)));
  ExpectKept(bytes);
  const Program program = *Program::Parse(bytes);
  EXPECT_THAT(program.op(program.block(0).ops()[0]).FindAttr("list")->longs(), ElementsAre(3, 300));
  EXPECT_THAT(program.var(program.block(0).vars()[0]).Tensor()->dims(), ElementsAre(13, -1));
  EXPECT_THAT(WithOneMoreOp(bytes).Serialize(), HasSubstr(longs));
}

TEST(ProgramWireTest, OutputsMayPrecedeInputs) {
  const std::string bytes = WireProgram(NamedOp(
      "mul", WireBytes(kOpOutputs, WireBytes(1, "Out") + WireBytes(2, "c")) +
                 WireBytes(kOpInputs, WireBytes(2, "a") + WireBytes(1, "X") + WireBytes(2, "b")) +
                 WireBytes(kOpOutputs, WireBytes(1, "Mask") + WireBytes(2, "d")) +
                 WireBytes(kOpInputs, WireBytes(1, "Y") + WireBytes(2, "e"))));
  ExpectKept(bytes);
  const Program program = *Program::Parse(bytes);
  EXPECT_THAT(OpTexts(program), ElementsAre("mul(a, b, e -> c, d)"));
  const Op op = program.op(program.block(0).ops()[0]);
  EXPECT_EQ(program.name(op.Input("Y")[0]), "e");
  EXPECT_EQ(program.name(op.Output("Mask")[0]), "d");
}

TEST(ProgramWireTest, TypeMayBeAnywhereAndTheLastCounts) {
  const std::string op =
      WireOp(WireBytes(kOpType, "old") + IntList(pb::INT, WireNumber(kAttrI, 1)) +
             WireBytes(kOpType, "new"));
  ExpectKept(WireProgram(op));
  const Program program = *Program::Parse(WireProgram(op));
  EXPECT_EQ(program.op(program.block(0).ops()[0]).type(), "new");
}

TEST(ProgramWireTest, OpsAndVariablesMayAlternate) {
  const std::string type = DenseType();
  const std::string bytes = WireProgram(NamedOp("a") + NamedVar("v", type) + NamedOp("b") +
                                        WireNumber(5, 3) + NamedVar("w", type));
  ExpectKept(bytes);
  const pb::ProgramDesc desc = WithOneMoreOp(bytes).ToProto();
  ASSERT_EQ(desc.blocks(0).ops_size(), 3);
  ASSERT_EQ(desc.blocks(0).vars_size(), 2);
  EXPECT_EQ(desc.blocks(0).ops(1).type(), "b");
  EXPECT_EQ(desc.blocks(0).vars(1).name(), "w");
  EXPECT_EQ(desc.blocks(0).forward_block_idx(), 3);
}

TEST(ProgramWireTest, LongFormsOfNumbersAndLengthsAreKept) {
  const std::string long_type = WireTag(kOpType, 2) + WireVarint(3, 5) + "mul";
  const std::string long_tag = WireVarint(kOpType << 3 | 2, 5) + WireVarint(3) + "mul";
  const std::string long_number = IntList(pb::INT, WireTag(kAttrI, 0) + WireVarint(5, 10));
  const std::string op = WireVarint(4 << 3 | 2, 3) + WireVarint(long_type.size(), 4) + long_type;
  const std::string bytes = WireProgram(op + WireOp(long_tag) + NamedOp("x", long_number));
  ExpectKept(bytes);
  EXPECT_THAT(WithOneMoreOp(bytes).Serialize(), HasSubstr(op));
}

TEST(ProgramWireTest, GroupsAreKept) {
  const std::string group = WireGroup(kUnknown, WireBytes(1, "x") + WireGroup(2, ""));
  ExpectKept(group +
             WireProgram(group + NamedOp("mul", group) + NamedVar("v", DenseType(group), group)));
}

TEST(ProgramWireTest, KnownNumberWithAnotherWireTypeIsUnknown) {
  const std::string bytes =
      WireProgram(NamedOp("mul", WireNumber(kOpInputs, 1)) + WireNumber(4, 1) +
                  NamedVar("v", DenseType(), WireBytes(3, "")));
  ExpectKept(WireNumber(1, 5) + bytes);
}

// --- What is malformed is refused ---------------------------------------------------------------

TEST(ProgramWireTest, EmptyInputHasNoBlocks) { ExpectRefused("", "no blocks"); }

TEST(ProgramWireTest, TagZeroIsMalformedEverywhere) {
  const std::string zero(1, '\0');
  ExpectRefused(WireProgram("") + zero, "malformed");
  ExpectRefused(WireProgram(zero), "malformed");
  ExpectRefused(WireProgram(NamedOp("mul", zero)), "op 0 (mul), byte");
  ExpectRefused(WireProgram(NamedOp("mul", IntList(pb::INT, zero))), "op 0 (mul), byte");
  ExpectRefused(WireProgram(NamedOp("mul", WireBytes(kOpInputs, WireBytes(1, "X") + zero))),
                "op 0 (mul), byte");
  ExpectRefused(WireProgram(NamedVar("v", DenseType(), zero)), "variable 0 (v), byte");
  ExpectRefused(WireProgram(NamedVar("v", DenseType(zero))), "variable 0 (v), byte");
}

TEST(ProgramWireTest, CutTagIsMalformedEverywhere) {
  ExpectRefused(WireProgram("") + "\x80", "malformed");
  ExpectRefused(WireProgram("\x80"), "malformed");
  ExpectRefused(WireProgram(NamedOp("mul", "\x80")), "op 0 (mul), byte");
  ExpectRefused(WireProgram(NamedOp("mul", IntList(pb::INT, "\x80"))), "op 0 (mul), byte");
  ExpectRefused(WireProgram(NamedVar("v", DenseType(), "\x80")), "variable 0 (v), byte");
}

TEST(ProgramWireTest, TagsAndLengthsOfMoreThanFiveBytesAreMalformed) {
  ExpectRefused(WireProgram(WireOp(WireVarint(kOpType << 3 | 2, 6) + WireVarint(3) + "mul")),
                "op 0");
  ExpectRefused(WireProgram(WireOp(WireTag(kOpType, 2) + WireVarint(3, 6) + "mul")), "op 0");
  ExpectRefused(WireProgram(NamedOp("mul", WireTag(kUnknown, 2) + WireVarint(3, 6) + "new")),
                "op 0 (mul)");
}

TEST(ProgramWireTest, HugeLengthsAreMalformed) {
  for (const uint64_t length : {uint64_t{100}, uint64_t{INT_MAX}, uint64_t{1} << 31,
                                (uint64_t{1} << 32) + 3, uint64_t{1} << 63, UINT64_MAX}) {
    SCOPED_TRACE(length);
    const std::string huge = WireVarint(length);
    ExpectRefused(WireTag(1, 2) + huge + "abc", "byte 0");
    ExpectRefused(WireTag(kUnknown, 2) + huge + "abc", "byte 0");
    ExpectRefused(WireProgram(WireTag(4, 2) + huge + "abc"), "block");
    ExpectRefused(WireProgram(WireTag(kUnknown, 2) + huge + "abc"), "block");
    ExpectRefused(WireProgram(WireOp(WireTag(kOpType, 2) + huge + "abc")), "op 0");
    ExpectRefused(WireProgram(NamedOp("m", WireTag(kOpInputs, 2) + huge + "abc")), "op 0 (m)");
    ExpectRefused(WireProgram(NamedOp("m", Attr(WireTag(5, 2) + huge + "abc"))), "op 0 (m)");
    ExpectRefused(WireProgram(NamedVar("v", DenseType(WireTag(2, 2) + huge))), "variable 0 (v)");
    ExpectRefused(WireProgram(NamedOp("m", WireGroup(9, WireTag(5, 2) + huge + "abc"))), "op 0");
  }
}

TEST(ProgramWireTest, NumbersOfMoreThanTenBytesAreMalformed) {
  ExpectRefused(
      WireProgram(NamedOp("mul", IntList(pb::INT, WireTag(kAttrI, 0) + WireVarint(1, 11)))),
      "op 0 (mul)");
}

TEST(ProgramWireTest, BrokenPackedListsAreMalformed) {
  ExpectRefused(WireProgram(NamedOp("m", IntList(pb::LONGS, WireBytes(kAttrLongs, "\x80")))),
                "op 0 (m)");
  ExpectRefused(WireProgram(NamedOp("m", IntList(pb::FLOATS, WireBytes(kAttrFloats, "abc")))),
                "op 0 (m)");
}

TEST(ProgramWireTest, BrokenNestedMessagesAreMalformed) {
  const std::string cut = WireTag(1, 2) + WireVarint(5) + "x";
  ExpectRefused(WireProgram(NamedOp("m", IntList(pb::SCALAR, WireBytes(20, cut)))), "op 0 (m)");
  ExpectRefused(WireProgram(NamedVar("v", DenseType(WireBytes(5, cut)))), "variable 0 (v)");
  ExpectRefused(WireProgram(NamedVar("v", DenseType(), WireBytes(7, cut))), "variable 0 (v)");
  ExpectRefused(WireProgram("") + WireBytes(4, WireTag(1, 0)), "malformed");
  ExpectRefused(WireProgram("") + WireBytes(5, cut), "malformed");
}

TEST(ProgramWireTest, UnknownWireTypesAndStrayGroupEndsAreMalformed) {
  for (const int wire_type : {4, 6, 7}) {
    SCOPED_TRACE(wire_type);
    const std::string bad = WireTag(kUnknown, wire_type);
    ExpectRefused(WireProgram("") + bad, "malformed");
    ExpectRefused(WireProgram(bad), "malformed");
    ExpectRefused(WireProgram(NamedOp("mul", bad)), "op 0 (mul)");
    ExpectRefused(WireProgram(NamedVar("v", DenseType(bad))), "variable 0 (v)");
  }
}

TEST(ProgramWireTest, FieldNumberZeroIsMalformed) {
  ExpectRefused(WireProgram(NamedOp("mul", WireBytes(0, "x"))), "op 0 (mul)");
  ExpectRefused(WireProgram(NamedOp("mul", WireTag(0, 0) + "x")), "op 0 (mul)");
}

TEST(ProgramWireTest, GroupThatEndsAsAnotherIsMalformed) {
  ExpectRefused(WireProgram(NamedOp("mul", WireTag(8, 3) + WireTag(9, 4))), "op 0 (mul)");
  ExpectRefused(WireProgram(NamedOp("mul", WireTag(8, 3))), "op 0 (mul)");
}

TEST(ProgramWireTest, GroupsMayNestAsDeepAsLibprotobufReads) {
  ExpectKept(WireProgram(NamedOp("mul", Attr(WireBytes(kAttrName, "a") + WireNumber(kAttrType, 0) +
                                             WireNestedGroups(kUnknown, 80)))));
  for (const int depth : {100, 1000, 1000000}) {
    SCOPED_TRACE(depth);
    const std::string groups = WireNestedGroups(kUnknown, depth);
    ExpectRefused(WireProgram("") + groups, "malformed");
    ExpectRefused(WireProgram(groups), "malformed");
    ExpectRefused(WireProgram(NamedOp("mul", groups)), "op 0 (mul)");
    ExpectRefused(WireProgram(NamedVar("v", DenseType(groups))), "variable 0 (v)");
  }
}

TEST(ProgramWireTest, ProgramsBeyondTwoGigabytesAreRefusedUnread) {
  const char byte = 0;
  const absl::string_view huge(&byte, size_t{INT_MAX} + 1);
  EXPECT_THAT(Program::Parse(nullptr, huge), IsInvalidArgument("2147483648 bytes"));
}

// --- Damage -------------------------------------------------------------------------------------

// Damaged bytes are refused, or by chance still a program: then one that is read faithfully.
void ExpectRefusedOrFaithful(const std::string& bytes, int* accepted) {
  const absl::StatusOr<Program> program = Program::Parse(bytes);
  if (program.ok()) {
    ++*accepted;
    ExpectFaithful(bytes, *program);
  } else {
    EXPECT_THAT(program, IsInvalidArgument(""));
    EXPECT_FALSE(program.status().message().empty());
  }
}

TEST(ProgramDamageTest, EveryPrefixIsRefusedOrFaithful) {
  const std::string whole = SmallProgram();
  int accepted = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    ExpectRefusedOrFaithful(whole.substr(0, size), &accepted);
  }
  // Cut between its block 1 and its version, it is a program; with block 0 alone it is none, since
  // the sub-block is missing.
  EXPECT_EQ(accepted, 1);
}

TEST(ProgramDamageTest, EveryChangedByteIsRefusedOrFaithful) {
  const std::string whole = SmallProgram();
  int accepted = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {0x01, 0x02, 0x08, 0x10, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      SCOPED_TRACE(absl::StrCat("byte ", i, " xor ", change));
      ExpectRefusedOrFaithful(bytes, &accepted);
    }
  }
  EXPECT_GT(accepted, 0);  // letters of names
}

TEST(ProgramDamageTest, EveryRemovedOrDoubledByteIsRefusedOrFaithful) {
  const std::string whole = SmallProgram();
  int accepted = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectRefusedOrFaithful(whole.substr(0, i) + whole.substr(i + 1), &accepted);
    ExpectRefusedOrFaithful(whole.substr(0, i) + whole.substr(i, 1) + whole.substr(i), &accepted);
  }
}

TEST(ProgramDamageTest, RandomBytesAreRefusedOrFaithful) {
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 64, '\0');
    // Small numbers are tags and lengths more often.
    for (char& c : bytes) c = static_cast<char>(random() % (random() % 4 == 0 ? 256 : 36));
    SCOPED_TRACE(round);
    ExpectRefusedOrFaithful(round % 2 == 0 ? bytes : WireProgram(bytes), &accepted);
  }
}

TEST(ProgramDamageTest, RandomFieldsAreRefusedOrFaithful) {
  std::mt19937 random(2);
  const std::string whole = SmallProgram();
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    const int edits = 1 + random() % 4;
    for (int i = 0; i < edits; ++i) {
      const size_t at = random() % bytes.size();
      if (random() % 2 == 0) {
        bytes[at] = static_cast<char>(random());
      } else {
        bytes = bytes.substr(0, at) + bytes.substr(random() % bytes.size());
      }
      if (bytes.empty()) break;
    }
    SCOPED_TRACE(round);
    ExpectRefusedOrFaithful(bytes, &accepted);
  }
}

}  // namespace
}  // namespace weft::testing
