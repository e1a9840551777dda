#include "drop_attr.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/pipeline/registry.h"

namespace embed {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::StatusIs;

// Runs the pass as a pipeline does, from text; true where it changed something.
absl::StatusOr<bool> RunText(const char* text, weft::Program* main) {
  weft::PassRegistry registry;
  registry.Add<DropAttr>();
  WEFT_ASSIGN_OR_RETURN(const weft::Pipeline pipeline, weft::Pipeline::FromText(text, registry));
  weft::PassContext context;
  weft::ProgramPair programs{main, nullptr};
  WEFT_ASSIGN_OR_RETURN(const auto reports, pipeline.Run(context, programs));
  return reports[0].changed;
}

weft::Program OneOp() {
  return ProgramBuilder()
      .Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}})
      .IntAttr("pipeline_stage", 3)
      .Build();
}

TEST(DropAttr, AttributeIsRemovedAndOthersStay) {
  weft::Program program = OneOp();
  WEFT_ASSERT_OK_AND_ASSIGN(const bool changed,
                            RunText("drop-attr{attr=pipeline_stage}", &program));
  EXPECT_TRUE(changed);
  const weft::Op op = program.op(program.block(0).ops()[0]);
  EXPECT_FALSE(op.HasAttr("pipeline_stage"));
  EXPECT_TRUE(op.HasAttr("op_role"));
}

TEST(DropAttr, ProgramWithoutTheAttributeKeepsItsBytes) {
  weft::Program program = OneOp();
  const std::string before = program.Serialize();
  WEFT_ASSERT_OK_AND_ASSIGN(const bool changed, RunText("drop-attr", &program));
  EXPECT_FALSE(changed);
  EXPECT_EQ(program.Serialize(), before);
}

TEST(DropAttr, RolesMustStay) {
  weft::Program program = OneOp();
  EXPECT_THAT(RunText("drop-attr{attr=op_role}", &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pass drop-attr: attribute op_role says what training is and must stay"));
}

TEST(DropAttr, UnknownOptionListsTheKnownOnes) {
  weft::Program program = OneOp();
  EXPECT_THAT(RunText("drop-attr{name=x}", &program),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attr")));
}

}  // namespace
}  // namespace embed
