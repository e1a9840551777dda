// Ops with blocks, and recurrent networks, as ops of ProgramDesc.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::IsInvalidArgument;
using ::weft::testing::OpTexts;

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

// Paddle evaluates it once: nothing reads the condition after a block that overwrites it.
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
  uint32_t branch = 0;
  while (document->op(branch).name != "1.if") ++branch;
  const std::string text(document->op(branch).bytes);
  bytes = absl::StrReplaceAll(
      bytes, {{text, text + "," + absl::StrReplaceAll(text, {{R"("%":13)", R"("%":113)"}})}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(bytes));
  EXPECT_THAT(
      OpTexts(program),
      ::testing::IsSupersetOf(
          {"conditional_block(equal_11, w, snapshot -> if_cond_11_true_scope, snapshot)",
           "conditional_block(equal_11, w, snapshot -> if_cond_11_1_true_scope, snapshot)"}));
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
      IsInvalidArgument(
          "op 15 (1.while): result 0: expected a value of a variable, found {\"#\":\"0.t_v"));
}

}  // namespace
}  // namespace weft::pir
