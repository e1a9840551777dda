// What is not translated, and files that would grow.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/exporter.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/formats/pir/importer.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::IsResourceExhausted;
using ::weft::testing::IsUnimplemented;
using ::weft::testing::OpTexts;

TEST(ImporterTest, RefusesWhatItCannotTranslate) {
  const auto error = [](const std::string& bytes) {
    return std::string(ImportBytes(bytes).status().message());
  };
  EXPECT_THAT(
      error(Edited("cond_mlp/main.json", "1.if", "1.while")),
      HasSubstr("op 11 (1.while): expected a condition, 1 values that its one block takes"));
  EXPECT_THAT(error(Edited("cond_mlp/main.json", R"("#":"2.yield")", R"("#":"2.other")")),
              HasSubstr("op 11 (1.if): block 1: expected 2.yield of 1 values at its end, found "
                        "block 1 op 3 (2.other)"));
  const std::string in_block =
      R"({"#":"0.set_parameter","A":[{"AT":{"#":"0.a_str","D":"z"},"N":"parameter_name"}],)"
      R"("I":[{"%":6}],"O":[],"OA":[]},{"#":"1.tanh")";
  EXPECT_THAT(error(Edited("cond_mlp/main.json", R"({"#":"1.tanh")", in_block)),
              HasSubstr("block 1 op 0 (0.set_parameter): expected it in the root block only"));
  EXPECT_THAT(error(Edited("fit_a_line/main.json", R"("trainable":true)", R"("trainable":false)")),
              HasSubstr("a model for inference"));
  // Two values of one name, the first of which is read after the second.
  const std::string sink =
      R"({"#":"0.set_parameter","A":[{"AT":{"#":"0.a_str","D":"fc_0.b_0"},"N":"parameter_name"}],"I":[{"%":5}],"O":[],"OA":[]})";
  EXPECT_THAT(
      error(Edited("fit_a_line/startup.json", sink,
                   absl::StrReplaceAll(sink, {{"fc_0.b_0", "fc_0.w_0"}}) + "," +
                       absl::StrReplaceAll(sink, {{"fc_0.b_0", "other"}, {"5", "4"}}))),
      HasSubstr("reads %4, the content of variable fc_0.w_0 that an earlier op has overwritten"));
  EXPECT_THAT(error(Edited("fit_a_line/main.json", R"("I":[{"%":2},{"%":1},{"%":19},{"%":0}])",
                           R"("I":[{"%":2},{"%":1},{"%":0},{"%":0}])")),
              HasSubstr("(1.sgd_): expected a gradient, found none"));
}

// They may write whatever they read, and be shown and copied. In blocks, too, and where the table
// has the op with other operands.
TEST(ImporterTest, UnknownOpsInPlaceMayWriteWhatTheyRead) {
  const std::string bytes = Edited("fit_a_line/main.json", "1.sgd_", "1.new_");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  const std::vector<std::string> ops = OpTexts(program);
  EXPECT_EQ(ops.back(),
            "pd_op.new_(fc_0.w_0, learning_rate_0, fc_0.w_0@GRAD -> fc_0.w_0, learning_rate_0, "
            "fc_0.w_0@GRAD, new_24)");
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string copy, ExportProgram(program));
  EXPECT_TRUE(copy == bytes);
  EXPECT_THAT(
      CheckWritesAreKnown(program),
      IsUnimplemented("op 11 (pd_op.new_): writes operands in place, and which ones is not known"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program known, ImportBytes(Files().at("fit_a_line/main.json")));
  WEFT_EXPECT_OK(CheckWritesAreKnown(known));

  WEFT_ASSERT_OK_AND_ASSIGN(const Program in_block,
                            ImportBytes(Edited("cond_mlp/main.json", "1.tanh\"", "1.sgd_\"")));
  EXPECT_THAT(OpTexts(in_block),
              Contains("conditional_block(greater_than_11, x -> if_12_true_scope, if_12_true_0, "
                       "x)"));
  EXPECT_EQ(OpTexts(in_block, 1)[0], "pd_op.sgd_(x -> x, sgd_13)");
  EXPECT_FALSE(CheckWritesAreKnown(in_block).ok());
}

// They are shown, with what their blocks access, and copied. A pass may edit other ops unless they
// access what it changes.
TEST(ImporterTest, UnknownOpsKeepTheirBlocks) {
  const std::string bytes = Edited("cond_mlp/main.json", "1.if", "1.other");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(OpTexts(program), Contains("pd_op.other(greater_than_11, x -> other_12)"));
  EXPECT_THAT(OpTexts(program, 1), ElementsAre("tanh(x -> tanh_13)", "scale(tanh_13 -> scale_15)",
                                               "cf.yield(scale_15 -> )"));
  ASSERT_EQ(program.num_blocks(), 3);
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string copy, ExportProgram(program));
  EXPECT_TRUE(copy == bytes);
  WEFT_EXPECT_OK(CheckWritesAreKnown(program));

  // A block that reads a parameter, one that overwrites data, and one in the update.
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program reads,
      ImportBytes(absl::StrReplaceAll(bytes, {{R"("#":"1.tanh","A":[],"I":[{"%":6}])",
                                               R"("#":"1.tanh","A":[],"I":[{"%":2}])"}})));
  EXPECT_THAT(CheckWritesAreKnown(reads),
              IsUnimplemented("(pd_op.other): its blocks access gradients, parameters or state"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program writes,
                            ImportBytes(absl::StrReplaceAll(bytes, {{"1.tanh\"", "1.scale_\""}})));
  EXPECT_THAT(OpTexts(writes), Contains("pd_op.other(greater_than_11, x -> other_12, x)"));
}

// Lists of lists double what they hold at each step: here 2^64 tensors. Their types do not matter.
TEST(ImporterTest, RefusesListsOfLists) {
  for (const std::string type : {R"({"#":"0.t_vec","D":[]})", R"({"#":"NULL"})"}) {
    std::string ops;
    for (int id = 100; id < 164; ++id) {
      const int element = id == 100 ? 3 : id - 1;
      absl::StrAppend(&ops, id == 100 ? "" : ",", R"({"#":"0.combine","A":[],"I":[{"%":)", element,
                      R"(},{"%":)", element, R"(}],"O":[{"%":)", id, R"(,"TT":)", type,
                      R"(}],"OA":[]})");
    }
    EXPECT_THAT(std::string(ImportBytes(WithOps(ops)).status().message()),
                HasSubstr("(0.combine): expected a list of dense tensors, found the element %100"));
  }
}

// Minutes, if the flags of all results were read again for each.
TEST(ImporterTest, OpsMayHaveManyResults) {
  constexpr int kResults = 20000;
  std::string results, flags;
  for (int r = 0; r < kResults; ++r) {
    absl::StrAppend(&results, r == 0 ? "" : ",", R"({"%":)", 1000 + r, R"(,"TT":)",
                    TensorJson("f32"), "}");
    absl::StrAppend(&flags, r == 0 ? "" : ",", R"({"#":"0.a_bool","D":)",
                    r % 2 == 0 ? "true" : "false", "}");
  }
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportBytes(WithOps(absl::StrCat(
          R"({"#":"1.many","A":[],"I":[{"%":4}],"O":[)", results,
          R"(],"OA":[{"N":"stop_gradient","AT":{"#":"0.a_array","D":[)", flags, "]}}]}"))));
  const auto stops = [&](const std::string& name) {
    return program.var(program.block(0).FindVar(name)).ToProto().stop_gradient();
  };
  EXPECT_TRUE(stops("many_1000"));
  EXPECT_FALSE(stops("many_1001"));
  EXPECT_FALSE(stops(absl::StrCat("many_", 1000 + kResults - 1)));
}

// A small file, of which ProgramDesc would be thousands of times as large.
TEST(ImporterTest, RefusesFilesThatGrow) {
  const auto status = [](const std::string& shared, const std::string& reader, int readers) {
    std::string ops = shared;
    for (int id = 1000; id < 1000 + readers; ++id) {
      absl::StrAppend(&ops, ",", absl::StrReplaceAll(reader, {{"@", absl::StrCat(id)}}));
    }
    return ImportBytes(WithOps(ops)).status();
  };
  const auto too_much = IsResourceExhausted("at most 8 times the bytes");
  std::string ints = R"({"#":"0.a_i64","D":1})", elements = R"({"%":4})";
  for (int k = 1; k < 5000; ++k) {
    ints += R"(,{"#":"0.a_i64","D":1})";
    elements += R"(,{"%":4})";
  }
  const std::string result = R"("O":[{"%":@,"TT":)" + TensorJson("f32") + R"(}],"OA":[]})";
  const std::string constant =
      absl::StrCat(R"({"#":"1.full_int_array","A":[{"N":"value","AT":{"#":"0.a_array","D":[)", ints,
                   R"(]}}],"I":[],"O":[{"%":99,"TT":)", TensorJson("i64"), R"(}],"OA":[]})");
  const std::string reshape = R"({"#":"1.reshape","A":[],"I":[{"%":4},{"%":99}],)" + result;
  WEFT_EXPECT_OK(status(constant, reshape, 4));
  EXPECT_THAT(status(constant, reshape, 500), too_much);
  const std::string list = absl::StrCat(R"({"#":"0.combine","A":[],"I":[)", elements,
                                        R"(],"O":[{"%":99,"TT":{"#":"0.t_vec","D":[]}}],"OA":[]})");
  const std::string add_n = R"({"#":"1.add_n","A":[],"I":[{"%":99}],)" + result;
  WEFT_EXPECT_OK(status(list, add_n, 4));
  EXPECT_THAT(status(list, add_n, 500), too_much);
  const std::string data = absl::StrCat(
      R"({"#":"1.data","A":[{"N":"name","AT":{"#":"0.a_str","D":")", std::string(50000, 'x'),
      R"("}}],"I":[],"O":[{"%":99,"TT":)", TensorJson("f32"), R"(}],"OA":[]})");
  const std::string relu = R"({"#":"1.relu","A":[],"I":[{"%":99}],)" + result;
  WEFT_EXPECT_OK(status(data, relu, 4));
  EXPECT_THAT(status(data, relu, 500), too_much);
}

}  // namespace
}  // namespace weft::pir
