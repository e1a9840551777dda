#include "transpiler/verifier/equivalence/low_rank_gradients.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// PowerSGD of rank 1 of the parameters v and w, from step 3 on.
constexpr absl::string_view kPowerSgd = R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed stop_gradient
    var v : fp32[4, 3] parameter persistable
    var w : fp32[4, 3] parameter persistable
    var lr : fp32[1] persistable
    var kept_v : fp32[4, 3] persistable
    var kept_w : fp32[4, 3] persistable
    var basis_v : fp32[3, 1] persistable
    var basis_w : fp32[3, 1] persistable
    var step : int64[1] persistable
    var h : fp32[-1, 3]
    var k : fp32[-1, 3]
    var o : fp32[-1, 3]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var g : fp32[-1, 3]
    var v@GRAD : fp32[4, 3]
    var w@GRAD : fp32[4, 3]
    var sent_v : fp32[4, 3]
    var sent_w : fp32[4, 3]
    var first : int64[1]
    var begun : bool[1]
    var early : bool[1]
    var scope : step_scopes
    var other_scope : step_scopes
    Out=[h] = mul(X=[x], Y=[v]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[k] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[o] = elementwise_add(X=[h], Y=[k]) {axis=-1}
    Out=[loss] = reduce_mean(X=[o]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[g] = reduce_mean_grad(X=[o], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[g]) role=backward vars=[v, v@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    Out=[step] = increment(X=[step]) {step=1.0}
    Out=[first] = fill_constant() {shape=longs[1], dtype=3, value=3.0}
    Out=[begun] = greater_equal(X=[step], Y=[first])
    Out=[early] = logical_not(X=[begun])
    Out=[sent_v, sent_w], Scope=[scope] = conditional_block(Cond=[early], Input=[v@GRAD, w@GRAD]) {sub_block=block(1), is_scalar_condition=true}
    Out=[sent_v, sent_w, kept_v, kept_w, basis_v, basis_w], Scope=[other_scope] = conditional_block(Cond=[begun], Input=[v@GRAD, w@GRAD, kept_v, kept_w, basis_v, basis_w]) {sub_block=block(2), is_scalar_condition=true}
    Out=[v@GRAD] = assign(X=[sent_v]) role=backward
    Out=[w@GRAD] = assign(X=[sent_w]) role=backward
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize vars=[v, v@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  }
  block 1 parent=0 {
    Out=[sent_v] = assign(X=[v@GRAD])
    Out=[sent_v] = c_allreduce_avg(X=[sent_v]) {ring_id=0, use_calc_stream=true}
    Out=[sent_w] = assign(X=[w@GRAD])
    Out=[sent_w] = c_allreduce_avg(X=[sent_w]) {ring_id=0, use_calc_stream=true}
  }
  block 2 parent=0 {
    var p : fp32[4, 1]
    var o : fp32[3, 1]
    var q : fp32[4, 1]
    var r : fp32[1, 1]
    Out=[kept_v] = elementwise_add(X=[kept_v], Y=[v@GRAD]) {axis=-1}
    Q=[o], R=[r] = qr(X=[basis_v])
    Out=[p] = matmul_v2(X=[kept_v], Y=[o]) {trans_x=false, trans_y=false}
    Out=[p] = c_allreduce_avg(X=[p]) {ring_id=0, use_calc_stream=true}
    Q=[q], R=[r] = qr(X=[p])
    Out=[basis_v] = matmul_v2(X=[kept_v], Y=[q]) {trans_x=true, trans_y=false}
    Out=[basis_v] = c_allreduce_avg(X=[basis_v]) {ring_id=0, use_calc_stream=true}
    Out=[sent_v] = matmul_v2(X=[q], Y=[basis_v]) {trans_x=false, trans_y=true}
    Out=[kept_v] = elementwise_sub(X=[kept_v], Y=[sent_v]) {axis=-1}
    Out=[kept_w] = elementwise_add(X=[kept_w], Y=[w@GRAD]) {axis=-1}
    Q=[o], R=[r] = qr(X=[basis_w])
    Out=[p] = matmul_v2(X=[kept_w], Y=[o]) {trans_x=false, trans_y=false}
    Out=[p] = c_allreduce_avg(X=[p]) {ring_id=0, use_calc_stream=true}
    Q=[q], R=[r] = qr(X=[p])
    Out=[basis_w] = matmul_v2(X=[kept_w], Y=[q]) {trans_x=true, trans_y=false}
    Out=[basis_w] = c_allreduce_avg(X=[basis_w]) {ring_id=0, use_calc_stream=true}
    Out=[sent_w] = matmul_v2(X=[q], Y=[basis_w]) {trans_x=false, trans_y=true}
    Out=[kept_w] = elementwise_sub(X=[kept_w], Y=[sent_w]) {axis=-1}
  }
})";

constexpr absl::string_view kStartup = R"(program {
  block 0 parent=-1 {
    var v : fp32[4, 3] parameter persistable
    var w : fp32[4, 3] parameter persistable
    var lr : fp32[1] persistable
    var kept_v : fp32[4, 3] persistable
    var kept_w : fp32[4, 3] persistable
    var basis_v : fp32[3, 1] persistable
    var basis_w : fp32[3, 1] persistable
    var step : int64[1] persistable
    Out=[v] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[kept_v] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.0}
    Out=[kept_w] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.0}
    Out=[basis_v] = gaussian_random() {shape=longs[3, 1], dtype=5, seed=1}
    Out=[basis_w] = gaussian_random() {shape=longs[3, 1], dtype=5, seed=2}
    c_comm_init_all() {ring_id=0}
  }
})";

