#include "transpiler/passes/devices/embedding_offload.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/text/program_text.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTraining[] = R"(
    var ids : int64[-1, 1] need_check_feed
    var w : fp32[10, 4] parameter persistable
    var e, e@GRAD : fp32[-1, 1, 4]
    Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
    Out=[y] = relu(X=[e])
    Out=[e@GRAD] = scale(X=[y]) role=backward {scale=2.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(EmbeddingOffload, LookupGradientAndOptimizerGoToTheHost) {
  ExpectRewrite("embedding-offload", kTraining, R"(
  - Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
  + Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true, op_device="cpu"}
  - W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true, op_device="cpu"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

TEST(EmbeddingOffload, OnlyRowsOfABatchAreCopied) {
  const TranspileResult result =
      ExpectRewrite("embedding-offload,hetero-partition{place=op_device}", kTraining, R"(
  + var e@SIM, e@GRAD@CPU : fp32[-1, 1, 4]
  - Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
  - Out=[y] = relu(X=[e])
  + Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true, op_device="cpu"}
  + Out=[e] = stream_wait(X=[e]) {stream="h2d", awaited="cpu"}
  + Out=[e@SIM] = memcpy_h2d(X=[e])
  + Out=[e@SIM] = stream_wait(X=[e@SIM]) {stream="compute", awaited="h2d"}
  + Out=[y] = relu(X=[e@SIM])
  - W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[e@GRAD] = stream_wait(X=[e@GRAD]) role=backward {stream="d2h", awaited="compute"}
  + Out=[e@GRAD@CPU] = memcpy_d2h(X=[e@GRAD]) role=backward
  + Out=[e@GRAD@CPU] = stream_wait(X=[e@GRAD@CPU]) role=backward {stream="cpu", awaited="d2h"}
  + W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD@CPU], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true, op_device="cpu"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

TEST(EmbeddingOffload, IdsOutOfRangeMayGiveZeros) {
  ExpectRewrite("embedding-offload{out_of_range=zeros}", kTraining, R"(
  - Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
  + Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true, zeros_out_of_range=true, op_device="cpu"}
  - W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true, zeros_out_of_range=true, op_device="cpu"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
  EXPECT_THAT(RewriteStatus("embedding-offload{out_of_range=clip}", kTraining),
              IsInvalidArgument("error|zeros"));
}

TEST(EmbeddingOffload, LazyAdamMayHaveNesterovMomentum) {
  const auto with = [](const std::string& attrs) {
    return absl::StrReplaceAll(
        kTraining,
        {{"    var e,", "    var w_m, w_v : fp32[10, 4] persistable\n    var e,"},
         {"ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize",
          absl::StrCat(
              "Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[w_m], Moment2Out=[w_v], "
              "ParamOut=[w] = adam(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], "
              "LearningRate=[lr], Moment1=[w_m], Moment2=[w_v], Param=[w]) role=optimize {",
              attrs, "}")}});
  };
  const Program main = Rewrite("embedding-offload{use_nesterov=true}", with("lazy_mode=true")).main;
  const Op update = main.op(main.block(0).ops().back());
  EXPECT_EQ(update.BoolAttr("use_nesterov"), true);
  EXPECT_EQ(update.StringAttr("op_device"), "cpu");
  for (const std::string& other : {with("lazy_mode=false"), std::string(kTraining)}) {
    EXPECT_THAT(RewriteStatus("embedding-offload{use_nesterov=true}", other),
                IsFailedPrecondition("use_nesterov takes tables that adam with lazy_mode updates"));
  }
}

TEST(EmbeddingOffload, DenseGradientIsRefused) {
  const std::string dense = absl::StrReplaceAll(kTraining, {{"is_sparse=true", "is_sparse=false"}});
  EXPECT_THAT(RewriteStatus("embedding-offload", dense),
              IsFailedPrecondition("op 3 (lookup_table_v2_grad): variable w@GRAD cannot stay on "
                                   "the host: the gradient is dense"));
}

// The norm is that of the rows that the gradient has.
TEST(EmbeddingOffload, ClippedGradientStaysOnTheHost) {
  const Program main = Rewrite("embedding-offload,hetero-partition{place=op_device}",
                               absl::StrReplaceAll(kTraining, {{"    ParamOut=[w] = sgd(", R"(
    var rows : selected_rows<fp32[10, 4]>
    var dense : fp32[10, 4]
    Out=[rows] = merge_selected_rows(X=[w@GRAD]) role=optimize
    Out=[dense] = get_tensor_from_selected_rows(X=[rows]) role=optimize
    Out=[norm] = squared_l2_norm(X=[dense]) role=optimize
    Out=[norm] = rsqrt(X=[norm]) role=optimize
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[norm]) role=optimize
    ParamOut=[w] = sgd()"}}))
                           .main;
  const std::string text = ProgramText(main);
  EXPECT_THAT(text, HasSubstr("memcpy_d2h(X=[e@GRAD])"));
  for (const char* name : {"[rows]", "[dense]", "[w@GRAD]"}) {
    EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("memcpy_d2h(X=", name))));
    EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("memcpy_h2d(X=", name))));
  }
}

