#include "proto/pir/exporter.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/pir/document.h"
#include "proto/pir/files_testing.h"
#include "proto/pir/importer.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;

// "1.add 7 <- 6 2" for every op of a file.
std::vector<std::string> Lines(const std::string& bytes) {
  const auto document = Document::Parse(bytes);
  WEFT_EXPECT_OK(document);
  std::vector<std::string> lines;
  if (!document.ok()) return lines;
  for (const DocumentOp& op : (*document)->ops()) {
    std::string line(op.name);
    for (const Value& result : (*document)->results(op)) absl::StrAppend(&line, " ", result.id);
    absl::StrAppend(&line, " <-");
    for (const Operand& operand : (*document)->operands(op)) {
      absl::StrAppend(&line, " ",
                      operand.value == kNoValue ? 0 : (*document)->value(operand.value).id);
    }
    lines.push_back(line);
  }
  return lines;
}

class Edit {
 public:
  explicit Edit(const std::string& file) : Edit(*ImportBytes(Files().at(file))) {}
  explicit Edit(Program program) : program_(std::move(program)) {}

  OpId op(size_t position) const { return program_.block(0).ops()[position]; }
  Program& program() { return program_; }

  absl::StatusOr<std::string> InsertAfter(size_t position, const std::vector<pb::OpDesc>& ops,
                                          const std::vector<pb::VarDesc>& vars = {}) {
    Rewriter rewriter(&program_);
    for (const pb::OpDesc& op : ops) rewriter.InsertAfter(this->op(position), op);
    for (const pb::VarDesc& var : vars) rewriter.AddVar(0, var);
    const absl::Status status = rewriter.Commit();
    if (!status.ok()) return status;
    return ExportProgram(program_);
  }

 private:
  Program program_;
};

pb::OpDesc InPlace(const std::string& type, const std::string& var) {
  ProgramBuilder builder;
  const bool is_collective = type == "all_reduce" || type == "broadcast";
  builder.Op(type, {{is_collective ? "x" : "X", {var}}}, {{is_collective ? "out" : "Out", {var}}});
  if (type == "all_reduce") builder.IntAttr("ring_id", 2).IntAttr("reduce_type", 0);
  if (type == "scale") builder.FloatAttr("scale", 0.5f);
  return builder.last_op();
}

TEST(ExporterTest, UntouchedProgramsKeepTheirBytes) {
  int count = 0;
  for (const auto& [file, bytes] : Files()) {
    if (!absl::EndsWith(file, ".json") || absl::EndsWith(file, "meta.json")) continue;
    SCOPED_TRACE(file);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
    WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(program));
    EXPECT_TRUE(text == bytes);
    ++count;
  }
  EXPECT_EQ(count, 24);
}

// A gradient that is gathered instead of reduced: the parts of the ranks are summed.
TEST(ExporterTest, GatheredValuesAreTakenApart) {
  Edit edit("fit_a_line/main.json");
  ProgramBuilder builder;
  std::vector<pb::OpDesc> ops;
  builder.Op("all_gather", {{"x", {"fc_0.w_0@GRAD"}}}, {{"out", {"all"}}})
      .IntAttr("ring_id", 1)
      .IntAttr("nranks", 2);
  ops.push_back(builder.last_op());
  builder.Op("split", {{"X", {"all"}}}, {{"Out", {"part0", "part1"}}}).IntAttr("num", 2);
  ops.push_back(builder.last_op());
  builder.Op("sum", {{"X", {"part0", "part1"}}}, {{"Out", {"fc_0.w_0@GRAD"}}});
  ops.push_back(builder.last_op());
  std::vector<pb::VarDesc> vars;
  for (const char* name : {"all", "part0", "part1"}) {
    vars.push_back(builder.Var(name).last_var());
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, edit.InsertAfter(10, ops, vars));
  const std::vector<std::string> lines = Lines(text);
  const auto gather = std::find(lines.begin(), lines.end(), "1.all_gather 26 <- 21");
  ASSERT_TRUE(gather != lines.end()) << absl::StrJoin(lines, "\n");
  EXPECT_THAT(std::vector<std::string>(gather + 1, gather + 6),
              ElementsAre("1.full 27 <-", "1.split_with_num 28 <- 26 27", "0.split 29 30 <- 28",
                          "0.combine 31 <- 29 30", "1.add_n 32 <- 31"));
  EXPECT_THAT(text, HasSubstr(R"({"%":26,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[26,1])"));
}

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
              HasSubstr("op 6 (conditional_block): a part of a 1.if or 1.while of the file, behind "
                        "an inserted op on x"));
  Edit other("cond_mlp/main.json");
  WEFT_EXPECT_OK(other.InsertAfter(4, {InPlace("scale", "y")}));
}

