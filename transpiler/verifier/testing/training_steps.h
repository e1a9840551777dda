// Training steps with one parameter, as program text.
#ifndef WEFT_TRANSPILER_VERIFIER_TESTING_TRAINING_STEPS_H_
#define WEFT_TRANSPILER_VERIFIER_TESTING_TRAINING_STEPS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft::testing {

// Ops that average gradient w@GRAD over the ranks, on the stream of ring 0.
inline constexpr char kWaitCompute[] =
    "    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward {ring_id=0}\n";
inline constexpr char kAllReduce[] =
    "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0, "
    "use_calc_stream=false}\n";
inline constexpr char kWaitComm[] =
    "    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward {ring_id=0}\n";

// A step of sgd by the mean of x w on one device; with ops `between` the backward pass, which ends
// with op 4, and the update of parameter w.
inline std::string SgdStepText(absl::string_view between = "") {
  return absl::StrCat(
      R"(program version=2006002 {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var y : fp32[-1, 1]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var y@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[4, 1]
    Out=[y] = mul(X=[x], Y=[w]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[loss] = reduce_mean(X=[y]) role=forward|loss {dim=ints[0], keep_dim=false, reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {dtype=5, shape=longs[], value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(Out@GRAD=[loss@GRAD], X=[y]) role=backward {dim=ints[0], keep_dim=false, reduce_all=true}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
)",
      between,
      R"(    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize vars=[w, w@GRAD]
  }
})");
}

// The pieces of a smaller step, whose loss is the sum of x w: OneDeviceStep puts them together.
inline constexpr char kStepVars[] = R"(
    var x : fp32[4, 1] need_check_feed
    var w : fp32[1, 1] parameter persistable
    var lr : fp32[1] persistable
)";
inline constexpr char kStepLossGrad[] =
    "    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 1], dtype=5, "
    "value=1.0}\n";
inline constexpr char kStepBackward[] =
    "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n";
inline constexpr char kStepUpdate[] =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";

// Ops that divide by 2 ranks, and that sum over them, on the compute stream.
inline constexpr char kStepDivide[] =
    "    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5, nranks=2}\n";
inline constexpr char kStepSum[] =
    "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n";

// With ops before the update, and after it.
inline std::string OneDeviceStep(absl::string_view before_update = "",
                                 absl::string_view after_update = "",
                                 absl::string_view more_vars = "") {
  return absl::StrCat(kStepVars, more_vars, kStepLossGrad, kStepBackward, before_update,
                      kStepUpdate, after_update);
}

// The right rewrite for 2 ranks: divided, summed, used.
inline std::string TwoRankStep() {
  return absl::StrCat(kStepVars, kStepLossGrad, kStepDivide, kStepBackward, kStepSum, kStepUpdate);
}

// LocalSGD: averages parameter w in every other step, on a condition.
inline constexpr absl::string_view kEveryOtherStep = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    var step : int64[1] persistable
    var k : int64[1]
    var none : int64[1]
    var rest : int64[1]
    var due : bool[1]
    var scope : step_scopes
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=2.0}
    Out=[none] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) {axis=-1}
    Out=[due] = equal(X=[rest], Y=[none])
    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[step] = increment(X=[step]) {step=1.0}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})";

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_VERIFIER_TESTING_TRAINING_STEPS_H_
