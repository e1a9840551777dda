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
  ExpectRewrite("comm-init,power-sgd{rank_approximation=2,start_step=3}", R"(
    var b : fp32[4] parameter persistable
    var b@GRAD : fp32[4]
    var h : fp32[-1, 5]
    var h@GRAD : fp32[-1, 5]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var lr : fp32[1] persistable
    var m : fp32[-1, 4]
    var m@GRAD : fp32[-1, 4]
    var o : fp32[-1, 4]
    var o@GRAD : fp32[-1, 4]
  + var power_sgd_first : int64[1] stop_gradient
  + var power_sgd_is_early : bool[1] stop_gradient
  + var power_sgd_scope : step_scopes
  + var power_sgd_scope_whole : step_scopes
  + var power_sgd_started : bool[1] stop_gradient
  + var power_sgd_step : int64[1] persistable stop_gradient
    var v : fp32[6, 5] parameter persistable
  + var v@BASIS : fp32[5, 2] persistable stop_gradient
    var v@GRAD : fp32[6, 5]
  + var v@GRAD@SENT : fp32[6, 5]
  + var v@RESIDUAL : fp32[6, 5] persistable stop_gradient
    var w : fp32[5, 4] parameter persistable
  + var w@BASIS : fp32[4, 2] persistable stop_gradient
    var w@GRAD : fp32[5, 4]
  + var w@GRAD@SENT : fp32[5, 4]
  + var w@RESIDUAL : fp32[5, 4] persistable stop_gradient
    var x : fp32[-1, 6] stop_gradient need_check_feed
    Out=[h] = mul(X=[x], Y=[v])
    Out=[m] = mul(X=[h], Y=[w])
    Out=[o] = elementwise_add(X=[m], Y=[b]) {axis=1}
    Out=[loss] = reduce_mean(X=[o]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {value=1.0}
    X@GRAD=[o@GRAD] = reduce_mean_grad(Out@GRAD=[loss@GRAD], X=[o]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[m@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(Out@GRAD=[o@GRAD], X=[m], Y=[b]) role=backward vars=[b, b@GRAD] {axis=1}
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD]) role=backward
    X@GRAD=[h@GRAD], Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[m@GRAD], X=[h], Y=[w]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
  + Out=[power_sgd_step] = increment(X=[power_sgd_step]) role=optimize
  + Out=[power_sgd_first] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="3", value=3.0}
  + Out=[power_sgd_started] = greater_equal(X=[power_sgd_step], Y=[power_sgd_first]) role=optimize
  + Out=[power_sgd_is_early] = logical_not(X=[power_sgd_started]) role=optimize
  + Out=[w@GRAD@SENT, v@GRAD@SENT], Scope=[power_sgd_scope_whole] = conditional_block(Cond=[power_sgd_is_early], Input=[w@GRAD, v@GRAD]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + Out=[w@GRAD@SENT, v@GRAD@SENT, w@RESIDUAL, w@BASIS, v@RESIDUAL, v@BASIS], Scope=[power_sgd_scope] = conditional_block(Cond=[power_sgd_started], Input=[w@GRAD, v@GRAD, w@RESIDUAL, w@BASIS, v@RESIDUAL, v@BASIS]) role=optimize {is_scalar_condition=true, sub_block=block(2)}
  + Out=[w@GRAD] = assign(X=[w@GRAD@SENT]) role=backward
  + Out=[v@GRAD] = assign(X=[v@GRAD@SENT]) role=backward
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize vars=[v, v@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize vars=[w, w@GRAD]
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward {nranks=4, scale=0.25}
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize vars=[b, b@GRAD]
  + block 1 parent=0:
  + var power_sgd_buffer_0 : fp32[128]
  + FusedOutput=[power_sgd_buffer_0], Output=[w@GRAD@SENT, v@GRAD@SENT] = coalesce_tensor(Input=[w@GRAD@SENT, v@GRAD@SENT]) role=optimize {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[5, 4, 6, 5], dtype=5}
  + Out=[w@GRAD@SENT] = assign(X=[w@GRAD]) role=optimize
  + Out=[v@GRAD@SENT] = assign(X=[v@GRAD]) role=optimize
  + Out=[w@GRAD@SENT, v@GRAD@SENT, power_sgd_buffer_0] = c_wait_compute(X=[w@GRAD@SENT, v@GRAD@SENT, power_sgd_buffer_0]) role=optimize
  + Out=[power_sgd_buffer_0] = c_allreduce_sum(X=[power_sgd_buffer_0]) role=optimize
  + Out=[w@GRAD@SENT, v@GRAD@SENT, power_sgd_buffer_0] = c_wait_comm(X=[w@GRAD@SENT, v@GRAD@SENT, power_sgd_buffer_0]) role=optimize
  + Out=[power_sgd_buffer_0] = scale(X=[power_sgd_buffer_0]) role=optimize {nranks=4, scale=0.25}
  + block 2 parent=0:
  + var power_sgd_buffer_1 : fp32[128]
  + var power_sgd_buffer_2 : fp32[128]
  + var power_sgd_left_0 : fp32[5, 2]
  + var power_sgd_left_1 : fp32[6, 2]
  + var power_sgd_orthonormal_0 : fp32[4, 2]
  + var power_sgd_orthonormal_1 : fp32[5, 2]
  + var power_sgd_orthonormal_2 : fp32[5, 2]
  + var power_sgd_orthonormal_3 : fp32[6, 2]
  + var power_sgd_right_0 : fp32[4, 2]
  + var power_sgd_right_1 : fp32[5, 2]
  + var power_sgd_triangle_0 : fp32[2, 2]
  + var power_sgd_triangle_1 : fp32[2, 2]
  + var power_sgd_triangle_2 : fp32[2, 2]
  + var power_sgd_triangle_3 : fp32[2, 2]
  + Out=[w@RESIDUAL] = elementwise_add(X=[w@RESIDUAL], Y=[w@GRAD]) role=optimize
  + Out=[v@RESIDUAL] = elementwise_add(X=[v@RESIDUAL], Y=[v@GRAD]) role=optimize
  + FusedOutput=[power_sgd_buffer_1], Output=[power_sgd_left_0, power_sgd_left_1] = coalesce_tensor(Input=[power_sgd_left_0, power_sgd_left_1]) role=optimize {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[5, 2, 6, 2], dtype=5}
  + FusedOutput=[power_sgd_buffer_2], Output=[power_sgd_right_0, power_sgd_right_1] = coalesce_tensor(Input=[power_sgd_right_0, power_sgd_right_1]) role=optimize {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[4, 2, 5, 2], dtype=5}
  + Q=[power_sgd_orthonormal_0], R=[power_sgd_triangle_0] = qr(X=[w@BASIS]) role=optimize
  + Out=[power_sgd_left_0] = matmul_v2(X=[w@RESIDUAL], Y=[power_sgd_orthonormal_0]) role=optimize
  + Q=[power_sgd_orthonormal_1], R=[power_sgd_triangle_1] = qr(X=[v@BASIS]) role=optimize
  + Out=[power_sgd_left_1] = matmul_v2(X=[v@RESIDUAL], Y=[power_sgd_orthonormal_1]) role=optimize
  + Out=[power_sgd_left_0, power_sgd_left_1, power_sgd_buffer_1] = c_wait_compute(X=[power_sgd_left_0, power_sgd_left_1, power_sgd_buffer_1]) role=optimize
  + Out=[power_sgd_buffer_1] = c_allreduce_sum(X=[power_sgd_buffer_1]) role=optimize
  + Out=[power_sgd_left_0, power_sgd_left_1, power_sgd_buffer_1] = c_wait_comm(X=[power_sgd_left_0, power_sgd_left_1, power_sgd_buffer_1]) role=optimize
  + Out=[power_sgd_buffer_1] = scale(X=[power_sgd_buffer_1]) role=optimize {nranks=4, scale=0.25}
  + Q=[power_sgd_orthonormal_2], R=[power_sgd_triangle_2] = qr(X=[power_sgd_left_0]) role=optimize
  + Out=[power_sgd_right_0] = matmul_v2(X=[w@RESIDUAL], Y=[power_sgd_orthonormal_2]) role=optimize {trans_x=true}
  + Q=[power_sgd_orthonormal_3], R=[power_sgd_triangle_3] = qr(X=[power_sgd_left_1]) role=optimize
  + Out=[power_sgd_right_1] = matmul_v2(X=[v@RESIDUAL], Y=[power_sgd_orthonormal_3]) role=optimize {trans_x=true}
  + Out=[power_sgd_right_0, power_sgd_right_1, power_sgd_buffer_2] = c_wait_compute(X=[power_sgd_right_0, power_sgd_right_1, power_sgd_buffer_2]) role=optimize
  + Out=[power_sgd_buffer_2] = c_allreduce_sum(X=[power_sgd_buffer_2]) role=optimize
  + Out=[power_sgd_right_0, power_sgd_right_1, power_sgd_buffer_2] = c_wait_comm(X=[power_sgd_right_0, power_sgd_right_1, power_sgd_buffer_2]) role=optimize
  + Out=[power_sgd_buffer_2] = scale(X=[power_sgd_buffer_2]) role=optimize {nranks=4, scale=0.25}
  + Out=[w@BASIS] = assign(X=[power_sgd_right_0]) role=optimize
  + Out=[w@GRAD@SENT] = matmul_v2(X=[power_sgd_orthonormal_2], Y=[power_sgd_right_0]) role=optimize {trans_y=true}
  + Out=[w@RESIDUAL] = elementwise_sub(X=[w@RESIDUAL], Y=[w@GRAD@SENT]) role=optimize
  + Out=[v@BASIS] = assign(X=[power_sgd_right_1]) role=optimize
  + Out=[v@GRAD@SENT] = matmul_v2(X=[power_sgd_orthonormal_3], Y=[power_sgd_right_1]) role=optimize {trans_y=true}
  + Out=[v@RESIDUAL] = elementwise_sub(X=[v@RESIDUAL], Y=[v@GRAD@SENT]) role=optimize
startup:
    var b : fp32[4] parameter persistable
    var lr : fp32[1] persistable
  + var power_sgd_step : int64[1] persistable stop_gradient
    var v : fp32[6, 5] parameter persistable
  + var v@BASIS : fp32[5, 2] persistable stop_gradient
  + var v@RESIDUAL : fp32[6, 5] persistable stop_gradient
    var w : fp32[5, 4] parameter persistable
  + var w@BASIS : fp32[4, 2] persistable stop_gradient
  + var w@RESIDUAL : fp32[5, 4] persistable stop_gradient
    Out=[v] = fill_constant() {shape=longs[6, 5], value=0.5}
    Out=[w] = fill_constant() {shape=longs[5, 4], value=0.5}
    Out=[b] = fill_constant() {shape=longs[4]}
    Out=[lr] = fill_constant() {shape=longs[1], value=0.1}
  + c_comm_init_all() {nranks=4}
  + Out=[w@RESIDUAL] = fill_constant() {shape=longs[5, 4]}
  + Out=[w@BASIS] = gaussian_random() {seed=1, shape=longs[4, 2]}
  + Out=[v@RESIDUAL] = fill_constant() {shape=longs[6, 5]}
  + Out=[v@BASIS] = gaussian_random() {seed=2, shape=longs[5, 2]}
  + Out=[power_sgd_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
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

TEST(PowerSgd, WarnsIfAllGradientsTravelWhole) {
  const Rewritten rewritten =
      Rewrite("comm-init,power-sgd{rank_approximation=3}", {kMain, kStartup}, OnRanks(4));
  EXPECT_THAT(
      rewritten.result.messages,
      Contains(::testing::Field(&Message::text, HasSubstr("no gradient is compressed: all 3 travel "
                                                          "whole; the first, b@GRAD: it has shape "
                                                          "[4]"))));
  EXPECT_EQ(CountOf("conditional_block", rewritten.main), 0);
  EXPECT_EQ(CountOf("c_allreduce_sum", rewritten.main), 3);
}

TEST(PowerSgd, RefusesWhatItCannotKeep) {
  const auto refused = [](const std::string& options, const ProgramTexts& programs) {
    return RewriteStatus(absl::StrCat("power-sgd{", options, "}"), programs, OnRanks(4));
  };
  EXPECT_THAT(refused("rank_approximation=1", {kMain}),
              StatusIs(kRefused, HasSubstr("needs the startup program")));
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
TEST(PowerSgd, GradientsOfScaledLossesTravelWhole) {
  const std::string main = absl::StrReplaceAll(
      kMain, {{"    ParamOut=[v]",
               "    Out=[v@GRAD], FoundInfinite=[found] = check_finite_and_unscale(X=[v@GRAD], "
               "Scale=[lr]) role=optimize\n    ParamOut=[v]"},
              {"    var lr : fp32[1] persistable\n",
               "    var lr : fp32[1] persistable\n    var found : bool[1]\n"}});
  EXPECT_THAT(Rewrite("comm-init,power-sgd{rank_approximation=1}", {main, kStartup}, OnRanks(4))
                  .result.messages,
              Contains(::testing::Field(&Message::text, HasSubstr("the loss is scaled"))));
}

}  // namespace
}  // namespace weft::testing
