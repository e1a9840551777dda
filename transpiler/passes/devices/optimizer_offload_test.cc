#include "transpiler/passes/devices/optimizer_offload.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

constexpr char kUpdate[] = R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    Out=[w_1@GRAD] = scale(X=[g]) role=backward vars=[w_1, w_1@GRAD] {scale=3.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w_1] = sgd(Param=[w_1], Grad=[w_1@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(OptimizerOffload, UpdatesThatMatchGoToTheHost) {
  ExpectRewrite("optimizer-offload{offload_params=w_*}", kUpdate, R"(
  - ParamOut=[w_1] = sgd(Param=[w_1], Grad=[w_1@GRAD], LearningRate=[lr]) role=optimize
  + ParamOut=[w_1] = sgd(Param=[w_1], Grad=[w_1@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

TEST(OptimizerOffload, StatesAloneReturnWhatTheParameterChangesBy) {
  ExpectRewrite("optimizer-offload{offload_params=w,offload=states}", kUpdate,
                R"(
  + var w@DELTA : fp32[2, 2]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + ParamOut=[w@DELTA] = sgd(Param=[w@DELTA], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  + Out=[w] = elementwise_add(X=[w], Y=[w@DELTA]) role=optimize
  )");
}

TEST(OptimizerOffload, GradientsMayGoToTheHostInHalfPrecision) {
  ExpectRewrite("optimizer-offload{offload_params=w,gradient_copy=fp16}", kUpdate, R"(
  + var w@GRAD@FP16 : fp16[2, 2]
  + var w@GRAD@ROUNDED : fp32[2, 2]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@GRAD@FP16] = cast(X=[w@GRAD]) role=optimize {in_dtype=5, out_dtype=4}
  + Out=[w@GRAD@ROUNDED] = cast(X=[w@GRAD@FP16]) role=optimize {in_dtype=4, out_dtype=5, op_device="cpu"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD@ROUNDED], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

// The update of w by an optimizer with two moments.
std::string AdamLike(absl::string_view type, absl::string_view attrs) {
  return absl::StrCat(
      "    Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = ", type,
      "(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], "
      "Param=[w]) role=optimize {",
      attrs, "}\n");
}
constexpr char kGradient[] = R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
)";

TEST(OptimizerOffload, DecayOfAdamWStaysOnTheAccelerator) {
  ExpectRewrite(
      "optimizer-offload{offload=states}",
      absl::StrCat(kGradient, AdamLike("adamw", "coeff=0.5, lr_ratio=0.5, with_decay=true")), R"(
  + var w@DELTA : fp32[2, 2]
  + var w@KEPT_0 : fp32[1]
  - Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {coeff=0.5, lr_ratio=0.5, with_decay=true}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w@DELTA] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w@DELTA]) role=optimize {coeff=0.5, lr_ratio=0.5, with_decay=false, op_device="cpu"}
  + Out=[w@KEPT_0] = scale(X=[lr]) role=optimize {scale=-0.25, bias=1.0}
  + Out=[w] = elementwise_mul(X=[w], Y=[w@KEPT_0]) role=optimize
  + Out=[w] = elementwise_add(X=[w], Y=[w@DELTA]) role=optimize
  )");
}

// What the op does not say is the default of its schema. The learning rate has no dimensions, as
// since Paddle 2.5.
TEST(OptimizerOffload, DefaultDecayOfAdamWStaysOnTheAccelerator) {
  const Program main = Rewrite("optimizer-offload{offload=states}",
                               absl::StrCat("    var lr : fp32[] persistable\n", kGradient,
                                            AdamLike("adamw", "with_decay=true")))
                           .main;
  bool found = false;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() != "scale" || op.FloatAttr("bias").value_or(0) != 1) continue;
    found = true;
    EXPECT_FLOAT_EQ(static_cast<float>(*op.FloatAttr("scale")), -0.01f);
    const Var kept = main.var(main.block(0).FindVar(op.output_args()[0]));
    EXPECT_EQ(DeclaredType(kept)->dims, Dims());
  }
  EXPECT_TRUE(found);
}

TEST(OptimizerOffload, NormsOfLambStayOnTheAccelerator) {
  ExpectRewrite("optimizer-offload{offload=states}",
                absl::StrCat(kGradient, AdamLike("lamb", "weight_decay=0.5")), R"(
  + var w@DELTA, w@DIRECTION_0 : fp32[2, 2]
  + var w@LEAST_NORM_0, w@NORM_0, w@NORM_1, w@ONE_0, w@RATE_0, w@RATIO_0 : fp32[1]
  + var w@SCALES_0 : bool[1]
  + var w@STEP_0, w@ZERO_0 : fp32[1]
  - Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = lamb(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {weight_decay=0.5}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Out=[w@RATE_0] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=1.0, op_device="cpu"}
  + Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w@DELTA] = adam(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[w@RATE_0], Moment1=[m], Moment2=[v], Param=[w@DELTA]) role=optimize {epsilon=0.000001, op_device="cpu"}
  + Out=[w@DIRECTION_0] = scale(X=[w]) role=optimize {scale=0.5}
  + Out=[w@DIRECTION_0] = elementwise_sub(X=[w@DIRECTION_0], Y=[w@DELTA]) role=optimize
  + Out=[w@NORM_0] = squared_l2_norm(X=[w]) role=optimize
  + Out=[w@NORM_1] = squared_l2_norm(X=[w@DIRECTION_0]) role=optimize
  + Out=[w@LEAST_NORM_0] = elementwise_min(X=[w@NORM_0], Y=[w@NORM_1]) role=optimize
  + Out=[w@ZERO_0] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=0.0}
  + Out=[w@ONE_0] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=1.0}
  + Out=[w@SCALES_0] = greater_than(X=[w@LEAST_NORM_0], Y=[w@ZERO_0]) role=optimize
  + Out=[w@RATIO_0] = elementwise_div(X=[w@NORM_0], Y=[w@NORM_1]) role=optimize
  + Out=[w@RATIO_0] = sqrt(X=[w@RATIO_0]) role=optimize
  + Out=[w@RATIO_0] = where(Condition=[w@SCALES_0], X=[w@RATIO_0], Y=[w@ONE_0]) role=optimize
  + Out=[w@STEP_0] = elementwise_mul(X=[w@RATIO_0], Y=[lr]) role=optimize
  + Out=[w@DIRECTION_0] = elementwise_mul(X=[w@DIRECTION_0], Y=[w@STEP_0]) role=optimize
  + Out=[w] = elementwise_sub(X=[w], Y=[w@DIRECTION_0]) role=optimize
  )");
}

