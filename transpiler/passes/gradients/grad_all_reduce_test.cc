#include "transpiler/passes/gradients/grad_all_reduce.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/verifier/testing/matchers.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kOneLoss[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

// Backward computes b's gradient, then w's; two optimizers use them in the other order.
constexpr char kTwoGradients[] = R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  )";

// kTwoGradients after grad-all-reduce.
constexpr char kTwoAveraged[] = R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(Out@GRAD=[y@GRAD], X=[h], Y=[b]) role=backward vars=[b, b@GRAD]
    Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[b@GRAD, w@GRAD] = c_wait_comm(X=[b@GRAD, w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
  )";

TEST(GradAllReduce, ReductionFollowsCompletionAndOneWaitPrecedesTheFirstUse) {
  ExpectRewrite("grad-all-reduce", kTwoGradients, kTwoAveraged, OnRanks(2));
}

TEST(GradAllReduce, EachRingIsWaitedForAsLateAsItsFirstUseAllows) {
  ExpectRewrite("grad-all-reduce{nrings=2}", kTwoGradients, R"(
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward {ring_id=1}
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=1}
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward {ring_id=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, GradientsOfAGroupTakeItsRing) {
  RewriteOptions options = OnRanks(3);
  options.param_attrs["w"].group = RankGroup{"g", {0, 2}};
  const TranspileResult result =
      ExpectRewrite("grad-all-reduce{nrings=2,buckets=bytes}", kTwoGradients, R"(
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward {ring_id=2}
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {group_ranks=ints[0, 2], ring_id=2}
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward {ring_id=2}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
  )",
                    options);
  EXPECT_THAT(RemarkTexts(result),
              Contains(HasSubstr("ring=2 after=op 4 (mul_grad) waited_for_by=op "
                                 "5 (sgd) group=g ranks=0, 2")));
}

TEST(GradAllReduce, UseOfTheGradientThatWasCompleteFirstWaitsForAllOnItsRing) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
  + Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[v@GRAD, w@GRAD] = c_wait_comm(X=[v@GRAD, w@GRAD]) role=backward
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, AveragesForAnyNumberOfRanks) {
  ExpectRewrite("grad-all-reduce{scale=avg}", kOneLoss, R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )");
}

