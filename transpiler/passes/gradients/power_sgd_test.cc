#include "transpiler/passes/gradients/power_sgd.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/all_ops.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr absl::StatusCode kRefused = absl::StatusCode::kFailedPrecondition;

// Two layers, of which the second has a bias.
constexpr char kMain[] = R"(
    var x : fp32[-1, 6] need_check_feed stop_gradient
    var v : fp32[6, 5] parameter persistable
    var w : fp32[5, 4] parameter persistable
    var b : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    Out=[h] = mul(X=[x], Y=[v]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[m] = mul(X=[h], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[o] = elementwise_add(X=[m], Y=[b]) {axis=1}
    Out=[loss] = reduce_mean(X=[o]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[o@GRAD] = reduce_mean_grad(X=[o], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[m@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[m], Y=[b], Out@GRAD=[o@GRAD]) role=backward vars=[b, b@GRAD] {axis=1}
    X@GRAD=[h@GRAD], Y@GRAD=[w@GRAD] = mul_grad(X=[h], Y=[w], Out@GRAD=[m@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[h@GRAD]) role=backward vars=[v, v@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize vars=[v, v@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize vars=[b, b@GRAD]
)";

constexpr char kStartup[] = R"(
    var v : fp32[6, 5] parameter persistable
    var w : fp32[5, 4] parameter persistable
    var b : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    Out=[v] = fill_constant() {shape=longs[6, 5], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[5, 4], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

TEST(PowerSgd, MatricesTravelInBuffers) {
  ExpectRewrite("comm-init,power-sgd{rank_approximation=2,start_step=3}", {kMain, kStartup}, R"(
)",
                OnRanks(4));
}

int CountOf(absl::string_view type, const Program& program) {
  int count = 0;
  for (const Op& op : AllOps(program)) count += op.type() == type ? 1 : 0;
  return count;
}

// An update that needs a gradient before the backward pass goes on.
TEST(PowerSgd, EarlyUsesHaveBlocksOfTheirOwn) {
  std::string main = kMain;
  const std::string update =
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, "
      "w@GRAD]\n";
  main = absl::StrReplaceAll(main, {{update, ""}});
  const size_t next = main.find("    Y@GRAD=[v@GRAD]");
  main.insert(next, update);
  const Rewritten rewritten =
      Rewrite("comm-init,power-sgd{rank_approximation=2}", {main, kStartup}, OnRanks(4));
  EXPECT_EQ(CountOf("conditional_block", rewritten.main), 4);
  EXPECT_EQ(
      CountOf(
          "conditional_block",
          Rewrite("comm-init,power-sgd{rank_approximation=2}", {kMain, kStartup}, OnRanks(4)).main),
      2);
}

TEST(PowerSgd, RemarksSayWhatIsSent) {
  const std::vector<std::string> remarks = RemarkTexts(
      Rewrite("comm-init,power-sgd{rank_approximation=2}", {kMain, kStartup}, OnRanks(4)).result);
  EXPECT_THAT(remarks, Contains("b@GRAD not compressed: it has shape [4]"));
  EXPECT_THAT(remarks, Contains("v@GRAD compressed: two thin matrices are fewer bytes elements=30 "
                                "sent=22"));
  // 4 + 22 + 18 elements, of 4 + 30 + 20.
  EXPECT_THAT(remarks,
              Contains("communication bytes that a rank gives to collectives: mode grad_allreduce "
                       "gives all gradients to them in every step when=from step 10 on "
                       "bytes_a_step=176 bytes_a_step_of_grad_allreduce=216"));
}

TEST(PowerSgd, RefusesWhatItCannotKeep) {
  const auto refused = [](const std::string& options, const ProgramTexts& programs) {
    return RewriteStatus(absl::StrCat("power-sgd{", options, "}"), programs, OnRanks(4));
  };
  EXPECT_THAT(refused("rank_approximation=3", {kMain, kStartup}),
              StatusIs(kRefused, HasSubstr("found none; the first of 3, b@GRAD: it has shape [4]; "
                                           "a smaller option:rank_approximation")));
  EXPECT_THAT(refused("", {kMain}), StatusIs(kRefused, HasSubstr("needs the startup program")));
  EXPECT_THAT(refused("start_step=1", {kMain, kStartup}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("start_step")));
  EXPECT_THAT(refused("rank_approximation=1",
                      {absl::StrReplaceAll(kMain, {{"reduce_mean", "reduce_sum"}}), kStartup}),
              StatusIs(kRefused, HasSubstr("expected the gradients of losses that are means")));
  EXPECT_THAT(RewriteStatus("grad-all-reduce,power-sgd{rank_approximation=1}", {kMain, kStartup},
                            OnRanks(4)),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

// What is kept would be of another scale in the next step.
TEST(PowerSgd, RefusesScaledLosses) {
  const std::string main = absl::StrReplaceAll(
      kMain, {{"    ParamOut=[v]",
               "    Out=[v@GRAD], FoundInfinite=[found] = check_finite_and_unscale(X=[v@GRAD], "
               "Scale=[lr]) role=optimize\n    ParamOut=[v]"},
              {"    var lr : fp32[1] persistable\n",
               "    var lr : fp32[1] persistable\n    var found : bool[1]\n"}});
  EXPECT_THAT(RewriteStatus("power-sgd{rank_approximation=1}", {main, kStartup}, OnRanks(4)),
              StatusIs(kRefused, HasSubstr("the loss is scaled")));
}

}  // namespace
}  // namespace weft::testing
