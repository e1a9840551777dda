// Blocks of the file, new blocks and new state.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/exporter.h"
#include "proto/formats/pir/exporter_testing.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::StatusIs;

// What a block reads is what inserted ops have left, in the text of the block too.
TEST(ExporterTest, BlocksReadWhatInsertedOpsHaveMade) {
  Edit edit("cond_mlp/main.json");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, edit.InsertAfter(0, {InPlace("scale", "x")}));
  const std::vector<std::string> lines = Lines(text);
  // 48 is the constant, 49 what is scaled.
  EXPECT_THAT(lines, Contains("1.scale_ 49 <- 6 48"));
  EXPECT_THAT(lines, Contains("1.tanh 13 <- 49"));
  EXPECT_THAT(lines, Contains("1.scale 17 <- 49 16"));
  EXPECT_THAT(lines, Contains("1.mean 9 <- 6 8"));
}

TEST(ExporterTest, RefusesOpsInsertedIntoBlocks) {
  Edit edit("cond_mlp/main.json");
  Rewriter rewriter(&edit.program());
  rewriter.InsertAfter(edit.program().block(1).ops()[0], InPlace("scale", "tanh_13"));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(std::string(ExportProgram(edit.program()).status().message()),
              HasSubstr("(scale): a pass has written or moved this op in a block"));
}

TEST(ExporterTest, RefusesErasedAndMovedOpsOfBlocks) {
  const auto error = [](const Program& program) {
    return std::string(ExportProgram(program).status().message());
  };
  Edit erased("cond_mlp/main.json");
  Rewriter rewriter(&erased.program());
  const std::vector<OpId> ops(erased.program().block(1).ops().begin(),
                              erased.program().block(1).ops().end());
  ASSERT_EQ(ops.size(), 3u);
  rewriter.Erase(ops[2]);
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(error(erased.program()), HasSubstr("a pass has erased block 1 op 3 (2.yield) from"));
  Edit moved("cond_mlp/main.json");
  Rewriter mover(&moved.program());
  mover.MoveBefore(ops[2], ops[0]);
  WEFT_ASSERT_OK(mover.Commit());
  EXPECT_THAT(error(moved.program()), HasSubstr("(assign): a pass has written or moved this op"));
}

// One op of the file is several of the program: nothing goes between them that they depend on.
TEST(ExporterTest, RefusesOpsBetweenThePartsOfAnIf) {
  Edit edit("cond_mlp/main.json");
  EXPECT_THAT(std::string(edit.InsertAfter(4, {InPlace("scale", "x")}).status().message()),
              HasSubstr("op 6 (conditional_block): a part of a 1.if or 1.while of the file, after "
                        "an inserted op on x"));
  Edit other("cond_mlp/main.json");
  WEFT_EXPECT_OK(other.InsertAfter(4, {InPlace("scale", "y")}));
}

// Adds a counter, and a block of ops in place that runs on even steps, after the op at `position`.
absl::Status AddPeriodicBlock(Edit* edit, size_t position, const std::vector<pb::OpDesc>& ops,
                              const std::vector<std::string>& writes) {
  ProgramBuilder builder;
  Rewriter rewriter(&edit->program());
  builder.Var("step", {1}, pb::VarType::INT64);
  pb::VarDesc step = builder.last_var();
  step.set_persistable(true);
  rewriter.AddVar(0, step);
  rewriter.AddVar(0, builder.Var("two", {1}, pb::VarType::INT64).last_var());
  rewriter.AddVar(0, builder.Var("rest", {1}, pb::VarType::INT64).last_var());
  rewriter.AddVar(0, builder.Var("zero", {1}, pb::VarType::INT64).last_var());
  rewriter.AddVar(0, builder.Var("is_due", {1}, pb::VarType::BOOL).last_var());
  const auto insert = [&](ProgramBuilder& op) {
    rewriter.InsertAfter(edit->op(position), op.last_op());
  };
  const auto fill = [&](const char* name, float value) {
    insert(builder.Op("fill_constant", {}, {{"Out", {name}}})
               .IntAttr("dtype", pb::VarType::INT64)
               .LongsAttr("shape", {1})
               .FloatAttr("value", value));
  };
  insert(builder.Op("increment", {{"X", {"step"}}}, {{"Out", {"step"}}}).FloatAttr("step", 1));
  fill("two", 2);
  insert(builder.Op("elementwise_mod", {{"X", {"step"}}, {"Y", {"two"}}}, {{"Out", {"rest"}}}));
  fill("zero", 0);
  insert(builder.Op("equal", {{"X", {"rest"}}, {"Y", {"zero"}}}, {{"Out", {"is_due"}}}));
  const int block = rewriter.AddBlock(0);
  for (const pb::OpDesc& op : ops) rewriter.Append(block, op);
  insert(
      builder.Op("conditional_block", {{"Cond", {"is_due"}}, {"Input", writes}}, {{"Out", writes}})
          .BlockAttr("sub_block", block)
          .BoolAttr("is_scalar_condition", true));
  return rewriter.Commit();
}