TEST(GradAllReduce, SumsWithScaleNone) {
  ExpectRewrite("grad-all-reduce{scale=none}", kOneLoss, R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SumsWhereTheLossGradientIsDividedBefore) {
  ExpectRewrite("scale-loss-grad,grad-all-reduce", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SeveralPairsOnOneOpShareTheWaitOfTheirRing) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    X@GRAD=[w@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[w], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD, b, b@GRAD]
  + Out=[w@GRAD, b@GRAD] = c_wait_compute(X=[w@GRAD, b@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
  + Out=[w@GRAD, b@GRAD] = c_wait_comm(X=[w@GRAD, b@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SharedWeightIsReducedOnceAfterTheSum) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD@RENAME@0] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[w@GRAD@RENAME@1] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SummandsThatArePairedThemselvesAreNotReduced) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD@PART] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD@PART]
    Out=[w@GRAD] = sum(X=[w@GRAD@PART]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, RepeatedPairIsReducedOnceAfterTheLastWrite) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward vars=[w, w@GRAD, w, w@GRAD] {scale=0.25}
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, PairOnAnEarlierOpThanTheLastWriteFollowsTheData) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=0.25}
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SecondLossIsReducedAndWaitedForSeparately) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
  + Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_wait_comm(X=[v@GRAD]) role=backward
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, VariableWrittenAgainAfterItsUseIsReducedAgain) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, ClippingFollowsTheReduction) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    Out=[clipped] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[clipped], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, UseInASubBlockIsWaitedForBeforeTheBlock) {
  ExpectRewrite("grad-all-reduce", R"(
    var due : bool[1] persistable
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    Out=[w] = conditional_block(Cond=[due], Input=[w, w@GRAD]) {sub_block=block(1), is_scalar_condition=true}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, EmptyGradientsAndDistributedParametersAreLeftAlone) {
  RewriteOptions options = OnRanks(2);
  options.distributed_params = {"d"};
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    X@GRAD=[w@GRAD], Y@GRAD=[d@GRAD] = elementwise_add_grad(X=[w], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD, e, @EMPTY@, w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                options);
}

// --- Buckets ------------------------------------------------------------------------------------

TEST(GradAllReduce, BucketIsLaidOutBeforeItsFirstWriteAndReducedAfterItsLast) {
  ExpectRewrite("grad-all-reduce{buckets=count}", kTwoGradients, R"(
  + var fused_gradient_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[b@GRAD, w@GRAD] = coalesce_tensor(Input=[b@GRAD, w@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[b@GRAD, w@GRAD, fused_gradient_0] = c_wait_compute(X=[b@GRAD, w@GRAD, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
  + Out=[b@GRAD, w@GRAD, fused_gradient_0] = c_wait_comm(X=[b@GRAD, w@GRAD, fused_gradient_0]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, GradientThatIsAloneInItsBucketNeedsNoBuffer) {
  ExpectRewrite("grad-all-reduce{buckets=\"count{count=1}\"}", kTwoGradients, R"(
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[b@GRAD, w@GRAD] = c_wait_comm(X=[b@GRAD, w@GRAD]) role=backward
  )",
                OnRanks(2));
}

// v is updated before w's gradient is made: they cannot travel together.
TEST(GradAllReduce, BucketClosesBeforeTheFirstUseOfItsGradients) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
  + Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_wait_comm(X=[v@GRAD]) role=backward
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, BufferBeginsBeforeThePartsThatAreWrittenFirst) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
  + var fused_gradient_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[v@GRAD, w@GRAD] = coalesce_tensor(Input=[v@GRAD, w@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward vars=[w, w@GRAD] {scale=0.25}
  + Out=[v@GRAD, w@GRAD, fused_gradient_0] = c_wait_compute(X=[v@GRAD, w@GRAD, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
  + Out=[v@GRAD, w@GRAD, fused_gradient_0] = c_wait_comm(X=[v@GRAD, w@GRAD, fused_gradient_0]) role=backward
  )",
                OnRanks(2));
}

// A buffer for the second gradient in w@GRAD would be laid out while the first is in flight.
TEST(GradAllReduce, VariableOfSeveralGradientsInTurnIsNotFused) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward vars=[b, b@GRAD] {scale=0.25}
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
  + Out=[w@GRAD, b@GRAD] = c_wait_comm(X=[w@GRAD, b@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, RingsTakeBucketsInTurn) {
  ExpectRewrite("grad-all-reduce{nrings=2,buckets=\"count{count=2}\"}", R"(
  + var fused_gradient_0, fused_gradient_1 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + FusedOutput=[fused_gradient_0], Output=[a@GRAD, b@GRAD] = coalesce_tensor(Input=[a@GRAD, b@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[a@GRAD, b@GRAD, fused_gradient_0] = c_wait_compute(X=[a@GRAD, b@GRAD, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
  + FusedOutput=[fused_gradient_1], Output=[c@GRAD, d@GRAD] = coalesce_tensor(Input=[c@GRAD, d@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[c@GRAD] = mul_grad(X=[x], Y=[c], Out@GRAD=[y@GRAD]) role=backward vars=[c, c@GRAD]
    Y@GRAD=[d@GRAD] = mul_grad(X=[x], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD]
  + Out=[c@GRAD, d@GRAD, fused_gradient_1] = c_wait_compute(X=[c@GRAD, d@GRAD, fused_gradient_1]) role=backward {ring_id=1}
  + Out=[fused_gradient_1] = c_allreduce_avg(X=[fused_gradient_1]) role=backward {ring_id=1}
  + Out=[a@GRAD, b@GRAD, fused_gradient_0] = c_wait_comm(X=[a@GRAD, b@GRAD, fused_gradient_0]) role=backward
  + Out=[c@GRAD, d@GRAD, fused_gradient_1] = c_wait_comm(X=[c@GRAD, d@GRAD, fused_gradient_1]) role=backward {ring_id=1}
  )",
                OnRanks(2));
}

// --- Gradient merge -----------------------------------------------------------------------------

// Gradients of w and b are accumulated; block 1, which runs now and then, uses the sums.
constexpr char kGradientMerge[] = R"(
    var w_sum, b_sum : fp32[2, 2] persistable
    var due : bool[1] persistable
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward
    Out=[w_sum] = elementwise_add(X=[w@GRAD], Y=[w_sum]) role=backward vars=[w, w_sum]
    Out=[b_sum] = elementwise_add(X=[b@GRAD], Y=[b_sum]) role=backward vars=[b, b_sum]
    Out=[w, b, w_sum, b_sum] = conditional_block(Cond=[due], Input=[w, b, w_sum, b_sum]) {sub_block=block(1), is_scalar_condition=true}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[w_sum], LearningRate=[lr]) role=optimize
    Out=[w_sum] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5}
    ParamOut=[b] = sgd(Param=[b], Grad=[b_sum], LearningRate=[lr]) role=optimize
    Out=[b_sum] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5}
  )";

TEST(GradAllReduce, AccumulatedGradientsAreReducedOncePerRealUpdate) {
  ExpectRewrite("grad-all-reduce", kGradientMerge, R"(
    block 1:
  + Out=[w_sum, b_sum] = c_wait_compute(X=[w_sum, b_sum]) role=backward
  + Out=[w_sum] = c_allreduce_avg(X=[w_sum]) role=backward
  + Out=[b_sum] = c_allreduce_avg(X=[b_sum]) role=backward
  + Out=[w_sum, b_sum] = c_wait_comm(X=[w_sum, b_sum]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, BucketOfAccumulatedGradientsIsLaidOutWithTheirValues) {
  ExpectRewrite("grad-all-reduce{buckets=count}", kGradientMerge, R"(
    block 1:
  + var fused_gradient_0 : fp32[128]
  + FusedOutput=[fused_gradient_0], Output=[w_sum, b_sum] = coalesce_tensor(Input=[w_sum, b_sum]) role=backward {align_size=256, copy_data=true, dtype=5}
  + Out=[w_sum, b_sum, fused_gradient_0] = c_wait_compute(X=[w_sum, b_sum, fused_gradient_0]) role=backward
  + Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
  + Out=[w_sum, b_sum, fused_gradient_0] = c_wait_comm(X=[w_sum, b_sum, fused_gradient_0]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SparseGradientsTravelAloneAsRows) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    var ids : int64[5] need_check_feed
    var e : fp32[100, 2] parameter persistable
    var e@GRAD : selected_rows<fp32[100, 2]>
    Out=[y] = lookup_table_v2(Ids=[ids], W=[e])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[5, 2], dtype=5, value=1.0}
    W@GRAD=[e@GRAD] = lookup_table_v2_grad(Ids=[ids], W=[e], Out@GRAD=[y@GRAD]) role=backward vars=[e, e@GRAD] {is_sparse=true}
  + Out=[e@GRAD] = c_wait_compute(X=[e@GRAD]) role=backward
  + Out=[e@GRAD] = c_allreduce_avg(X=[e@GRAD]) role=backward
  + Out=[e@GRAD] = c_wait_comm(X=[e@GRAD]) role=backward
    ParamOut=[e] = sgd(Param=[e], Grad=[e@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

// --- Scale --------------------------------------------------------------------------------------

TEST(GradAllReduce, AveragesWhereTheLossGradientIsNotDivided) {
  for (const RewriteOptions& options : {RewriteOptions(), OnRanks(2)}) {
    for (const char* pass : {"grad-all-reduce", "grad-all-reduce{scale=avg}"}) {
      ExpectRewrite(pass, kTwoGradients, kTwoAveraged, options);
    }
  }
}

// A loss gradient that is divided by the number of ranks ($0: attributes), before its reduction or
// after.
constexpr char kDivided[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {$0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
constexpr char kDividedAndSummed[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {$0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )";

// Beside its original, which divides too, the result would be the sum of what the original
// computes.
void ExpectSum(const char* pass, const char* attrs, RewriteOptions options) {
  options.verification = Verification::kNever;
  const std::string after = absl::Substitute(kDividedAndSummed, attrs);
  ExpectRewrite(pass, absl::Substitute(kDivided, attrs), after, options);
  EXPECT_THAT(CompactProgram(after), VerifiesFor(2));
}

TEST(GradAllReduce, SumsWhereTheLossGradientIsDividedByTheNumberOfRanks) {
  for (const RewriteOptions& options : {RewriteOptions(), OnRanks(2)}) {
    for (const char* pass : {"grad-all-reduce", "grad-all-reduce{scale=loss_grad}"}) {
      ExpectSum(pass, "nranks=2, scale=0.5", options);
    }
  }
}

TEST(GradAllReduce, LossGradientDividedForOtherRanksIsRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", absl::Substitute(kDivided, "nranks=4, scale=0.25"),
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("op 1 (scale): divides the loss gradient loss@GRAD for "
                                           "4 ranks, expected 2")));
}

TEST(GradAllReduce, UnknownLossScaleIsLeftToTheUser) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", absl::Substitute(kDivided, "scale=0.5"), OnRanks(2)),
              StatusIs(kRefused, HasSubstr("op 1 (scale) rewrites the loss gradient loss@GRAD in "
                                           "place, but does not say for how many ranks")));
  ExpectSum("grad-all-reduce{scale=loss_grad}", "scale=0.5", OnRanks(2));
}

TEST(GradAllReduce, ScaleLossGradWithoutTheDivisionIsRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce{scale=loss_grad}", kOneLoss, OnRanks(2)),
              StatusIs(kRefused, HasSubstr("loss gradient loss@GRAD is not divided by the number "
                                           "of ranks; run pass scale-loss-grad first")));
  EXPECT_THAT(RewriteStatus("grad-all-reduce{scale=loss_grad}",
                            "Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) "
                            "role=backward vars=[w, w@GRAD]",
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("no op fills the gradient of a loss")));
}

TEST(GradAllReduce, OneOfTwoLossGradientsDividedIsRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce",
                            absl::StrCat(absl::Substitute(kDivided, "nranks=2, scale=0.5"),
                                         "Out=[loss2@GRAD] = fill_constant() role=backward|loss "
                                         "{shape=longs[2, 2], dtype=5, value=1.0}"),
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("loss gradient loss2@GRAD is not divided")));
}

TEST(GradAllReduce, GradientsThatCannotShareABufferTravelAloneAndSayWhy) {
  EXPECT_THAT(RemarkTexts(ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    var z : fp32[-1] need_check_feed
    var v : fp32[-1] parameter persistable
    Out=[v@GRAD] = relu(X=[z]) role=backward vars=[v, v@GRAD]
  + Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD, x]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[v@GRAD, w@GRAD] = c_wait_comm(X=[v@GRAD, w@GRAD]) role=backward
  )",
                                        OnRanks(2))),
              ElementsAre(HasSubstr("alone=its shape is unknown: [-1]"),
                          HasSubstr("alone=its first write reads the old value")));
}

TEST(GradAllReduce, UnknownPolicyIsAnErrorThatListsAll) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce{buckets=size}", kTwoGradients, OnRanks(2)),
              IsInvalidArgument("option buckets: expected none, optimal, bytes{first_bytes=N,"));
}

// --- What is refused ----------------------------------------------------------------------------

TEST(GradAllReduce, ReducedGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", kTwoAveraged, OnRanks(2)),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds: op 5 "
                                           "(c_allreduce_avg) takes b@GRAD")));
}

TEST(GradAllReduce, CollectivesOfActivationsDoNotCount) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Out=[hidden] = relu(X=[x])
    Out=[hidden] = c_sync_calc_stream(X=[hidden])
    Out=[hidden] = c_allreduce_sum(X=[hidden]) {ring_id=3}
    Out=[hidden] = c_wait_comm(X=[hidden]) {ring_id=3}
  )",
                OnRanks(2));
}

