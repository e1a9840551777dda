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

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPass[] = "paddle-multi-thread-fuse";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// The pass sums gradients, and does not divide them.
const std::set<std::string> kUndivided = {"W312", "W601"};

// One trainer that drives two devices.
RewriteOptions OnTwoDevices() { return OnDevices(1, {0, 1}, Dialect::kPaddle); }

TEST(PaddleMultiThreadFuse, GradientsAreSummedBeforeTheFirstOptimizeOp) {
  ExpectRewrite("paddle-multi-thread-fuse", R"(
  + var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[d@GRAD] = mul_grad(X=[x], Y=[d], Out@GRAD=[y@GRAD]) role=backward vars=[d, d@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD, b@GRAD, d@GRAD] = coalesce_tensor(Input=[a@GRAD, b@GRAD, d@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    Out=[c] = clip(X=[a@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[a] = sgd(Param=[a], Grad=[c], LearningRate=[lr]) role=optimize
  )",
                Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleMultiThreadFuse, SegmentsEndWhereTheElementTypeChangesAndFollowInReverseOrder) {
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    var c, b : fp16[2, 2] parameter persistable
  + var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
  + var FusedOutput_b@GRAD_0 : fp16[] stop_gradient
  + var FusedOutput_d@GRAD_0 : fp32[] stop_gradient
    Out=[d@GRAD] = g(X=[x]) role=backward vars=[d, d@GRAD]
    Out=[c@GRAD] = g(X=[x]) role=backward vars=[c, c@GRAD]
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = g(X=[x]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[FusedOutput_d@GRAD_0], Output=[d@GRAD] = coalesce_tensor(Input=[d@GRAD]) role=backward {copy_data=true, dtype=5}
  + FusedOutput=[FusedOutput_b@GRAD_0], Output=[b@GRAD, c@GRAD] = coalesce_tensor(Input=[b@GRAD, c@GRAD]) role=backward {copy_data=true, dtype=4}
  + FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_d@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_d@GRAD_0]) role=backward
  + Out=[FusedOutput_d@GRAD_0] = c_allreduce_sum(X=[FusedOutput_d@GRAD_0]) role=backward
  + Out=[FusedOutput_b@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_b@GRAD_0]) role=backward
  + Out=[FusedOutput_b@GRAD_0] = c_allreduce_sum(X=[FusedOutput_b@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleMultiThreadFuse, SegmentsHaveSoManyGradients) {
  ExpectRewrite("paddle-multi-thread-fuse{fuse_grad_size_in_num=1}", R"(
  + var FusedOutput_a@GRAD_0, FusedOutput_b@GRAD_0 : fp32[] stop_gradient
    Out=[b@GRAD] = g(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = g(X=[x]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[FusedOutput_b@GRAD_0], Output=[b@GRAD] = coalesce_tensor(Input=[b@GRAD]) role=backward {copy_data=true, dtype=5}
  + FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_b@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_b@GRAD_0]) role=backward
  + Out=[FusedOutput_b@GRAD_0] = c_allreduce_sum(X=[FusedOutput_b@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
  )",
                Violating(kUndivided, OnTwoDevices()));
}

TEST(PaddleMultiThreadFuse, NamesOfBuffersThatAreTakenAreSkipped) {
  ExpectRewrite("paddle-multi-thread-fuse", R"(
    var FusedOutput_a@GRAD_0 : fp32[1]
  + var FusedOutput_a@GRAD_1 : fp32[] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[a@GRAD] = mul_grad(X=[x], Y=[a], Out@GRAD=[y@GRAD]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[FusedOutput_a@GRAD_1], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_a@GRAD_1] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_1]) role=backward
  + Out=[FusedOutput_a@GRAD_1] = c_allreduce_sum(X=[FusedOutput_a@GRAD_1]) role=backward
  + Out=[FusedOutput_a@GRAD_1] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_1]) role=backward
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
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
  ExpectRewrite(kPass, before + kSgd, R"(
  + var FusedOutput_w0@GRAD_0, FusedOutput_w128@GRAD_0 : fp32[] stop_gradient
    Out=[w0@GRAD] = relu(X=[x]) role=backward vars=[w0, w0@GRAD]
  + FusedOutput=[FusedOutput_w128@GRAD_0], Output=[w128@GRAD] = coalesce_tensor(Input=[w128@GRAD]) role=backward {copy_data=true, dtype=5}
  + FusedOutput=[FusedOutput_w0@GRAD_0], Output=[w0@GRAD, w1@GRAD, w2@GRAD, w3@GRAD, w4@GRAD, w5@GRAD, w6@GRAD, w7@GRAD, w8@GRAD, w9@GRAD, w10@GRAD, w11@GRAD, w12@GRAD, w13@GRAD, w14@GRAD, w15@GRAD, w16@GRAD, w17@GRAD, w18@GRAD, w19@GRAD, w20@GRAD, w21@GRAD, w22@GRAD, w23@GRAD, w24@GRAD, w25@GRAD, w26@GRAD, w27@GRAD, w28@GRAD, w29@GRAD, w30@GRAD, w31@GRAD, w32@GRAD, w33@GRAD, w34@GRAD, w35@GRAD, w36@GRAD, w37@GRAD, w38@GRAD, w39@GRAD, w40@GRAD, w41@GRAD, w42@GRAD, w43@GRAD, w44@GRAD, w45@GRAD, w46@GRAD, w47@GRAD, w48@GRAD, w49@GRAD, w50@GRAD, w51@GRAD, w52@GRAD, w53@GRAD, w54@GRAD, w55@GRAD, w56@GRAD, w57@GRAD, w58@GRAD, w59@GRAD, w60@GRAD, w61@GRAD, w62@GRAD, w63@GRAD, w64@GRAD, w65@GRAD, w66@GRAD, w67@GRAD, w68@GRAD, w69@GRAD, w70@GRAD, w71@GRAD, w72@GRAD, w73@GRAD, w74@GRAD, w75@GRAD, w76@GRAD, w77@GRAD, w78@GRAD, w79@GRAD, w80@GRAD, w81@GRAD, w82@GRAD, w83@GRAD, w84@GRAD, w85@GRAD, w86@GRAD, w87@GRAD, w88@GRAD, w89@GRAD, w90@GRAD, w91@GRAD, w92@GRAD, w93@GRAD, w94@GRAD, w95@GRAD, w96@GRAD, w97@GRAD, w98@GRAD, w99@GRAD, w100@GRAD, w101@GRAD, w102@GRAD, w103@GRAD, w104@GRAD, w105@GRAD, w106@GRAD, w107@GRAD, w108@GRAD, w109@GRAD, w110@GRAD, w111@GRAD, w112@GRAD, w113@GRAD, w114@GRAD, w115@GRAD, w116@GRAD, w117@GRAD, w118@GRAD, w119@GRAD, w120@GRAD, w121@GRAD, w122@GRAD, w123@GRAD, w124@GRAD, w125@GRAD, w126@GRAD, w127@GRAD] = coalesce_tensor(Input=[w0@GRAD, w1@GRAD, w2@GRAD, w3@GRAD, w4@GRAD, w5@GRAD, w6@GRAD, w7@GRAD, w8@GRAD, w9@GRAD, w10@GRAD, w11@GRAD, w12@GRAD, w13@GRAD, w14@GRAD, w15@GRAD, w16@GRAD, w17@GRAD, w18@GRAD, w19@GRAD, w20@GRAD, w21@GRAD, w22@GRAD, w23@GRAD, w24@GRAD, w25@GRAD, w26@GRAD, w27@GRAD, w28@GRAD, w29@GRAD, w30@GRAD, w31@GRAD, w32@GRAD, w33@GRAD, w34@GRAD, w35@GRAD, w36@GRAD, w37@GRAD, w38@GRAD, w39@GRAD, w40@GRAD, w41@GRAD, w42@GRAD, w43@GRAD, w44@GRAD, w45@GRAD, w46@GRAD, w47@GRAD, w48@GRAD, w49@GRAD, w50@GRAD, w51@GRAD, w52@GRAD, w53@GRAD, w54@GRAD, w55@GRAD, w56@GRAD, w57@GRAD, w58@GRAD, w59@GRAD, w60@GRAD, w61@GRAD, w62@GRAD, w63@GRAD, w64@GRAD, w65@GRAD, w66@GRAD, w67@GRAD, w68@GRAD, w69@GRAD, w70@GRAD, w71@GRAD, w72@GRAD, w73@GRAD, w74@GRAD, w75@GRAD, w76@GRAD, w77@GRAD, w78@GRAD, w79@GRAD, w80@GRAD, w81@GRAD, w82@GRAD, w83@GRAD, w84@GRAD, w85@GRAD, w86@GRAD, w87@GRAD, w88@GRAD, w89@GRAD, w90@GRAD, w91@GRAD, w92@GRAD, w93@GRAD, w94@GRAD, w95@GRAD, w96@GRAD, w97@GRAD, w98@GRAD, w99@GRAD, w100@GRAD, w101@GRAD, w102@GRAD, w103@GRAD, w104@GRAD, w105@GRAD, w106@GRAD, w107@GRAD, w108@GRAD, w109@GRAD, w110@GRAD, w111@GRAD, w112@GRAD, w113@GRAD, w114@GRAD, w115@GRAD, w116@GRAD, w117@GRAD, w118@GRAD, w119@GRAD, w120@GRAD, w121@GRAD, w122@GRAD, w123@GRAD, w124@GRAD, w125@GRAD, w126@GRAD, w127@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_w128@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_w128@GRAD_0]) role=backward
  + Out=[FusedOutput_w128@GRAD_0] = c_allreduce_sum(X=[FusedOutput_w128@GRAD_0]) role=backward
  + Out=[FusedOutput_w0@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_w0@GRAD_0]) role=backward
  + Out=[FusedOutput_w0@GRAD_0] = c_allreduce_sum(X=[FusedOutput_w0@GRAD_0]) role=backward
  + Out=[FusedOutput_w0@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_w0@GRAD_0]) role=backward
  )",
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
  + var FusedOutput_b@GRAD_0 : fp32[] stop_gradient
    Out=[b@GRAD] = relu(X=[x]) role=backward vars=[b, b@GRAD]
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[FusedOutput_b@GRAD_0], Output=[b@GRAD] = coalesce_tensor(Input=[b@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_b@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_b@GRAD_0]) role=backward
  + Out=[FusedOutput_b@GRAD_0] = c_allreduce_sum(X=[FusedOutput_b@GRAD_0]) role=backward
  + Out=[FusedOutput_b@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_b@GRAD_0]) role=backward
    ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
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
  EXPECT_THAT(status, IsInvalidArgument(
                          "op 1 (g): variable b@GRAD: expected a tensor with an element type"));
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
  + var FusedOutput_a@GRAD_0 : fp32[] stop_gradient
    Out=[a@GRAD] = relu(X=[x]) role=backward vars=[a, a@GRAD]
  + FusedOutput=[FusedOutput_a@GRAD_0], Output=[a@GRAD] = coalesce_tensor(Input=[a@GRAD]) role=backward {copy_data=true, dtype=5}
  + Out=[FusedOutput_a@GRAD_0] = c_sync_calc_stream(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_allreduce_sum(X=[FusedOutput_a@GRAD_0]) role=backward
  + Out=[FusedOutput_a@GRAD_0] = c_sync_comm_stream(X=[FusedOutput_a@GRAD_0]) role=backward
  )",
                                Violating(kUndivided, OnTwoDevices()))),
      ElementsAre(
          "a@GRAD reduced: gradient of a replicated parameter ring=0 buffer=FusedOutput_a@GRAD_0"));
}

}  // namespace
}  // namespace weft::testing
