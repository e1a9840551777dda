#include "transpiler/passes/support/new_variables.h"

#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

TEST(UniqueNames, CountsPerKeyPastNamesThatAreTaken) {
  const Program program = CompactProgram("var id_0 : fp32[1]\nvar id_2 : fp32[1]");
  UniqueNames names(program);
  EXPECT_EQ(names.Next("id"), "id_1");
  EXPECT_EQ(names.Next("id"), "id_3");
  EXPECT_EQ(names.Next("buffer"), "buffer_0");
}

TEST(UniqueNames, NameThatIsFreeIsKept) {
  const Program program = CompactProgram("var step : fp32[1]\nvar step_0 : fp32[1]");
  UniqueNames names(program);
  EXPECT_EQ(names.Of("counter"), "counter");
  EXPECT_EQ(names.Of("step"), "step_1");
}

TEST(UniqueNames, NamesOfTheStartupProgramAreTakenToo) {
  Program main = CompactProgram("var a : fp32[1]"), startup = CompactProgram("var b : fp32[1]");
  EXPECT_EQ(UniqueNames(ProgramPair{&main, &startup}).Of("b"), "b_0");
  EXPECT_EQ(UniqueNames(ProgramPair{&main, nullptr}).Of("b"), "b");
}

}  // namespace
}  // namespace weft::testing
