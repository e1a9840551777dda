#include "tools/inspect/program_dot.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The drawing of a program whose root block has these lines.
std::string Draw(absl::string_view lines, absl::string_view more_blocks = "") {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(lines, more_blocks));
  return program.ok() ? *ProgramToDot(*program) : program.status().ToString();
}

TEST(ProgramToDotTest, OpIsABoxInTheColorOfItsRole) {
  const std::string dot = Draw(
      "    Out=[y] = relu(X=[x]) role=forward {}\n"
      "    Out=[z] = relu(X=[y]) role=optimize {}\n");
  EXPECT_THAT(dot, HasSubstr("op0 [label=\"0: relu\", fillcolor=lightblue, tooltip=\"forward\"]"));
  EXPECT_THAT(dot, HasSubstr("op1 [label=\"1: relu\", fillcolor=palegreen, tooltip=\"optimize\"]"));
}

TEST(ProgramToDotTest, EdgeLeadsFromTheLastWriter) {
  const std::string dot = Draw(
      "    Out=[y] = relu(X=[x]) role=forward {}\n"
      "    Out=[y] = tanh(X=[y]) role=forward {}\n"
      "    Out=[z] = relu(X=[y]) role=forward {}\n");
  EXPECT_THAT(dot, HasSubstr("op0 -> op1 [label=\"y\"]"));
  EXPECT_THAT(dot, HasSubstr("op1 -> op2 [label=\"y\"]"));
  EXPECT_THAT(dot, Not(HasSubstr("op0 -> op2")));
}

TEST(ProgramToDotTest, UnwrittenVariableIsOneEllipse) {
  const std::string dot = Draw(
      "    Out=[y] = relu(X=[x]) role=forward {}\n"
      "    Out=[z] = relu(X=[x]) role=forward {}\n");
  const size_t first = dot.find("[shape=ellipse, fillcolor=white, label=\"x\"]");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(dot.find("shape=ellipse", first + 10), std::string::npos);
}

TEST(ProgramToDotTest, EmptyArgumentIsNotDrawn) {
  EXPECT_THAT(Draw("    Out=[y] = relu(X=[@EMPTY@]) role=forward {}\n"), Not(HasSubstr("EMPTY")));
}

TEST(ProgramToDotTest, SubBlockIsAClusterThatItsOpPointsTo) {
  const std::string dot =
      Draw("    Out=[] = conditional_block() role=forward {sub_block=block(1)}\n",
           "  block 1 parent=0 {\n    Out=[y] = relu(X=[x]) role=forward {}\n  }\n");
  EXPECT_THAT(dot, HasSubstr("subgraph cluster_block1 {"));
  EXPECT_THAT(dot, HasSubstr("op0 -> block1 [style=dashed, lhead=cluster_block1]"));
}

TEST(ProgramToDotTest, QuotesInNamesAreEscaped) {
  EXPECT_THAT(Draw("    Out=[y] = relu(X=[\"a\\\"b\"]) role=forward {}\n"),
              HasSubstr("label=\"a\\\"b\""));
}

TEST(ProgramToDotTest, CollectiveLooksOtherThanTheOpsOfItsRoleAndNamesItsRing) {
  const std::string dot = Draw(
      "    X@GRAD=[g] = relu_grad(Out@GRAD=[h]) role=backward {}\n"
      "    Out=[g] = c_wait_compute(X=[g]) role=backward {ring_id=2}\n"
      "    Out=[g] = c_allreduce_sum(X=[g]) role=backward {ring_id=2}\n");
  EXPECT_THAT(dot, HasSubstr("op0 [label=\"0: relu_grad\", fillcolor=lightsalmon, tooltip="));
  EXPECT_THAT(dot, HasSubstr("op1 [label=\"1: c_wait_compute\\nring 2\", fillcolor=thistle, "
                             "shape=parallelogram, tooltip=\"backward\"]"));
  EXPECT_THAT(dot, HasSubstr("op2 [label=\"2: c_allreduce_sum\\nring 2\", "
                             "fillcolor=mediumpurple1, shape=octagon, tooltip=\"backward\"]"));
}

TEST(ProgramToDotTest, LegendHasTheLooksThatOccur) {
  const std::string dot = Draw(
      "    Out=[y] = relu(X=[x]) role=forward {}\n"
      "    Out=[y] = c_allreduce_sum(X=[y]) role=forward {ring_id=0}\n");
  EXPECT_THAT(dot, HasSubstr("  subgraph cluster_legend {\n"
                             "    label=\"legend\";\n"
                             "    legend0 [label=\"collective\", fillcolor=mediumpurple1, "
                             "shape=octagon];\n"
                             "    legend1 [label=\"forward\", fillcolor=lightblue];\n"
                             "  }\n"));
}

TEST(ProgramToDotTest, LargeProgramIsAnErrorThatSaysWhatToUse) {
  std::string lines;
  for (size_t i = 0; i <= kMaxDrawnOps; ++i) lines += "    Out=[y] = relu(X=[x]) role=forward {}\n";
  EXPECT_THAT(ProgramToDot(testing::BlockProgram(lines)).status(),
              ::weft::testing::IsInvalidArgument(::testing::AllOf(
                  HasSubstr("at most 200 ops"), HasSubstr("found 201"), HasSubstr("weft view"))));
}

}  // namespace
}  // namespace weft