TEST(OptimizerOffload, RegularizationOfMomentumStaysOnTheAccelerator) {
  ExpectRewrite("optimizer-offload{offload=states}", absl::StrCat(kGradient, R"(
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_coeff=0.5, regularization_method="l2_decay", rescale_grad=0.25}
)"),
                R"(
  + var w@DECAYED, w@DELTA, w@RESCALED_0 : fp32[2, 2]
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_coeff=0.5, regularization_method="l2_decay", rescale_grad=0.25}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Out=[w@RESCALED_0] = scale(X=[w@GRAD]) role=optimize {scale=0.25}
  + Out=[w@DECAYED] = scale(X=[w]) role=optimize {scale=0.5}
  + Out=[w@DECAYED] = elementwise_add(X=[w@RESCALED_0], Y=[w@DECAYED]) role=optimize
  + ParamOut=[w@DELTA], VelocityOut=[v] = momentum(Param=[w@DELTA], Grad=[w@DECAYED], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_coeff=0.0, regularization_method="", rescale_grad=1.0, op_device="cpu"}
  + Out=[w] = elementwise_add(X=[w], Y=[w@DELTA]) role=optimize
  )");
}

// The ops of the program, without new constants.
std::vector<std::string> OpsOf(const std::string& passes, const std::string& text) {
  const Program main = Rewrite(passes, text).main;
  std::vector<std::string> found;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() == "fill_constant") continue;
    found.push_back(absl::StrCat(op.type(), " ", main.name(op.output_args()[0])));
  }
  return found;
}

std::string RegularizedUpdate(absl::string_view param) {
  return absl::StrReplaceAll(
      "    ParamOut=[PARAM], VelocityOut=[PARAM_v] = momentum(Param=[PARAM], Grad=[PARAM@GRAD], "
      "LearningRate=[lr], Velocity=[PARAM_v]) role=optimize {mu=0.9, regularization_coeff=0.5, "
      "regularization_method=\"l2_decay\"}\n",
      {{"PARAM", param}});
}

