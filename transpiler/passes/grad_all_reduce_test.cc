#include "transpiler/passes/grad_all_reduce.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/run_passes.h"
#include "transpiler/verify/testing/matchers.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::HasOp;
using ::weft::testing::OnRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

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

TEST(GradAllReduce, ReductionFollowsCompletionAndOneWaitPrecedesTheFirstUse) {
  ExpectRewrite("grad-all-reduce", kTwoGradients, R"(
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
  )",
                OnRanks(2));
}

TEST(GradAllReduce, EachRingIsWaitedForAsLateAsItsFirstUseAllows) {
  ExpectRewrite("grad-all-reduce{nrings=2}", kTwoGradients, R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(Out@GRAD=[y@GRAD], X=[h], Y=[b]) role=backward vars=[b, b@GRAD]
    Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward {ring_id=1}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=1}
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward {ring_id=1}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, UseOfTheGradientThatWasCompleteFirstWaitsForAllOnItsRing) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[v@GRAD, w@GRAD] = c_wait_comm(X=[v@GRAD, w@GRAD]) role=backward
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, AveragesForAnyNumberOfRanks) {
  ExpectRewrite("grad-all-reduce{scale=avg}", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )");
}

TEST(GradAllReduce, SumsWithScaleNone) {
  ExpectRewrite("grad-all-reduce{scale=none}", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SumsWhereTheLossGradientIsDividedBefore) {
  ExpectRewrite("scale-loss-grad,grad-all-reduce", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SeveralPairsOnOneOpShareTheWaitOfTheirRing) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    X@GRAD=[w@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[w], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD, b, b@GRAD]
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    X@GRAD=[w@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(Out@GRAD=[y@GRAD], X=[w], Y=[b]) role=backward vars=[w, w@GRAD, b, b@GRAD]
    Out=[w@GRAD, b@GRAD] = c_wait_compute(X=[w@GRAD, b@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Out=[w@GRAD, b@GRAD] = c_wait_comm(X=[w@GRAD, b@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SharedWeightIsReducedOnceAfterTheSum) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD@RENAME@0] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[w@GRAD@RENAME@1] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD@RENAME@0] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward
    Y@GRAD=[w@GRAD@RENAME@1] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SummandsThatArePairedThemselvesAreNotReduced) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD@PART] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD@PART]
    Out=[w@GRAD] = sum(X=[w@GRAD@PART]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD@PART] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD@PART]
    Out=[w@GRAD] = sum(X=[w@GRAD@PART]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, RepeatedPairIsReducedOnceAfterTheLastWrite) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward vars=[w, w@GRAD, w, w@GRAD] {scale=0.25}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward vars=[w, w@GRAD, w, w@GRAD] {scale=0.25}
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, PairOnAnEarlierOpThanTheLastWriteFollowsTheData) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=0.25}
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=0.25}
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SecondLossIsReducedAndWaitedForSeparately) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_wait_comm(X=[v@GRAD]) role=backward
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, VariableWrittenAgainAfterItsUseIsReducedAgain) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, ClippingFollowsTheReduction) {
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[clipped] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[clipped], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    Out=[clipped] = clip(X=[w@GRAD]) role=optimize {max=1.0, min=-1.0}
    ParamOut=[w] = sgd(Grad=[clipped], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, UseInASubBlockIsWaitedForBeforeTheBlock) {
  ExpectRewrite("grad-all-reduce", R"(
    var due : bool[1] persistable
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w] = conditional_block(Cond=[due], Input=[w, w@GRAD]) {sub_block=block(1), is_scalar_condition=true}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    Out=[w] = conditional_block(Cond=[due], Input=[w, w@GRAD]) {is_scalar_condition=true, sub_block=block(1)}
    block 1:
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, EmptyGradientsAndDistributedParametersAreLeftAlone) {
  RewriteOptions options = OnRanks(2);
  options.distributed_params = {"d"};
  ExpectRewrite("grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    X@GRAD=[w@GRAD], Y@GRAD=[d@GRAD] = elementwise_add_grad(X=[w], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD, e, @EMPTY@, w, w@GRAD]
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    X@GRAD=[w@GRAD], Y@GRAD=[d@GRAD] = elementwise_add_grad(Out@GRAD=[y@GRAD], X=[w], Y=[d]) role=backward vars=[d, d@GRAD, e, @EMPTY@, w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
  )",
                options);
}

// --- Buckets ------------------------------------------------------------------------------------

constexpr char kTogether[] = "grad-all-reduce{buckets=count}";

TEST(GradAllReduce, BucketIsLaidOutBeforeItsFirstWriteAndReducedAfterItsLast) {
  ExpectRewrite("grad-all-reduce{buckets=count}", kTwoGradients, R"(
    var fused_gradient_0 : fp32[128]
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    FusedOutput=[fused_gradient_0], Output=[b@GRAD, w@GRAD] = coalesce_tensor(Input=[b@GRAD, w@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(Out@GRAD=[y@GRAD], X=[h], Y=[b]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[h@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[b@GRAD, w@GRAD, fused_gradient_0] = c_wait_compute(X=[b@GRAD, w@GRAD, fused_gradient_0]) role=backward
    Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
    Out=[b@GRAD, w@GRAD, fused_gradient_0] = c_wait_comm(X=[b@GRAD, w@GRAD, fused_gradient_0]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, GradientThatIsAloneInItsBucketNeedsNoBuffer) {
  ExpectRewrite("grad-all-reduce{buckets=\"count{count=1}\"}", kTwoGradients, R"(
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
  )",
                OnRanks(2));
}

// v is updated before w's gradient is made: they cannot travel together.
TEST(GradAllReduce, BucketClosesBeforeTheFirstUseOfItsGradients) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    Out=[v@GRAD] = c_wait_compute(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_allreduce_avg(X=[v@GRAD]) role=backward
    Out=[v@GRAD] = c_wait_comm(X=[v@GRAD]) role=backward
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, BufferBeginsBeforeThePartsThatAreWrittenFirst) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward vars=[w, w@GRAD] {scale=0.25}
  )",
                R"(
    var fused_gradient_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    FusedOutput=[fused_gradient_0], Output=[v@GRAD, w@GRAD] = coalesce_tensor(Input=[v@GRAD, w@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward vars=[w, w@GRAD] {scale=0.25}
    Out=[v@GRAD, w@GRAD, fused_gradient_0] = c_wait_compute(X=[v@GRAD, w@GRAD, fused_gradient_0]) role=backward
    Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
    Out=[v@GRAD, w@GRAD, fused_gradient_0] = c_wait_comm(X=[v@GRAD, w@GRAD, fused_gradient_0]) role=backward
  )",
                OnRanks(2));
}

// A buffer for the second gradient in w@GRAD would be laid out while the first is in flight.
TEST(GradAllReduce, VariableOfSeveralGradientsInTurnIsNotFused) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward vars=[b, b@GRAD] {scale=0.25}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward
    Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward
    Out=[b@GRAD] = scale(X=[b@GRAD]) role=backward vars=[b, b@GRAD] {scale=0.25}
    Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Out=[w@GRAD, b@GRAD] = c_wait_comm(X=[w@GRAD, b@GRAD]) role=backward
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(GradAllReduce, RingsTakeBucketsInTurn) {
  ExpectRewrite("grad-all-reduce{nrings=2,buckets=\"count{count=2}\"}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[c@GRAD] = mul_grad(X=[x], Y=[c], Out@GRAD=[y@GRAD]) role=backward vars=[c, c@GRAD]
    Y@GRAD=[d@GRAD] = mul_grad(X=[x], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD]
  )",
                R"(
    var fused_gradient_0 : fp32[128]
    var fused_gradient_1 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    FusedOutput=[fused_gradient_0], Output=[a@GRAD, b@GRAD] = coalesce_tensor(Input=[a@GRAD, b@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[a@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[a]) role=backward vars=[a, a@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD, b@GRAD, fused_gradient_0] = c_wait_compute(X=[a@GRAD, b@GRAD, fused_gradient_0]) role=backward
    Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
    FusedOutput=[fused_gradient_1], Output=[c@GRAD, d@GRAD] = coalesce_tensor(Input=[c@GRAD, d@GRAD]) role=backward {align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2], dtype=5}
    Y@GRAD=[c@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[c]) role=backward vars=[c, c@GRAD]
    Y@GRAD=[d@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[d]) role=backward vars=[d, d@GRAD]
    Out=[c@GRAD, d@GRAD, fused_gradient_1] = c_wait_compute(X=[c@GRAD, d@GRAD, fused_gradient_1]) role=backward {ring_id=1}
    Out=[fused_gradient_1] = c_allreduce_avg(X=[fused_gradient_1]) role=backward {ring_id=1}
    Out=[a@GRAD, b@GRAD, fused_gradient_0] = c_wait_comm(X=[a@GRAD, b@GRAD, fused_gradient_0]) role=backward
    Out=[c@GRAD, d@GRAD, fused_gradient_1] = c_wait_comm(X=[c@GRAD, d@GRAD, fused_gradient_1]) role=backward {ring_id=1}
  )",
                OnRanks(2));
}

// --- Gradient merge -----------------------------------------------------------------------------

// Gradients of w and b are accumulated; block 1, which runs now and then, uses the sums.
constexpr char kGradientMerge[] = R"(
    var w_sum : fp32[2, 2] persistable
    var b_sum : fp32[2, 2] persistable
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
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward
    Out=[w_sum] = elementwise_add(X=[w@GRAD], Y=[w_sum]) role=backward vars=[w, w_sum]
    Out=[b_sum] = elementwise_add(X=[b@GRAD], Y=[b_sum]) role=backward vars=[b, b_sum]
    Out=[w, b, w_sum, b_sum] = conditional_block(Cond=[due], Input=[w, b, w_sum, b_sum]) {is_scalar_condition=true, sub_block=block(1)}
    block 1:
    Out=[w_sum, b_sum] = c_wait_compute(X=[w_sum, b_sum]) role=backward
    Out=[w_sum] = c_allreduce_avg(X=[w_sum]) role=backward
    Out=[b_sum] = c_allreduce_avg(X=[b_sum]) role=backward
    Out=[w_sum, b_sum] = c_wait_comm(X=[w_sum, b_sum]) role=backward
    ParamOut=[w] = sgd(Grad=[w_sum], LearningRate=[lr], Param=[w]) role=optimize
    Out=[w_sum] = fill_constant() role=optimize {shape=longs[2, 2]}
    ParamOut=[b] = sgd(Grad=[b_sum], LearningRate=[lr], Param=[b]) role=optimize
    Out=[b_sum] = fill_constant() role=optimize {shape=longs[2, 2]}
  )",
                OnRanks(2));
}

