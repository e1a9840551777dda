#include "transpiler/passes/paddle/paddle_grad_all_reduce.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// The pass sums gradients, and does not divide them.
const std::set<std::string> kUndivided = {"W312", "W601"};
// Gradients are not reduced.
const std::set<std::string> kRankLocal = {"W310", "W604"};

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's.
constexpr char kThreeBackwardOps[] = R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Out=[w2@GRAD], Bias=[b2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD], LearningRate=[lr]) role=optimize
  )";

// After paddle-grad-all-reduce, with four rings.
constexpr char kThreeReductions[] = R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Out=[w3@GRAD] = c_sync_calc_stream(X=[w3@GRAD]) role=backward
    Out=[w3@GRAD] = c_allreduce_sum(X=[w3@GRAD]) role=backward {ring_id=1}
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w2@GRAD] = c_sync_calc_stream(X=[w2@GRAD]) role=backward
    Out=[b2@GRAD] = c_allreduce_sum(X=[b2@GRAD]) role=backward
    Out=[w2@GRAD] = c_allreduce_sum(X=[w2@GRAD]) role=backward {ring_id=1}
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
    Out=[w1@GRAD] = c_allreduce_sum(X=[w1@GRAD]) role=backward
    Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward
    Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward {ring_id=1}
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
    ParamOut=[w3] = sgd(Grad=[w3@GRAD], LearningRate=[lr], Param=[w3]) role=optimize
  )";

TEST(PaddleGradAllReduce, RingsAndPairsAreDealtOutWalkingBackwards) {
  ExpectRewrite("paddle-grad-all-reduce", kThreeBackwardOps, kThreeReductions,
                Violating(kUndivided, OnEndpoints(2, Dialect::kPaddle)));
}

TEST(PaddleGradAllReduce, DistributedParameterIsNotReducedButNamedByTheWait) {
  RewriteOptions options = Violating(kUndivided, OnEndpoints(2, Dialect::kPaddle));
  options.distributed_params = {"w3", "w2"};
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", kThreeBackwardOps, R"(
    Out=[w2@GRAD], Bias=[b2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
  + Out=[b2@GRAD] = c_sync_calc_stream(X=[b2@GRAD]) role=backward
  + Out=[b2@GRAD] = c_allreduce_sum(X=[b2@GRAD]) role=backward
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
  + Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
  + Out=[w1@GRAD] = c_allreduce_sum(X=[w1@GRAD]) role=backward
  + Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward
  )",
                options);
}

// Paddle's defect: w@GRAD is used while it may still be in flight.
TEST(PaddleGradAllReduce, OnlyTheFirstOptimizerIsWaitedFor) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD]
  + Out=[v@GRAD] = c_sync_calc_stream(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_allreduce_sum(X=[v@GRAD]) role=backward
  + Out=[v@GRAD] = c_sync_comm_stream(X=[v@GRAD]) role=backward
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                Violating({"W312", "W401", "W601"}, OnEndpoints(2, Dialect::kPaddle)));
}

// Paddle's defect: the sum is four times too large on two ranks.
TEST(PaddleGradAllReduce, PairThatIsNamedTwiceIsReducedTwice) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD, w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleGradAllReduce, LearningRateMultiplierCountsAsAnOptimizer) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    var lr : fp32[1] persistable
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    Out=[lr2] = scale(X=[lr]) role=optimize|lr_sched {scale=2.0}
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleGradAllReduce, PairsWithoutAGradientAreLeftOut) {
  ExpectRewrite("paddle-grad-all-reduce", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[e, @EMPTY@, w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleGradAllReduce, SoundProgramGivesNoWarning) {
  EXPECT_THAT(ExpectRewrite("scale-loss-grad,paddle-grad-all-reduce{nrings=1}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                            OnEndpoints(2, Dialect::kPaddle))
                  .messages,
              IsEmpty());
}

TEST(PaddleGradAllReduce, SparseGradientIsAWarning) {
  EXPECT_THAT(testing::DefectLines(ExpectRewrite("paddle-grad-all-reduce{nrings=1}", R"(
    var w : fp32[8, 2] parameter persistable
    var ids : int64[5] need_check_feed
    var y@GRAD : fp32[5, 2] need_check_feed
    var w@GRAD : selected_rows<fp32[8, 2]>
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD] {is_sparse=true}
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  )",
                                                 OnEndpoints(2, Dialect::kPaddle))
                                       .messages),
              ElementsAre(HasSubstr("found SelectedRows")));
}

TEST(PaddleGradAllReduce, NoGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus("paddle-grad-all-reduce", "Out=[y] = relu(X=[x])",
                            OnEndpoints(2, Dialect::kPaddle)),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(PaddleGradAllReduce, NothingToReduceMaySkip) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"w1", "w2", "b2", "w3"};
  ExpectNoRewrite("paddle-grad-all-reduce{skip=no_gradient}", kThreeBackwardOps, options);
  // Otherwise a wait is left, in every run.
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", kThreeBackwardOps, R"(
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
  + Out=[w3@GRAD] = c_sync_comm_stream(X=[w3@GRAD]) role=backward
  )",
                options);
}