// An op behind all others changes nothing before it: what is written is the file, op by op.
TEST(ExporterTest, EditsKeepTheBytesOfOtherOps) {
  for (const auto& [file, bytes] : Files()) {
    if (!absl::EndsWith(file, ".json") || absl::EndsWith(file, "meta.json")) continue;
    SCOPED_TRACE(file);
    Edit edit(file);
    const size_t last = edit.program().block(0).ops().size() - 1;
    const Op op = edit.program().op(edit.op(last));
    const std::string var(edit.program().name(op.output_args()[0]));
    const bool is_startup = absl::StrContains(file, "startup");
    WEFT_ASSERT_OK_AND_ASSIGN(
        const std::string text,
        edit.InsertAfter(last, {InPlace(is_startup ? "broadcast" : "all_reduce", var)}));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto before, Document::Parse(bytes));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto after, Document::Parse(text));
    ASSERT_EQ(after->ops().size(), before->ops().size() + 1);
    size_t same = 0;
    for (size_t i = 0, j = 0; i < before->ops().size(); ++i, ++j) {
      if (after->op(j).name != before->op(i).name) ++j;
      same += after->op(j).bytes == before->op(i).bytes ? 1 : 0;
    }
    // The startup program names the broadcast value.
    EXPECT_EQ(same, before->ops().size() - (is_startup ? 1 : 0));
  }
}

TEST(ExporterTest, LaterOpsReadTheNewValue) {
  Edit edit("fit_a_line/main.json");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            edit.InsertAfter(10, {InPlace("scale", "fc_0.w_0@GRAD"),
                                                  InPlace("all_reduce", "fc_0.w_0@GRAD")}));
  const std::vector<std::string> lines = Lines(text);
  ASSERT_EQ(lines.size(), 23u);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 17, lines.end()),
              ElementsAre("1.matmul_grad 20 21 <- 4 3 18", "1.full 26 <-", "1.scale 27 <- 21 26",
                          "1.all_reduce_ 28 <- 27", "1.sgd_ 22 23 <- 2 1 19 0",
                          "1.sgd_ 24 25 <- 3 1 28 0"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"({"#":"1.all_reduce_","A":[{"AT":{"#":"0.a_i32","D":2},"N":"ring_id"},{"AT":{"#":"0.a_i32","D":0},"N":"reduce_type"}],"I":[{"%":27}],"O":[{"%":28,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[13,1],"NCHW",[],0]}}],"OA":[{"AT":{"#":"0.a_array","D":[{"#":"0.a_bool","D":true}]},"N":"stop_gradient"}]})"));
  // It reads back as what was written.
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ImportBytes(text));
  const auto texts = OpTexts(again);
  EXPECT_EQ(texts[12], "all_reduce@2(fc_0.w_0@GRAD@RENAME@27 -> fc_0.w_0@GRAD@RENAME@27)");
}

TEST(ExporterTest, StartupNamesTheBroadcastValue) {
  Edit edit("fit_a_line/startup.json");
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      edit.InsertAfter(2, {InPlace("broadcast", "fc_0.w_0"), InPlace("broadcast", "fc_0.b_0")}));
  EXPECT_THAT(
      Lines(text),
      ElementsAre("1.full_int_array 1 <-", "1.full 2 <-", "1.full 3 <-", "1.uniform 4 <- 1 2 3",
                  "1.full 5 <-", "1.full 6 <-", "1.broadcast 7 <- 4", "0.set_parameter <- 7",
                  "1.broadcast 8 <- 5", "0.set_parameter <- 8", "0.shadow_output <- 6"));
  EXPECT_THAT(text, HasSubstr(R"("N":"root"}],"I":[{"%":4}])"));
  EXPECT_THAT(text.substr(text.find("broadcast")), HasSubstr("\"persistable\""));
}

