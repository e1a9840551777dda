#include "executor/rewrites/fuse_attention.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/rewrites/rewrites_testing.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

void Fuse(const std::vector<int>& accessed, Plan* plan) {
  FuseAttention(CpuKernels(), accessed, plan);
}

// An attention of a program, as text, and its gradients.
struct Attention {
  std::string batch = "2, 3";
  int rows = 5, columns = 7, depth = 4, value_depth = 6;
  std::string mask;     // its dims; empty: there is none
  std::string scale;    // attributes; empty: there is none
  std::string dropout;  // likewise
  bool has_gradient = true;

  std::string Text() const {
    const auto matrices = [this](const char* name, int rows, int columns) {
      return absl::StrCat("var ", name, " : fp32[", batch, ", ", rows, ", ", columns, "]\n");
    };
    std::string text =
        absl::StrCat(matrices("q", rows, depth), matrices("k", columns, depth),
                     matrices("v", columns, value_depth), matrices("dout", rows, value_depth));
    std::string gradient, at = "s";
    absl::StrAppend(&text, "Out=[s] = matmul_v2(X=[q], Y=[k]) {trans_y=true}\n");
    gradient =
        "X@GRAD=[dq], Y@GRAD=[dk] = matmul_v2_grad(Out@GRAD=[ds], X=[q], Y=[k]) {trans_y=true}\n";
    if (!scale.empty()) {
      absl::StrAppend(&text, "Out=[t] = scale(X=[s]) {", scale, "}\n");
      gradient = absl::StrCat("Out=[ds] = scale(X=[dt]) {", scale, "}\n", gradient);
      at = "t";
    }
    if (!mask.empty()) {
      text = absl::StrCat("var mask : fp32[", mask, "]\n", text, "Out=[u] = elementwise_add(X=[",
                          at, "], Y=[mask])\n");
      gradient = absl::StrCat("X@GRAD=[d", at, "] = elementwise_add_grad(Out@GRAD=[du], X=[", at,
                              "], Y=[mask])\n", gradient);
      at = "u";
    }
    absl::StrAppend(&text, "Out=[p] = softmax(X=[", at, "])\n");
    gradient =
        absl::StrCat("X@GRAD=[d", at, "] = softmax_grad(Out=[p], Out@GRAD=[dp])\n", gradient);
    at = "p";
    if (!dropout.empty()) {
      absl::StrAppend(&text, "Mask=[kept], Out=[w] = dropout(X=[p]) {", dropout, "}\n");
      gradient = absl::StrCat("X@GRAD=[dp] = dropout_grad(Mask=[kept], Out@GRAD=[dw]) {", dropout,
                              "}\n", gradient);
      at = "w";
    }
    absl::StrAppend(&text, "Out=[out] = matmul_v2(X=[", at, "], Y=[v])\n");
    if (!has_gradient) return text;
    return absl::StrCat(text, "X@GRAD=[d", at,
                        "], Y@GRAD=[dv] = matmul_v2_grad(Out@GRAD=[dout], X=[", at, "], Y=[v])\n",
                        gradient);
  }
};

constexpr char kDropout[] = R"(dropout_prob=0.3, dropout_implementation="upscale_in_train")";
const std::vector<std::string> kResults = {"out", "dq", "dk", "dv"};

std::vector<std::string> OpsOf(const std::string& text,
                               const std::vector<std::string>& results = kResults) {
  return OpTypes(ExpectSameResults(text, results, Fuse, 1e-5F));
}

TEST(FuseAttentionTest, OneOpForEachDirection) {
  const auto ops = ElementsAre("attention", "attention_grad");
  Attention attention;
  EXPECT_THAT(OpsOf(attention.Text()), ops);
  attention.scale = "scale=0.5";
  EXPECT_THAT(OpsOf(attention.Text()), ops);
  attention.mask = "5, 7";
  EXPECT_THAT(OpsOf(attention.Text()), ops);
  attention.dropout = kDropout;
  EXPECT_THAT(OpsOf(attention.Text()), ops);
  attention.dropout = "dropout_prob=0.3";  // downgrade_in_infer
  EXPECT_THAT(OpsOf(attention.Text()), ops);
  attention.dropout = absl::StrCat(kDropout, ", fix_seed=true, seed=3");
  EXPECT_THAT(OpsOf(attention.Text()), ops);
  // What dropout drew is there for others, too.
  EXPECT_THAT(
      OpsOf(absl::StrCat(attention.Text(), "Out=[z] = cast(X=[kept]) {in_dtype=20, out_dtype=5}\n"),
            {"out", "dq", "dk", "dv", "z"}),
      ElementsAre("attention", "attention_grad", "cast"));
  attention.batch = "3";
  EXPECT_THAT(OpsOf(attention.Text()), ops);
}

