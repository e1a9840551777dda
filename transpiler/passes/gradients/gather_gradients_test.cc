#include "transpiler/passes/gradients/gather_gradients.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

TEST(GatherGradients, EveryRankAveragesBeforeTheFirstUse) {
  ExpectRewrite("gather-gradients", R"(
  + var gathered_part_0, gathered_part_1, gathered_part_2 : fp32[2, 2]
  + var w@GRAD@GATHERED : fp32[6, 2]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD@GATHERED] = c_allgather(X=[w@GRAD]) role=backward {nranks=3}
  + Out=[w@GRAD, w@GRAD@GATHERED] = c_wait_comm(X=[w@GRAD, w@GRAD@GATHERED]) role=backward
  + Out=[gathered_part_0, gathered_part_1, gathered_part_2] = split(X=[w@GRAD@GATHERED]) role=backward {num=3}
  + Out=[w@GRAD] = sum(X=[gathered_part_0, gathered_part_1, gathered_part_2]) role=backward
  + Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {nranks=3, scale=0.33333334}
    Out=[clipped] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[clipped], LearningRate=[lr]) role=optimize
  )",
                OnRanks(3));
}

// Each sum is taken before the next gradient is split.
TEST(GatherGradients, GradientsOfOneTypeShareTheVariablesOfTheParts) {
  ExpectRewrite("gather-gradients{scale=none}", R"(
    var b : fp32[2, 4] parameter persistable
  + var a@GRAD@GATHERED : fp32[4, 2]
  + var b@GRAD@GATHERED : fp32[4, 4]
  + var c@GRAD@GATHERED : fp32[4, 2]
  + var gathered_part_0, gathered_part_1 : fp32[2, 2]
  + var gathered_part_2, gathered_part_3 : fp32[2, 4]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + Out=[a@GRAD] = c_wait_compute(X=[a@GRAD]) role=backward
  + Out=[a@GRAD@GATHERED] = c_allgather(X=[a@GRAD]) role=backward {nranks=2}
    Out=[z@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 4], dtype=5, value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[z@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD@GATHERED] = c_allgather(X=[b@GRAD]) role=backward {nranks=2}
    Y@GRAD=[c@GRAD] = mul_grad(X=[x], Y=[c], Out@GRAD=[y@GRAD]) role=backward vars=[c, c@GRAD]
  + Out=[c@GRAD] = c_wait_compute(X=[c@GRAD]) role=backward
  + Out=[c@GRAD@GATHERED] = c_allgather(X=[c@GRAD]) role=backward {nranks=2}
  + Out=[a@GRAD, a@GRAD@GATHERED, b@GRAD, b@GRAD@GATHERED, c@GRAD, c@GRAD@GATHERED] = c_wait_comm(X=[a@GRAD, a@GRAD@GATHERED, b@GRAD, b@GRAD@GATHERED, c@GRAD, c@GRAD@GATHERED]) role=backward
  + Out=[gathered_part_0, gathered_part_1] = split(X=[a@GRAD@GATHERED]) role=backward {num=2}
  + Out=[a@GRAD] = sum(X=[gathered_part_0, gathered_part_1]) role=backward
  + Out=[gathered_part_2, gathered_part_3] = split(X=[b@GRAD@GATHERED]) role=backward {num=2}
  + Out=[b@GRAD] = sum(X=[gathered_part_2, gathered_part_3]) role=backward
  + Out=[gathered_part_0, gathered_part_1] = split(X=[c@GRAD@GATHERED]) role=backward {num=2}
  + Out=[c@GRAD] = sum(X=[gathered_part_0, gathered_part_1]) role=backward
  )",
                OnRanks(2));
}

