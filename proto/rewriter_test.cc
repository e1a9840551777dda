#include "proto/rewriter.h"

#include <memory>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "proto/testing/program_builder.h"
#include "proto/testing/wire_bytes.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Not;

pb::OpDesc NewOp(const std::string& type) { return ProgramBuilder().Op(type, {}, {}).last_op(); }

pb::VarDesc NewVar(const std::string& name) { return ProgramBuilder().Var(name).last_var(); }

// The types of a block's ops, in order.
std::vector<std::string> Types(const Program& program, int block = 0) {
  std::vector<std::string> types;
  for (OpId id : program.block(block).ops()) types.emplace_back(program.op(id).type());
  return types;
}

std::vector<std::string> VarNames(const Program& program, int block = 0) {
  std::vector<std::string> names;
  for (VarId id : program.block(block).vars()) names.emplace_back(program.var(id).name());
  return names;
}

// Ops a, b, c over a variable v; block 1 with op d and a variable of its own.
Program Abc() {
  ProgramBuilder builder;
  builder.Op("a", {{"X", {"v"}}}, {}).Op("b", {{"X", {"v"}}}, {}).Op("c", {{"X", {"v"}}}, {});
  builder.NewBlock().Var("inner").Op("d", {{"X", {"inner"}}}, {});
  return builder.Build();
}

OpId At(const Program& program, size_t position, int block = 0) {
  return program.block(block).ops()[position];
}

// --- Where ops go -------------------------------------------------------------------------------

TEST(RewriterTest, InsertionsAtOneOpKeepTheOrderOfTheCalls) {
  Program program = Abc();
  const OpId b = At(program, 1);
  Rewriter rewriter(&program);
  rewriter.InsertAfter(b, NewOp("after1"));
  rewriter.InsertBefore(b, NewOp("before1"));
  rewriter.InsertAfter(b, NewOp("after2"));
  rewriter.InsertBefore(b, NewOp("before2"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("a", "before1", "before2", "b", "after1", "after2", "c"));
}

TEST(RewriterTest, InsertAfterPrecedesInsertBeforeTheNextOp) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.InsertBefore(At(program, 1), NewOp("before_b"));
  rewriter.InsertAfter(At(program, 0), NewOp("after_a"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("a", "after_a", "before_b", "b", "c"));
}

TEST(RewriterTest, PrependAndAppendSurroundInsertions) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.InsertBefore(At(program, 0), NewOp("before_a"));
  rewriter.InsertAfter(At(program, 2), NewOp("after_c"));
  rewriter.Prepend(0, NewOp("first"));
  rewriter.Prepend(0, NewOp("second"));
  rewriter.Append(0, NewOp("last_but_one"));
  rewriter.Append(0, NewOp("last"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("first", "second", "before_a", "a", "b", "c", "after_c",
                                          "last_but_one", "last"));
}

TEST(RewriterTest, EmptyBlockTakesOps) {
  Program program = ProgramBuilder().Build();
  Rewriter rewriter(&program);
  rewriter.Append(0, NewOp("end"));
  rewriter.Prepend(0, NewOp("begin"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("begin", "end"));
}

TEST(RewriterTest, InsertionGoesIntoTheBlockOfItsAnchor) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.InsertBefore(At(program, 0, 1), NewOp("new"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program, 1), ElementsAre("new", "d"));
  EXPECT_EQ(program.op(At(program, 0, 1)).block(), 1);
  EXPECT_THAT(Types(program), ElementsAre("a", "b", "c"));
}

TEST(RewriterTest, ReplacedOpKeepsIdAndPlace) {
  Program program = Abc();
  const OpId b = At(program, 1);
  Rewriter rewriter(&program);
  rewriter.Replace(b, ProgramBuilder().Op("new", {}, {{"Out", {"v"}}}, kRoleOptimize).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(OpTexts(program), ElementsAre("a(v -> )", "new( -> v)", "c(v -> )"));
  EXPECT_EQ(At(program, 1), b);
  EXPECT_EQ(program.op(b).role(), kRoleOptimize);
}

TEST(RewriterTest, InsertionsAtAnErasedOpStay) {
  Program program = Abc();
  const OpId b = At(program, 1);
  Rewriter rewriter(&program);
  rewriter.InsertBefore(b, NewOp("before"));
  rewriter.Erase(b);
  rewriter.InsertAfter(b, NewOp("after"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("a", "before", "after", "c"));
}

TEST(RewriterTest, AllOpsMayBeErased) {
  Program program = Abc();
  Rewriter rewriter(&program);
  for (OpId id : program.block(0).ops()) rewriter.Erase(id);
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre());
  EXPECT_EQ(program.ToProto().blocks(0).ops_size(), 0);
}

TEST(RewriterTest, MovedOpLeavesItsNeighbours) {
  Program program = Abc();
  const OpId a = At(program, 0), c = At(program, 2);
  Rewriter rewriter(&program);
  rewriter.InsertBefore(c, NewOp("before_c"));
  rewriter.MoveBefore(c, a);
  rewriter.InsertAfter(c, NewOp("after_c"));
  rewriter.InsertBefore(a, NewOp("before_a"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("c", "before_a", "a", "b", "before_c", "after_c"));
  EXPECT_EQ(At(program, 0), c);
}

TEST(RewriterTest, OpsMayChangePlaces) {
  Program program = Abc();
  const OpId a = At(program, 0), b = At(program, 1), c = At(program, 2);
  Rewriter rewriter(&program);
  rewriter.MoveBefore(c, a);
  rewriter.MoveBefore(a, c);  // where c was
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(program.block(0).ops(), ElementsAre(c, b, a));
}

TEST(RewriterTest, OpMovedBeforeItselfStays) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.MoveBefore(At(program, 1), At(program, 1));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("a", "b", "c"));
}

TEST(RewriterTest, OpMayMoveBeforeOneThatIsErased) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.Erase(At(program, 0));
  rewriter.MoveBefore(At(program, 2), At(program, 0));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("c", "b"));
}

