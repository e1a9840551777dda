#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

pb::ProgramDesc FromText(const std::string& text) {
  pb::ProgramDesc desc;
  google::protobuf::TextFormat::Parser parser;
  parser.AllowPartialMessage(true);
  EXPECT_TRUE(parser.ParseFromString(text, &desc)) << text;
  return desc;
}

struct Refusal {
  std::string name;
  std::string program;  // protobuf text, partial
  std::string message;
};

class ParseRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ParseRefuses, Program) {
  EXPECT_THAT(Program::FromProto(FromText(GetParam().program)),
              IsInvalidArgument(GetParam().message));
}

constexpr char kRoot[] = "blocks { idx: 0 parent_idx: -1 } ";

std::string InRoot(const std::string& content) {
  return "blocks { idx: 0 parent_idx: -1 " + content + " } ";
}

INSTANTIATE_TEST_SUITE_P(
    ProgramParseTest, ParseRefuses,
    ::testing::Values(
        Refusal{"NoBlocks", "version { version: 1 }", "the program has no blocks"},
        Refusal{"BlockWithoutIdx", "blocks { parent_idx: -1 }", "block 0: field idx is missing"},
        Refusal{"BlockWithoutParent", "blocks { idx: 0 }", "block 0: field parent_idx is missing"},
        Refusal{"BlockNumberedFromOne", "blocks { idx: 1 parent_idx: -1 }", "block 0: has idx 1"},
        Refusal{"BlockNumberedTwice", kRoot + InRoot(""), "block 1: has idx 0"},
        Refusal{"ParentIsMissing", kRoot + std::string("blocks { idx: 1 parent_idx: 7 }"),
                "block 1: parent block 7 is missing; the program has 2 blocks"},
        Refusal{"ParentIsNegative", kRoot + std::string("blocks { idx: 1 parent_idx: -2 }"),
                "block 1: parent block -2 is missing"},
        Refusal{"RootHasParent", "blocks { idx: 0 parent_idx: 1 } blocks { idx: 1 parent_idx: -1 }",
                "block 0: the root block has parent 1"},
        Refusal{"BlockIsItsOwnParent", kRoot + std::string("blocks { idx: 1 parent_idx: 1 }"),
                "block 1: is its own ancestor"},
        Refusal{
            "ParentsFormACycle",
            kRoot + std::string("blocks { idx: 1 parent_idx: 2 } blocks { idx: 2 parent_idx: 3 }"
                                "blocks { idx: 3 parent_idx: 1 }"),
            "is its own ancestor"},
        Refusal{"OpWithoutType", InRoot("ops { } "), "op 0 has no type"},
        Refusal{"SecondOpWithoutType", InRoot("ops { type: 'a' } ops { is_target: true }"),
                "op 1 has no type"},
        Refusal{"SlotWithoutName", InRoot("ops { type: 'mul' inputs { arguments: 'x' } }"),
                "op 0, byte 17: malformed or truncated protobuf"},
        Refusal{"AttrWithoutName", InRoot("ops { type: 'mul' attrs { type: INT } }"), "op 0"},
        Refusal{"AttrWithoutType", InRoot("ops { type: 'mul' attrs { name: 'a' } }"), "op 0"},
        Refusal{"ScalarWithoutType",
                InRoot("ops { type: 'm' attrs { name: 'a' type: SCALAR scalar { i: 1 } } }"),
                "op 0"},
        Refusal{"VarWithoutName", InRoot("vars { type { type: RAW } }"), "variable 0 has no name"},
        Refusal{"VarWithoutType", InRoot("vars { name: 'v' }"), "variable 0 (v) has no type"},
        Refusal{"TypeWithoutType", InRoot("vars { name: 'v' type { } }"), "variable 0 (v)"},
        Refusal{"LoDTensorWithoutTensor",
                InRoot("vars { name: 'v' type { type: LOD_TENSOR lod_tensor { } } }"),
                "variable 0 (v)"},
        Refusal{"TensorWithoutElementType",
                InRoot("vars { name: 'v' type { type: LOD_TENSOR lod_tensor { tensor { } } } }"),
                "variable 0 (v)"},
        Refusal{"VarAttrWithoutType",
                InRoot("vars { name: 'v' type { type: RAW } attrs { name: 'a' } }"),
                "variable 0 (v)"},
        Refusal{"OpVersionWithoutName",
                kRoot + std::string("op_version_map { pair { op_version { "
                                    "version: 1 } } }"),
                "byte 15: malformed"},
        Refusal{
            "VarDeclaredTwice",
            InRoot("vars { name: 'v' type { type: RAW } } vars { name: 'v' type { type: RAW } }"),
            "block 0: variable 'v' is declared twice"},
        Refusal{
            "VarDeclaredTwiceInSubBlock",
            kRoot + std::string("blocks { idx: 1 parent_idx: 0 vars { name: 'v' type { type: RAW "
                                "} } vars { name: 'v' type { type: RAW } } }"),
            "block 1: variable 'v' is declared twice"},
        Refusal{"RoleIsNoInt",
                InRoot("ops { type: 'mul' attrs { name: 'op_role' type: LONG l: 1 } }"),
                "op 0 (mul): attribute op_role: expected type INT, found LONG"},
        Refusal{"RoleVarsAreNoStrings",
                InRoot("ops { type: 'mul' attrs { name: 'op_role_var' type: STRING s: 'w' } }"),
                "op 0 (mul): attribute op_role_var: expected type STRINGS, found STRING"},
        Refusal{
            "SubBlockIsMissing",
            InRoot("ops { type: 'while' attrs { name: 'sub_block' type: BLOCK block_idx: 1 } }"),
            "op 0 (while): sub-block 1 is missing; the program has 1 blocks"},
        Refusal{"SubBlockIsNegative",
                InRoot("ops { type: 'while' attrs { name: 'b' type: BLOCKS blocks_idx: -1 } }"),
                "op 0 (while): sub-block -1 is missing"},
        Refusal{"SubBlockIsTheRoot",
                InRoot("ops { type: 'while' attrs { name: 'sub_block' type: BLOCK } }"),
                "op 0 (while): sub-block 0 is the root block"},
        Refusal{"SubBlockContainsItself",
                kRoot + std::string("blocks { idx: 1 parent_idx: 0 ops { type: 'while' attrs { "
                                    "name: 'sub_block' type: BLOCK block_idx: 1 } } }"),
                "block 1: sub-blocks contain each other in a cycle"},
        Refusal{"SubBlocksContainEachOther",
                kRoot + std::string(
                            "blocks { idx: 1 parent_idx: 0 ops { type: 'while' attrs { name: 's' "
                            "type: BLOCK block_idx: 2 } } }"
                            "blocks { idx: 2 parent_idx: 1 ops { type: 'while' attrs { name: 's' "
                            "type: BLOCK block_idx: 1 } } }"),
                "sub-blocks contain each other in a cycle"}),
    [](const auto& info) { return info.param.name; });