TEST(GradAllReduce, NoGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", "Out=[y] = relu(X=[x])", OnRanks(2)),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(GradAllReduce, OddNumberOfNamesIsRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", "Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w]",
                            OnRanks(2)),
              IsInvalidArgument("op 0 (relu): attribute op_role_var: expected pairs of parameter "
                                "and gradient, found 1 names: w"));
}

TEST(GradAllReduce, IntegerAndAccumulatedGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", R"(
    var w@GRAD : int32[2]
    Out=[w@GRAD] = g(X=[x]) role=backward vars=[w, w@GRAD]
  )",
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("found int32")));
  EXPECT_THAT(RewriteStatus("grad-all-reduce", R"(
    var sum : fp32[2, 2] persistable
    Out=[sum] = elementwise_add(X=[sum], Y=[x]) role=backward vars=[w, sum]
  )",
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("accumulated over several steps")));
}

TEST(GradAllReduce, CompressedGradientIsRefused) {
  RewriteOptions options = OnRanks(2);
  options.verification = Verification::kNever;  // dgc lacks its other slots
  EXPECT_THAT(RewriteStatus("grad-all-reduce", R"(
    Out=[w@GRAD] = relu(X=[x]) role=backward
    EncodeGrad=[e], Grad_out=[w@GRAD] = dgc(Grad=[w@GRAD]) role=backward vars=[w, w@GRAD]
  )",
                            options),
              StatusIs(kRefused, HasSubstr("op 1 (dgc) compresses gradient w@GRAD")));
}

