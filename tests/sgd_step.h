// One step of sgd by the mean of x w, as program text.
#ifndef WEFT_TESTS_SGD_STEP_H_
#define WEFT_TESTS_SGD_STEP_H_

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

// A step on one device; with ops `between` the backward pass, which ends with op 4, and the update
// of parameter w.
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

}  // namespace weft::testing

#endif  // WEFT_TESTS_SGD_STEP_H_
