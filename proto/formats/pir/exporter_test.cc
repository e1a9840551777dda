#include "proto/formats/pir/exporter.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/exporter_testing.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;

// With all kinds of ops with blocks, recurrent networks, and what is outside the table.
// The values of feeds and parameters are made before, although no op of the program makes them.
TEST(ExporterTest, OpsBeforeTheFirstOneReadWhatTheFileDeclares) {
  Edit edit("fit_a_line/main.json");
  Rewriter rewriter(&edit.program());
  rewriter.InsertBefore(edit.op(0), InPlace("scale", "x"));
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(edit.program()));
  EXPECT_LT(text.find("\"x\""), text.find("1.scale"));
  WEFT_EXPECT_OK(ImportBytes(text));
}

TEST(ExporterTest, UntouchedProgramsKeepTheirBytes) {
  int count = 0;
  for (const char* const archive : {"paddle3_pir", "paddle3_pir_ops", "paddle3_pir_more_ops"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto files, weft::testing::ReadTarXz(absl::StrCat(
                                                    "tests/data/", archive, ".tar.xz")));
    for (const auto& [file, bytes] : files) {
      if (!absl::EndsWith(file, ".json") || absl::EndsWith(file, "meta.json")) continue;
      SCOPED_TRACE(file);
      WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
      WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(program));
      EXPECT_TRUE(text == bytes);
      ++count;
    }
  }
  EXPECT_GT(count, 370);
}

TEST(ExporterTest, SettingIsAKeyOfTheFile) {
  const std::string bytes = Files().at("fit_a_line/main.json");
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, ImportBytes(bytes));
  EXPECT_EQ(program.setting(), "");
  program.set_setting(R"({"nranks":4})");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string with, ExportProgram(program));
  std::string expected = bytes;
  const size_t end = expected.rfind('}');
  expected.insert(end, R"(,"weft_setting":{"nranks":4})");
  EXPECT_TRUE(with == expected);
  // It is replaced where it stands, also beside edits.
  WEFT_ASSERT_OK_AND_ASSIGN(Program again, ImportBytes(with));
  EXPECT_EQ(again.setting(), R"({"nranks":4})");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string copy, ExportProgram(again));
  EXPECT_TRUE(copy == with);
  again.set_setting("");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string empty, ExportProgram(again));
  EXPECT_TRUE(empty == absl::StrReplaceAll(with, {{R"({"nranks":4})", "{}"}}));
  Edit edit(again);
  edit.program().set_setting(R"({"reduction":"sum"})");
  const size_t last = edit.program().block(0).ops().size() - 1;
  const std::string var(edit.program().name(edit.program().op(edit.op(last)).output_args()[0]));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string edited,
                            edit.InsertAfter(last, {InPlace("all_reduce", var)}));
  EXPECT_THAT(edited, HasSubstr(R"(,"weft_setting":{"reduction":"sum"})"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program read, ImportBytes(edited));
  EXPECT_EQ(read.setting(), R"({"reduction":"sum"})");
}

// An op after all others changes nothing before it: what is written is the file, op by op.
TEST(ExporterTest, EditsKeepTheBytesOfOtherOps) {
  std::map<std::string, std::string> files = Files();
  WEFT_ASSERT_OK_AND_ASSIGN(const auto more,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  for (const char* const file : {"gru/main.json", "if/main.json", "lstm/main.json",
                                 "snapshot/main.json", "while/main.json", "while/startup.json"}) {
    files.emplace(file, more.at(file));
  }
  for (const auto& [file, bytes] : files) {
    if (!absl::EndsWith(file, ".json") || absl::EndsWith(file, "meta.json")) continue;
    SCOPED_TRACE(file);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
    Edit edit(program);
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

// As the id of a communicator, which Paddle declares as a variable of its own.
TEST(ExporterTest, StateThatOnlyOpsWithoutAFormUseIsLeftOut) {
  Edit edit("fit_a_line/startup.json");
  ProgramBuilder builder;
  builder.Var("nccl_id_0").last_var().set_persistable(true);
  builder.last_var().mutable_type()->Clear();
  builder.last_var().mutable_type()->set_type(pb::VarType::RAW);
  const pb::VarDesc id = builder.last_var();
  builder.Op("c_gen_nccl_id", {}, {{"Out", {"nccl_id_0"}}});
  const pb::OpDesc makes = builder.last_op();
  builder.Op("c_comm_init", {{"X", {"nccl_id_0"}}}, {}).IntAttr("ring_id", 0);
  const pb::OpDesc uses = builder.last_op();
  const size_t last = edit.program().block(0).ops().size() - 1;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, edit.InsertAfter(last, {makes, uses}, {id}));
  EXPECT_EQ(Lines(text), Lines(Files().at("fit_a_line/startup.json")));
  // What another op uses is state.
  Edit with_reader("fit_a_line/startup.json");
  builder.Op("scale", {{"X", {"nccl_id_0"}}}, {{"Out", {"nccl_id_0"}}});
  EXPECT_THAT(with_reader.InsertAfter(last, {makes, builder.last_op()}, {id}).status().message(),
              HasSubstr("nccl_id_0: expected a new persistable variable to be a dense tensor"));
}

// As where a loss divides by what all ranks count.
TEST(ExporterTest, OpsMayReadOtherVariables) {
  Edit edit("fit_a_line/main.json");
  ProgramBuilder builder;
  builder.Op("scale", {{"X", {"y"}}}, {{"Out", {"half"}}}).FloatAttr("scale", 0.5f);
  Rewriter rewriter(&edit.program());
  rewriter.AddVar(0, builder.Var("half").last_var());
  rewriter.InsertBefore(edit.op(2), builder.last_op());
  for (const size_t position : {2, 8}) {
    pb::OpDesc op = edit.program().op(edit.op(position)).ToProto();
    ASSERT_EQ(op.inputs(1).arguments(0), "y");
    op.mutable_inputs(1)->set_arguments(0, "half");
    rewriter.Replace(edit.op(position), op);
  }
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(edit.program()));
  EXPECT_THAT(Lines(text),
              ::testing::IsSupersetOf({"1.full 26 <-", "1.scale 27 <- 5 26", "1.subtract 8 <- 7 27",
                                       "1.subtract_grad 16 17 <- 7 27 15"}));
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

// What no new op has written keeps the id that the file has, also after an op in place.
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

}  // namespace
}  // namespace weft::pir