TEST(OptimizerOffload, RegularizationComesBeforeTheFirstUpdate) {
  const std::string gradients = R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
)";
  const std::string last =
      "    Out=[w_1@GRAD] = scale(X=[g]) role=backward vars=[w_1, w_1@GRAD] {scale=3.0}\n";
  EXPECT_THAT(
      OpsOf("optimizer-offload{offload=states}",
            absl::StrCat(gradients, last, RegularizedUpdate("w"), RegularizedUpdate("w_1"))),
      ElementsAre("scale w@GRAD", "scale w_1@GRAD", "scale w@DECAYED", "elementwise_add w@DECAYED",
                  "scale w_1@DECAYED", "elementwise_add w_1@DECAYED", "momentum w@DELTA",
                  "elementwise_add w", "momentum w_1@DELTA", "elementwise_add w_1"));
  // Not before its gradient is complete.
  EXPECT_THAT(
      OpsOf("optimizer-offload{offload=states}",
            absl::StrCat(gradients, RegularizedUpdate("w"), last, RegularizedUpdate("w_1"))),
      ElementsAre("scale w@GRAD", "scale w@DECAYED", "elementwise_add w@DECAYED",
                  "momentum w@DELTA", "elementwise_add w", "scale w_1@GRAD", "scale w_1@DECAYED",
                  "elementwise_add w_1@DECAYED", "momentum w_1@DELTA", "elementwise_add w_1"));
  // Not before its parameter is what the update reads.
  EXPECT_THAT(
      OpsOf("optimizer-offload{offload=states}",
            absl::StrCat(gradients, last, RegularizedUpdate("w"),
                         "    Out=[w_1] = scale(X=[w_1]) role=optimize {scale=0.5}\n",
                         RegularizedUpdate("w_1"))),
      ElementsAre("scale w@GRAD", "scale w_1@GRAD", "scale w@DECAYED", "elementwise_add w@DECAYED",
                  "momentum w@DELTA", "elementwise_add w", "scale w_1", "scale w_1@DECAYED",
                  "elementwise_add w_1@DECAYED", "momentum w_1@DELTA", "elementwise_add w_1"));
}

// The buffer of the gradients is reduced between the updates.
TEST(OptimizerOffload, RegularizationComesAfterTheReductionOfTheGradient) {
  EXPECT_THAT(
      OpsOf("optimizer-offload{offload=states}",
            absl::StrCat(R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    FusedOutput=[fused], Output=[w_1@GRAD] = coalesce_tensor(Input=[w_1@GRAD]) role=backward {dtype=5, use_align=true, align_size=256, concated_ranks=longs[2], concated_shapes=longs[2, 2]}
    Out=[w_1@GRAD] = scale(X=[g]) role=backward vars=[w_1, w_1@GRAD] {scale=3.0}
)",
                         RegularizedUpdate("w"),
                         "    Out=[fused] = scale(X=[fused]) role=backward {scale=0.5}\n",
                         RegularizedUpdate("w_1"))),
      ElementsAre("scale w@GRAD", "coalesce_tensor fused", "scale w_1@GRAD", "scale w@DECAYED",
                  "elementwise_add w@DECAYED", "momentum w@DELTA", "elementwise_add w",
                  "scale fused", "scale w_1@DECAYED", "elementwise_add w_1@DECAYED",
                  "momentum w_1@DELTA", "elementwise_add w_1"));
}

TEST(OptimizerOffload, ChangeThatDependsOnTheParameterIsRefused) {
  const auto refused = [](const std::string& update) {
    return RewriteStatus("optimizer-offload{offload=states}", absl::StrCat(kGradient, update));
  };
  EXPECT_THAT(
      refused("    ParamOut=[w], VelocityOut=[v] = lars_momentum(Param=[w], Grad=[w@GRAD], "
              "LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9}\n"),
      IsFailedPrecondition(
          "offload=states cannot: what it changes may depend on the parameter; use offload=full"));
  EXPECT_THAT(refused("    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], "
                      "LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, "
                      "regularization_method=\"l1_decay\", regularization_coeff=0.5}\n"),
              IsFailedPrecondition("its regularization is l1_decay"));
  EXPECT_THAT(RewriteStatus("optimizer-offload{offload=states}", R"(
    var w@GRAD : selected_rows<fp32[2, 2]> need_check_feed
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_method="l2_decay", regularization_coeff=0.5}
)"),
              IsFailedPrecondition("it adds the parameter to a gradient with rows"));
  EXPECT_THAT(refused(AdamLike("adamw", "coeff=0.5, lazy_mode=true, with_decay=true")),
              IsFailedPrecondition("(lazy_mode)"));
}