TEST(PaddleGradAllReduce, OneDeviceMaySkip) {
  constexpr char kPass[] = "paddle-grad-all-reduce{skip=one_device}";
  ExpectNoRewrite(kPass, kThreeBackwardOps,
                  Violating(kRankLocal, OnDevices(2, {0}, Dialect::kPaddle)));
  EXPECT_THAT(RewriteStatus(kPass, kThreeBackwardOps, OnEndpoints(2, Dialect::kPaddle)),
              IsInvalidArgument("the devices of each trainer are not given"));
  ExpectRewrite(kPass, kThreeBackwardOps, kThreeReductions,
                Violating(kUndivided, OnDevices(1, {0, 1}, Dialect::kPaddle)));
}

TEST(PaddleGradAllReduce, ReducedGradientsAreRefused) {
  EXPECT_THAT(
      RewriteStatus("paddle-grad-all-reduce", kThreeReductions, OnEndpoints(2, Dialect::kPaddle)),
      StatusIs(kRefused, HasSubstr("gradients-reduced already holds: op 2 "
                                   "(c_allreduce_sum) takes w3@GRAD")));
}

TEST(PaddleGradAllReduce, MissingDistributedParameterIsRefused) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"w9"};
  EXPECT_THAT(RewriteStatus("paddle-grad-all-reduce", kThreeBackwardOps, options),
              IsInvalidArgument("distributed parameter w9 is not a variable of the program"));
}

TEST(PaddleGradAllReduce, OddNumberOfNamesIsRefused) {
  EXPECT_THAT(
      RewriteStatus("paddle-grad-all-reduce", "Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w]",
                    OnEndpoints(2, Dialect::kPaddle)),
      IsInvalidArgument("op 0 (relu): attribute op_role_var"));
}

TEST(PaddleGradAllReduce, NotesNameRingAndPlace) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("paddle-grad-all-reduce", kThreeBackwardOps, kThreeReductions,
                                Violating(kUndivided, OnEndpoints(2, Dialect::kPaddle)))),
      ElementsAre("w1@GRAD reduced: gradient of replicated parameter w1 ring=0 after=op 2 (g1)",
                  "w2@GRAD reduced: gradient of replicated parameter w2 ring=1 after=op 1 (g2)",
                  "b2@GRAD reduced: gradient of replicated parameter b2 ring=0 after=op 1 (g2)",
                  "w3@GRAD reduced: gradient of replicated parameter w3 ring=1 after=op 0 (g3)"));
}

TEST(PaddleGradAllReduce, NotesSayWhyNothingIsReduced) {
  EXPECT_THAT(
      RemarkTexts(ExpectNoRewrite("paddle-grad-all-reduce{skip=one_device}", kThreeBackwardOps,
                                  Violating(kRankLocal, OnDevices(2, {0}, Dialect::kPaddle)))),
      ElementsAre("w1@GRAD not reduced: each trainer drives one device, in which case Paddle "
                  "does nothing parameter=w1",
                  HasSubstr("w2@GRAD not reduced"), HasSubstr("b2@GRAD not reduced"),
                  HasSubstr("w3@GRAD not reduced")));
}

}  // namespace
}  // namespace weft::testing