std::vector<std::string> Found(const Edits& edits, const Edits& of_startup = {},
                               const LowRankGradients& claim = {3, {"kept_v", "kept_w"}},
                               int nranks = 4) {
  const Program program = ProgramOf(kPowerSgd, edits), startup = ProgramOf(kStartup, of_startup);
  VerifyOptions options = ForRanks(nranks);
  options.setting.low_rank = claim;
  return AllLines(Verify({{&program, &startup}}, options));
}

std::vector<std::string> ErrorsOf(const Edits& edits, const Edits& of_startup = {},
                                  const LowRankGradients& claim = {3, {"kept_v", "kept_w"}},
                                  int nranks = 4) {
  std::vector<std::string> errors;
  for (const std::string& line : Found(edits, of_startup, claim, nranks)) {
    if (absl::StartsWith(line, "error: ")) errors.push_back(line);
  }
  return errors;
}

auto HasError(absl::string_view rule, absl::string_view text) {
  return Contains(AllOf(StartsWith(absl::StrCat("error: ", rule)), HasSubstr(std::string(text))));
}

TEST(LowRankGradients, WhatIsSentAndWhatIsKeptAreTheGradient) {
  EXPECT_THAT(ErrorsOf({}), IsEmpty());
  EXPECT_THAT(Found({}), Contains(AllOf(StartsWith("note: W714"),
                                        HasSubstr("from step 3 on, ranks send approximations of 2 "
                                                  "gradients"))));
}

TEST(LowRankGradients, OneRankKeepsWhatItDoesNotUse) {
  const LowRankGradients claim = {3, {"kept_v", "kept_w"}};
  EXPECT_THAT(ErrorsOf({}, {}, claim, 1), IsEmpty());
  EXPECT_THAT(
      ErrorsOf({{"    Out=[kept_v] = elementwise_sub(X=[kept_v], Y=[sent_v]) {axis=-1}\n", ""}}, {},
               claim, 1),
      HasError("W319", "what is sent and what is kept are not the gradient"));
}

TEST(LowRankGradients, AnyOpMayMultiply) {
  EXPECT_THAT(
      ErrorsOf(
          {{"trans_x=", "transpose_X="}, {"trans_y=", "transpose_Y="}, {"matmul_v2(", "matmul("}}),
      IsEmpty());
}

TEST(LowRankGradients, NothingIsReducedTwice) {
  for (const std::string& line : Found({})) {
    EXPECT_FALSE(absl::StartsWith(line, "warning: ")) << line;
  }
}

TEST(LowRankGradients, WhatIsNotSentIsKept) {
  const char* const not_all = "what is sent and what is kept are not the gradient";
  // Nothing is kept, too much, the sum of both, what another gradient lacks.
  EXPECT_THAT(ErrorsOf({{"    Out=[kept_v] = elementwise_sub(X=[kept_v], Y=[sent_v]) {axis=-1}\n",
                         "    Out=[kept_v] = scale(X=[kept_v]) {scale=0.0}\n"}}),
              HasError("W319", "residual kept_v: "));
  EXPECT_THAT(
      ErrorsOf({{"    Out=[kept_v] = elementwise_sub(X=[kept_v], Y=[sent_v]) {axis=-1}\n", ""}}),
      HasError("W319", not_all));
  EXPECT_THAT(ErrorsOf({{"Out=[kept_v] = elementwise_sub(X=[kept_v], Y=[sent_v])",
                         "Out=[kept_v] = elementwise_add(X=[kept_v], Y=[sent_v])"}}),
              HasError("W319", not_all));
  EXPECT_THAT(ErrorsOf({{"Out=[kept_w] = elementwise_sub(X=[kept_w], Y=[sent_w])",
                         "Out=[kept_w] = elementwise_sub(X=[kept_w], Y=[sent_v])"}}),
              HasError("W319", not_all));
  // What was kept before is lost.
  EXPECT_THAT(ErrorsOf({{"Out=[kept_v] = elementwise_add(X=[kept_v], Y=[v@GRAD]) {axis=-1}",
                         "Out=[kept_v] = assign(X=[v@GRAD])"}}),
              HasError("W319", not_all));
  // An optimizer takes something else than what is sent.
  EXPECT_THAT(
      ErrorsOf({{"Out=[v@GRAD] = assign(X=[sent_v])", "Out=[v@GRAD] = assign(X=[sent_w])"}}),
      HasError("W319", ""));
}