constexpr char kHalf[] = R"(
    var g : fp16[2, 2] need_check_feed
    var w : fp16[2, 2] parameter persistable
    var v : fp16[2, 2] persistable
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9}
)";

TEST(OptimizerOffload, ParametersInHalfPrecisionGetMasterWeightsAndState) {
  const std::string startup = R"(
    var lr : fp32[1] persistable
    var w : fp16[2, 2] parameter persistable
    var v : fp16[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";
  ExpectRewrite("optimizer-offload", {kHalf, startup}, R"(
  - var v : fp16[2, 2] persistable
  + var v, w@MASTER : fp32[2, 2] persistable
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9}
  + MasterParamOut=[w@MASTER], ParamOut=[w], VelocityOut=[v] = momentum(Grad=[w@GRAD], LearningRate=[lr], MasterParam=[w@MASTER], Param=[w], Velocity=[v]) role=optimize {mu=0.9, multi_precision=true, op_device="cpu"}
    startup:
  - var v : fp16[2, 2] persistable
  + var v, w@MASTER : fp32[2, 2] persistable
  - Out=[v] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.0}
  + Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
  + Out=[w@MASTER] = cast(X=[w]) {in_dtype=4, out_dtype=5}
  )");
}

// They are not rounded, which the verifier takes for another computation unless the pass says so.
TEST(OptimizerOffload, MadeMasterWeightsChangeTheComputation) {
  Program main = testing::CompactProgram(kHalf);
  Program startup = testing::CompactProgram(R"(
    var lr : fp32[1] persistable
    var w : fp16[2, 2] parameter persistable
    var v : fp16[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)");
  ProgramPair programs{&main, &startup};
  TranspileOptions options;
  options.passes = "optimizer-offload,hetero-partition{place=op_device}";
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Transpile(options, programs));
  EXPECT_EQ(result.claims.computation, Claims::Computation::kChanged);
  // Of other programs, the computation is compared.
  Program other = testing::CompactProgram(kUpdate);
  ProgramPair others{&other, nullptr};
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult same, Transpile(options, others));
  EXPECT_EQ(same.claims.computation, Claims::Computation::kPreserved);
}

