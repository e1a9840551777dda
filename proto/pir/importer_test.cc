#include "proto/pir/importer.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/pir/files_testing.h"
#include "proto/pir/op_table.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::OpTexts;
using ::weft::testing::StatusIs;

TEST(ImporterTest, ValuesBecomeVariables) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Files().at("fit_a_line/main.json")));
  EXPECT_THAT(
      OpTexts(program),
      ElementsAre("matmul_v2(x, fc_0.w_0 -> matmul_6)",
                  "elementwise_add(matmul_6, fc_0.b_0 -> add_7)",
                  "elementwise_sub(add_7, y -> subtract_8)", "square(subtract_8 -> square_9)",
                  "reduce_mean(square_9 -> mean_11)", "fill_constant( -> mean_11@GRAD)",
                  "reduce_mean_grad(square_9, mean_11@GRAD -> square_9@GRAD)",
                  "square_grad(subtract_8, square_9@GRAD -> subtract_8@GRAD)",
                  "elementwise_sub_grad(add_7, y, subtract_8@GRAD -> add_7@GRAD)",
                  "elementwise_add_grad(matmul_6, fc_0.b_0, add_7@GRAD -> matmul_6@GRAD, "
                  "fc_0.b_0@GRAD)",
                  "matmul_v2_grad(x, fc_0.w_0, matmul_6@GRAD -> fc_0.w_0@GRAD)",
                  "sgd(fc_0.b_0, learning_rate_0, fc_0.b_0@GRAD -> fc_0.b_0)",
                  "sgd(fc_0.w_0, learning_rate_0, fc_0.w_0@GRAD -> fc_0.w_0)"));
  EXPECT_EQ(program.version(), 3003001);
  const Var w = program.var(program.block(0).FindVar("fc_0.w_0"));
  EXPECT_TRUE(w.persistable() && w.is_parameter());
  const Var lr = program.var(program.block(0).FindVar("learning_rate_0"));
  EXPECT_TRUE(lr.persistable() && !lr.is_parameter());
  const Var x = program.var(program.block(0).FindVar("x"));
  EXPECT_TRUE(x.need_check_feed() && !x.persistable());
  EXPECT_EQ(x.Tensor()->dims(0), -1);
}

TEST(ImporterTest, RolesAndPairsFollowTheData) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Files().at("fit_a_line/main.json")));
  std::vector<int> roles;
  std::vector<std::string> pairs;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    roles.push_back(op.role());
    WEFT_ASSERT_OK_AND_ASSIGN(const auto found, ParamGrads(op));
    for (const ParamGrad& pair : found) {
      pairs.push_back(absl::StrCat(op.position(), " ", pair.param, " ", pair.grad));
    }
  }
  EXPECT_THAT(roles, ElementsAre(0, 0, 0, 0, 0x100, 0x101, 1, 1, 1, 1, 1, 2, 2));
  EXPECT_THAT(pairs, ElementsAre("9 fc_0.b_0 fc_0.b_0@GRAD", "10 fc_0.w_0 fc_0.w_0@GRAD",
                                 "11 fc_0.b_0 fc_0.b_0@GRAD", "12 fc_0.w_0 fc_0.w_0@GRAD"));
}

