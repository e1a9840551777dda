#include "proto/program.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

std::vector<std::string> Names(const Program& program, absl::Span<const Symbol> symbols) {
  std::vector<std::string> names;
  for (Symbol symbol : symbols) names.emplace_back(program.name(symbol));
  return names;
}

Op FirstOp(const Program& program) { return program.op(program.block(0).ops()[0]); }

pb::ProgramDesc FromText(const std::string& text) {
  pb::ProgramDesc desc;
  google::protobuf::TextFormat::Parser parser;
  parser.AllowPartialMessage(true);
  EXPECT_TRUE(parser.ParseFromString(text, &desc)) << text;
  return desc;
}

// --- Ops ----------------------------------------------------------------------------------------

TEST(OpTest, SlotsAndArgumentsKeepFileOrder) {
  const Program program =
      ProgramBuilder().Op("sum", {{"X", {"a", "b"}}, {"Y", {"c"}}}, {{"Out", {"d", "e"}}}).Build();
  const Op op = FirstOp(program);
  EXPECT_EQ(op.type(), "sum");
  EXPECT_THAT(Names(program, op.args()), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(Names(program, op.input_args()), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Names(program, op.output_args()), ElementsAre("d", "e"));
  EXPECT_THAT(Names(program, op.Input("X")), ElementsAre("a", "b"));
  EXPECT_THAT(Names(program, op.Input("Y")), ElementsAre("c"));
  EXPECT_THAT(Names(program, op.Output("Out")), ElementsAre("d", "e"));
}

TEST(OpTest, InputAndOutputSlotsOfOneNameAreApart) {
  const Program program = ProgramBuilder().Op("scale", {{"X", {"in"}}}, {{"X", {"out"}}}).Build();
  EXPECT_THAT(Names(program, FirstOp(program).Input("X")), ElementsAre("in"));
  EXPECT_THAT(Names(program, FirstOp(program).Output("X")), ElementsAre("out"));
}

TEST(OpTest, EmptySlotIsASlotWithoutArguments) {
  const Program program = ProgramBuilder()
                              .Op("c_allreduce_sum", {{"Cond", {}}, {"X", {"g"}}}, {{"Out", {"g"}}})
                              .Build();
  const Op op = FirstOp(program);
  EXPECT_TRUE(op.HasInputSlot("Cond"));
  EXPECT_THAT(op.Input("Cond"), IsEmpty());
  EXPECT_THAT(Names(program, op.Input("X")), ElementsAre("g"));
  EXPECT_FALSE(op.HasInputSlot("Axis"));
  EXPECT_FALSE(op.HasInputSlot("Out"));
  EXPECT_THAT(op.Input("Axis"), IsEmpty());
  EXPECT_THAT(op.Output("X"), IsEmpty());
}

TEST(OpTest, EmptyVariableNameIsAmongTheArguments) {
  const Program program =
      ProgramBuilder().Op("mul_grad", {}, {{"X@GRAD", {"@EMPTY@", "g"}}}).Build();
  EXPECT_THAT(Names(program, FirstOp(program).output_args()), ElementsAre("@EMPTY@", "g"));
}

TEST(OpTest, SimilarOpsShareASignature) {
  ProgramBuilder builder;
  builder.Op("relu", {{"X", {"a"}}}, {{"Out", {"b"}}}).Op("relu", {{"X", {"c"}}}, {{"Out", {"d"}}});
  builder.Op("relu", {{"X", {"a", "b"}}}, {{"Out", {"b"}}});
  builder.Op("tanh", {{"X", {"a"}}}, {{"Out", {"b"}}});
  const Program program = builder.Build();
  const auto ops = program.block(0).ops();
  EXPECT_EQ(program.op(ops[0]).signature_id(), program.op(ops[1]).signature_id());
  EXPECT_EQ(&program.op(ops[0]).signature(), &program.op(ops[1]).signature());
  EXPECT_NE(program.op(ops[0]).signature_id(), program.op(ops[2]).signature_id());
  EXPECT_NE(program.op(ops[0]).signature_id(), program.op(ops[3]).signature_id());
  EXPECT_EQ(program.num_signatures(), 3);
}

TEST(OpTest, NamesThatConcatenateAlikeAreDifferentSignatures) {
  ProgramBuilder builder;
  builder.Op("ab", {{"c", {"x"}}}, {}).Op("a", {{"bc", {"x"}}}, {}).Op("a", {}, {{"bc", {"x"}}});
  EXPECT_EQ(builder.Build().num_signatures(), 3);
}

TEST(OpTest, AttributesAreFoundByName) {
  const Program program =
      ProgramBuilder().Op("scale", {}, {}).FloatAttr("scale", 0.5f).IntAttr("axis", -1).Build();
  const Op op = FirstOp(program);
  EXPECT_TRUE(op.HasAttr("scale"));
  EXPECT_FALSE(op.HasAttr("bias"));
  ASSERT_TRUE(op.FindAttr("scale").has_value());
  EXPECT_EQ(op.FindAttr("scale")->f(), 0.5f);
  EXPECT_EQ(op.FindAttr("axis")->i(), -1);
  EXPECT_FALSE(op.FindAttr("bias").has_value());
}

TEST(OpTest, LastOfRepeatedAttributesCounts) {
  ProgramBuilder builder;
  builder.Op("scale", {}, {}, kRoleForward).IntAttr("axis", 1).IntAttr("axis", 2);
  builder.IntAttr("op_role", kRoleBackward);
  const Program program = builder.Build();
  EXPECT_EQ(FirstOp(program).FindAttr("axis")->i(), 2);
  EXPECT_EQ(FirstOp(program).role(), kRoleBackward);
}

TEST(OpTest, LastOfRepeatedRoleVarsCounts) {
  ProgramBuilder builder;
  builder.Op("a", {}, {}).Pairs({"w", "g"}).Pairs({});
  builder.Op("b", {}, {}).Pairs({}).Pairs({"w", "g"});
  const Program program = builder.Build();
  EXPECT_FALSE(program.op(program.block(0).ops()[0]).has_role_vars());
  EXPECT_TRUE(program.op(program.block(0).ops()[1]).has_role_vars());
}

TEST(OpTest, OpWithoutRoleIsNotSpecified) {
  const Program program =
      *Program::FromProto(FromText("blocks { idx: 0 parent_idx: -1 ops { type: 'a' } }"));
  EXPECT_EQ(FirstOp(program).role(), kRoleNotSpecified);
  EXPECT_FALSE(FirstOp(program).has_role_vars());
}

TEST(OpTest, RoleWithoutValueIsForward) {
  const Program program = *Program::FromProto(FromText(
      "blocks { idx: 0 parent_idx: -1 ops { type: 'a' attrs { name: 'op_role' type: INT } } }"));
  EXPECT_EQ(FirstOp(program).role(), kRoleForward);
}

TEST(OpTest, RoleVarsExistOnlyIfTheyNameSomething) {
  ProgramBuilder builder;
  builder.Op("a", {}, {}).Pairs({"w", "g"}).Op("b", {}, {}).Pairs({});
  const Program program = builder.Build();
  EXPECT_TRUE(program.op(program.block(0).ops()[0]).has_role_vars());
  EXPECT_FALSE(program.op(program.block(0).ops()[1]).has_role_vars());
}

TEST(OpTest, SubBlocksAreThoseOfBlockAndBlocksAttributes) {
  ProgramBuilder builder;
  builder.NewBlock().NewBlock().NewBlock().InBlock(0).Op("while", {}, {}).BlockAttr("sub_block", 2);
  auto* blocks = builder.last_op().add_attrs();
  blocks->set_name("optimize_blocks");
  blocks->set_type(pb::BLOCKS);
  blocks->add_blocks_idx(3);
  blocks->add_blocks_idx(1);
  builder.Op("relu", {}, {});
  const Program program = builder.Build();
  EXPECT_THAT(FirstOp(program).SubBlocks(), ElementsAre(2, 3, 1));
  EXPECT_THAT(program.op(program.block(0).ops()[1]).SubBlocks(), IsEmpty());
}

// An op with an attribute of each type that readers ask for.
Program OpWithAttributes() {
  return *Program::FromProto(FromText(R"(
      blocks { idx: 0 parent_idx: -1 ops {
        type: 'scale'
        attrs { name: 'int' type: INT i: 3 }
        attrs { name: 'float' type: FLOAT f: 0.5 }
        attrs { name: 'bool' type: BOOLEAN b: true }
        attrs { name: 'string' type: STRING s: 's' }
        attrs { name: 'longs' type: LONGS longs: 4 longs: 5 }
        attrs { name: 'strings' type: STRINGS strings: 'a' strings: 'b' }
      } })"));
}

TEST(OpTest, AttributesAreReadByType) {
  const Program program = OpWithAttributes();
  const Op op = FirstOp(program);
  EXPECT_EQ(op.IntAttr("int"), 3);
  EXPECT_EQ(op.FloatAttr("float"), 0.5);
  EXPECT_EQ(op.BoolAttr("bool"), true);
  EXPECT_EQ(op.StringAttr("string"), "s");
  EXPECT_THAT(op.IntsAttr("longs"), Optional(ElementsAre(4, 5)));
  EXPECT_THAT(op.StringsAttr("strings"), Optional(ElementsAre("a", "b")));
}

TEST(OpTest, WiderNumbersAreReadAlike) {
  const Program program = *Program::FromProto(FromText(R"(
      blocks { idx: 0 parent_idx: -1 ops {
        type: 'scale'
        attrs { name: 'long' type: LONG l: 5000000000 }
        attrs { name: 'double' type: FLOAT64 float64: 0.1 }
        attrs { name: 'ints' type: INTS ints: 1 ints: 2 }
      } })"));
  const Op op = FirstOp(program);
  EXPECT_EQ(op.IntAttr("long"), 5000000000);
  EXPECT_EQ(op.FloatAttr("double"), 0.1);
  EXPECT_THAT(op.IntsAttr("ints"), Optional(ElementsAre(1, 2)));
}

TEST(OpTest, EarlyVersionsWroteNumbersForBools) {
  const Program program = *Program::FromProto(FromText(R"(
      blocks { idx: 0 parent_idx: -1 ops {
        type: 'batch_norm'
        attrs { name: 'is_test' type: INT i: 1 }
        attrs { name: 'count' type: INT i: 2 }
      } })"));
  const Op op = FirstOp(program);
  EXPECT_THAT(op.BoolAttr("is_test"), Optional(true));
  EXPECT_FALSE(op.BoolAttr("count").has_value());
}

TEST(OpTest, AttributeOfAnotherTypeCountsAsMissing) {
  const Program program = OpWithAttributes();
  const Op op = FirstOp(program);
  for (const char* name : {"int", "float", "bool", "string", "longs", "strings", "none"}) {
    const absl::string_view is = name;
    EXPECT_EQ(op.IntAttr(is).has_value(), is == "int") << is;
    EXPECT_EQ(op.FloatAttr(is).has_value(), is == "float") << is;
    EXPECT_EQ(op.BoolAttr(is).has_value(), is == "bool") << is;
    EXPECT_EQ(op.StringAttr(is).has_value(), is == "string") << is;
    EXPECT_EQ(op.IntsAttr(is).has_value(), is == "longs") << is;
    EXPECT_EQ(op.StringsAttr(is).has_value(), is == "strings") << is;
  }
}

TEST(OpTest, DebugNameTellsPositionAndType) {
  ProgramBuilder builder;
  builder.Op("mul", {}, {}).Op("relu\n", {}, {}).NewBlock().Op("tanh", {}, {});
  const Program program = builder.Build();
  EXPECT_EQ(FirstOp(program).DebugName(), "op 0 (mul)");
  EXPECT_EQ(program.op(program.block(0).ops()[1]).DebugName(), "op 1 (relu\\n)");
  EXPECT_EQ(program.op(program.block(1).ops()[0]).DebugName(), "block 1, op 0 (tanh)");
}

TEST(OpTest, BytesAreTheMessage) {
  ProgramBuilder builder;
  builder.Op("scale", {{"X", {"a"}}}, {{"Out", {"b"}}}).FloatAttr("scale", 2);
  const Program program = builder.Build();
  EXPECT_EQ(FirstOp(program).bytes(), builder.last_op().SerializeAsString());
  EXPECT_EQ(FirstOp(program).ToProto().DebugString(), builder.last_op().DebugString());
}

// --- Variables ----------------------------------------------------------------------------------

Var FirstVar(const Program& program) { return program.var(program.block(0).vars()[0]); }

TEST(VarTest, FlagsAreThoseOfTheFile) {
  ProgramBuilder builder;
  builder.Var("x");
  builder.last_var().set_need_check_feed(true);
  builder.last_var().set_stop_gradient(true);
  builder.Param("w");
  builder.last_var().set_stop_gradient(false);
  const Program program = builder.Build();
  const Var x = FirstVar(program);
  const Var w = program.var(program.block(0).vars()[1]);
  EXPECT_EQ(x.name(), "x");
  EXPECT_EQ(x.block(), 0);
  EXPECT_TRUE(x.need_check_feed() && x.stop_gradient());
  EXPECT_FALSE(x.persistable() || x.is_parameter());
  EXPECT_TRUE(w.persistable() && w.is_parameter());
  EXPECT_FALSE(w.need_check_feed() || w.stop_gradient());
}

TEST(VarTest, DenseTensorHasTypeAndDimensions) {
  const Program program = ProgramBuilder().Var("x", {-1, 13}, pb::VarType::INT64).Build();
  const Var x = FirstVar(program);
  EXPECT_EQ(x.type(), pb::VarType::LOD_TENSOR);
  ASSERT_TRUE(x.Tensor().has_value());
  EXPECT_EQ(x.Tensor()->data_type(), pb::VarType::INT64);
  EXPECT_THAT(x.Tensor()->dims(), ElementsAre(-1, 13));
}

// A program of one variable of the type that the text tells.
Program OneVar(const std::string& type) {
  return *Program::FromProto(
      FromText("blocks { idx: 0 parent_idx: -1 vars { name: 'v' type { " + type + " } } }"));
}

TEST(VarTest, SelectedRowsHaveTypeAndDimensions) {
  const Program program =
      OneVar("type: SELECTED_ROWS selected_rows { data_type: FP16 dims: 100 dims: 8 }");
  EXPECT_EQ(FirstVar(program).type(), pb::VarType::SELECTED_ROWS);
  ASSERT_TRUE(FirstVar(program).Tensor().has_value());
  EXPECT_EQ(FirstVar(program).Tensor()->data_type(), pb::VarType::FP16);
  EXPECT_THAT(FirstVar(program).Tensor()->dims(), ElementsAre(100, 8));
}

TEST(VarTest, OtherTypesHaveNoTensor) {
  EXPECT_FALSE(FirstVar(OneVar("type: RAW")).Tensor().has_value());
  EXPECT_FALSE(FirstVar(OneVar("type: STEP_SCOPES")).Tensor().has_value());
  const Program array =
      OneVar("type: LOD_TENSOR_ARRAY tensor_array { tensor { data_type: FP32 dims: 1 } }");
  EXPECT_FALSE(FirstVar(array).Tensor().has_value());
  EXPECT_EQ(FirstVar(array).type(), pb::VarType::LOD_TENSOR_ARRAY);
}

TEST(VarTest, TensorThatTheFileDoesNotDescribeIsNone) {
  EXPECT_FALSE(FirstVar(OneVar("type: LOD_TENSOR")).Tensor().has_value());
  EXPECT_FALSE(FirstVar(OneVar("type: SELECTED_ROWS")).Tensor().has_value());
  EXPECT_FALSE(
      FirstVar(OneVar("type: SELECTED_ROWS lod_tensor { tensor { data_type: FP32 } }")).Tensor());
}

// --- Blocks and programs ------------------------------------------------------------------------

TEST(BlockTest, VariablesAreResolvedThroughAncestors) {
  ProgramBuilder builder;
  builder.Var("outer").Var("both").NewBlock(0).Var("both").Var("inner").NewBlock(1).NewBlock(-1);
  const Program program = builder.Build();
  const Symbol outer = program.FindSymbol("outer"), both = program.FindSymbol("both");
  EXPECT_EQ(program.block(2).Resolve("both"), program.block(2).Resolve(both));
  EXPECT_EQ(program.block(1).FindVar("both"), program.block(1).FindVar(both));
  EXPECT_FALSE(program.block(1).FindVar("outer").valid());
  EXPECT_FALSE(program.block(1).FindVar("nobody").valid());
  const VarId root_both = program.block(0).vars()[1], inner_both = program.block(1).vars()[0];

  EXPECT_EQ(program.block(0).FindVar(both), root_both);
  EXPECT_EQ(program.block(1).FindVar(both), inner_both);
  EXPECT_FALSE(program.block(1).FindVar(outer).valid());
  EXPECT_FALSE(program.block(2).FindVar(both).valid());
  EXPECT_EQ(program.block(2).Resolve(both), inner_both);
  EXPECT_EQ(program.block(2).Resolve(outer), program.block(0).vars()[0]);
  EXPECT_FALSE(program.block(0).Resolve("inner").valid());
  EXPECT_FALSE(program.block(3).Resolve(outer).valid());
  EXPECT_FALSE(program.block(0).Resolve("nobody").valid());
}

// Paddle declares one where a branch gives no gradient for an input.
TEST(BlockTest, NoNameRefersToADeclaredEmptyVariable) {
  ProgramBuilder builder;
  builder.Var(std::string(kEmptyVarName)).NewBlock(0).Var(std::string(kEmptyVarName));
  const Program program = builder.Build();
  const Symbol empty = program.FindSymbol(kEmptyVarName);
  ASSERT_EQ(program.num_vars(), 2);
  for (int block : {0, 1}) {
    EXPECT_FALSE(program.block(block).FindVar(empty).valid());
    EXPECT_FALSE(program.block(block).Resolve(empty).valid());
  }
  EXPECT_EQ(program.ToProto().blocks(1).vars(0).name(), kEmptyVarName);
}

TEST(BlockTest, NumbersComeFromTheFile) {
  const Program program =
      *Program::FromProto(FromText("blocks { idx: 0 parent_idx: -1 }"
                                   "blocks { idx: 1 parent_idx: 0 forward_block_idx: 0 }"));
  EXPECT_EQ(program.num_blocks(), 2);
  EXPECT_EQ(program.block(1).idx(), 1);
  EXPECT_EQ(program.block(1).parent_idx(), 0);
  EXPECT_EQ(program.block(1).forward_block_idx(), 0);
  EXPECT_EQ(program.block(0).parent_idx(), -1);
  EXPECT_EQ(program.block(0).forward_block_idx(), -1);
}

TEST(ProgramTest, CountsGoOverAllBlocks) {
  ProgramBuilder builder;
  builder.Var("a").Op("relu", {}, {}).NewBlock().Var("b").Var("c").Op("x", {}, {}).Op("y", {}, {});
  const Program program = builder.Build();
  EXPECT_EQ(program.num_ops(), 3);
  EXPECT_EQ(program.num_vars(), 3);
}

TEST(ProgramTest, OtherFieldsAreThoseAroundBlocksVariablesAndOps) {
  const Program program = *Program::FromProto(FromText(R"(
      version { version: 2006002 }
      op_version_map { pair { op_name: 'matmul' op_version { version: 1 } } }
      blocks { idx: 0 parent_idx: -1 forward_block_idx: 3 vars { name: 'v' type { type: RAW } } })"));
  EXPECT_EQ(program.version(), 2006002);
  EXPECT_EQ(program.OtherFields().op_version_map().pair(0).op_name(), "matmul");
  EXPECT_EQ(program.OtherFields().blocks_size(), 0);
  EXPECT_EQ(program.OtherFields(0).forward_block_idx(), 3);
  EXPECT_EQ(program.OtherFields(0).vars_size(), 0);
}

TEST(ProgramTest, FileWithoutVersionHasVersionZero) {
  EXPECT_EQ(Program::FromProto(FromText("blocks { idx: 0 parent_idx: -1 }"))->version(), 0);
}

TEST(ProgramTest, MessageMadeOfAProgramIsEqual) {
  ProgramBuilder builder;
  builder.Param("w").Op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}}).NewBlock();
  EXPECT_EQ(builder.Build().ToProto().DebugString(), builder.desc().DebugString());
}

TEST(ProgramTest, SymbolsOfAnotherNameAreInvalid) {
  EXPECT_FALSE(ProgramBuilder().Var("x").Build().FindSymbol("y").valid());
  EXPECT_TRUE(ProgramBuilder().Var("x").Build().FindSymbol("x").valid());
}

TEST(ProgramTest, CopiesDoNotSeeEachOthersChanges) {
  const Program original = ProgramBuilder().Op("relu", {{"X", {"a"}}}, {{"Out", {"b"}}}).Build();
  const std::string before = original.Serialize();
  Program copy = original;

  Rewriter rewriter(&copy);
  rewriter.Replace(copy.block(0).ops()[0], ProgramBuilder().Op("tanh", {}, {}).last_op());
  rewriter.AddVar(0, ProgramBuilder().Var("new").last_var());
  WEFT_ASSERT_OK(rewriter.Commit());

  EXPECT_THAT(OpTexts(copy), ElementsAre("tanh( -> )"));
  EXPECT_THAT(OpTexts(original), ElementsAre("relu(a -> b)"));
  EXPECT_EQ(original.Serialize(), before);
  EXPECT_NE(copy.Serialize(), before);
  EXPECT_FALSE(original.FindSymbol("new").valid());
}

TEST(ProgramTest, SettingIsReplacedAndOtherBytesStay) {
  pb::ProgramDesc desc = ProgramBuilder().Op("relu", {}, {}).desc();
  auto* const unknown = desc.mutable_unknown_fields();
  unknown->AddVarint(77, 5);
  std::string first = desc.SerializeAsString();
  desc.Clear();
  desc.mutable_version()->set_version(3);
  std::string last = desc.SerializePartialAsString();
  desc.Clear();
  desc.set_weft_setting("{old}");
  const std::string old = desc.SerializePartialAsString();
  // Twice, as in files that were concatenated: the last one counts.
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, Program::Parse(first + old + last + old));
  EXPECT_EQ(program.setting(), "{old}");
  Program copy = program;
  program.set_setting("{new}");
  desc.set_weft_setting("{new}");
  EXPECT_EQ(program.setting(), "{new}");
  EXPECT_EQ(program.Serialize(), first + last + desc.SerializePartialAsString());
  EXPECT_EQ(program.version(), 3);
  program.set_setting("");
  EXPECT_EQ(program.Serialize(), first + last);
  EXPECT_EQ(copy.setting(), "{old}");
  copy.set_setting("{old}");
  EXPECT_EQ(copy.Serialize(), first + old + last + old);
}

TEST(ProgramTest, CopyOutlivesTheOriginal) {
  auto original = std::make_unique<Program>(ProgramBuilder().Op("relu", {}, {}).Build());
  Rewriter rewriter(original.get());
  rewriter.Append(0, ProgramBuilder().Op("tanh", {}, {}).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  const Program copy = *original;
  original.reset();
  EXPECT_THAT(OpTexts(copy), ElementsAre("relu( -> )", "tanh( -> )"));
  WEFT_EXPECT_OK(Program::Parse(copy.Serialize()));
}

TEST(ProgramTest, MovedProgramKeepsItsBytes) {
  Program program = ProgramBuilder().Op("relu", {}, {}).Build();
  const std::string bytes = program.Serialize();
  const Program moved = std::move(program);
  EXPECT_EQ(moved.Serialize(), bytes);
  EXPECT_THAT(OpTexts(moved), ElementsAre("relu( -> )"));
}

}  // namespace
}  // namespace weft::testing