TEST(GradAllReduce, BucketOfAccumulatedGradientsIsLaidOutWithTheirValues) {
  ExpectRewrite("grad-all-reduce{buckets=count}", kGradientMerge, R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward
    Out=[w_sum] = elementwise_add(X=[w@GRAD], Y=[w_sum]) role=backward vars=[w, w_sum]
    Out=[b_sum] = elementwise_add(X=[b@GRAD], Y=[b_sum]) role=backward vars=[b, b_sum]
    Out=[w, b, w_sum, b_sum] = conditional_block(Cond=[due], Input=[w, b, w_sum, b_sum]) {is_scalar_condition=true, sub_block=block(1)}
    block 1:
    var fused_gradient_0 : fp32[128]
    FusedOutput=[fused_gradient_0], Output=[w_sum, b_sum] = coalesce_tensor(Input=[w_sum, b_sum]) role=backward {align_size=256, copy_data=true, dtype=5}
    Out=[w_sum, b_sum, fused_gradient_0] = c_wait_compute(X=[w_sum, b_sum, fused_gradient_0]) role=backward
    Out=[fused_gradient_0] = c_allreduce_avg(X=[fused_gradient_0]) role=backward
    Out=[w_sum, b_sum, fused_gradient_0] = c_wait_comm(X=[w_sum, b_sum, fused_gradient_0]) role=backward
    ParamOut=[w] = sgd(Grad=[w_sum], LearningRate=[lr], Param=[w]) role=optimize
    Out=[w_sum] = fill_constant() role=optimize {shape=longs[2, 2]}
    ParamOut=[b] = sgd(Grad=[b_sum], LearningRate=[lr], Param=[b]) role=optimize
    Out=[b_sum] = fill_constant() role=optimize {shape=longs[2, 2]}
  )",
                OnRanks(2));
}

