#include "drop_attr.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"

namespace embed {
namespace {

using ::weft::testing::CompactProgram;
using ::weft::testing::ExpectNoRewrite;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::IsInvalidArgument;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RewriteStatus;
using ::weft::testing::StatusIs;

constexpr char kOneOp[] = "Out=[y] = relu(X=[x]) {pipeline_stage=3, priority=4}";

RewriteOptions WithDropAttr() {
  RewriteOptions options;
  options.registry.Add<DropAttr>();
  return options;
}

TEST(DropAttr, AttributeIsRemovedAndOthersStay) {
  ExpectRewrite("drop-attr{attr=pipeline_stage}", R"(
    Out=[h] = relu(X=[x])
  - Out=[y] = relu(X=[h]) {pipeline_stage=3, priority=4}
  + Out=[y] = relu(X=[h]) {priority=4}
  )",
                WithDropAttr());
}

TEST(DropAttr, StartupProgramIsRewrittenToo) {
  ExpectRewrite("drop-attr{attr=pipeline_stage}", {kOneOp, kOneOp},
                {"Out=[y] = relu(X=[x]) {priority=4}", "Out=[y] = relu(X=[x]) {priority=4}"},
                WithDropAttr());
}

TEST(DropAttr, ProgramWithoutTheAttributeKeepsItsBytes) {
  EXPECT_FALSE(ExpectNoRewrite("drop-attr", kOneOp, WithDropAttr()).passes[0].changed);
  weft::Program program = CompactProgram(kOneOp);
  const std::string before = program.Serialize();
  weft::PassContext context;
  weft::ProgramPair programs{&program, nullptr};
  WEFT_ASSERT_OK_AND_ASSIGN(const bool changed, DropAttr({}).Run(context, programs));
  EXPECT_FALSE(changed);
  EXPECT_EQ(program.Serialize(), before);
}

TEST(DropAttr, RolesMustStay) {
  EXPECT_THAT(RewriteStatus("drop-attr{attr=op_role}", kOneOp, WithDropAttr()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pass drop-attr: attribute op_role defines training and must stay"));
}

TEST(DropAttr, UnknownOptionListsTheKnownOnes) {
  EXPECT_THAT(RewriteStatus("drop-attr{name=x}", kOneOp, WithDropAttr()),
              IsInvalidArgument("attr"));
}

}  // namespace
}  // namespace embed