TEST(LowRankGradients, WhatIsSentIsAProjection) {
  EXPECT_THAT(ErrorsOf({{"    Q=[q], R=[r] = qr(X=[p])\n", "    Out=[q] = assign(X=[p])\n"}}),
              HasError("W319", "is not made orthonormal by op qr"));
  EXPECT_THAT(ErrorsOf({{"qr(X=[basis_w])", "qr(X=[basis_v])"}}),
              HasError("W319", "a state that becomes the right matrix"));
  // A basis of zeros would stay so.
  EXPECT_THAT(ErrorsOf({{"    Q=[o], R=[r] = qr(X=[basis_w])\n", ""},
                        {"matmul_v2(X=[kept_w], Y=[o])", "matmul_v2(X=[kept_w], Y=[basis_w])"}}),
              HasError("W319", "what op qr makes orthonormal of a state"));
  // The state becomes something else.
  EXPECT_THAT(ErrorsOf({{"    Out=[kept_w] = elementwise_add",
                         "    Out=[basis_v] = scale(X=[basis_v]) {scale=2.0}\n"
                         "    Out=[kept_w] = elementwise_add"}}),
              HasError("W319", "a state that becomes the right matrix"));
  EXPECT_THAT(ErrorsOf({{"Out=[basis_w] = matmul_v2(X=[kept_w], Y=[q])",
                         "Out=[basis_w] = matmul_v2(X=[kept_v], Y=[q])"}}),
              HasError("W319", "times the left matrix"));
}

// Layer 6 takes the gradient for what is sent in its place.
TEST(LowRankGradients, StatesAreMadeOfWhatIsSent) {
  EXPECT_THAT(ErrorsOf({{"    Out=[w@GRAD] = assign(X=[sent_w]) role=backward\n",
                         "    Out=[lost] = elementwise_sub(X=[sent_w], Y=[w@GRAD]) {axis=-1}\n"
                         "    Out=[w@GRAD] = elementwise_add(X=[sent_w], Y=[lost]) role=backward "
                         "{axis=-1}\n"},
                        {"    var first : int64[1]\n",
                         "    var first : int64[1]\n    var lost : fp32[4, 3]\n"}}),
              HasError("W319", "a state is made of the gradient of w itself"));
}

// Before ranks reduce gradients.
std::string Original() {
  std::string text =
      absl::StrReplaceAll(kPowerSgd, {{"    var kept_v : fp32[4, 3] persistable\n", ""},
                                      {"    var kept_w : fp32[4, 3] persistable\n", ""},
                                      {"    var basis_v : fp32[3, 1] persistable\n", ""},
                                      {"    var basis_w : fp32[3, 1] persistable\n", ""},
                                      {"    var step : int64[1] persistable\n", ""}});
  const size_t begin = text.find("    Out=[step] = increment");
  text.erase(begin, text.find("    ParamOut=[v] = sgd") - begin);
  text.erase(text.find("  block 1 parent=0"));
  return text + "}";
}