// An op carries it: parameters of a file have no place for it.
TEST(ImporterTest, ALearningRateHasItsSchedule) {
  const auto with = [](const std::string& text) {
    std::string bytes = Files().at("fit_a_line/main.json");
    const std::string update = R"({"#":"1.sgd_","A":[)";
    return bytes.insert(
        bytes.find(update) + update.size(),
        absl::StrCat(R"({"AT":{"#":"0.a_str","D":")", text, R"("},"N":"lr_schedule"},)"));
  };
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportBytes(with("learning_rate_0=step{learning_rate=0.1,step_size=3,gamma=0.5}")));
  const auto var = program.var(program.block(0).FindVar("learning_rate_0")).ToProto();
  ASSERT_EQ(var.attrs_size(), 1);
  EXPECT_EQ(var.attrs(0).name(), "lr_schedule");
  EXPECT_EQ(var.attrs(0).s(), "step{learning_rate=0.1,step_size=3,gamma=0.5}");
  for (OpId id : program.block(0).ops()) EXPECT_FALSE(program.op(id).HasAttr("lr_schedule"));
  for (const char* bad : {"rate=step{}", "learning_rate_0", "learning_rate_0="}) {
    EXPECT_THAT(std::string(ImportBytes(with(bad)).status().message()),
                HasSubstr("(1.sgd_): attribute lr_schedule: expected a variable, '=' and its "
                          "schedule, found "));
  }
}

// A float cannot hold it.
TEST(ImporterTest, LargeIntegersKeepTheirDigits) {
  std::string bytes = Edited(
      "fit_a_line/startup.json", R"("D":0.01},"N":"value"},{"AT":{"#":"1.a_dtype","D":"float32"})",
      R"("D":123456789.0},"N":"value"},{"AT":{"#":"1.a_dtype","D":"int64"})");
  const size_t type = bytes.find("0.t_f32", bytes.find(R"({"%":6,)"));
  bytes.replace(type, 7, "0.t_i64");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_EQ(program.op(program.block(0).ops()[2]).StringAttr("str_value"), "123456789");
}

// Inserts ops into fit_a_line, behind the last.
std::string WithOps(const std::string& ops) {
  const std::string& bytes = Files().at("fit_a_line/main.json");
  const size_t end = bytes.rfind("]}]}]}}");
  return absl::StrCat(bytes.substr(0, end), ",", ops, bytes.substr(end));
}

std::string TensorJson(const std::string& dtype) {
  return absl::StrCat(R"({"#":"0.t_dtensor","D":[{"#":"0.t_)", dtype, R"("},[1],"NCHW",[],0]})");
}

// A constant: kind and data of the attribute, and the type of the result.
std::string ConstantJson(const std::string& op, const std::string& id, const std::string& value,
                         const std::string& dtype) {
  return absl::StrCat(R"({"#":")", op, R"(","A":[{"AT":{"#":"1.a_intarray","D":[1]},"N":"shape"},)",
                      R"({"AT":)", value, R"(,"N":")", op == "1.assign_value_" ? "values" : "value",
                      R"("}],"I":[)", op == "1.assign_value_" ? R"({"%":0})" : "",
                      R"(],"O":[{"%":)", id, R"(,"TT":)", TensorJson(dtype), R"(}],"OA":[]})");
}