// --- Variables ----------------------------------------------------------------------------------

TEST(RewriterTest, NewVariablesFollowExistingOnes) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.AddVar(0, NewVar("n1"));
  rewriter.AddVar(1, NewVar("n2"));
  rewriter.AddVar(0, NewVar("n3"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(VarNames(program), ElementsAre("v", "n1", "n3"));
  EXPECT_THAT(VarNames(program, 1), ElementsAre("inner", "n2"));
  EXPECT_EQ(program.block(1).FindVar("n2"), program.block(1).vars()[1]);
  EXPECT_FALSE(program.block(0).FindVar("n2").valid());
}

TEST(RewriterTest, NewOpMayUseNewAndInheritedAndNoVariables) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.Append(
      1, ProgramBuilder().Op("new", {{"X", {"v", "n", "@EMPTY@"}}}, {{"Y", {"inner"}}}).last_op());
  rewriter.AddVar(1, NewVar("n"));
  WEFT_EXPECT_OK(rewriter.Commit());
}

TEST(RewriterTest, SubBlockMayHideAVariable) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.AddVar(1, NewVar("v"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_EQ(program.block(1).Resolve("v"), program.block(1).vars()[1]);
  EXPECT_EQ(program.block(0).Resolve("v"), program.block(0).vars()[0]);
}

TEST(RewriterTest, ReplacedVariableKeepsIdAndPlace) {
  Program program = ProgramBuilder().Var("u").Var("v").Var("w").Build();
  const VarId v = program.block(0).vars()[1];
  pb::VarDesc with = program.var(v).ToProto();
  with.set_persistable(true);
  Rewriter rewriter(&program);
  rewriter.ReplaceVar(v, with);
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(VarNames(program), ElementsAre("u", "v", "w"));
  EXPECT_TRUE(program.var(v).persistable());
  EXPECT_EQ(program.block(0).FindVar("v"), v);
  EXPECT_TRUE(program.ToProto().blocks(0).vars(1).persistable());
}

TEST(RewriterTest, ErasedVariablesAreGoneAndTheirNamesAreFree) {
  ProgramBuilder builder;
  builder.Var("u").Var("w").Op("a", {{"X", {"v"}}}, {}).NewBlock().Var("v").Var("inner");
  Program program = builder.Build();
  const Program copy = program;
  Rewriter rewriter(&program);
  rewriter.Erase(At(program, 0));
  rewriter.EraseVar(program.block(0).FindVar("v"));
  rewriter.EraseVar(program.block(1).FindVar("inner"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(VarNames(program), ElementsAre("u", "w"));
  EXPECT_THAT(VarNames(program, 1), ElementsAre("v"));
  EXPECT_FALSE(program.block(0).FindVar("v").valid());
  EXPECT_FALSE(program.block(1).FindVar("inner").valid());
  EXPECT_EQ(program.num_vars(), 3);
  EXPECT_TRUE(copy.block(0).FindVar("v").valid());
  WEFT_ASSERT_OK_AND_ASSIGN(const Program read, Program::Parse(program.Serialize()));
  EXPECT_THAT(VarNames(read), ElementsAre("u", "w"));
  EXPECT_THAT(VarNames(read, 1), ElementsAre("v"));

  rewriter.AddVar(0, NewVar("v"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(VarNames(program), ElementsAre("u", "w", "v"));
}

// --- The program afterwards ---------------------------------------------------------------------

TEST(RewriterTest, UntouchedOpsAndVariablesKeepTheirBytes) {
  const std::string odd = WireOp(WireBytes(3, "odd") + WireBytes(900, "unknown"));
  const std::string var = testing::WireVar(WireBytes(1, "v") + WireBytes(2, WireNumber(1, 99)));
  const std::string between = WireNumber(901, 7);
  const std::string whole = WireBytes(902, "x") + WireProgram(var + between + odd + odd) +
                            WireBytes(4, WireNumber(1, 2006002));
  Program program = *Program::Parse(whole);
  Rewriter rewriter(&program);
  rewriter.InsertAfter(At(program, 0), NewOp("new"));
  rewriter.AddVar(0, NewVar("added"));
  WEFT_ASSERT_OK(rewriter.Commit());

  const std::string new_op = WireOp(NewOp("new").SerializeAsString());
  const std::string new_var = testing::WireVar(NewVar("added").SerializeAsString());
  EXPECT_EQ(program.Serialize(), WireBytes(902, "x") +
                                     WireProgram(var + new_var + odd + new_op + odd + between) +
                                     WireBytes(4, WireNumber(1, 2006002)));
}

TEST(RewriterTest, UntouchedBlocksKeepTheirBytes) {
  // Variables after ops: written anew, they would stand before them.
  const std::string block =
      WireBytes(1, WireNumber(1, 1) + WireNumber(2, 0) + WireOp(WireBytes(3, "op")) +
                       testing::WireVar(NewVar("v").SerializeAsString()));
  Program program = *Program::Parse(WireProgram("") + block);
  Rewriter rewriter(&program);
  rewriter.Append(0, NewOp("new"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_EQ(program.Serialize(), WireProgram(WireOp(NewOp("new").SerializeAsString())) + block);
}

TEST(RewriterTest, LengthFieldOfTheBlockGrows) {
  Program program = ProgramBuilder().Op("a", {}, {}).Build();
  Rewriter rewriter(&program);
  for (int i = 0; i < 3000; ++i) rewriter.Append(0, NewOp("b"));
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(program.Serialize()));
  EXPECT_EQ(again.num_ops(), 3001);
}

TEST(RewriterTest, WrittenProgramReadsBackAsItIs) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.Replace(At(program, 0), NewOp("new"));
  rewriter.Erase(At(program, 1));
  rewriter.AddVar(1, NewVar("n"));
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(program.Serialize()));
  EXPECT_EQ(OpTexts(again), OpTexts(program));
  EXPECT_EQ(OpTexts(again, 1), OpTexts(program, 1));
  EXPECT_EQ(VarNames(again, 1), VarNames(program, 1));
  EXPECT_EQ(again.Serialize(), program.Serialize());
}

TEST(RewriterTest, SecondCommitContinuesFromTheFirst) {
  Program program = Abc();
  const OpId b = At(program, 1);
  Rewriter rewriter(&program);
  rewriter.InsertAfter(b, NewOp("first"));
  rewriter.Erase(At(program, 0));
  WEFT_ASSERT_OK(rewriter.Commit());
  const OpId first = At(program, 1);
  rewriter.InsertBefore(first, NewOp("second"));
  rewriter.Replace(b, NewOp("B"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Types(program), ElementsAre("B", "second", "first", "c"));
  EXPECT_EQ(At(program, 0), b);
  EXPECT_EQ(At(program, 2), first);
  EXPECT_EQ(program.revision(), 2);
}

TEST(RewriterTest, ReplacementKeepsArgumentsThatNobodyDeclares) {
  Program program = ProgramBuilder().Var("v").Op("old", {{"X", {"nobody"}}}, {}).Build();
  Rewriter rewriter(&program);
  rewriter.Replace(At(program, 0),
                   ProgramBuilder().Op("new", {{"X", {"nobody"}}}, {{"Out", {"v"}}}).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(OpTexts(program), ElementsAre("new(nobody -> v)"));
}

TEST(RewriterTest, OpsKnowTheirPositionAfterEachCommit) {
  Program program = Abc();
  const OpId a = At(program, 0), b = At(program, 1), c = At(program, 2), d = At(program, 0, 1);
  Rewriter rewriter(&program);
  rewriter.Erase(a);
  rewriter.InsertBefore(c, NewOp("x"));
  rewriter.Replace(c, NewOp("C"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_EQ(program.op(b).position(), 0);
  EXPECT_EQ(program.op(At(program, 1)).DebugName(), "op 1 (x)");
  EXPECT_EQ(program.op(c).DebugName(), "op 2 (C)");
  EXPECT_EQ(program.op(d).DebugName(), "block 1, op 0 (d)");
  EXPECT_EQ(program.op(a).position(), Op::kNoPosition);
  EXPECT_EQ(program.op(a).DebugName(), "op (a)");

  rewriter.MoveBefore(c, b);
  rewriter.Prepend(1, NewOp("y"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_EQ(program.op(c).position(), 0);
  EXPECT_EQ(program.op(b).position(), 1);
  EXPECT_EQ(program.op(d).position(), 1);
}

TEST(RewriterTest, CommitWithoutEditsChangesNothing) {
  Program program = Abc();
  const std::string bytes = program.Serialize();
  Rewriter rewriter(&program);
  EXPECT_TRUE(rewriter.empty());
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_EQ(program.revision(), 0);
  EXPECT_EQ(program.Serialize(), bytes);
}

TEST(RewriterTest, RewriterIsEmptyAfterCommit) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.Append(0, NewOp("x"));
  EXPECT_FALSE(rewriter.empty());
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_TRUE(rewriter.empty());
  rewriter.Erase(OpId());
  EXPECT_THAT(rewriter.Commit(), Not(testing::IsOk()));
  EXPECT_TRUE(rewriter.empty());
}

TEST(RewriterTest, NewSubBlocksAreSeen) {
  Program program = Abc();
  Rewriter rewriter(&program);
  rewriter.Append(0, ProgramBuilder().Op("while", {}, {}).BlockAttr("sub_block", 1).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(program.op(At(program, 3)).SubBlocks(), ElementsAre(1));
}

TEST(RewriterTest, ErasedOpFreesItsSubBlock) {
  // Block 1 holds an op that runs block 2; block 2 may run block 1 once that op is gone.
  ProgramBuilder builder;
  builder.NewBlock().Op("while", {}, {}).BlockAttr("sub_block", 2).NewBlock();
  Program program = builder.Build();
  Rewriter rewriter(&program);
  rewriter.Erase(At(program, 0, 1));
  rewriter.Append(2, ProgramBuilder().Op("while", {}, {}).BlockAttr("sub_block", 1).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_EXPECT_OK(Program::Parse(program.Serialize()));
}

// --- New blocks ---------------------------------------------------------------------------------

TEST(Rewriter, NewBlockIsFilledInTheSameCommit) {
  Program program = ProgramBuilder().Var("cond").Var("w").Build();
  Rewriter rewriter(&program);
  const int block = rewriter.AddBlock(0);
  EXPECT_EQ(block, 1);
  pb::VarDesc local;
  local.set_name("t");
  local.mutable_type()->set_type(pb::VarType::RAW);
  rewriter.AddVar(block, local);
  rewriter.Append(block, ProgramBuilder().Op("relu", {{"X", {"w"}}}, {{"Out", {"t"}}}).last_op());
  ProgramBuilder branch;
  branch.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", block);
  rewriter.Append(0, branch.last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  ASSERT_EQ(program.num_blocks(), 2);
  EXPECT_EQ(program.block(1).parent_idx(), 0);
  EXPECT_THAT(OpTexts(program, 1), ElementsAre("relu(w -> t)"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(program.Serialize()));
  EXPECT_EQ(again.ToProto().SerializeAsString(), program.ToProto().SerializeAsString());
  EXPECT_EQ(again.block(1).parent_idx(), 0);
  EXPECT_EQ(again.ToProto().blocks(1).vars(0).name(), "t");
}

TEST(Rewriter, NewBlockOfACommitThatFailsIsGone) {
  Program program = ProgramBuilder().Var("w").Build();
  const std::string before = program.Serialize();
  Rewriter rewriter(&program);
  const int block = rewriter.AddBlock(0);
  rewriter.Append(block, ProgramBuilder().Op("relu", {{"X", {"nobody"}}}, {}).last_op());
  EXPECT_THAT(rewriter.Commit(), IsInvalidArgument("nobody is not declared"));
  EXPECT_EQ(program.num_blocks(), 1);
  EXPECT_EQ(program.Serialize(), before);
}

TEST(Rewriter, NewBlockInABlockThatDoesNotExistIsRefused) {
  Program program = ProgramBuilder().Build();
  Rewriter rewriter(&program);
  rewriter.AddBlock(7);
  EXPECT_THAT(rewriter.Commit(), IsInvalidArgument("block 7 for a block in it"));
}

TEST(Rewriter, BytesOfCommitsOutliveRewriterAndOriginal) {
  auto original = std::make_unique<Program>(Abc());
  const std::string big(1 << 20, 'b');
  {
    Rewriter rewriter(original.get());
    for (int i = 0; i < 1000; ++i) rewriter.Append(0, NewOp("shared"));
    rewriter.Append(0, NewOp(big));
    WEFT_ASSERT_OK(rewriter.Commit());
  }
  Program copy = *original;
  // Neither sees what the other adds.
  Rewriter theirs(original.get()), mine(&copy);
  theirs.Append(0, NewOp("theirs"));
  mine.Append(0, NewOp("mine"));
  WEFT_ASSERT_OK(theirs.Commit());
  WEFT_ASSERT_OK(mine.Commit());
  EXPECT_EQ(Types(*original).back(), "theirs");
  original.reset();
  const std::vector<std::string> types = Types(copy);
  ASSERT_EQ(types.size(), 1005);
  EXPECT_EQ(types[3], "shared");
  EXPECT_EQ(types[1002], "shared");
  EXPECT_EQ(types[1003], big);
  EXPECT_EQ(types[1004], "mine");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(copy.Serialize()));
  EXPECT_EQ(Types(again), types);
}

}  // namespace
}  // namespace weft::testing