// Two parameters that begin with the same values are two variables, each with its own broadcast.
TEST(ExporterTest, StartupNamesCopies) {
  const std::string& bytes = Files().at("fit_a_line/startup.json");
  const size_t begin = bytes.find(R"({"#":"0.set_parameter")");
  const std::string sink = bytes.substr(begin, bytes.find(R"(,{"#":)", begin) - begin);
  const std::string copy = absl::StrReplaceAll(sink, {{"fc_0.w_0", "copy.w_0"}});
  WEFT_ASSERT_OK_AND_ASSIGN(Program program,
                            ImportBytes(absl::StrReplaceAll(bytes, {{sink, sink + "," + copy}})));
  EXPECT_EQ(OpTexts(program)[1], "assign(fc_0.w_0 -> copy.w_0)");
  Edit edit(std::move(program));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      edit.InsertAfter(3, {InPlace("broadcast", "fc_0.w_0"), InPlace("broadcast", "copy.w_0")}));
  EXPECT_THAT(Lines(text),
              ElementsAre("1.full_int_array 1 <-", "1.full 2 <-", "1.full 3 <-",
                          "1.uniform 4 <- 1 2 3", "1.full 5 <-", "0.set_parameter <- 5",
                          "1.full 6 <-", "1.broadcast 7 <- 4", "0.set_parameter <- 7",
                          "1.broadcast 8 <- 4", "0.set_parameter <- 8", "0.shadow_output <- 6"));
  EXPECT_THAT(text, HasSubstr(absl::StrReplaceAll(copy, {{R"({"%":4})", R"({"%":8})"}})));
}

// Its parts are copied into the buffer and out of it, so that readers depend on the op on it.
TEST(ExporterTest, BuffersBecomeConcatAndSplit) {
  Edit edit("fit_a_line/main.json");
  const std::vector<std::string> parts = {"fc_0.b_0@GRAD", "fc_0.w_0@GRAD"};
  ProgramBuilder builder;
  builder.Var("buffer", {14});
  const pb::VarDesc buffer = builder.last_var();
  builder.Op("coalesce_tensor", {{"Input", parts}},
             {{"FusedOutput", {"buffer"}}, {"Output", parts}});
  const pb::OpDesc coalesce = builder.last_op();
  builder.Op("c_wait_compute", {{"X", {"buffer"}}}, {{"Out", {"buffer"}}}).IntAttr("ring_id", 2);
  const pb::OpDesc wait = builder.last_op();
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      edit.InsertAfter(10, {coalesce, wait, InPlace("all_reduce", "buffer")}, {buffer}));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_THAT(
      std::vector<std::string>(lines.begin() + 18, lines.end()),
      ElementsAre("1.full_int_array 26 <-", "1.reshape 27 <- 21 26", "0.combine 28 <- 19 27",
                  "1.full 29 <-", "1.concat 30 <- 28 29", "1.all_reduce_ 31 <- 30",
                  "1.full_int_array 32 <-", "1.full 33 <-", "1.split 34 <- 31 32 33",
                  "0.split 35 36 <- 34", "1.full_int_array 37 <-", "1.reshape 38 <- 36 37",
                  "1.sgd_ 22 23 <- 2 1 35 0", "1.sgd_ 24 25 <- 3 1 38 0"));
  EXPECT_THAT(text, HasSubstr(R"("D":"weft_ring_2"},"N":"execution_stream")"));
  WEFT_EXPECT_OK(ImportBytes(text));
}

// What an op writes into a part takes the place of what the buffer has there.
TEST(ExporterTest, PartsAreWrittenBehindTheirBuffer) {
  Edit edit("fit_a_line/main.json");
  const std::vector<std::string> parts = {"fc_0.b_0@GRAD", "fc_0.w_0@GRAD"};
  ProgramBuilder builder;
  builder.Var("buffer", {14});
  const pb::VarDesc buffer = builder.last_var();
  builder.Op("coalesce_tensor", {{"Input", parts}},
             {{"FusedOutput", {"buffer"}}, {"Output", parts}});
  const pb::OpDesc coalesce = builder.last_op();
  builder.Op("assign", {{"X", {"fc_0.w_0"}}}, {{"Out", {"fc_0.w_0@GRAD"}}});
  const pb::OpDesc assign = builder.last_op();
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      edit.InsertAfter(10, {coalesce, InPlace("all_reduce", "buffer"), assign}, {buffer}));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 23, lines.end()),
              ElementsAre("1.all_reduce_ 31 <- 30", "1.full_int_array 32 <-", "1.full 33 <-",
                          "1.split 34 <- 31 32 33", "0.split 35 36 <- 34", "1.full_int_array 37 <-",
                          "1.reshape 38 <- 36 37", "1.assign 39 <- 3", "1.sgd_ 22 23 <- 2 1 35 0",
                          "1.sgd_ 24 25 <- 3 1 39 0"));
}