std::string ListJson(const std::string& kind, const std::string& value) {
  return absl::StrCat(R"({"#":"0.a_array","D":[{"#":")", kind, R"(","D":)", value, "}]}");
}

TEST(ImporterTest, ConstantsOfIntegersAreExactOrRefused) {
  const auto last = [](const std::string& op) {
    const auto program = ImportBytes(WithOps(op));
    WEFT_EXPECT_OK(program);
    return program->op(program->block(0).ops().back()).ToProto();
  };
  const auto attr = [](const pb::OpDesc& op, const std::string& name) {
    for (const auto& attr : op.attrs()) {
      if (attr.name() == name) return attr;
    }
    return pb::OpDesc::Attr();
  };
  const std::string odd = "9007199254740993";  // no double
  EXPECT_THAT(attr(last(ConstantJson("1.assign_value_", "99", ListJson("0.a_i64", odd), "i64")),
                   "int64_values")
                  .longs(),
              ElementsAre(9007199254740993));
  EXPECT_THAT(
      attr(last(ConstantJson("1.assign_value_", "99", ListJson("0.a_bool", "true"), "bool")),
           "bool_values")
          .ints(),
      ElementsAre(1));
  EXPECT_THAT(attr(last(ConstantJson("1.full_int_array", "99", ListJson("0.a_i64", odd), "i64")),
                   "int64_values")
                  .longs(),
              ElementsAre(9007199254740993));
  EXPECT_EQ(
      attr(last(ConstantJson("1.full", "99", R"({"#":"0.a_i64","D":9007199254740993})", "i64")),
           "str_value")
          .s(),
      odd);
  EXPECT_EQ(attr(last(ConstantJson("1.full", "99", R"({"#":"0.a_f64","D":1000000000000001024.0})",
                                   "i64")),
                 "str_value")
                .s(),
            "1000000000000001024");
  const auto error = [](const std::string& op) {
    return std::string(ImportBytes(WithOps(op)).status().message());
  };
  const std::string wide = "4294967297";
  EXPECT_THAT(error(ConstantJson("1.assign_value_", "99", ListJson("0.a_i64", wide), "i32")),
              HasSubstr("expected an integer that fits int32, found 0.a_i64 4294967297"));
  EXPECT_THAT(error(ConstantJson("1.assign_value_", "99", ListJson("0.a_f64", "0.5"), "i64")),
              HasSubstr("expected an integer, found 0.a_f64 0.5"));
  EXPECT_THAT(error(ConstantJson("1.full_int_array", "99", ListJson("0.a_i64", wide), "i32")),
              HasSubstr("expected an integer that fits int32, found 0.a_i64 4294967297"));
  EXPECT_THAT(error(ConstantJson("1.full", "99", R"({"#":"0.a_f64","D":4294967297.0})", "i32")),
              HasSubstr("expected an integer that fits int32"));
  // What reads a constant as an attribute.
  const auto reader = [](const std::string& op, const std::string& id) {
    return absl::StrCat(R"(,{"#":")", op, R"(","A":[],"I":[{"%":4},{"%":)", id, R"(}],)",
                        R"("O":[{"%":100,"TT":)", TensorJson("i64"), R"(}],"OA":[]})");
  };
  EXPECT_THAT(error(ConstantJson("1.full_int_array", "99", ListJson("0.a_i64", wide), "i64") +
                    reader("1.reshape", "99")),
              HasSubstr("operand shape: expected integers of 32 bits, found 4294967297"));
  const std::string full = ConstantJson("1.full", "99", R"({"#":"0.a_f64","D":16777217.0})", "i64");
  EXPECT_THAT(error(full + reader("1.scale", "99")),
              HasSubstr("operand scale: expected an integer that a float holds, as ProgramDesc has "
                        "one there, found 16777217.0"));
  WEFT_EXPECT_OK(ImportBytes(
      WithOps(absl::StrReplaceAll(full, {{"16777217", "16777218"}}) + reader("1.scale", "99"))));
}

TEST(ImporterTest, StartupNamesWhatItMakes) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program,
                            ImportBytes(Files().at("fit_a_line/startup.json")));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("uniform_random( -> fc_0.w_0)", "fill_constant( -> fc_0.b_0)",
                          "fill_constant( -> learning_rate_0)"));
  const Op uniform = program.op(program.block(0).ops()[0]);
  EXPECT_EQ(uniform.IntsAttr("shape"), (std::vector<int64_t>{13, 1}));
  EXPECT_FLOAT_EQ(*uniform.FloatAttr("min"), -0.6546536684036255);
  EXPECT_TRUE(program.var(program.block(0).FindVar("fc_0.w_0")).persistable());
}

// As in Paddle's old format: two blocks, and a choice of what they have written.
TEST(ImporterTest, AnIfBecomesTwoConditionalBlocks) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Files().at("cond_mlp/main.json")));
  std::vector<std::string> ops = OpTexts(program);
  ops.resize(10);
  EXPECT_THAT(ops,
              ElementsAre("reduce_mean(x -> mean_9)", "fill_constant( -> full_10)",
                          "greater_than(mean_9, full_10 -> greater_than_11)",
                          "logical_not(greater_than_11 -> if_12_not)",
                          "cast(greater_than_11 -> if_12_mask)",
                          "conditional_block(greater_than_11, x -> if_12_true_scope, if_12_true_0)",
                          "conditional_block(if_12_not, x -> if_12_false_scope, if_12_false_0)",
                          "select_input(if_12_false_0, if_12_true_0, if_12_mask -> if_12)",
                          "matmul_v2(if_12, fc_0.w_0 -> matmul_18)",
                          "elementwise_add(matmul_18, fc_0.b_0 -> add_19)"));
  ASSERT_EQ(program.num_blocks(), 3);
  const auto in_block = [&](int block) {
    std::vector<std::string> types;
    for (OpId id : program.block(block).ops()) types.emplace_back(program.op(id).type());
    return types;
  };
  EXPECT_THAT(in_block(1), ElementsAre("tanh", "scale", "assign"));
  EXPECT_THAT(in_block(2), ElementsAre("scale", "assign"));
  EXPECT_EQ(program.block(1).parent_idx(), 0);
  EXPECT_TRUE(program.block(1).FindVar("tanh_13").valid());
  EXPECT_TRUE(program.block(0).FindVar("if_12_true_0").valid());
}