// Layer 6 compares all but what is claimed.
TEST(LowRankGradients, AllElseIsThatOfTheOriginal) {
  const Program original = ProgramOf(Original()), startup = ProgramOf(kStartup);
  VerifyOptions options = ForRanks(4);
  options.setting.low_rank = LowRankGradients{3, {"kept_v", "kept_w"}};
  options.original = {&original, nullptr};
  const auto errors = [&](const Edits& edits) {
    const Program program = ProgramOf(kPowerSgd, edits);
    std::vector<std::string> found = AllLines(Verify({{&program, &startup}}, options));
    found.erase(
        std::remove_if(found.begin(), found.end(),
                       [](const std::string& line) { return !absl::StartsWith(line, "error: "); }),
        found.end());
    return found;
  };
  EXPECT_THAT(errors({}), IsEmpty());
  EXPECT_THAT(
      errors({{"    Out=[o] = elementwise_add(X=[h], Y=[k]) {axis=-1}\n",
               "    Out=[o] = elementwise_sub(X=[h], Y=[k]) {axis=-1}\n"},
              {"mul_grad(X=[x], Y=[v], Out@GRAD=[g])", "mul_grad(X=[x], Y=[w], Out@GRAD=[g])"}}),
      HasError("W601", "variable v"));
  EXPECT_THAT(errors({{"    Out=[v@GRAD] = assign(X=[sent_v]) role=backward\n",
                       "    Out=[v@GRAD] = scale(X=[sent_v]) role=backward {scale=2.0}\n"}}),
              HasError("W601", "variable v"));
}

TEST(LowRankGradients, ResidualsLast) {
  EXPECT_THAT(ErrorsOf({{"var kept_v : fp32[4, 3] persistable", "var kept_v : fp32[4, 3]"}}),
              HasError("W319", "residual kept_v: it is not persistable"));
  EXPECT_THAT(
      ErrorsOf({}, {{"Out=[kept_w] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.0}",
                     "Out=[kept_w] = fill_constant() {shape=longs[4, 3], dtype=5, "
                     "value=1.0}"}}),
      HasError("W319", "residual kept_w: it begins with other values than zeros"));
}

TEST(LowRankGradients, AllThatIsClaimedIsThere) {
  EXPECT_THAT(ErrorsOf({}, {}, {3, {"kept_v"}}), HasError("W319", "no residual keeps the rest"));
  EXPECT_THAT(ErrorsOf({}, {}, {3, {"kept_u", "kept_v", "kept_w"}}),
              ElementsAre(HasSubstr("residual kept_u: the program does not have it")));
  EXPECT_THAT(ErrorsOf({}, {}, {3, {"basis_w", "kept_v", "kept_w"}}),
              HasError("W319", "residual basis_w"));
}

TEST(LowRankGradients, FirstStepsAreWhole) {
  EXPECT_THAT(ErrorsOf({}, {}, {2, {"kept_v", "kept_w"}}),
              HasError("W319", "does not hold in step 2, expected from step 2 on"));
  EXPECT_THAT(ErrorsOf({}, {}, {4, {"kept_v", "kept_w"}}),
              HasError("W319", "holds in step 3, expected from step 4 on"));
  EXPECT_THAT(ErrorsOf({{"greater_equal(X=[step]", "equal(X=[step]"}}),
              HasError("W319", "does not hold in step 4, expected from step 3 on"));
  EXPECT_THAT(ErrorsOf({{"    Out=[step] = increment(X=[step]) {step=1.0}\n", ""}}),
              HasError("W319", ""));
  // In the early steps, ranks do not share the gradient.
  EXPECT_THAT(ErrorsOf({{"    Out=[sent_w] = c_allreduce_avg(X=[sent_w]) {ring_id=0, "
                         "use_calc_stream=true}\n",
                         ""}}),
              HasError("W31", "w@GRAD"));
}

TEST(LowRankGradients, MatricesAreMeansOverTheRanks) {
  for (const absl::string_view name : {"p", "basis_v"}) {
    const std::string mean = absl::StrCat("    Out=[", name, "] = c_allreduce_avg(X=[", name,
                                          "]) {ring_id=0, use_calc_stream=true}\n");
    const std::string sum = absl::StrReplaceAll(mean, {{"avg", "sum"}});
    EXPECT_THAT(ErrorsOf({{mean, sum}}), HasError("W3", "v@GRAD")) << name;
    EXPECT_THAT(ErrorsOf({{mean, ""}}), HasError("W3", "v@GRAD")) << name;
  }
  EXPECT_THAT(ErrorsOf({{"Out=[p] = c_allreduce_avg(", "Out=[p] = c_allreduce_sum("}}),
              HasError("W319",
                       "op qr takes 4 times the mean of what ranks project their gradients to: "
                       "average over the ranks instead of a sum"));
  // A basis that each rank draws.
  EXPECT_THAT(ErrorsOf({}, {{"gaussian_random() {shape=longs[3, 1], dtype=5, seed=1}",
                             "gaussian_random() {shape=longs[3, 1], dtype=5}"},
                            // Each process runs the startup program.
                            {"    c_comm_init_all() {ring_id=0}\n", ""}}),
              HasError("W3", "v@GRAD"));
}

}  // namespace
}  // namespace weft::testing
