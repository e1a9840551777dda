// Losses, gradients and pairs of programs that Paddle 3.3.1 wrote.
#include "proto/formats/pir/training.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <string>
#include <vector>

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
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using ::weft::testing::OpTexts;

// Of tests/data/paddle3_pir_ops.tar.xz.
std::string Main(const std::string& model) {
  static const auto* const files = new std::map<std::string, std::string>(
      *weft::testing::ReadTarXz("tests/data/paddle3_pir_ops.tar.xz"));
  return files->at(model + "/main.json");
}

// What backward ops name: "op type: parameter gradient".
std::vector<std::string> Pairs(const Program& program) {
  std::vector<std::string> texts;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const auto pairs = ParamGrads(op);
    EXPECT_TRUE(pairs.ok());
    if (!pairs.ok() || !IsBackward(op)) continue;
    for (const ParamGrad& pair : *pairs) {
      texts.push_back(absl::StrCat(op.type(), ": ", pair.param, " ", pair.grad));
    }
  }
  return texts;
}

std::vector<std::string> Losses(const Program& program) {
  std::vector<std::string> texts;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if ((op.role() & kRoleLoss) == 0) continue;
    texts.push_back(absl::StrCat(op.type(), IsBackward(op) ? " (gradient)" : ""));
  }
  return texts;
}

// The gradient of add_n is a scale by 1 for each summand, and no add_n_grad.
TEST(TrainingTest, ALossMayBeASum) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Main("sum_of_losses")));
  EXPECT_THAT(Losses(program), ElementsAre("sum", "fill_constant (gradient)"));
  EXPECT_THAT(Pairs(program), UnorderedElementsAre("elementwise_add_grad: fc_0.b_0 fc_0.b_0@GRAD",
                                                   "matmul_v2_grad: fc_0.w_0 fc_0.w_0@GRAD"));
  EXPECT_THAT(OpTexts(program), Contains("scale(add_n_17@GRAD -> mean_11@GRAD)"));
  EXPECT_THAT(OpTexts(program), Contains("scale(add_n_17@GRAD -> mean_15@GRAD)"));
}

// Summands that stop gradients have none.
TEST(TrainingTest, GradientsOfASumAreThoseOfItsOtherSummands) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Main("sum_with_a_stop")));
  EXPECT_THAT(Losses(program), ElementsAre("sum", "fill_constant (gradient)"));
  EXPECT_THAT(OpTexts(program), Contains("scale(add_n_15@GRAD -> mean_11@GRAD)"));
}

// The norm of a gradient is part of the loss: the gradient that it takes is no training.
TEST(TrainingTest, AGradientThatALossNeedsIsForward) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Main("gradient_penalty_of_sum")));
  EXPECT_THAT(Losses(program), ElementsAre("elementwise_add", "fill_constant (gradient)"));
  int gradients_before = 0;
  for (OpId id : program.block(0).ops()) {
    if (program.op(id).type() == "tanh_grad" && program.op(id).role() == kRoleForward) {
      ++gradients_before;
    }
  }
  EXPECT_EQ(gradients_before, 1);
}