// Paddle evaluates it once: nothing reads the condition behind a block that overwrites it.
TEST(ImporterTest, BranchesMayOverwriteTheirCondition) {
  const std::string tensor =
      R"({"#":"0.t_dtensor","D":[{"#":"0.t_bool"},[],"NCHW",[],0]}}],"OA":[]},)";
  const std::string overwrite =
      R"({"#":"1.equal","A":[],"I":[{"%":9},{"%":9}],"O":[{"%":90,"TT":)" + tensor +
      R"({"#":"1.assign_out_","A":[],"I":[{"%":90},{"%":11}],"O":[{"%":91,"TT":)" + tensor;
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program,
                            ImportBytes(Edited("cond_mlp/main.json", R"({"#":"1.tanh")",
                                               overwrite + R"({"#":"1.tanh")")));
  const std::vector<std::string> ops = OpTexts(program);
  const auto block = std::find_if(ops.begin(), ops.end(), [](const std::string& op) {
    return absl::StartsWith(op, "conditional_block(greater_than_11, ") &&
           absl::EndsWith(op, ", if_12_true_0, greater_than_11)");
  });
  ASSERT_NE(block, ops.end());
  for (auto op = block + 1; op != ops.end(); ++op) {
    EXPECT_THAT(*op, ::testing::Not(HasSubstr("greater_than_11")));
  }
  EXPECT_THAT(ops, Contains("cast(greater_than_11 -> if_12_mask)"));
}

// An inserted op moves positions, and changes no name.
TEST(ImporterTest, BlocksAreNamedAfterValues) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  std::string bytes = files.at("snapshot/main.json");
  WEFT_ASSERT_OK_AND_ASSIGN(const auto document, Document::Parse(bytes));
  const auto branch = std::find_if(document->ops().begin(), document->ops().end(),
                                   [](const DocumentOp& op) { return op.name == "1.if"; });
  ASSERT_NE(branch, document->ops().end());
  const std::string text(branch->bytes);
  bytes = absl::StrReplaceAll(
      bytes, {{text, text + "," + absl::StrReplaceAll(text, {{R"("%":13)", R"("%":113)"}})}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(
      OpTexts(program),
      ::testing::IsSupersetOf(
          {"conditional_block(equal_11, w, snapshot -> if_cond_11_true_scope, snapshot)",
           "conditional_block(equal_11, w, snapshot -> if_cond_11_1_true_scope, snapshot)"}));
}

// Only a list of numbers takes the place of the tensor that 1.stack makes.
TEST(ImporterTest, ShapesAreListsOfNumbersOrTensors) {
  const auto last = [](const std::string& elements, const std::string& operands) {
    const std::string dims = R"("TT":{"#":"0.t_dtensor","D":[{"#":"0.t_i64"},[@],"NCHW",[],0]}}])";
    const auto program = ImportBytes(WithOps(absl::StrCat(
        ConstantJson("1.full", "97", R"({"#":"0.a_f64","D":1.0})", "f32"), ",",
        R"({"#":"1.other","A":[],"I":[],"O":[{"%":98,)",
        absl::StrReplaceAll(dims, {{"@", elements}}),
        R"(,"OA":[]},{"#":"0.combine","A":[],"I":[{"%":98},{"%":98}],"O":[{"%":99,"TT":{"#":"0.t_vec",)",
        R"("D":[]}}],"OA":[]},{"#":"1.stack","A":[],"I":[)", operands, R"(],"O":[{"%":100,)",
        absl::StrReplaceAll(dims, {{"@", "2"}}),
        R"(,"OA":[]},{"#":"1.full_with_tensor","A":[{"AT":{"#":"1.a_dtype","D":"float32"},)",
        R"("N":"dtype"}],"I":[{"%":97},{"%":100}],"O":[{"%":101,)",
        absl::StrReplaceAll(dims, {{"@", "-1"}, {"i64", "f32"}}), R"(,"OA":[]})")));
    WEFT_EXPECT_OK(program);
    return program.ok() ? OpTexts(*program).back() : "";
  };
  EXPECT_EQ(last("1", R"({"%":99})"), "fill_constant(other_98, other_98 -> full_with_tensor_101)");
  EXPECT_EQ(last("2", R"({"%":99})"), "fill_constant(stack_100 -> full_with_tensor_101)");
  EXPECT_EQ(last("1", ""), "fill_constant(stack_100 -> full_with_tensor_101)");
}

TEST(ImporterTest, BranchesNameWhatTheyReadInLists) {
  const std::string list = absl::StrReplaceAll(
      R"({"#":"0.combine","A":[],"I":[{"%":6},{"%":6}],"O":[{"%":99,"TT":{"#":"0.t_vec","D":[@,@]}}],
          "OA":[]},)",
      {{"@", R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,16],"NCHW",[],0]})"}});
  const std::string bytes = absl::StrReplaceAll(
      Edited("cond_mlp/main.json", R"({"#":"1.if",)", list + R"({"#":"1.if",)"),
      {{R"("#":"1.tanh","A":[],"I":[{"%":6}])", R"("#":"1.add_n","A":[],"I":[{"%":99}])"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_EQ(program.op(program.block(1).ops()[0]).type(), "sum");
  EXPECT_THAT(OpTexts(program),
              Contains("conditional_block(greater_than_11, x -> if_12_true_scope, if_12_true_0)"));
}

// Clipping reads gradients that are complete: they are reduced before. Summands of a shared weight
// are no gradients.
TEST(ImporterTest, GradientsArePairedBeforeClippingAndAfterSums) {
  for (const auto& [file, bytes] : Files()) {
    if (!absl::EndsWith(file, "main.json")) continue;
    SCOPED_TRACE(file);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
    std::set<std::string> updated, paired;
    for (OpId id : program.block(0).ops()) {
      const Op op = program.op(id);
      WEFT_ASSERT_OK_AND_ASSIGN(const auto pairs, ParamGrads(op));
      for (const ParamGrad& pair : pairs) {
        (IsBackward(op) ? paired : updated).insert(pair.param);
        if (!IsBackward(op)) continue;
        EXPECT_TRUE(absl::EndsWith(pair.grad, "@GRAD") || absl::StrContains(pair.grad, "@RENAME@"))
            << pair.grad;
      }
      EXPECT_TRUE(op.type() != "squared_l2_norm" || IsOptimize(op));
    }
    EXPECT_FALSE(updated.empty());
    EXPECT_EQ(updated, paired);
  }
}

TEST(ImporterTest, UnknownOpsAreKeptUnderPaddlesName) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program,
                            ImportBytes(Edited("fit_a_line/main.json", "1.square\"", "1.cube\"")));
  EXPECT_THAT(OpTexts(program)[3], "pd_op.cube(subtract_8 -> cube_9)");
}

// Other than the table says: an op of no results, a list where a tensor is expected.
TEST(ImporterTest, OpsOfAnotherFormAreKept) {
  const std::string empty = R"({"#":"1.full_int_array","A":[],"I":[],"O":[],"OA":[]})";
  WEFT_ASSERT_OK_AND_ASSIGN(const Program last, ImportBytes(WithOps(empty)));
  EXPECT_EQ(OpTexts(last).back(), "pd_op.full_int_array( -> )");
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportBytes(Edited("fit_a_line/main.json", R"({"#":"1.matmul",)",
                         R"({"#":"1.full","A":[],"I":[],"O":[],"OA":[]},{"#":"1.matmul",)")));
  EXPECT_EQ(OpTexts(program)[0], "pd_op.full( -> )");
}

// Paddle's executor orders by variables: the operand of an op in place stands for what this makes.
TEST(ImporterTest, OperandsOfOpsInPlaceAreReadBehindThem) {
  const std::string first = R"("I":[{"%":2},{"%":1},{"%":19},{"%":0}])";
  const std::string second = R"("I":[{"%":3},{"%":1},{"%":21},{"%":0}])";
  const std::string bytes = Edited("fit_a_line/main.json", second, first);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  const std::vector<std::string> ops = OpTexts(program);
  EXPECT_THAT(std::vector<std::string>(ops.end() - 2, ops.end()),
              ::testing::Each("sgd(fc_0.b_0, learning_rate_0, fc_0.b_0@GRAD -> fc_0.b_0)"));
}

// A counter, and a snapshot of a parameter that a branch takes: Paddle 3.3.1 wrote it.
TEST(ImporterTest, BranchesOverwriteWhatIsAroundThem) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(files.at("snapshot/main.json")));
  ASSERT_EQ(program.num_blocks(), 2);
  // The other block is empty, and what is detached is the same variable.
  EXPECT_THAT(OpTexts(program),
              ::testing::IsSupersetOf({"increment(count -> count)",
                                       "conditional_block(equal_11, w, snapshot -> "
                                       "if_cond_11_true_scope, snapshot)",
                                       "elementwise_sub(w, snapshot -> subtract_22)"}));
  EXPECT_EQ(program.op(program.block(1).ops()[0]).type(), "assign");
}

// The initial states have the size of the batch; the buffer of the weights is not read.
TEST(ImporterTest, RecurrentNetworksHaveTheirStates) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(files.at("lstm/main.json")));
  const std::vector<std::string> ops = OpTexts(program);
  EXPECT_THAT(ops, ::testing::IsSupersetOf(
                       {"shape(x -> shape_18_int32)", "cast(shape_18_int32 -> shape64_18)",
                        "fill_constant(full_22, slice_21, full_23 -> full_with_tensor_27)"}));
  EXPECT_THAT(ops, ::testing::Not(Contains(HasSubstr("coalesce_tensor"))));
  EXPECT_THAT(ops, Contains(HasSubstr(", lstm_cell_0.w_0@GRAD, lstm_cell_0.w_1@GRAD, "
                                      "lstm_cell_0.b_0@GRAD, lstm_cell_0.b_1@GRAD)")));
  // If something reads it, it stays.
  const std::string other =
      absl::StrReplaceAll(files.at("lstm/main.json"),
                          {{R"("I":[{"%":9}],"O":[{"%":18)", R"("I":[{"%":14}],"O":[{"%":18)"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program reads, ImportBytes(other));
  EXPECT_THAT(OpTexts(reads), Contains(HasSubstr("coalesce_tensor")));
}

// Of programs that Paddle 3.3.1 wrote.
TEST(ImporterTest, ReadsNumbersThatJsonLacksAndUpdatesWithoutSchema) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_more_ops.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program masked, ImportBytes(files.at("inf_const/main.json")));
  bool has_clip = false;
  for (OpId id : masked.block(0).ops()) {
    const Op op = masked.op(id);
    if (op.type() != "clip") continue;
    has_clip = true;
    EXPECT_EQ(op.FloatAttr("min"), -std::numeric_limits<double>::infinity());
  }
  EXPECT_TRUE(has_clip);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program norm, ImportBytes(files.at("inf_norm/main.json")));
  for (OpId id : norm.block(0).ops()) {
    if (norm.op(id).type() != "p_norm") continue;
    EXPECT_EQ(norm.op(id).FloatAttr("porder"), std::numeric_limits<double>::infinity());
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Program rprop, ImportBytes(files.at("rprop/main.json")));
  EXPECT_THAT(
      OpTexts(rprop),
      Contains(::testing::StartsWith("rprop(linear_1.b_0, add_n_44, linear_1.b_0_prevs_0, ")));
}