TEST(ProgramParseTest, NamesThatAreNotUtf8AreRefused) {
  const auto refused = IsInvalidArgument("the name 'w\\377' is not valid UTF-8");
  EXPECT_THAT(Program::FromProto(ProgramBuilder().Var("w\xff").desc()), refused);
  EXPECT_THAT(Program::FromProto(ProgramBuilder().Op("w\xff", {}, {}).desc()), refused);
  EXPECT_THAT(Program::FromProto(ProgramBuilder().Op("a", {{"w\xff", {}}}, {}).desc()), refused);
  EXPECT_THAT(Program::FromProto(ProgramBuilder().Op("a", {{"X", {"w\xff"}}}, {}).desc()), refused);
  EXPECT_THAT(Program::FromProto(ProgramBuilder().Op("a", {}, {}).IntAttr("w\xff", 1).desc()),
              refused);
}

TEST(ProgramParseTest, AsciiAndMultiByteNamesAreFine) {
  for (const char* name : {"", "fc_0.w_0@GRAD", "gewicht_\xc3\xa4", "\xe6\x9d\x83\xe9\x87\x8d",
                           "12345678\xe6\x9d\x83\xe9\x87\x8d", "\xf0\x9f\x98\x80"}) {
    WEFT_EXPECT_OK(Program::FromProto(ProgramBuilder().Var(name).desc())) << name;
  }
}

TEST(ProgramParseTest, NamesOfStrayOverlongOrTooLargeSequencesAreRefused) {
  for (const char* name : {"\x80", "12345678\xff", "abc\xe6\x9d", "\xc3(", "\xc0\xaf",
                           "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_THAT(Program::FromProto(ProgramBuilder().Var(name).desc()),
                IsInvalidArgument("is not valid UTF-8"))
        << name;
  }
}

// Blocks 1 .. n, each in the one before.
ProgramBuilder NestedBlocks(int n) {
  ProgramBuilder builder;
  for (int i = 0; i < n; ++i) builder.NewBlock(i);
  return builder;
}

TEST(ProgramParseTest, BlocksMayNestToALimit) {
  WEFT_EXPECT_OK(Program::FromProto(NestedBlocks(Program::kMaxBlockDepth).desc()));
  EXPECT_THAT(
      Program::FromProto(NestedBlocks(Program::kMaxBlockDepth + 1).desc()),
      StatusIs(absl::StatusCode::kInvalidArgument, "block 257: blocks are nested deeper than 256"));
}

TEST(ProgramParseTest, SubBlocksMayNestToALimit) {
  ProgramBuilder builder;
  for (int i = 0; i <= Program::kMaxBlockDepth; ++i) {
    builder.Op("while", {}, {}).BlockAttr("sub_block", i + 1).NewBlock(0);
  }
  EXPECT_THAT(
      Program::FromProto(builder.desc()),
      StatusIs(absl::StatusCode::kInvalidArgument, "block 257: blocks are nested deeper than 256"));
}

TEST(ProgramParseTest, ManyBlocksThatDeclareOneNameAreQuick) {
  ProgramBuilder builder;
  for (int i = 0; i < 20000; ++i) builder.NewBlock(0).Var("same");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(builder.desc()));
  EXPECT_EQ(program.var(program.block(20000).FindVar("same")).block(), 20000);
}

}  // namespace
}  // namespace weft::testing