TEST(GatherGradients, NamesThatTheProgramHasArePassedOver) {
  ExpectRewrite("gather-gradients", R"(
    var w@GRAD@GATHERED, w@GRAD@GATHERED_0, gathered_part_1 : fp32[1]
  + var gathered_part_0, gathered_part_2 : fp32[2, 2]
  + var w@GRAD@GATHERED_1 : fp32[4, 2]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD@GATHERED_1] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD, w@GRAD@GATHERED_1] = c_wait_comm(X=[w@GRAD, w@GRAD@GATHERED_1]) role=backward
  + Out=[gathered_part_0, gathered_part_2] = split(X=[w@GRAD@GATHERED_1]) role=backward {num=2}
  + Out=[w@GRAD] = sum(X=[gathered_part_0, gathered_part_2]) role=backward
  + Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {nranks=2, scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GatherGradients, SumIsNotDividedWhereTheLossGradientWas) {
  ExpectRewrite("scale-loss-grad,gather-gradients", R"(
  + var gathered_part_0, gathered_part_1 : fp32[2, 2]
  + var w@GRAD@GATHERED : fp32[4, 2]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD@GATHERED] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD, w@GRAD@GATHERED] = c_wait_comm(X=[w@GRAD, w@GRAD@GATHERED]) role=backward
  + Out=[gathered_part_0, gathered_part_1] = split(X=[w@GRAD@GATHERED]) role=backward {num=2}
  + Out=[w@GRAD] = sum(X=[gathered_part_0, gathered_part_1]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GatherGradients, ScalarsTravelAsVectorsOfOneElement) {
  ExpectRewrite("gather-gradients", R"(
    var w : fp32[] parameter persistable
  + var gathered_part_0, gathered_part_1 : fp32[1]
  + var w@GRAD@GATHERED : fp32[2]
    Out=[y] = elementwise_mul(X=[x], Y=[w])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD@GATHERED] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD, w@GRAD@GATHERED] = c_wait_comm(X=[w@GRAD, w@GRAD@GATHERED]) role=backward
  + Out=[gathered_part_0, gathered_part_1] = split(X=[w@GRAD@GATHERED]) role=backward {num=2}
  + Out=[gathered_part_0] = sum(X=[gathered_part_0, gathered_part_1]) role=backward
  + Out=[w@GRAD] = reshape2(X=[gathered_part_0]) role=backward
  + Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {nranks=2, scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GatherGradients, AccumulatedGradientsAreGatheredWhereTheyAreUsed) {
  ExpectRewrite("gather-gradients", R"(
    var w_sum, b_sum : fp32[2, 2] persistable
    var due : bool[1] persistable
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward
    Out=[w_sum] = elementwise_add(X=[w@GRAD], Y=[w_sum]) role=backward vars=[w, w_sum]
    Out=[b_sum] = elementwise_add(X=[b@GRAD], Y=[b_sum]) role=backward vars=[b, b_sum]
    Out=[w, b, w_sum, b_sum] = conditional_block(Cond=[due], Input=[w, b, w_sum, b_sum]) {sub_block=block(1), is_scalar_condition=true}
    block 1:
  + var b_sum@GATHERED : fp32[4, 2]
  + var gathered_part_0, gathered_part_1 : fp32[2, 2]
  + var w_sum@GATHERED : fp32[4, 2]
  + Out=[w_sum, b_sum] = c_wait_compute(X=[w_sum, b_sum]) role=backward
  + Out=[w_sum@GATHERED] = c_allgather(X=[w_sum]) role=backward {nranks=2}
  + Out=[b_sum@GATHERED] = c_allgather(X=[b_sum]) role=backward {nranks=2}
  + Out=[w_sum, b_sum, w_sum@GATHERED, b_sum@GATHERED] = c_wait_comm(X=[w_sum, b_sum, w_sum@GATHERED, b_sum@GATHERED]) role=backward
  + Out=[gathered_part_0, gathered_part_1] = split(X=[w_sum@GATHERED]) role=backward {num=2}
  + Out=[w_sum] = sum(X=[gathered_part_0, gathered_part_1]) role=backward
  + Out=[w_sum] = scale(X=[w_sum]) role=backward {nranks=2, scale=0.5}
  + Out=[gathered_part_0, gathered_part_1] = split(X=[b_sum@GATHERED]) role=backward {num=2}
  + Out=[b_sum] = sum(X=[gathered_part_0, gathered_part_1]) role=backward
  + Out=[b_sum] = scale(X=[b_sum]) role=backward {nranks=2, scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w_sum], LearningRate=[lr]) role=optimize
    Out=[w_sum] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5}
    ParamOut=[b] = sgd(Param=[b], Grad=[b_sum], LearningRate=[lr]) role=optimize
    Out=[b_sum] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5}
  )",
                OnRanks(2));
}

TEST(GatherGradients, OneRankGathersWhatItHas) {
  ExpectRewrite("gather-gradients", R"(
  + var gathered_part_0, w@GRAD@GATHERED : fp32[2, 2]
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD@GATHERED] = c_allgather(X=[w@GRAD]) role=backward {nranks=1}
  + Out=[w@GRAD, w@GRAD@GATHERED] = c_wait_comm(X=[w@GRAD, w@GRAD@GATHERED]) role=backward
  + Out=[gathered_part_0] = split(X=[w@GRAD@GATHERED]) role=backward {num=1}
  + Out=[w@GRAD] = sum(X=[gathered_part_0]) role=backward
  + Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {nranks=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnDevices(1, {0}));
}

constexpr char kOneGradient[] = R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(GatherGradients, UnknownNumberOfRanksIsRefused) {
  EXPECT_THAT(RewriteStatus("gather-gradients", kOneGradient),
              IsInvalidArgument("gathering gradients needs the number of ranks"));
}

TEST(GatherGradients, TooManyRanksAreRefused) {
  EXPECT_THAT(RewriteStatus("gather-gradients", kOneGradient, OnRanks(2000000000)),
              IsInvalidArgument("expected at most 1024 ranks, found 2000000000"));
}

TEST(GatherGradients, GatheredGradientsAreNotGatheredOrReducedAgain) {
  for (const char* pass : {"gather-gradients", "grad-all-reduce", "local-sgd"}) {
    const absl::Status status = RewriteStatus(pass, R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD@GATHERED] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                                              OnRanks(2));
    EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("gradients-reduced already holds: op 2 "
                                                     "(c_allgather) takes w@GRAD")));
  }
}

}  // namespace
}  // namespace weft::testing
