// Buffers of several tensors, and gathered ones.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/exporter_testing.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ProgramBuilder;

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

}  // namespace
}  // namespace weft::pir