TEST(GradAllReduce, SparseGradientsTravelAloneAsRows) {
  ExpectRewrite("grad-all-reduce{buckets=count}", R"(
    var ids : int64[5] need_check_feed
    var e : fp32[100, 2] parameter persistable
    var e@GRAD : selected_rows<fp32[100, 2]>
    var y@GRAD : fp32[5, 2]
    var y : fp32[5, 2]
    Out=[y] = lookup_table_v2(Ids=[ids], W=[e])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[5, 2], dtype=5, value=1.0}
    W@GRAD=[e@GRAD] = lookup_table_v2_grad(Ids=[ids], W=[e], Out@GRAD=[y@GRAD]) role=backward vars=[e, e@GRAD] {is_sparse=true}
    ParamOut=[e] = sgd(Param=[e], Grad=[e@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[y] = lookup_table_v2(Ids=[ids], W=[e])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[5, 2], value=1.0}
    W@GRAD=[e@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[e]) role=backward vars=[e, e@GRAD] {is_sparse=true}
    Out=[e@GRAD] = c_wait_compute(X=[e@GRAD]) role=backward
    Out=[e@GRAD] = c_allreduce_avg(X=[e@GRAD]) role=backward
    Out=[e@GRAD] = c_wait_comm(X=[e@GRAD]) role=backward
    ParamOut=[e] = sgd(Grad=[e@GRAD], LearningRate=[lr], Param=[e]) role=optimize
  )",
                OnRanks(2));
}

