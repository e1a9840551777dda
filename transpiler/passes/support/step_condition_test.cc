#include "transpiler/passes/support/step_condition.h"

#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

void ExpectProgram(const Program& found, const std::string& expected) {
  const auto program = ParseCompactProgram(expected, found.ToProto());
  WEFT_ASSERT_OK(program.status());
  EXPECT_EQ(CanonicalText(*program), CanonicalText(found.ToProto()));
}

TEST(StepCounter, OneRemainderServesSeveralPhasesBeforeAnOp) {
  Program main = CompactProgram("Out=[y] = relu(X=[x])\nOut=[z] = relu(X=[y])");
  Program startup = CompactProgram("");
  ProgramEdits edits(ProgramPair{&main, &startup});
  const OpId before = main.block(0).ops()[1];
  StepCounter counter("turn", before, &edits);
  const std::string remainder = counter.Remainder(3);
  EXPECT_EQ(counter.IsDue(remainder, 1, "_1"), "turn_is_due_1");
  const std::string is_due = counter.IsDue(remainder, 0, "_3");
  EXPECT_EQ(is_due, "turn_is_due_3");
  EXPECT_EQ(WriteBranch(is_due, {{"y"}, {"y"}}, "turn_scope", before, &edits), 1);
  WEFT_ASSERT_OK(edits.Commit().status());
  ExpectProgram(main, R"(
    Out=[y] = relu(X=[x])
    Out=[turn_step] = increment(X=[turn_step]) role=optimize
    Out=[turn_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="3", value=3.0}
    Out=[turn_remainder] = elementwise_mod(X=[turn_step], Y=[turn_k]) role=optimize
    Out=[turn_phase_1] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="1", value=1.0}
    Out=[turn_is_due_1] = equal(X=[turn_remainder], Y=[turn_phase_1]) role=optimize
    Out=[turn_zero_3] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
    Out=[turn_is_due_3] = equal(X=[turn_remainder], Y=[turn_zero_3]) role=optimize
    Out=[y], Scope=[turn_scope] = conditional_block(Cond=[turn_is_due_3], Input=[y]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    Out=[z] = relu(X=[y])
    block 1:
  )");
  ExpectProgram(startup,
                "Out=[turn_step] = fill_constant() {dtype=3, shape=longs[1], str_value=\"0\"}");
  EXPECT_TRUE(main.var(main.block(0).FindVar("turn_step")).persistable());
}

}  // namespace
}  // namespace weft::testing