// Gradients are rounded after the ranks have reduced them, too, and the verifier knows why.
TEST(OptimizerOffload, RoundedGradientsOfRanksAreVerified) {
  for (const char* copy : {"fp16", "bf16"}) {
    Program main = testing::CompactProgram(R"(
    var x, y : fp32[-1, 2] need_check_feed
    Out=[h] = mul(X=[x], Y=[w])
    Out=[d] = elementwise_sub(X=[h], Y=[y])
    Out=[loss] = mean(X=[d]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[d@GRAD] = mean_grad(X=[d], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[h@GRAD] = elementwise_sub_grad(X=[h], Y=[y], Out@GRAD=[d@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
    )");
    ProgramPair programs{&main, nullptr};
    TranspileOptions options;
    options.mode = "optimizer_offload";
    options.mode_flags["gradient_copy"] = copy;
    options.cluster.nranks = 2;
    WEFT_EXPECT_OK(Transpile(options, programs).status()) << copy;
  }
}

TEST(OptimizerOffload, MasterWeightsThatCannotBeMadeAreRefused) {
  EXPECT_THAT(RewriteStatus("optimizer-offload", kHalf),
              IsFailedPrecondition("changes the startup program; give it too"));
  EXPECT_THAT(RewriteStatus("optimizer-offload{master_weights=none}", kHalf),
              IsFailedPrecondition("op 1 (momentum) input Velocity (v): expected state in fp32, "
                                   "found fp16; use master_weights=fp32"));
  const std::string adagrad = R"(
    var g : fp16[2, 2] need_check_feed
    var w : fp16[2, 2] parameter persistable
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    MomentOut=[m], ParamOut=[w] = decayed_adagrad(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment=[m]) role=optimize
  )";
  EXPECT_THAT(RewriteStatus("optimizer-offload", adagrad),
              IsFailedPrecondition("op 1 (decayed_adagrad) input Param (w): expected one parameter "
                                   "with master weights, found fp16 and no MasterParam"));
  WEFT_EXPECT_OK(RewriteStatus("optimizer-offload{master_weights=none}", adagrad));
}

// --- Parameters in half precision that stay on the accelerator -----------------------------------

constexpr char kHalfParam[] = R"(
    var g : bf16[2, 2] need_check_feed
    var w : bf16[2, 2] parameter persistable
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
)";

TEST(OptimizerOffload, ChangeIsRoundedOnTheHostWhereItIsOnlyAdded) {
  ExpectRewrite("optimizer-offload{offload=states,master_weights=none}",
                absl::StrCat(kHalfParam, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)"),
                R"(
  + var w@DELTA : fp32[2, 2]
  + var w@SENT_0 : bf16[2, 2]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + ParamOut=[w@DELTA] = sgd(Param=[w@DELTA], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  + Out=[w@SENT_0] = cast(X=[w@DELTA]) role=optimize {in_dtype=5, out_dtype=22, op_device="cpu"}
  + Out=[w] = elementwise_add(X=[w], Y=[w@SENT_0]) role=optimize
  )");
}

TEST(OptimizerOffload, DecayOfAParameterInHalfPrecisionIsComputedInFp32) {
  ExpectRewrite("optimizer-offload{offload=states,master_weights=none}",
                absl::StrCat(kHalfParam, AdamLike("adamw", "coeff=0.5, with_decay=true")), R"(
  + var w@DELTA, w@FP32_0 : fp32[2, 2]
  + var w@KEPT_0 : fp32[1]
  - Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {coeff=0.5, with_decay=true}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w@DELTA] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w@DELTA]) role=optimize {coeff=0.5, with_decay=false, op_device="cpu"}
  + Out=[w@FP32_0] = cast(X=[w]) role=optimize {in_dtype=22, out_dtype=5}
  + Out=[w@KEPT_0] = scale(X=[lr]) role=optimize {scale=-0.5, bias=1.0}
  + Out=[w@FP32_0] = elementwise_mul(X=[w@FP32_0], Y=[w@KEPT_0]) role=optimize
  + Out=[w@FP32_0] = elementwise_add(X=[w@FP32_0], Y=[w@DELTA]) role=optimize
  + Out=[w] = cast(X=[w@FP32_0]) role=optimize {in_dtype=5, out_dtype=22}
  )");
}

TEST(OptimizerOffload, MasterWeightStaysOnTheAcceleratorWithItsParameter) {
  ExpectRewrite("optimizer-offload{offload=states}",
                {absl::StrCat(kHalfParam, R"(
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_coeff=0.5, regularization_method="l2_decay"}
)"),
                 R"(
    var lr : fp32[1] persistable
    var w : bf16[2, 2] parameter persistable
    var v : fp32[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=22, value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
)"},
                R"(
  + var w@DECAYED, w@DELTA, w@FP32_GRAD_0 : fp32[2, 2]
  + var w@MASTER : fp32[2, 2] persistable
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, regularization_coeff=0.5, regularization_method="l2_decay"}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Out=[w@FP32_GRAD_0] = cast(X=[w@GRAD]) role=optimize {in_dtype=22, out_dtype=5}
  + Out=[w@DECAYED] = scale(X=[w@MASTER]) role=optimize {scale=0.5}
  + Out=[w@DECAYED] = elementwise_add(X=[w@FP32_GRAD_0], Y=[w@DECAYED]) role=optimize
  + ParamOut=[w@DELTA], VelocityOut=[v] = momentum(Grad=[w@DECAYED], LearningRate=[lr], Param=[w@DELTA], Velocity=[v]) role=optimize {mu=0.9, multi_precision=false, regularization_coeff=0.0, regularization_method="", rescale_grad=1.0, op_device="cpu"}
  + Out=[w@MASTER] = elementwise_add(X=[w@MASTER], Y=[w@DELTA]) role=optimize
  + Out=[w] = cast(X=[w@MASTER]) role=optimize {in_dtype=5, out_dtype=22}
    startup:
  + var w@MASTER : fp32[2, 2] persistable
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w@MASTER] = cast(X=[w]) {in_dtype=22, out_dtype=5}
  )");
}