TEST(EmbeddingOffload, TensorOfTheRowsOfAGradientStaysOnTheHost) {
  const std::string other = absl::StrCat(kTraining, R"(
    var dense, z : fp32[10, 4]
    Out=[dense] = get_tensor_from_selected_rows(X=[w@GRAD])
    Out=[z] = scale(X=[dense]) {scale=2.0}
)");
  EXPECT_THAT(RewriteStatus("embedding-offload", other),
              IsFailedPrecondition("(scale): variable z cannot stay on the host: the op makes a "
                                   "dense tensor of the rows of a gradient"));
}

TEST(EmbeddingOffload, TableThatTheAcceleratorUsesIsRefused) {
  EXPECT_THAT(
      RewriteStatus("embedding-offload", absl::StrCat(kTraining, "    Out=[z] = scale(X=[w])\n")),
      IsFailedPrecondition(
          "(scale): variable w cannot stay on the host: the op uses the whole table"));
}

// What the message says to do works.
TEST(EmbeddingOffload, MessageNamesTheRuleThatPutsTheTableOnTheHost) {
  const std::string dense = absl::StrReplaceAll(kTraining, {{"is_sparse=true", "is_sparse=false"}});
  const std::string tied =
      absl::StrCat(kTraining, "    var z : fp32[10, 4]\n    Out=[z] = scale(X=[w])\n");
  for (const std::string& text : {dense, tied}) {
    EXPECT_THAT(
        RewriteStatus("embedding-offload", text),
        IsFailedPrecondition("; option:mode none option:place 'param:w=cpu' puts the table there"));
    Program main = testing::CompactProgram(text);
    ProgramPair programs{&main, nullptr};
    TranspileOptions options;
    options.mode = "none";
    options.placement.place = "param:w=cpu";
    WEFT_ASSERT_OK(Transpile(options, programs).status());
    for (OpId id : main.block(0).ops()) {
      const Op op = main.op(id);
      const bool names_table =
          absl::c_any_of(op.args(), [&](Symbol name) { return main.name(name) == "w"; });
      EXPECT_EQ(op.StringAttr("op_device") == "cpu", names_table) << op.DebugName();
    }
  }
}

TEST(EmbeddingOffload, NoRuleIsNamedForATableThatADrawUses) {
  const std::string drawn =
      absl::StrCat(kTraining, "    Mask=[mask], Out=[z] = dropout(X=[w]) {dropout_prob=0.5}\n");
  const absl::Status status = RewriteStatus("embedding-offload", drawn);
  EXPECT_THAT(status, IsFailedPrecondition("cannot stay on the host: the op uses the whole table"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("option:place")));
}

TEST(EmbeddingOffload, WithATableThatCanGoOthersStayOnTheAccelerator) {
  const std::string dense = R"(
    var v : fp32[6, 4] parameter persistable
    var f : fp32[-1, 1, 4]
    Out=[f] = lookup_table_v2(Ids=[ids], W=[v])
    W@GRAD=[v@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[f], W=[v]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
  )";
  Program main = testing::CompactProgram(absl::StrCat(kTraining, dense));
  ProgramPair programs{&main, nullptr};
  TranspileOptions options;
  options.passes = "embedding-offload";
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Transpile(options, programs));
  EXPECT_THAT(testing::ResultLines(result.messages),
              Contains(AllOf(HasSubstr("table v stays on the accelerator: "),
                             HasSubstr("; option:place 'param:v=cpu' puts the table"))));
  int on_host = 0;
  for (OpId id : main.block(0).ops()) on_host += main.op(id).StringAttr("op_device") == "cpu";
  EXPECT_EQ(on_host, 3);
  EXPECT_THAT(RewriteStatus("embedding-offload{tables=v}", absl::StrCat(kTraining, dense)),
              IsFailedPrecondition("variable v@GRAD"));
}

TEST(EmbeddingOffload, PatternThatMatchesNothingIsRefused) {
  EXPECT_THAT(RewriteStatus("embedding-offload{tables=x*}", kTraining),
              IsInvalidArgument("tables 'x*'"));
}

}  // namespace
}  // namespace weft::testing