// What an op makes is lost with the step, unless it is the memory of the parameter.
TEST(ExporterTest, ParametersAreWrittenInPlaceAlsoInBuffers) {
  Edit edit("fit_a_line/main.json");
  const std::vector<std::string> parts = {"fc_0.b_0", "fc_0.w_0"};
  ProgramBuilder builder;
  builder.Var("buffer", {14});
  const pb::VarDesc buffer = builder.last_var();
  builder.Op("coalesce_tensor", {{"Input", parts}},
             {{"FusedOutput", {"buffer"}}, {"Output", parts}});
  const pb::OpDesc coalesce = builder.last_op();
  WEFT_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      edit.InsertAfter(12, {coalesce, InPlace("all_reduce", "buffer"), InPlace("scale", "buffer")},
                       {buffer}));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 20, lines.end()),
              ElementsAre("1.all_reduce_ 26 <- 2", "1.all_reduce_ 27 <- 3", "1.full 28 <-",
                          "1.scale_ 29 <- 26 28", "1.full 30 <-", "1.scale_ 31 <- 27 30"));
  // One that reads something else is no op on each part.
  Edit reads("fit_a_line/main.json");
  builder.Op("scale", {{"X", {"fc_0.w_0@GRAD"}}}, {{"Out", {"buffer"}}}).FloatAttr("scale", 0.5f);
  EXPECT_THAT(
      std::string(
          reads.InsertAfter(12, {coalesce, builder.last_op()}, {buffer}).status().message()),
      HasSubstr("(scale): writes buffer, a buffer of what outlives the step: expected an op in "
                "place, on the buffer alone"));
  // What takes the buffer for a value would take copies of the parameters apart again.
  Edit value("fit_a_line/main.json");
  const pb::OpDesc assign =
      builder.Op("assign", {{"X", {"buffer"}}}, {{"Out", {"copy"}}}).last_op();
  const pb::VarDesc copy = builder.Var("copy", {14}).last_var();
  EXPECT_THAT(
      std::string(value.InsertAfter(12, {coalesce, assign}, {buffer, copy}).status().message()),
      HasSubstr("(assign): reads buffer, a buffer of what outlives the step: expected an op in "
                "place, on the buffer alone"));
  // Parts of a split are values, too.
  Edit split("fit_a_line/main.json");
  builder.Op("split", {{"X", {"fc_0.w_0@GRAD"}}}, {{"Out", {"fc_0.w_0"}}}).IntAttr("num", 1);
  EXPECT_THAT(std::string(split.InsertAfter(12, {builder.last_op()}).status().message()),
              HasSubstr("(split): writes fc_0.w_0, which outlives the step"));
  // Another op makes a value, which is copied.
  Edit other("fit_a_line/main.json");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string copied,
                            other.InsertAfter(12, {InPlace("sqrt", "fc_0.w_0")}));
  const std::vector<std::string> copies = Lines(copied);
  EXPECT_THAT(std::vector<std::string>(copies.end() - 2, copies.end()),
              ElementsAre("1.sqrt 26 <- 3", "1.assign_out_ 27 <- 26 3"));
}