TEST(GradAllReduce, UpdateByAnUnnamedGradientIsRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce",
                            absl::StrCat(kOneLoss,
                                         "ParamOut=[lost] = sgd(Param=[lost], Grad=[x], "
                                         "LearningRate=[lr]) role=optimize"),
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("op 3 (sgd) input Param: lost is updated")));
}

TEST(GradAllReduce, UpdateByAnUnregisteredOptimizerCountsToo) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce",
                            absl::StrCat("var lost : fp32[2, 2] parameter persistable", kOneLoss,
                                         "ParamOut=[lost] = my_optimizer(Param=[lost], Grad=[x]) "
                                         "role=optimize"),
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("op 3 (my_optimizer) input Param: lost is updated")));
}

// The sum is what the optimizer uses, but only the parts are named.
TEST(GradAllReduce, UpdateByAPartlyNamedGradientIsRefused) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", R"(
    Out=[part] = relu(X=[x]) role=backward vars=[w, part]
    Out=[w@GRAD] = sum(X=[part]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                            OnRanks(2)),
              StatusIs(kRefused, HasSubstr("op 2 (sgd) input Param: w is updated, but gradient "
                                           "part, which op_role_var names, is not reduced: only "
                                           "backward uses it")));
}

TEST(GradAllReduce, GradientInALargerBufferIsRefused) {
  EXPECT_THAT(
      RewriteStatus("grad-all-reduce", absl::StrCat(kOneLoss, R"(
    var fused : fp32[4]
    Output=[w@GRAD], FusedOutput=[fused] = coalesce_tensor(Input=[w@GRAD]) {dtype=5}
  )"),
                    OnRanks(2)),
      StatusIs(kRefused, HasSubstr("gradient w@GRAD: op 3 (coalesce_tensor) makes it share its "
                                   "storage")));
}

TEST(GradAllReduce, RemarksSayWhatHappenedToEveryGradient) {
  RewriteOptions options = OnRanks(2);
  options.distributed_params = {"b"};
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("grad-all-reduce", kTwoGradients, R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                                options)),
      ElementsAre("w@GRAD reduced: gradient of replicated parameter w op=c_allreduce_avg ring=0 "
                  "after=op 4 (mul_grad) waited_for_by=op 5 (sgd)",
                  "b@GRAD not reduced: its parameter is distributed parameter=b"));
}

}  // namespace
}  // namespace weft::testing
