#include "transpiler/passes/paddle/paddle_multi_thread_fuse.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ExpectNoRewrite;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnDevices;
using ::weft::testing::RemarkTexts;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RewriteStatus;
using ::weft::testing::StatusIs;
using ::weft::testing::Violating;

constexpr char kPass[] = "paddle-multi-thread-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// The pass sums gradients, and does not divide them.
const std::set<std::string> kUndivided = {"W312", "W601"};

// One trainer that drives two devices.
RewriteOptions OnTwoDevices() { return OnDevices(1, {0, 1}, Dialect::kPaddle); }

TEST(PaddleMultiThreadFuse, GradientsAreSummedBeforeTheFirstOptimizeOp) {
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[d@GRAD] = mul_grad(X=[x], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    Out=[c] = clip(X=[a@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[a] = sgd(Param=[a], Grad=[c], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[d@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[d]) role=backward vars=[d, d@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[a]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD, b@GRAD, d@GRAD] = coalesce_tensor(Input=[a@GRAD, b@GRAD, d@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[c] = clip(X=[a@GRAD]) role=optimize {max=1.0, min=-1.0}
    ParamOut=[a] = sgd(Grad=[c], LearningRate=[lr], Param=[a]) role=optimize
  )",
                Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleMultiThreadFuse, SegmentsEndWhereTheElementTypeChangesAndFollowInReverseOrder) {
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    var c : fp16[2, 2] parameter persistable
    var b : fp16[2, 2] parameter persistable
    Out=[d@GRAD] = g(X=[x]) role=backward vars=[d, d@GRAD]
    Out=[c@GRAD] = g(X=[x]) role=backward vars=[c, c@GRAD]
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = g(X=[x]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    var FusedOutput_b@GRAD_0 : fp16[] stop_gradient
    var FusedOutput_d@GRAD_0 : fp32[] stop_gradient
    Out=[d@GRAD] = g(X=[x]) role=backward vars=[d, d@GRAD]
    Out=[c@GRAD] = g(X=[x]) role=backward vars=[c, c@GRAD]
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = g(X=[x]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_d@GRAD_0], Output=[d@GRAD] = coalesce_tensor(Input=[d@GRAD]) role=backward {copy_data=true, dtype=5}
    FusedOutput=[FusedOutput_b@GRAD_0], Output=[b@GRAD, c@GRAD] = coalesce_tensor(Input=[b@GRAD, c@GRAD]) role=backward {copy_data=true, dtype=4}
    FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_d@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_d@GRAD_0]) role=backward
    Out=[FusedOutput_d@GRAD_0] = c_allreduce_sum(X=[FusedOutput_d@GRAD_0]) role=backward
    Out=[FusedOutput_b@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_b@GRAD_0]) role=backward
    Out=[FusedOutput_b@GRAD_0] = c_allreduce_sum(X=[FusedOutput_b@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  )",
                Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleMultiThreadFuse, NamesOfBuffersThatAreTakenAreSkipped) {
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    var FusedOutput_a@GRAD_0 : fp32[1]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_a@GRAD_1 : fp32[] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[a]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_a@GRAD_1], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_a@GRAD_1] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_1]) role=backward
    Out=[FusedOutput_a@GRAD_1] = c_allreduce_sum(X=[FusedOutput_a@GRAD_1]) role=backward
    Out=[FusedOutput_a@GRAD_1] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_1]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  )",
                Violating(kUndivided, OnTwoDevices()));
}

constexpr char kOneUpdate[] = R"(
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(PaddleMultiThreadFuse, SegmentsHave128GradientsAtMost) {
  std::string before, names;
  for (int i = 128; i >= 0; --i) {
    absl::StrAppend(&before, "Out=[w", i, "@GRAD] = relu(X=[x]) role=backward vars=[w", i, ", w", i,
                    "@GRAD]\n");
  }
  for (int i = 0; i < 128; ++i) absl::StrAppend(&names, i == 0 ? "" : ", ", "w", i, "@GRAD");
  constexpr char kSgd[] =
      "ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD], LearningRate=[lr]) role=optimize";
  ExpectRewrite(kPass, before + kSgd,
                absl::StrCat(before,
                             absl::Substitute(R"(
    var FusedOutput_w0@GRAD_0 : fp32[] stop_gradient
    var FusedOutput_w128@GRAD_0 : fp32[] stop_gradient
    FusedOutput=[FusedOutput_w128@GRAD_0], Output=[w128@GRAD] = coalesce_tensor(Input=[w128@GRAD]) role=backward {copy_data=true, dtype=5}
    FusedOutput=[FusedOutput_w0@GRAD_0], Output=[$0] = coalesce_tensor(Input=[$0]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_w128@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_w128@GRAD_0]) role=backward
    Out=[FusedOutput_w128@GRAD_0] = c_allreduce_sum(X=[FusedOutput_w128@GRAD_0]) role=backward
    Out=[FusedOutput_w0@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_w0@GRAD_0]) role=backward
    Out=[FusedOutput_w0@GRAD_0] = c_allreduce_sum(X=[FusedOutput_w0@GRAD_0]) role=backward
    Out=[FusedOutput_w0@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_w0@GRAD_0]) role=backward
)",
                                              names),
                             kSgd),
                Violating(kUndivided, OnTwoDevices()));
}

// Paddle's defect: with gradient merge, the optimizer is in a sub-block, and nothing is reduced.
TEST(PaddleMultiThreadFuse, WithoutAnOptimizeOpNothingChanges) {
  ExpectNoRewrite(kPass, "Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]",
                  OnTwoDevices());
}

TEST(PaddleMultiThreadFuse, GradientsOfDistributedParametersAreLeftOut) {
  RewriteOptions options = OnTwoDevices();
  options.distributed_params = {"a"};
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    Out=[b@GRAD] = relu(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    var FusedOutput_b@GRAD_0 : fp32[] stop_gradient
    Out=[b@GRAD] = relu(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_b@GRAD_0], Output=[b@GRAD] = coalesce_tensor(Input=[b@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_b@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_b@GRAD_0]) role=backward
    Out=[FusedOutput_b@GRAD_0] = c_allreduce_sum(X=[FusedOutput_b@GRAD_0]) role=backward
    Out=[FusedOutput_b@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_b@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  )",
                options);
}

TEST(PaddleMultiThreadFuse, NoGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus(
                  kPass, "ParamOut=[a] = sgd(Param=[a], Grad=[g], LearningRate=[lr]) role=optimize",
                  OnTwoDevices()),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(PaddleMultiThreadFuse, GradientWithoutAnElementTypeIsRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    var b@GRAD : raw
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("op 1 (g): variable b@GRAD: expected a tensor with an "
                                         "element type")));
}

TEST(PaddleMultiThreadFuse, ReducedGradientsAreRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
    Out=[a@GRAD] = c_allreduce_sum(X=[a@GRAD]) role=backward
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleMultiThreadFuse, NotesNameTheBuffer) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("paddle-multi-thread-fuse", kOneUpdate, R"(
    var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
    FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
    Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
  )",
                                Violating(kUndivided, OnTwoDevices()))),
      ElementsAre(
          "a@GRAD reduced: gradient of a replicated parameter ring=0 buffer=FusedOutput_a@GRAD_0"));
}

}  // namespace
}  // namespace weft