// Of the parts of a gradient, ops outside the table make some.
TEST(TrainingTest, SumsOfPartsOfUnknownOriginAreGradients) {
  const std::string bytes = absl::StrReplaceAll(Main("gradient_penalty_of_sum"),
                                                {{"1.matmul_double_grad", "1.other_double_grad"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(OpTexts(program), Contains(HasSubstr("pd_op.other_double_grad")));
  EXPECT_THAT(Pairs(program), UnorderedElementsAre("elementwise_add_grad: fc_6.b_0 fc_6.b_0@GRAD",
                                                   "sum: fc_6.w_0 fc_6.w_0@GRAD",
                                                   "elementwise_add_grad: fc_5.b_0 fc_5.b_0@GRAD",
                                                   "sum: fc_5.w_0 fc_5.w_0@GRAD"));
}

TEST(TrainingTest, TheGradientOfASplitIsAConcat) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program weights, ImportBytes(Main("weight_split")));
  EXPECT_THAT(Pairs(weights),
              ElementsAre("sum: create_parameter_0.w_0 create_parameter_0.w_0@GRAD"));
  EXPECT_THAT(OpTexts(weights), Contains(HasSubstr("-> create_parameter_0.w_0@GRAD@RENAME@37)")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program attention, ImportBytes(Main("qkv")));
  EXPECT_THAT(OpTexts(attention), Not(Contains(HasSubstr("pd_op"))));
  EXPECT_EQ(Pairs(attention).size(), 2);
}

// A gradient that is also scaled for a look at it: the update reads the gradient itself.
TEST(TrainingTest, CopiesOfAGradientAreNotPaired) {
  const std::string tensor =
      R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},@,"NCHW",[],0]}}],"OA":[]})";
  const std::string look =
      R"({"#":"1.full","A":[{"AT":{"#":"0.a_f64","D":2.0},"N":"value"},)"
      R"({"AT":{"#":"1.a_dtype","D":"float32"},"N":"dtype"},)"
      R"({"AT":{"#":"1.a_intarray","D":[1]},"N":"shape"}],"I":[],"O":[{"%":110,"TT":)" +
      absl::StrReplaceAll(tensor, {{"@", "[1]"}}) +
      R"(,{"#":"1.scale","A":[{"AT":{"#":"0.a_f32","D":0.0},"N":"bias"}],)"
      R"("I":[{"%":21},{"%":110}],"O":[{"%":111,"TT":)" +
      absl::StrReplaceAll(tensor, {{"@", "[13,1]"}}) + ",";
  const std::string first_update = R"({"#":"1.sgd_")";
  std::string bytes = Files().at("fit_a_line/main.json");
  bytes.insert(bytes.find(first_update), look);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(Pairs(program), ElementsAre("elementwise_add_grad: fc_0.b_0 fc_0.b_0@GRAD",
                                          "matmul_v2_grad: fc_0.w_0 fc_0.w_0@GRAD"));
  // Where the update reads the copy, that is the gradient.
  const std::string update = R"("I":[{"%":3},{"%":1},{"%":21},{"%":0}])";
  ASSERT_NE(bytes.find(update), std::string::npos);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program scaled,
                            ImportBytes(absl::StrReplaceAll(
                                bytes, {{update, R"("I":[{"%":3},{"%":1},{"%":111},{"%":0}])"}})));
  EXPECT_THAT(Pairs(scaled), ElementsAre("elementwise_add_grad: fc_0.b_0 fc_0.b_0@GRAD",
                                         "scale: fc_0.w_0 fc_0.w_0@GRAD@RENAME@111"));
}