// The new state is 1.data, and the block writes parameters in place.
TEST(ExporterTest, NewBlocksWriteParametersInPlace) {
  Edit edit("fit_a_line/main.json");
  WEFT_ASSERT_OK(AddPeriodicBlock(
      &edit, 12, {InPlace("all_reduce", "fc_0.w_0"), InPlace("scale", "fc_0.w_0")}, {"fc_0.w_0"}));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(edit.program()));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_EQ(lines.front(), "1.data 26 <-");
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 21, lines.end()),
              ElementsAre("1.increment_ 27 <- 26", "1.full 28 <-", "1.remainder 29 <- 27 28",
                          "1.full 30 <-", "1.equal 31 <- 29 30", "1.if <- 31",
                          "1.all_reduce_ 32 <- 3", "1.full 33 <-", "1.scale_ 34 <- 32 33"));
  // Otherwise, Paddle may write the remainder over the counter.
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        R"re("1.increment_"[^#]*"#":"0.a_f32","D":1.0[^%]*"%":26[^N]*"%":27.*)re"
                        R"re("N":"persistable".*"1.remainder")re"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(text));
  ASSERT_EQ(program.num_blocks(), 2);
  EXPECT_TRUE(program.var(program.block(0).FindVar(program.FindSymbol("step"))).persistable());
  EXPECT_THAT(OpTexts(program),
              ::testing::IsSupersetOf({"increment(step -> step)",
                                       "elementwise_mod(step, full_28 -> remainder_29)",
                                       "conditional_block(equal_31, fc_0.w_0 -> "
                                       "if_cond_31_true_scope, fc_0.w_0)"}));
  EXPECT_EQ(program.block(1).ops().size(), 2u);
}

// What the startup program makes has a name there.
TEST(ExporterTest, NewStateIsNamed) {
  Edit edit("fit_a_line/startup.json");
  ProgramBuilder builder;
  pb::VarDesc step = builder.Var("step", {1}, pb::VarType::INT64).last_var();
  step.set_persistable(true);
  builder.Op("fill_constant", {}, {{"Out", {"step"}}})
      .IntAttr("dtype", pb::VarType::INT64)
      .LongsAttr("shape", {1});
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            edit.InsertAfter(0, {builder.last_op()}, {step}));
  EXPECT_THAT(text, HasSubstr(R"("0.shadow_output","A":[{"AT":{"#":"0.a_str","D":"step"})"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(text));
  EXPECT_THAT(OpTexts(program), Contains("fill_constant( -> step)"));
  EXPECT_TRUE(program.var(program.block(0).FindVar(program.FindSymbol("step"))).persistable());
}

// Paddle runs collectives of one block in order. Others are ordered by what the block reads.
TEST(ExporterTest, CollectivesOfNewBlocksAreOrdered) {
  Edit edit("fit_a_line/main.json");
  Rewriter rewriter(&edit.program());
  rewriter.InsertAfter(edit.op(10), InPlace("all_reduce", "fc_0.w_0@GRAD"));
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK(AddPeriodicBlock(&edit, 11, {InPlace("broadcast", "fc_0.b_0")}, {"fc_0.b_0"}));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(edit.program()));
  const std::vector<std::string> lines = Lines(text);
  const auto branch = std::find(lines.begin(), lines.end(), "1.if <- 32");
  ASSERT_TRUE(branch != lines.end()) << absl::StrJoin(lines, "\n");
  EXPECT_THAT(std::vector<std::string>(branch + 1, branch + 3),
              ElementsAre("0.combine 33 <- 27", "1.broadcast_ 34 <- 2"));
  Rewriter behind(&edit.program());
  behind.Append(0, InPlace("all_reduce", "fc_0.w_0@GRAD"));
  WEFT_ASSERT_OK(behind.Commit());
  EXPECT_THAT(std::string(ExportProgram(edit.program()).status().message()),
              HasSubstr("(all_reduce): a collective after a block with collectives"));
}