// --- Updates that may be skipped -----------------------------------------------------------------

TEST(OptimizerOffload, DecayOfASkippedUpdateHasALearningRateOfZero) {
  ExpectRewrite(
      "optimizer-offload{offload=states}",
      absl::StrCat("    var found : bool[1] need_check_feed\n", kGradient,
                   absl::StrReplaceAll(AdamLike("adamw", "coeff=0.5, with_decay=true"),
                                       {{"Param=[w])", "Param=[w], SkipUpdate=[found])"}})),
      R"(
  + var w@APPLIES_0 : fp32[1]
  + var w@DELTA : fp32[2, 2]
  + var w@KEPT_0, w@RATE_0 : fp32[1]
  - Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w], SkipUpdate=[found]) role=optimize {coeff=0.5, with_decay=true}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Out=[w@APPLIES_0] = cast(X=[found]) role=optimize {in_dtype=0, out_dtype=5}
  + Out=[w@APPLIES_0] = scale(X=[w@APPLIES_0]) role=optimize {scale=-1.0, bias=1.0}
  + Out=[w@RATE_0] = elementwise_mul(X=[w@APPLIES_0], Y=[lr]) role=optimize
  + Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w@DELTA] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w@DELTA], SkipUpdate=[found]) role=optimize {coeff=0.5, with_decay=false, op_device="cpu"}
  + Out=[w@KEPT_0] = scale(X=[w@RATE_0]) role=optimize {scale=-0.5, bias=1.0}
  + Out=[w] = elementwise_mul(X=[w], Y=[w@KEPT_0]) role=optimize
  + Out=[w] = elementwise_add(X=[w], Y=[w@DELTA]) role=optimize
  )");
}

std::string InBranch(const std::string& update) {
  return absl::StrCat(R"(
    var g : fp32[2, 2] need_check_feed
    var w : fp32[2, 2] parameter persistable
    var due : bool[1] need_check_feed
    var scope : step_scopes
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    block 1:
)",
                      update);
}

TEST(OptimizerOffload, OptionsThatWouldChangeUpdatesOfBranchesAreRefused) {
  const auto refused = [](absl::string_view options, const std::string& program) {
    return RewriteStatus(absl::StrCat("optimizer-offload", options), program);
  };
  const std::string adam = InBranch(AdamLike("adam", "beta1=0.9"));
  WEFT_EXPECT_OK(refused("", adam));
  EXPECT_THAT(refused("{bias_correction=false}", adam),
              IsFailedPrecondition("bias_correction=false takes updates of the root block"));
  std::string half = InBranch(
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n");
  half = absl::StrReplaceAll(half, {{"fp32[2, 2]", "fp16[2, 2]"}});
  EXPECT_THAT(refused("", half),
              IsFailedPrecondition("updates of the root block alone are given master weights"));
  WEFT_EXPECT_OK(refused("{master_weights=none}", half));
}

TEST(OptimizerOffload, BranchOnTheHostTakesTheChangeOfItsParameter) {
  const std::string decayed = AdamLike("adamw", "coeff=0.5, with_decay=true");
  ExpectRewrite("optimizer-offload{offload=states}", InBranch(decayed), R"(
  + var w@APPLIES_0 : fp32[1]
  + var w@DELTA : fp32[2, 2]
  + var w@KEPT_0, w@RATE_0 : fp32[1]
  - Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
  + Out=[w@APPLIES_0] = cast(X=[due]) role=optimize {in_dtype=0, out_dtype=5}
  + Out=[w@RATE_0] = elementwise_mul(X=[w@APPLIES_0], Y=[lr]) role=optimize
  + Out=[w@DELTA], Scope=[scope] = conditional_block(Cond=[due], Input=[w@DELTA, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1), op_device="cpu"}
  + Out=[w@KEPT_0] = scale(X=[w@RATE_0]) role=optimize {scale=-0.5, bias=1.0}
  + Out=[w] = elementwise_mul(X=[w], Y=[w@KEPT_0]) role=optimize
  + Out=[w] = elementwise_add(X=[w], Y=[w@DELTA]) role=optimize
    block 1:
  - Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {coeff=0.5, with_decay=true}
  + Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w@DELTA] = adamw(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w@DELTA]) role=optimize {coeff=0.5, with_decay=false}
  )");
}