// Gradients that a program accumulates: an update reads a state, and nothing reads its gradient.
TEST(TrainingTest, UpdatesByWhatDependsOnNoLossHaveNoPair) {
  const std::string bytes = absl::StrReplaceAll(
      Files().at("fit_a_line/main.json"),
      {{R"("I":[{"%":2},{"%":1},{"%":19},{"%":0}])", R"("I":[{"%":2},{"%":1},{"%":8},{"%":0}])"}});
  ASSERT_NE(bytes, Files().at("fit_a_line/main.json"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(Pairs(program), ElementsAre("matmul_v2_grad: fc_0.w_0 fc_0.w_0@GRAD"));
  for (const size_t from_last : {1, 2}) {
    const auto ops = program.block(0).ops();
    EXPECT_TRUE(IsOptimize(program.op(ops[ops.size() - from_last])));
  }
}

// Collectives overwrite a parameter before it is updated.
TEST(TrainingTest, UpdatesFindParametersBehindOpsInPlace) {
  const std::string update = R"({"#":"1.sgd_")";
  const std::string broadcast =
      R"({"#":"1.broadcast_","A":[{"AT":{"#":"0.a_i32","D":0},"N":"ring_id"},)"
      R"({"AT":{"#":"0.a_i32","D":0},"N":"root"}],"I":[{"%":2}],"O":[{"%":99,"TT":)"
      R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[1],"NCHW",[],0]}}],"OA":[]},)";
  std::string bytes = Files().at("fit_a_line/main.json");
  bytes.insert(bytes.find(update), broadcast);
  bytes = absl::StrReplaceAll(bytes, {{R"("I":[{"%":2},{"%":1},{"%":19},{"%":0}])",
                                       R"("I":[{"%":99},{"%":1},{"%":19},{"%":0}])"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(Pairs(program), Contains("elementwise_add_grad: fc_0.b_0 fc_0.b_0@GRAD"));
  const Op last = program.op(program.block(0).ops().back());
  EXPECT_TRUE(IsOptimize(last));
}

// A norm for clipping reads the gradient in another shape, beside the gradient itself.
TEST(TrainingTest, AGradientThatIsReshapedForItsNormStays) {
  const std::string tensor =
      R"({"#":"0.t_dtensor","D":[{"#":"0.t_@"},[$],"NCHW",[],0]}}],"OA":[]},)";
  const auto typed = [&](const std::string& dtype, const std::string& dims) {
    return absl::StrReplaceAll(tensor, {{"@", dtype}, {"$", dims}});
  };
  const std::string clip =
      R"({"#":"1.full_int_array","A":[{"AT":{"#":"0.a_array","D":[{"#":"0.a_i64","D":13}]},)"
      R"("N":"value"}],"I":[],"O":[{"%":110,"TT":)" +
      typed("i64", "1") +
      R"({"#":"1.reshape","A":[],"I":[{"%":21},{"%":110}],"O":[{"%":111,"TT":)" +
      typed("f32", "13") +
      R"({"#":"1.squared_l2_norm","A":[],"I":[{"%":111}],"O":[{"%":112,"TT":)" + typed("f32", "") +
      R"({"#":"1.multiply","A":[],"I":[{"%":21},{"%":112}],"O":[{"%":113,"TT":)" +
      typed("f32", "13,1");
  std::string bytes = Files().at("fit_a_line/main.json");
  bytes.insert(bytes.find(R"({"#":"1.sgd_")"), clip);
  const std::string update = R"("I":[{"%":3},{"%":1},{"%":21},{"%":0}])";
  ASSERT_NE(bytes.find(update), std::string::npos);
  bytes = absl::StrReplaceAll(bytes, {{update, R"("I":[{"%":3},{"%":1},{"%":113},{"%":0}])"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(Pairs(program), ElementsAre("elementwise_add_grad: fc_0.b_0 fc_0.b_0@GRAD",
                                          "matmul_v2_grad: fc_0.w_0 fc_0.w_0@GRAD"));
}

// A file in which many sums read one list of many summands.
std::string SumsOfOneList(int count) {
  const std::string type = R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[13,1],"NCHW",[],0]})";
  std::string list = R"({"#":"0.combine","A":[],"I":[{"%":21})";
  for (int k = 1; k < count; ++k) list += R"(,{"%":21})";
  list += R"(],"O":[{"%":1000,"TT":{"#":"0.t_vec","D":[]}}],"OA":[]},)";
  for (int k = 0; k < count; ++k) {
    absl::StrAppend(&list, R"({"#":"1.add_n","A":[],"I":[{"%":1000}],"O":[{"%":)", 1001 + k,
                    R"(,"TT":)", type, R"(}],"OA":[]},)");
  }
  std::string bytes = Files().at("fit_a_line/main.json");
  return bytes.insert(bytes.find(R"({"#":"1.sgd_")"), list);
}

// Four times the file takes four times as long; sixteen times, if each sum walks the list.
TEST(TrainingTest, ListsAreWalkedOnce) {
  const auto ticks = [](int count) {
    const auto document = Document::Parse(SumsOfOneList(count));
    WEFT_EXPECT_OK(document);
    if (!document.ok()) return std::clock_t{1};
    std::clock_t least = 0;
    for (int run = 0; run < 5; ++run) {
      const std::clock_t begin = std::clock();
      const auto training = FindTraining(**document);
      const std::clock_t took = std::clock() - begin;
      least = run == 0 ? took : std::min(least, took);
      WEFT_EXPECT_OK(training);
      if (!training.ok()) continue;
      ValueIndex summand = 0;
      while ((*document)->value(summand).id != 21) ++summand;
      EXPECT_TRUE(training->is_summand[summand]);
    }
    return std::max(least, std::clock_t{1});
  };
  EXPECT_LT(ticks(32000), 10 * ticks(8000));
}

}  // namespace
}  // namespace weft::pir