// Adds a counter, and a block of ops in place that runs on even steps, behind the op at `position`.
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
              HasSubstr("(all_reduce): a collective behind a block with collectives"));
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
                HasSubstr("a collective behind a block with collectives"));
    WEFT_ASSERT_OK(AddPeriodicBlock(&behind, 11, ops, {"fc_0.b_0"}));
    WEFT_EXPECT_OK(ExportProgram(behind.program()));
  }
  // A block of the file does not wait for a collective that is new.
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program,
                            ImportBytes(Edited("cond_mlp/main.json", "1.tanh\"", "1.c_tanh\"")));
  EXPECT_THAT(
      std::string(Edit(program).InsertAfter(0, {InPlace("all_reduce", "x")}).status().message()),
      HasSubstr("block 1 op 0 (1.c_tanh), a collective in a block, behind one that a pass has "
                "inserted"));
}

// No stack of calls for them.
TEST(ExporterTest, ManyOpsMayTakeOneListApart) {
  constexpr int kSplits = 100000;
  const std::string type = R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[13,1],"NCHW",[],0]})";
  std::string ops =
      absl::StrCat(R"({"#":"1.other","A":[],"I":[{"%":21}],"O":[{"%":99,"TT":{"#":"0.t_vec","D":[)",
                   type, R"(]}}],"OA":[]},)");
  for (int k = 0; k < kSplits; ++k) {
    absl::StrAppend(&ops, R"({"#":"0.split","A":[],"I":[{"%":99}],"O":[{"%":)", 1000 + k,
                    R"(,"TT":)", type, R"(}],"OA":[]},)");
  }
  std::string bytes = Files().at("fit_a_line/main.json");
  bytes.insert(bytes.find(R"({"#":"1.sgd_")"), ops);
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, ImportBytes(bytes));
  Edit edit(std::move(program));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            edit.InsertAfter(3, {InPlace("scale", "square_9")}));
  EXPECT_EQ(Lines(text).size(), Lines(bytes).size() + 2);
}

TEST(ExporterTest, RefusesBlocksThatMakeValues) {
  Edit edit("fit_a_line/main.json");
  WEFT_ASSERT_OK(
      AddPeriodicBlock(&edit, 10, {InPlace("scale", "fc_0.w_0@GRAD")}, {"fc_0.w_0@GRAD"}));
  EXPECT_THAT(std::string(ExportProgram(edit.program()).status().message()),
              HasSubstr("(scale): writes fc_0.w_0@GRAD in a new block: expected a variable of the "
                        "block, a parameter or state"));
}

// What no new op has written keeps the id that the file has, also behind an op in place.
TEST(ExporterTest, IdsBehindOpsInPlaceStay) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportBytes(Edited("fit_a_line/main.json", R"("I":[{"%":3},{"%":1},{"%":21},{"%":0}])",
                         R"("I":[{"%":2},{"%":1},{"%":19},{"%":0}])")));
  Edit edit(program);
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            edit.InsertAfter(3, {InPlace("scale", "square_9")}));
  const std::vector<std::string> lines = Lines(text);
  EXPECT_THAT(std::vector<std::string>(lines.end() - 2, lines.end()),
              ElementsAre("1.sgd_ 22 23 <- 2 1 19 0", "1.sgd_ 24 25 <- 2 1 19 0"));
}

TEST(ExporterTest, ListsAreMadeAgainOfNewElements) {
  // A summand of an add_n, all-reduced before the list is read.
  Edit edit("bert_tiny/main.json");
  Program& program = edit.program();
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() != "sum") continue;
    const std::string part(program.name(op.input_args()[0]));
    Rewriter rewriter(&program);
    rewriter.InsertBefore(id, InPlace("all_reduce", part));
    WEFT_ASSERT_OK(rewriter.Commit());
    WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(program));
    const auto lines = Lines(text);
    const auto at = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
      return absl::StartsWith(line, "1.all_reduce_");
    });
    ASSERT_NE(at, lines.end());
    EXPECT_TRUE(absl::StrContains(at[1] + at[2], "0.combine"));
    return;
  }
  FAIL() << "expected a sum";
}