TEST(FuseAttentionTest, WithoutGradient) {
  Attention attention;
  attention.has_gradient = false;
  EXPECT_THAT(OpsOf(attention.Text(), {"out"}), ElementsAre("attention"));
  attention.dropout = "dropout_prob=0.3, is_test=true";
  EXPECT_THAT(OpsOf(attention.Text(), {"out"}), ElementsAre("attention"));
}

TEST(FuseAttentionTest, AlphaOfAProduct) {
  const std::string text = absl::StrReplaceAll(
      Attention().Text(),
      {{"matmul_v2", "matmul"}, {"trans_y=true", "transpose_Y=true, alpha=3.0"}});
  EXPECT_THAT(OpsOf(text), ElementsAre("attention", "attention_grad"));
}

TEST(FuseAttentionTest, MasksAreBroadcast) {
  Attention attention;
  for (const char* mask : {"7", "1", "5, 1", "2, 1, 1, 7", "2, 3, 5, 7", "3, 1, 1", "1, 1, 5, 7"}) {
    attention.mask = mask;
    EXPECT_THAT(OpsOf(attention.Text()), ElementsAre("attention", "attention_grad")) << mask;
  }
}

// Several blocks, the last of which is smaller.
TEST(FuseAttentionTest, SomeRowsOfAMatrixAtATime) {
  Attention attention;
  attention.batch = "1, 2";
  attention.rows = 300;
  attention.columns = 400;
  attention.mask = "300, 400";
  attention.dropout = kDropout;
  EXPECT_THAT(OpsOf(attention.Text()), ElementsAre("attention", "attention_grad"));
}

TEST(FuseAttentionTest, SomeMatricesAtATime) {
  Attention attention;
  attention.batch = "5, 5";
  attention.rows = 50;
  attention.columns = 90;
  attention.mask = "5, 1, 1, 90";
  attention.dropout = kDropout;
  EXPECT_THAT(OpsOf(attention.Text()), ElementsAre("attention", "attention_grad"));
}

TEST(FuseAttentionTest, ThreadsGiveTheSameBits) {
  for (const int rows : {50, 900}) {
    Attention attention;
    attention.batch = rows == 50 ? "5, 7" : "1, 3";
    attention.rows = rows;
    attention.columns = 90;
    attention.dropout = kDropout;
    std::vector<std::vector<float>> expected;
    for (const int threads : {1, 2, 3}) {
      PlanExecutorOptions options;
      options.threads = threads;
      RewrittenProgram program(attention.Text(), kResults, Fuse, options);
      ASSERT_THAT(OpTypes(program.plan()), ElementsAre("attention", "attention_grad"));
      WEFT_ASSERT_OK(program.RunStep());
      std::vector<std::vector<float>> found;
      for (const std::string& name : kResults) found.push_back(Values<float>(program[name]));
      if (threads == 1) expected = found;
      EXPECT_TRUE(found == expected) << threads;
    }
  }
}

// As softmax, which does not let a weight become 0.
TEST(FuseAttentionTest, MaskedScores) {
  Attention attention;
  attention.mask = "5, 7";
  attention.dropout = kDropout;
  for (const bool masks_rows : {false, true}) {
    std::vector<std::vector<float>> of_steps;
    for (const Rewrite& rewrite : {Rewrite(), Rewrite(Fuse)}) {
      RewrittenProgram program(attention.Text(), kResults, rewrite);
      for (int i = 0; i < 35; ++i) {
        const bool is_masked = masks_rows ? i / 7 == 2 : i % 7 > i / 7;
        program["mask"].data<float>()[i] = is_masked ? -1e4F : 0;
      }
      WEFT_ASSERT_OK(program.RunStep());
      for (const std::string& name : kResults) of_steps.push_back(Values<float>(program[name]));
    }
    for (size_t i = 0; i < kResults.size(); ++i) {
      EXPECT_THAT(of_steps[i + kResults.size()],
                  Pointwise(::testing::FloatNear(1e-5F), of_steps[i]))
          << kResults[i];
    }
  }
}

