#include "transpiler/passes/paddle/paddle_single_process_fuse.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPass[] = "paddle-single-process-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Backward completes w3's gradient, then w2's and b2's in one op, then w1's; one more backward op.
constexpr char kBackward[] = R"(
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Out=[w2@GRAD], Bias=[b2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    Out=[x@GRAD] = g0(X=[x]) role=backward
    ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
  )";

// After paddle-single-process-fuse. Paddle's defect: the coalesce_tensor has role forward.
constexpr char kFused[] = R"(
    var fused_output : fp32[1] stop_gradient
    Out=[w3@GRAD] = g3(X=[x]) role=backward vars=[w3, w3@GRAD]
    Bias=[b2@GRAD], Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
    FusedOutput=[fused_output], Output=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD] = coalesce_tensor(Input=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD]) {copy_data=true, dtype=5}
    Out=[fused_output] = c_sync_calc_stream(X=[fused_output]) role=backward
    Out=[fused_output] = c_allreduce_sum(X=[fused_output]) role=backward
    Out=[fused_output] = c_sync_comm_stream(X=[fused_output]) role=backward
    Out=[x@GRAD] = g0(X=[x]) role=backward
    ParamOut=[w1] = sgd(Grad=[w1@GRAD], LearningRate=[lr], Param=[w1]) role=optimize
  )";

// The pass sums gradients, and does not divide them.
const std::set<std::string> kUndivided = {"W312", "W601"};

// One trainer that drives two devices.
RewriteOptions OnTwoDevices() { return OnDevices(1, {0, 1}, Dialect::kPaddle); }

TEST(PaddleSingleProcessFuse, AllGradientsAreSummedAfterTheLastOne) {
  ExpectRewrite(kPass, kBackward, kFused, Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleSingleProcessFuse, XsumSumsTheGradientsThemselves) {
  ExpectRewrite("paddle-single-process-fuse{by=xsum}", kBackward, R"(
    Out=[w1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD]
  + Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
  + Out=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD] = c_allreduce_xsum(X=[w1@GRAD, w2@GRAD, b2@GRAD, w3@GRAD]) role=backward
  + Out=[w1@GRAD] = c_sync_comm_stream(X=[w1@GRAD]) role=backward
  )",
                Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleSingleProcessFuse, GradientsOfDistributedParametersAreLeftOut) {
  RewriteOptions options = OnTwoDevices();
  options.distributed_params = {"w1", "w2"};
  ExpectRewrite("paddle-single-process-fuse", kBackward, R"(
  + var fused_output : fp32[1] stop_gradient
    Out=[w2@GRAD], Bias=[b2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD, b2, b2@GRAD]
  + FusedOutput=[fused_output], Output=[b2@GRAD, w3@GRAD] = coalesce_tensor(Input=[b2@GRAD, w3@GRAD]) {copy_data=true, dtype=5}
  + Out=[fused_output] = c_sync_calc_stream(X=[fused_output]) role=backward
  + Out=[fused_output] = c_allreduce_sum(X=[fused_output]) role=backward
  + Out=[fused_output] = c_sync_comm_stream(X=[fused_output]) role=backward
  )",
                options);
}

TEST(PaddleSingleProcessFuse, WithoutReplicatedParametersNothingChanges) {
  RewriteOptions options = OnTwoDevices();
  options.distributed_params = {"w1", "w2", "b2", "w3"};
  ExpectNoRewrite(kPass, kBackward, options);
}

TEST(PaddleSingleProcessFuse, ExistingBufferIsRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    var fused_output : fp32[2, 2]
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("variable fused_output already exists")));
}

TEST(PaddleSingleProcessFuse, ReducedGradientsAreRefused) {
  for (const char* by : {"buffer", "xsum"}) {
    for (const char* reduction : {"c_allreduce_sum", "c_allreduce_xsum"}) {
      EXPECT_THAT(RewriteStatus(absl::Substitute("$0{by=$1}", kPass, by),
                                absl::Substitute(R"(
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = $0(X=[w@GRAD]) role=backward
  )",
                                                 reduction),
                                OnTwoDevices()),
                  StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
    }
  }
}

TEST(PaddleSingleProcessFuse, NotesNameTheGradients) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite(kPass, kBackward, kFused, Violating(kUndivided, OnTwoDevices()))),
      ElementsAre(
          "w1@GRAD reduced: gradient of replicated parameter w1, together with all others ring=0",
          "w2@GRAD reduced: gradient of replicated parameter w2, together with all others ring=0",
          "b2@GRAD reduced: gradient of replicated parameter b2, together with all others ring=0",
          "w3@GRAD reduced: gradient of replicated parameter w3, together with all others ring=0"));
}

}  // namespace
}  // namespace weft::testing