// An attribute that the op of PIR does not have says nothing, or is refused.
TEST(ExporterTest, NoAttributeIsLost) {
  const auto insert = [](const std::string& type, absl::string_view name, auto set) {
    pb::OpDesc op = InPlace(type, "fc_0.w_0@GRAD");
    pb::OpDesc::Attr* const attr = op.add_attrs();
    attr->set_name(std::string(name));
    set(attr);
    return Edit("fit_a_line/main.json").InsertAfter(10, {op});
  };
  const auto integer = [](int value) {
    return [value](pb::OpDesc::Attr* attr) {
      attr->set_type(pb::INT);
      attr->set_i(value);
    };
  };
  const auto group = [](pb::OpDesc::Attr* attr) {
    attr->set_type(pb::INTS);
    attr->add_ints(0);
    attr->add_ints(2);
  };
  EXPECT_THAT(std::string(insert("all_reduce", "group_ranks", group).status().message()),
              HasSubstr("op 11 (all_reduce): attribute group_ranks: the op has none in PIR, found "
                        "ints[0, 2]"));
  EXPECT_THAT(std::string(insert("square", "axis", integer(0)).status().message()),
              HasSubstr("op 11 (square): attribute axis: the op has none in PIR, found 0"));
  WEFT_EXPECT_OK(insert("square", "axis", integer(-1)).status());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, insert("square", "nranks", integer(4)));
  EXPECT_THAT(text, HasSubstr(R"("A":[{"AT":{"#":"0.a_i32","D":4},"N":"nranks"}])"));
}

TEST(ExporterTest, ClipsHaveTheirBounds) {
  pb::OpDesc op = InPlace("clip", "fc_0.w_0@GRAD");
  for (const auto& [name, value] : {std::pair<const char*, float>{"min", -2}, {"max", 3}}) {
    pb::OpDesc::Attr* const attr = op.add_attrs();
    attr->set_name(name);
    attr->set_type(pb::FLOAT);
    attr->set_f(value);
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Edit("fit_a_line/main.json").InsertAfter(10, {op}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(text));
  const auto ops = program.block(0).ops();
  const auto clip = std::find_if(ops.begin(), ops.end(),
                                 [&](OpId id) { return program.op(id).type() == "clip"; });
  ASSERT_TRUE(clip != ops.end());
  EXPECT_EQ(program.op(*clip).FloatAttr("min"), -2);
  EXPECT_EQ(program.op(*clip).FloatAttr("max"), 3);
}

TEST(ExporterTest, NumbersThatJsonLacksAreTexts) {
  pb::OpDesc op = InPlace("scale", "fc_0.w_0@GRAD");
  for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
    if (attr.name() == "scale") attr.set_f(-std::numeric_limits<float>::infinity());
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Edit("fit_a_line/main.json").InsertAfter(10, {op}));
  EXPECT_THAT(text, HasSubstr(R"({"AT":{"#":"0.a_f64","VD":"-INF"},"N":"value"})"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(text));
  int count = 0;
  for (OpId id : program.block(0).ops()) {
    const Op scale = program.op(id);
    if (scale.type() != "scale") continue;
    EXPECT_EQ(scale.FloatAttr("scale"), -std::numeric_limits<double>::infinity());
    ++count;
  }
  EXPECT_EQ(count, 1);
  EXPECT_THAT(
      std::string(ImportBytes(absl::StrReplaceAll(text, {{"-INF", "1.0"}})).status().message()),
      HasSubstr("INF, -INF or NaN (VD)"));
}

TEST(ExporterTest, RefusesWhatHasNoForm) {
  const auto error = [](const pb::OpDesc& op) {
    return std::string(Edit("fit_a_line/main.json").InsertAfter(10, {op}).status().message());
  };
  EXPECT_THAT(error(InPlace("c_allgather", "fc_0.w_0@GRAD")),
              HasSubstr("op 11 (c_allgather): a pass has inserted this op, and it has no form"));
  {
    Edit edit("fit_a_line/main.json");
    pb::OpDesc square = edit.program().op(edit.op(3)).ToProto();
    square.set_type("relu");
    Rewriter rewriter(&edit.program());
    rewriter.Replace(edit.op(3), square);
    WEFT_ASSERT_OK(rewriter.Commit());
    EXPECT_THAT(std::string(ExportProgram(edit.program()).status().message()),
                HasSubstr("op 3 (relu): a pass has changed this op"));
  }
  const Program other = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(std::string(ExportProgram(other).status().message()),
              HasSubstr("expected a program that was read from a .json file"));
}

}  // namespace
}  // namespace weft::pir