// The block counts in a variable around it, and exchanges the values of the loop.
TEST(ImporterTest, AWhileHasVariablesOfItsOwn) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(files.at("while/main.json")));
  ASSERT_EQ(program.num_blocks(), 2);
  EXPECT_THAT(OpTexts(program),
              ::testing::IsSupersetOf(
                  {"assign(less_than_15 -> while_16_condition)", "assign(full_12 -> while_16_0)",
                   "assign(full_13 -> while_16_1)",
                   "while(while_16_condition, while_16_0, while_16_1, w, full_10, full_11, "
                   "while_16_condition -> while_16_scope, "
                   "while_16_condition, while_16_0, while_16_1, full_10)",
                   "reduce_sum(while_16_0 -> sum_22)"}));
  EXPECT_THAT(
      OpTexts(program, 1),
      ElementsAre("elementwise_add(while_16_0, w -> add_18)", "increment(full_10 -> full_10)",
                  "less_than(full_10, full_11 -> less_than_20)",
                  "assign(while_16_1 -> while_16_next_1)",
                  "assign(less_than_20 -> while_16_condition)",
                  "assign(while_16_next_1 -> while_16_0)", "assign(add_18 -> while_16_1)"));
}

TEST(ImporterTest, RefusesLoopsOfAnotherForm) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                            weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  const std::string& bytes = files.at("while/main.json");
  const std::string region = R"("regions":[{"#":"region_1","blocks":[)";
  ASSERT_TRUE(absl::StrContains(bytes, region));
  EXPECT_THAT(
      std::string(
          ImportBytes(absl::StrReplaceAll(bytes, {{region, region + R"({"args":[],"ops":[]},)"}}))
              .status()
              .message()),
      HasSubstr("op 15 (1.while): expected a condition, 2 values that its one block takes"));
  const std::string result =
      R"({"%":16,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[4,1],"NCHW",[],0]}})";
  ASSERT_TRUE(absl::StrContains(bytes, result));
  EXPECT_THAT(
      ImportBytes(absl::StrReplaceAll(bytes, {{result, R"({"%":16,"TT":{"#":"0.t_vec","D":[]}})"}}))
          .status(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("op 15 (1.while): result 0: expected a dense tensor, found {\"#\":\"0.t_v")));
}

TEST(ImporterTest, RefusesWhatItCannotTranslate) {
  const auto error = [](const std::string& bytes) {
    return std::string(ImportBytes(bytes).status().message());
  };
  EXPECT_THAT(error(Edited("cond_mlp/main.json", "1.if", "1.other")),
              HasSubstr("op 11 (1.other): of the ops with blocks, only 1.if and 1.while are"));
  EXPECT_THAT(
      error(Edited("cond_mlp/main.json", "1.if", "1.while")),
      HasSubstr("op 11 (1.while): expected a condition, 1 values that its one block takes"));
  EXPECT_THAT(error(Edited("cond_mlp/main.json", R"("#":"2.yield")", R"("#":"2.other")")),
              HasSubstr("op 11 (1.if): block 1: expected 2.yield of 1 values at its end, found "
                        "block 1 op 3 (2.other)"));
  EXPECT_THAT(error(Edited("cond_mlp/main.json", "1.tanh", "1.assign_value_")),
              HasSubstr("op 11 (1.if): block 1 op 0 (1.assign_value_): "));
  const std::string in_block =
      R"({"#":"0.set_parameter","A":[{"AT":{"#":"0.a_str","D":"z"},"N":"parameter_name"}],)"
      R"("I":[{"%":6}],"O":[],"OA":[]},{"#":"1.tanh")";
  EXPECT_THAT(error(Edited("cond_mlp/main.json", R"({"#":"1.tanh")", in_block)),
              HasSubstr("block 1 op 0 (0.set_parameter): expected it in the root block only"));
  EXPECT_THAT(error(Edited("fit_a_line/main.json", "1.sgd_", "1.new_")),
              HasSubstr("(1.new_): writes operands in place"));
  EXPECT_THAT(error(Edited("fit_a_line/main.json", R"("trainable":true)", R"("trainable":false)")),
              HasSubstr("a model for inference"));
  // Two values of one name, the first of which is read behind the second.
  const std::string sink =
      R"({"#":"0.set_parameter","A":[{"AT":{"#":"0.a_str","D":"fc_0.b_0"},"N":"parameter_name"}],"I":[{"%":5}],"O":[],"OA":[]})";
  EXPECT_THAT(
      error(Edited("fit_a_line/startup.json", sink,
                   absl::StrReplaceAll(sink, {{"fc_0.b_0", "fc_0.w_0"}}) + "," +
                       absl::StrReplaceAll(sink, {{"fc_0.b_0", "other"}, {"5", "4"}}))),
      HasSubstr("reads %4, the content of variable fc_0.w_0 that an earlier op has overwritten"));
  // Without a loss, nothing is a gradient.
  EXPECT_THAT(error(Edited("fit_a_line/main.json", R"("I":[{"%":2},{"%":1},{"%":19},{"%":0}])",
                           R"("I":[{"%":2},{"%":1},{"%":8},{"%":0}])")),
              HasSubstr("(1.sgd_): expected a gradient that depends on a loss, found %8"));
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
  const auto too_much =
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 8 times the bytes"));
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

TEST(OpTableTest, RowsAreConsistent) {
  std::set<absl::string_view> names;
  for (const OpRule& rule : AllRules()) {
    SCOPED_TRACE(rule.pir);
    EXPECT_TRUE(names.insert(rule.pir).second);
    bool writes_in_place = false;
    for (const ResultRule& result : rule.results) writes_in_place |= result.in_place_of >= 0;
    EXPECT_EQ(writes_in_place, IsInPlace(rule.pir));
    for (const OperandRule& operand : rule.operands) EXPECT_THAT(operand.name, Not(IsEmpty()));
    // Gradients of what the op or its forward op reads.
    if (!IsGradientOp(rule.pir)) continue;
    if (absl::EndsWith(rule.pir, "_double_grad")) {
      for (const ResultRule& result : rule.results) {
        if (rule.pir == "1.relu_double_grad") continue;  // its gradient reads no grad_out
        EXPECT_GE(rule.FindOperand(absl::StripSuffix(result.name, "_grad")), 0) << result.name;
      }
      continue;
    }
    const OpRule* const forward =
        FindRule(absl::StrCat("1.", absl::StripSuffix(BaseName(rule.pir), "_grad")));
    const OpRule* const in_place =
        FindRule(absl::StrCat("1.", absl::StripSuffix(BaseName(rule.pir), "_grad"), "_"));
    ASSERT_TRUE(forward != nullptr || in_place != nullptr);
    for (const ResultRule& result : rule.results) {
      const absl::string_view name = absl::StripSuffix(result.name, "_grad");
      EXPECT_GE((forward != nullptr ? forward : in_place)->FindOperand(name), 0) << name;
    }
  }
}

}  // namespace
}  // namespace weft::pir