// Backward computes b's gradient, then w's; two optimizers use them in the other order.
ProgramBuilder TwoGradients() {
  ProgramBuilder p;
  p.Param("w").Param("b");
  p.Op("relu_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"X@GRAD", {"b@GRAD"}}}, kRoleBackward);
  p.Pairs({"b", "b@GRAD"});
  p.Op("mul_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("sgd", {{"Param", {"b"}}, {"Grad", {"b@GRAD"}}}, {{"ParamOut", {"b"}}}, kRoleOptimize);
  return p;
}

TEST(GradAllReduce, AveragesWhereTheLossGradientIsNotDivided) {
  for (int nranks : {0, 2}) {  // 0: unknown
    for (const char* pass : {"grad-all-reduce", "grad-all-reduce{scale=avg}"}) {
      Program program = TwoGradients().Build();
      WEFT_ASSERT_OK(RunPasses(pass, ContextWithRanks(nranks), &program));
      EXPECT_THAT(program, HasOp("c_allreduce_avg").Times(2));
      EXPECT_THAT(program, HasOp("c_allreduce_sum").Times(0));
    }
  }
}

// A loss whose gradient is filled and, where `nranks` is not 0, divided; then w's gradient.
ProgramBuilder OneLoss(int nranks) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  if (nranks != 0) {
    p.Op("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {"loss@GRAD"}}}, kRoleBackward);
    if (nranks > 0) p.IntAttr("nranks", nranks);
  }
  p.Op("mul_grad", {{"Out@GRAD", {"loss@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  return p;
}
constexpr int kDoesNotSay = -1;  // divided, without attribute nranks

TEST(GradAllReduce, SumsWhereTheLossGradientIsDividedByTheNumberOfRanks) {
  for (int nranks : {0, 2}) {
    for (const char* pass : {"grad-all-reduce", "grad-all-reduce{scale=loss_grad}"}) {
      Program program = OneLoss(2).Build();
      WEFT_ASSERT_OK(RunPasses(pass, ContextWithRanks(nranks), &program));
      EXPECT_EQ(OpTexts(program)[4], "c_allreduce_sum@0(w@GRAD -> w@GRAD)");
    }
  }
}

TEST(GradAllReduce, LossGradientDividedForOtherRanksIsRefused) {
  Program program = OneLoss(4).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (scale): divides the loss gradient loss@GRAD for "
                                           "4 ranks, expected 2")));
}

TEST(GradAllReduce, UnknownLossScaleIsLeftToTheUser) {
  Program program = OneLoss(kDoesNotSay).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (scale) rewrites the loss gradient loss@GRAD in "
                                           "place, but does not say for how many ranks")));
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce{scale=loss_grad}", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[4], "c_allreduce_sum@0(w@GRAD -> w@GRAD)");
}

TEST(GradAllReduce, ScaleLossGradWithoutTheDivisionIsRefused) {
  Program program = OneLoss(0).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce{scale=loss_grad}", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("loss gradient loss@GRAD is not divided by the number "
                                           "of ranks; run pass scale-loss-grad first")));
  program = TwoGradients().Build();
  EXPECT_THAT(RunPasses("grad-all-reduce{scale=loss_grad}", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("no op fills the gradient of a loss")));
}

TEST(GradAllReduce, OneOfTwoLossGradientsDividedIsRefused) {
  ProgramBuilder p = OneLoss(2);
  p.Op("fill_constant", {}, {{"Out", {"loss2@GRAD"}}}, kRoleBackward | kRoleLoss);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("loss gradient loss2@GRAD is not divided")));
}