// Also where the file has it.
TEST(ExporterTest, CollectivesOfTheFileBehindNewBlocksAreRefused) {
  const std::string type = R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[13,1],"NCHW",[],0]})";
  for (const char* name : {"1.all_reduce_", "1.c_unknown", "1.sync_unknown"}) {
    SCOPED_TRACE(name);
    const std::string old =
        absl::StrCat(R"({"#":")", name, R"(","A":[],"I":[{"%":21}],"O":[{"%":99,"TT":)", type,
                     R"(}],"OA":[]},)");
    std::string bytes = Files().at("fit_a_line/main.json");
    bytes.insert(bytes.find(R"({"#":"1.sgd_")"), old);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
    Edit before(program), behind(program);
    const std::vector<pb::OpDesc> ops = {InPlace("broadcast", "fc_0.b_0")};
    WEFT_ASSERT_OK(AddPeriodicBlock(&before, 3, ops, {"fc_0.b_0"}));
    EXPECT_THAT(std::string(ExportProgram(before.program()).status().message()),
                HasSubstr("a collective after a block with collectives"));
    WEFT_ASSERT_OK(AddPeriodicBlock(&behind, 11, ops, {"fc_0.b_0"}));
    WEFT_EXPECT_OK(ExportProgram(behind.program()));
  }
  // A block of the file does not wait for a collective that is new.
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program,
                            ImportBytes(Edited("cond_mlp/main.json", "1.tanh\"", "1.c_tanh\"")));
  EXPECT_THAT(
      std::string(Edit(program).InsertAfter(0, {InPlace("all_reduce", "x")}).status().message()),
      HasSubstr("block 1 op 0 (1.c_tanh), a collective in a block, after one that a pass has "
                "inserted"));
}

TEST(ExporterTest, RefusesNewValuesOfUnknownDimensionsInNewBlocks) {
  const auto exported = [](int64_t rows) -> absl::Status {
    Edit edit("fit_a_line/main.json");
    Rewriter rewriter(&edit.program());
    rewriter.AddVar(0, ProgramBuilder().Var("mean", {rows, 1}).last_var());
    WEFT_RETURN_IF_ERROR(rewriter.Commit());
    WEFT_RETURN_IF_ERROR(AddPeriodicBlock(&edit, 10, {InPlace("scale", "mean")}, {"mean"}));
    return ExportProgram(edit.program()).status();
  };
  WEFT_EXPECT_OK(exported(2));
  EXPECT_THAT(exported(-1), StatusIs(absl::StatusCode::kUnimplemented,
                                     HasSubstr("expected known dimensions of what a new block "
                                               "writes and nothing before it")));
}

TEST(ExporterTest, RefusesBlocksThatMakeValues) {
  Edit edit("fit_a_line/main.json");
  WEFT_ASSERT_OK(
      AddPeriodicBlock(&edit, 10, {InPlace("scale", "fc_0.w_0@GRAD")}, {"fc_0.w_0@GRAD"}));
  EXPECT_THAT(std::string(ExportProgram(edit.program()).status().message()),
              HasSubstr("(scale): writes fc_0.w_0@GRAD in a new block: expected a variable of the "
                        "block, a parameter or state"));
}

}  // namespace
}  // namespace weft::pir