TEST(FuseAttentionTest, NoScores) {
  Attention attention;
  for (int* size : {&attention.rows, &attention.columns}) {
    attention = Attention();
    *size = 0;
    EXPECT_THAT(OpsOf(attention.Text()), ElementsAre("attention", "attention_grad"));
  }
}

// --- What stays as it is -------------------------------------------------------------------------

bool IsFused(const std::string& text, const std::vector<std::string>& results = kResults) {
  for (const std::string& type : OpsOf(text, results)) {
    if (type == "attention" || type == "attention_grad") return true;
  }
  return false;
}

TEST(FuseAttentionTest, ValuesThatAreReadElsewhereAreWritten) {
  Attention attention;
  attention.mask = "5, 7";
  attention.dropout = kDropout;
  const std::string text = attention.Text();
  ASSERT_TRUE(IsFused(text));
  for (const char* name : {"s", "u", "p", "w", "dw", "dp", "du", "ds"}) {
    EXPECT_FALSE(IsFused(text, {"out", name})) << name;
    EXPECT_FALSE(IsFused(absl::StrCat(text, "Out=[z] = tanh(X=[", name, "])\n"), {"out", "z"}))
        << name;
  }
}

TEST(FuseAttentionTest, OtherProductsAndSums) {
  Attention attention;
  attention.mask = "5, 7";
  attention.scale = "scale=0.5";
  const std::string text = attention.Text();
  ASSERT_TRUE(IsFused(text));
  // A mask that is learned.
  EXPECT_FALSE(
      IsFused(absl::StrReplaceAll(text, {{"X@GRAD=[dt] = elementwise_add_grad",
                                          "X@GRAD=[dt], Y@GRAD=[dmask] = elementwise_add_grad"}})));
  EXPECT_FALSE(IsFused(absl::StrReplaceAll(text, {{"scale=0.5", "scale=0.5, bias=1.0"}})));
  EXPECT_FALSE(IsFused(absl::StrReplaceAll(text, {{"softmax(X=[u])", "softmax(X=[u]) {axis=2}"},
                                                  {"Out@GRAD=[dp])", "Out@GRAD=[dp]) {axis=2}"}})));
  attention.rows = attention.columns = attention.depth = attention.value_depth = 5;
  attention.mask = "5, 5";
  ASSERT_TRUE(IsFused(attention.Text()));
  EXPECT_FALSE(IsFused(absl::StrReplaceAll(attention.Text(), {{"{trans_y=true}", ""}})));
}

TEST(FuseAttentionTest, BatchesThatAreBroadcast) {
  const std::string text =
      absl::StrReplaceAll(Attention().Text(), {{"var k : fp32[2, 3,", "var k : fp32[1, 3,"}});
  EXPECT_FALSE(IsFused(text));
}

// All draws come in the order of the program.
TEST(FuseAttentionTest, OpsThatDrawBetweenItsOps) {
  Attention attention;
  attention.dropout = kDropout;
  const std::string draw = "Mask=[m], Out=[z] = dropout(X=[v])\n";
  const std::string text = attention.Text(), mix = "Out=[out] = matmul_v2";
  EXPECT_TRUE(IsFused(absl::StrCat(text, draw), {"out", "z"}));
  EXPECT_FALSE(IsFused(absl::StrReplaceAll(text, {{mix, absl::StrCat(draw, mix)}}), {"out", "z"}));
}

TEST(FuseAttentionTest, InputsThatAreWrittenBetween) {
  const std::string softmax = "Out=[p] = softmax";
  const std::string text = absl::StrReplaceAll(
      Attention().Text(),
      {{softmax, absl::StrCat("Out=[q] = scale(X=[q]) {scale=2.0}\n", softmax)}});
  EXPECT_FALSE(IsFused(text));
}

}  // namespace
}  // namespace weft::testing