TEST(OptimizerOffload, GradientsOfABranchAreMergedOnTheHost) {
  constexpr char kVariables[] = R"(
    var due : bool[1] need_check_feed
    var scope : step_scopes
    var merged, seen : fp32[2, 2] persistable
)";
  const auto ops = [](absl::string_view on_host, absl::string_view first) {
    return absl::StrCat(R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward {scale=2.0}
    Out=[merged] = elementwise_add(X=[merged], Y=[w@GRAD]) role=backward vars=[w, merged])",
                        first, R"(
    Out=[seen] = elementwise_add(X=[seen], Y=[w@GRAD]) role=backward
    Out=[w, merged], Scope=[scope] = conditional_block(Cond=[due], Input=[w, merged, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1))",
                        on_host, R"(}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[merged], LearningRate=[lr]) role=optimize
    Out=[merged] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0}
)");
  };
  ExpectRewrite("optimizer-offload", absl::StrCat(kVariables, ops("", "")),
                ops(", op_device=\"cpu\"", " {op_device=\"cpu\"}"));
  // It stays where the program says.
  const absl::string_view named = " {op_device=\"gpu:0\"}";
  ExpectRewrite("optimizer-offload", absl::StrCat(kVariables, ops("", named)),
                ops(", op_device=\"cpu\"", named));
}

TEST(OptimizerOffload, BranchThatNeedsTheParameterIsRefused) {
  const auto refused = [](const std::string& ops) {
    return RewriteStatus("optimizer-offload{offload=states}", InBranch(ops));
  };
  const std::string sgd =
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";
  WEFT_EXPECT_OK(refused(sgd));
  EXPECT_THAT(refused(absl::StrCat(sgd, "    Out=[w] = scale(X=[w]) role=optimize {scale=0.5}\n")),
              IsFailedPrecondition(
                  "(scale), which runs on the host with its branch, names w; use offload=full"));
  EXPECT_THAT(refused("    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], "
                      "LearningRate=[lr], Velocity=[v]) role=optimize {mu=0.9, "
                      "regularization_method=\"l2_decay\", regularization_coeff=0.5}\n"),
              IsFailedPrecondition("it adds the parameter to a gradient within a branch, which "
                                   "runs on the host; use offload=full"));
  // The decay needs the learning rate of this step.
  const std::string rate = "    Out=[lr] = scale(X=[lr]) role=lr_sched {scale=0.5}\n";
  WEFT_EXPECT_OK(refused(absl::StrCat(rate, AdamLike("adam", "beta1=0.9"))));
  EXPECT_THAT(refused(absl::StrCat(rate, AdamLike("adamw", "coeff=0.5, with_decay=true"))),
              IsFailedPrecondition("the accelerator needs lr, which block 1, op 0 (scale) computes "
                                   "in the branch; use offload=full"));
}

TEST(OptimizerOffload, OptionsThatWouldChangeUpdatesOnTheHostAreRefused) {
  const std::string adam =
      absl::StrCat(kGradient, AdamLike("adam", "beta1=0.9, op_device=\"cpu\""));
  for (const char* options : {"{offload=states}", "{bias_correction=false}"}) {
    EXPECT_THAT(RewriteStatus(absl::StrCat("optimizer-offload", options), adam),
                IsFailedPrecondition("expected an update that op_device does not put on the host"));
  }
  WEFT_EXPECT_OK(RewriteStatus("optimizer-offload", adam));
}

TEST(OptimizerOffload, PatternThatMatchesNothingIsRefused) {
  EXPECT_THAT(RewriteStatus("optimizer-offload{offload_params=x*}", kUpdate),
              IsInvalidArgument("params 'x*'"));
}

}  // namespace
}  // namespace weft::testing
