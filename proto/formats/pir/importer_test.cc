#include "proto/formats/pir/importer.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::OpTexts;

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

// A constant of one number is no list, and a tensor.
TEST(ImporterTest, ShapesMayBeConstantTensors) {
  const std::string result = R"("O":[{"%":100,"TT":)" + TensorJson("f32") + R"(}],"OA":[]})";
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportBytes(WithOps(ConstantJson("1.full", "99", R"({"#":"0.a_f64","D":13.0})", "i64") +
                          R"(,{"#":"1.expand","A":[],"I":[{"%":2},{"%":99}],)" + result)));
  EXPECT_EQ(OpTexts(program).back(), "expand_v2(fc_0.b_0, full_99 -> expand_100)");
}

// The length of a mask is a constant, which becomes an attribute, or a tensor.
TEST(ImporterTest, MasksOfSequencesHaveALength) {
  const auto mask = [](const std::string& length) {
    return ImportBytes(WithOps(
        absl::StrCat(ConstantJson("1.full", "97", R"({"#":"0.a_f64","D":5.0})", "i32"),
                     R"(,{"#":"1.sequence_mask","A":[{"AT":{"#":"1.a_dtype","D":"float32"},)",
                     R"("N":"out_dtype"}],"I":[{"%":2},{"%":)", length, R"(}],"O":[{"%":100,"TT":)",
                     TensorJson("f32"), R"(}],"OA":[]})")));
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const Program constant, mask("97"));
  EXPECT_EQ(OpTexts(constant).back(), "sequence_mask(fc_0.b_0 -> sequence_mask_100)");
  EXPECT_EQ(constant.op(constant.block(0).ops().back()).IntAttr("maxlen"), 5);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program tensor, mask("2"));
  EXPECT_EQ(OpTexts(tensor).back(), "sequence_mask(fc_0.b_0, fc_0.b_0 -> sequence_mask_100)");
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

// No rule says which op of ProgramDesc these are, or what array_write_ writes.
TEST(ImporterTest, ArraysAndSparseTensorsAreVariables) {
  const auto op = [](const std::string& name, const std::string& operands, int result,
                     const std::string& kind) {
    return absl::StrCat(R"({"#":"1.)", name, R"(","A":[],"I":[)", operands, R"(],"O":[{"%":)",
                        result, R"(,"TT":{"#":")", kind,
                        R"(","D":[{"#":"0.t_f32"},[3,4],"NCHW",[],0]}}],"OA":[]})");
  };
  const std::string array = "1.t_dense_tensor_array", sparse = "1.t_sparse_coo_tensor";
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportBytes(WithOps(absl::StrCat(op("create_array", "", 100, array), ",",
                                       op("array_write_", R"({"%":100},{"%":6})", 101, array), ",",
                                       op("array_read", R"({"%":100})", 102, "0.t_dtensor"), ",",
                                       op("relu_coo_sp", R"({"%":102})", 103, sparse), ",",
                                       op("to_somewhere", R"({"%":103})", 104, "9.t_unknown")))));
  const std::vector<std::string> ops = OpTexts(program);
  EXPECT_THAT(std::vector<std::string>(ops.end() - 5, ops.end()),
              ElementsAre("pd_op.create_array( -> create_array_100)",
                          "pd_op.array_write_(create_array_100, matmul_6 -> create_array_100, "
                          "matmul_6, array_write_101)",
                          "pd_op.array_read(create_array_100 -> array_read_102)",
                          "pd_op.relu_coo_sp(array_read_102 -> relu_coo_sp_103)",
                          "pd_op.to_somewhere(relu_coo_sp_103 -> to_somewhere_104)"));
  const auto var = [&](const char* name) { return program.var(program.block(0).FindVar(name)); };
  EXPECT_EQ(var("create_array_100").type(), pb::VarType::LOD_TENSOR_ARRAY);
  EXPECT_EQ(var("relu_coo_sp_103").type(), pb::VarType::SPARSE_COO);
  EXPECT_EQ(var("to_somewhere_104").type(), pb::VarType::RAW);
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

}  // namespace
}  // namespace weft::pir
