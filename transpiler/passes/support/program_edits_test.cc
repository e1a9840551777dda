#include "transpiler/passes/support/program_edits.h"

#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/op_role.h"

namespace weft::testing {
namespace {

std::string TypesOf(const Program& program) {
  std::string types;
  for (OpId id : program.block(0).ops()) types += std::string(program.op(id).type()) + " ";
  return types;
}

TEST(ProgramEdits, StateIsDeclaredInBothProgramsAndInitializedByOne) {
  Program main = CompactProgram("var w : fp32[2]"), startup = CompactProgram("var w : fp32[2]");
  ProgramEdits edits(ProgramPair{&main, &startup});
  edits.AddState("s", DType::kFloat32, {2}, FillOp("s", DType::kFloat32, {2}, 3, kRoleForward));
  EXPECT_THAT(edits.Commit(), IsOkAndHolds(true));
  for (const Program* program : {&main, &startup}) {
    const VarId state = program->block(0).FindVar("s");
    ASSERT_TRUE(state.valid());
    EXPECT_TRUE(program->var(state).persistable());
  }
  EXPECT_EQ(TypesOf(main), "");
  EXPECT_EQ(TypesOf(startup), "fill_constant ");
}

TEST(ProgramEdits, OpStandsBeforeAnotherOrAtTheEnd) {
  Program main = CompactProgram("Out=[y] = relu(X=[x])");
  ProgramEdits edits(ProgramPair{&main, nullptr});
  edits.InsertBefore(main.block(0).ops()[0], BuildOp(ScaleOp("x", "x", 2, kRoleForward)));
  edits.InsertBefore(OpId(), BuildOp(InPlaceOp("tanh", {"y"}, {}, kRoleForward)));
  EXPECT_THAT(edits.Commit(), IsOkAndHolds(true));
  EXPECT_EQ(TypesOf(main), "scale relu tanh ");
}

TEST(ProgramEdits, NoEditsChangeNothing) {
  Program main = CompactProgram("Out=[y] = relu(X=[x])"), startup = CompactProgram("");
  EXPECT_THAT(ProgramEdits(ProgramPair{&main, nullptr}).Commit(), IsOkAndHolds(false));
  EXPECT_THAT(ProgramEdits(ProgramPair{&main, &startup}).Commit(), IsOkAndHolds(false));
}

}  // namespace
}  // namespace weft::testing