TEST(GradAllReduce, GradientsThatCannotShareABufferTravelAloneAndSayWhy) {
  ProgramBuilder p;
  p.Param("v").Param("w").Var("v@GRAD", {-1}).Var("w@GRAD", {2});
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  p.Op("sum", {{"X", {"w@GRAD", "x"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  std::vector<Remark> remarks;
  PassContext context = ContextWithRanks(2);
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses(kTogether, context, &program));
  EXPECT_THAT(OpTexts(program), Not(Contains(HasSubstr("coalesce_tensor"))));
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[0].details.back(),
            std::make_pair(std::string("alone"), std::string("its shape is unknown: [-1]")));
  EXPECT_EQ(remarks[1].details.back().second, "its first write reads the old value");
}

TEST(GradAllReduce, UnknownPolicyIsAnErrorThatListsAll) {
  Program program = TwoGradients().Build();
  EXPECT_THAT(RunPasses("grad-all-reduce{buckets=size}", ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("option buckets: expected none, bytes{first_bytes=N,max_bytes=N}, "
                                 "count{count=N} or paddle_count{count=N}, found 'size'")));
}

TEST(GradAllReduce, ReducedGradientsAreRefused) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds: op 2 "
                                           "(c_allreduce_avg) takes b@GRAD")));
}

TEST(GradAllReduce, CollectivesOfActivationsDoNotCount) {
  ProgramBuilder p = TwoGradients();
  p.Op("c_allreduce_sum", {{"X", {"hidden"}}}, {{"Out", {"hidden"}}}).IntAttr("ring_id", 3);
  Program program = p.Build();
  WEFT_EXPECT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
}

TEST(GradAllReduce, NoGradientsAreRefused) {
  Program program = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(GradAllReduce, OddNumberOfNamesIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (mul_grad): attribute op_role_var: expected pairs of "
                                 "parameter and gradient, found 1 names: w")));
}

TEST(GradAllReduce, IntegerAndAccumulatedGradientsAreRefused) {
  ProgramBuilder integer;
  integer.Param("w").Var("w@GRAD", {2}, pb::VarType::INT32);
  integer.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = integer.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("found int32")));

  ProgramBuilder accumulated;
  accumulated.Param("w").Var("sum");
  accumulated.last_var().set_persistable(true);
  accumulated.Op("elementwise_add", {{"X", {"sum"}}}, {{"Out", {"sum"}}}, kRoleBackward)
      .Pairs({"w", "sum"});
  program = accumulated.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("accumulated over several steps")));
}

TEST(GradAllReduce, CompressedGradientIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Op("dgc", {{"Grad", {"w@GRAD"}}}, {{"EncodeGrad", {"e"}}, {"Grad_out", {"w@GRAD"}}},
       kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (dgc) compresses gradient w@GRAD")));
}

TEST(GradAllReduce, UpdateByAnUnnamedGradientIsRefused) {
  ProgramBuilder p = TwoGradients();
  p.Op("sgd", {{"Param", {"lost"}}, {"Grad", {"lost@GRAD"}}}, {{"ParamOut", {"lost"}}},
       kRoleOptimize);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 4 (sgd) input Param: lost is updated")));
}

TEST(GradAllReduce, UpdateByAnUnregisteredOptimizerCountsToo) {
  ProgramBuilder p = TwoGradients();
  p.Op("my_optimizer", {{"Param", {"lost"}}, {"Grad", {"lost@GRAD"}}}, {{"ParamOut", {"lost"}}},
       kRoleOptimize);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 4 (my_optimizer) input Param: lost is updated")));
}

// The sum is what the optimizer uses, but only the parts are named.
TEST(GradAllReduce, UpdateByAPartlyNamedGradientIsRefused) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"part"}}}, kRoleBackward).Pairs({"w", "part"});
  p.Op("sum", {{"X", {"part"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 2 (sgd) input Param: w is updated, but gradient "
                                           "part, which op_role_var names, is not reduced: only "
                                           "backward uses it")));
}

TEST(GradAllReduce, GradientInALargerBufferIsRefused) {
  ProgramBuilder p = TwoGradients();
  p.Op("coalesce_tensor", {{"Input", {"w@GRAD"}}},
       {{"Output", {"w@GRAD"}}, {"FusedOutput", {"fused"}}});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD: op 4 (coalesce_tensor) makes it share "
                                           "its storage")));
}

TEST(GradAllReduce, RemarksSayWhatHappenedToEveryGradient) {
  Program program = TwoGradients().Build();
  std::vector<Remark> remarks;
  PassContext context = ContextWithRanks(2);
  context.distributed_params = {"b"};
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", context, &program));
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[0].subject, "w@GRAD");
  EXPECT_EQ(remarks[0].what, "reduced");
  EXPECT_EQ(remarks[1].subject, "b@GRAD");
  EXPECT_EQ(remarks[1].what, "not reduced");
  EXPECT_EQ(remarks[1].why, "its parameter is distributed");
}

}  // namespace
}  // namespace weft
