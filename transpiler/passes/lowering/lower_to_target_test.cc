#include "transpiler/passes/lowering/lower_to_target.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

RewriteOptions ForPaddle3(RewriteOptions options = OnRanks(2)) {
  options.paddle_version = 3;
  return options;
}

RewriteOptions ForCpu(RewriteOptions options = ForPaddle3()) {
  options.device_kind = TargetDevice::kCpu;
  return options;
}

constexpr char kCollectives[] = R"(
    var g : fp32[2]
    var all : fp32[4]
    var part : fp32[1]
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=1, use_calc_stream=true}
    Out=[g] = c_allreduce_max(X=[g]) {ring_id=1, use_calc_stream=true}
    Out=[g] = c_allreduce_avg(X=[g]) {ring_id=1, use_calc_stream=true}
    Out=[all] = c_allgather(X=[g]) {nranks=2, ring_id=1, use_calc_stream=true}
    Out=[g] = c_broadcast(X=[g]) {ring_id=1, root=1, use_calc_stream=true}
    Out=[g] = c_reduce_sum(X=[g]) {ring_id=1, root_id=1, use_calc_stream=true}
    Out=[part] = c_reducescatter(X=[g]) {nranks=2, ring_id=1, use_calc_stream=true}
)";

TEST(LowerToTarget, OfPaddle2StayForPaddle2) {
  ExpectNoRewrite("lower-to-target", {kCollectives, "c_comm_init_all() {ring_id=1}"}, OnRanks(2));
}

TEST(LowerToTarget, CollectivesHaveOtherNamesAndSlotsInPaddle3) {
  ExpectRewrite("lower-to-target", {kCollectives, "c_comm_init_all() {ring_id=1}"},
                {R"(
    out=[g] = all_reduce(x=[g]) {reduce_type=0, ring_id=1, use_calc_stream=true}
    out=[g] = all_reduce(x=[g]) {reduce_type=1, ring_id=1, use_calc_stream=true}
    out=[g] = all_reduce(x=[g]) {reduce_type=4, ring_id=1, use_calc_stream=true}
    out=[all] = all_gather(x=[g]) {nranks=2, ring_id=1, use_calc_stream=true}
    out=[g] = broadcast(x=[g]) {ring_id=1, root=1, use_calc_stream=true}
    out=[g] = reduce(x=[g]) {reduce_type=0, ring_id=1, root_id=1, use_calc_stream=true}
    out=[part] = reduce_scatter(x=[g]) {nranks=2, ring_id=1, use_calc_stream=true}
  )",
                 R"(
    comm_init_all() {ring_id=1}
  )"},
                ForPaddle3());
}

TEST(LowerToTarget, SwitchesThatPaddle3DoesNotDeclareAreLeftOut) {
  const auto result = ExpectRewrite("lower-to-target", R"(
    var g : fp32[2]
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
  - Out=[g] = c_allreduce_sum(Cond=[], X=[g]) {ring_id=0, use_calc_stream=false, use_model_parallel=false}
  + out=[g] = all_reduce(x=[g]) {reduce_type=0, ring_id=0}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
  )",
                                    ForPaddle3());
  EXPECT_THAT(RemarkTexts(result),
              ElementsAre("op 1 (c_allreduce_sum) renamed: the target has all_reduce"));
}

TEST(LowerToTarget, ProgramsOfPaddle3AreForPaddle3ByDefault) {
  constexpr char kProgram[] = R"(program version=3003001 {
  block 0 parent=-1 {
    var g : fp32[2]
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=true}
  }
})";
  ExpectRewrite("lower-to-target", kProgram, R"(program version=3003001 {
  block 0 parent=-1 {
    out=[g] = all_reduce(x=[g]) {reduce_type=0, ring_id=0, use_calc_stream=true}
  }
})",
                OnRanks(2));
  RewriteOptions for_paddle2 = OnRanks(2);
  for_paddle2.paddle_version = 2;
  ExpectNoRewrite("lower-to-target", kProgram, for_paddle2);
}

TEST(LowerToTarget, SumOfSeveralVariablesIsRefusedForPaddle3) {
  EXPECT_THAT(RewriteStatus("lower-to-target", R"(
    var g : fp32[2]
    var h : fp32[2]
    Out=[g, h] = c_allreduce_xsum(X=[g, h]) {ring_id=0}
  )",
                            ForPaddle3()),
              IsUnimplemented(
                  "op 0 (c_allreduce_xsum): Paddle 3 has no op that reduces several variables"));
}

TEST(LowerToTarget, SumUnderAConditionIsRefusedForPaddle3) {
  EXPECT_THAT(RewriteStatus("lower-to-target", R"(
    var g : fp32[2]
    var c : bool[1]
    Out=[g] = c_allreduce_sum(Cond=[c], X=[g]) {ring_id=0, use_calc_stream=true}
  )",
                            ForPaddle3()),
              IsUnimplemented("input Cond: expected no"));
}

TEST(LowerToTarget, NewOpsOfThePaddleDialectHaveWhatPaddle3Added) {
  RewriteOptions options = ForPaddle3(OnEndpoints(2, Dialect::kPaddle));
  // Nothing shows that the gradient is divided.
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("scale-loss-grad{scale=loss_grad},lower-to-target", R"(
    var loss : fp32[] persistable
    var loss@GRAD : fp32[]
    Out=[loss] = scale(ScaleTensor=[], X=[loss]) role=loss {scale=2.0}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
  + Out=[loss@GRAD] = scale(BiasTensor=[], ScaleTensor=[], X=[loss@GRAD]) role=backward {mkldnn_data_type="float32", onednn_data_type="", scale=0.5, use_onednn=false}
  )",
                options);
}

TEST(LowerToTarget, CpusHaveOneStream) {
  const auto result = ExpectRewrite("lower-to-target", R"(
    var g : fp32[2]
  - Out=[g] = c_sync_calc_stream(X=[g])
  - Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
  - Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=false}
  - Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
  - Out=[g] = c_sync_comm_stream(X=[g]) {ring_id=0}
  + out=[g] = all_reduce(x=[g]) {reduce_type=0, ring_id=0, use_calc_stream=true}
  )",
                                    ForCpu());
  EXPECT_THAT(RemarkTexts(result), ::testing::Contains("op 1 (c_wait_compute) removed: the CPU has "
                                                       "one stream"));
}

TEST(LowerToTarget, CpusOfPaddle2KeepTheNames) {
  ExpectRewrite("lower-to-target", R"(
    var g : fp32[2]
  - Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
  - Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
  - Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
  + Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=true}
  )",
                ForCpu(OnRanks(2)));
}

TEST(LowerToTarget, MeansOnCpusAreSumsThatAreDivided) {
  constexpr char kMean[] = R"(
    var g : fp32[2] persistable
    Out=[g] = c_allreduce_avg(X=[g]) role=backward {ring_id=0}
  )";
  ExpectRewrite("lower-to-target", kMean, R"(
  - Out=[g] = c_allreduce_avg(X=[g]) role=backward {ring_id=0}
  + out=[g] = all_reduce(x=[g]) role=backward {reduce_type=0, ring_id=0, use_calc_stream=true}
  + Out=[g] = scale(X=[g]) role=backward {nranks=4, scale=0.25}
  )",
                ForCpu(ForPaddle3(OnRanks(4))));
  EXPECT_THAT(RewriteStatus("lower-to-target", kMean, ForCpu(ForPaddle3({}))),
              IsUnimplemented("op 0 (c_allreduce_avg): Paddle's communicator of CPUs has sums and "
                              "no means; give the number of ranks"));
}

TEST(LowerToTarget, WhatPaddleAddsUpWronglyOnCpusIsRefused) {
  const std::pair<const char*, const char*> types[] = {
      {"fp16[2]", "expected another element type than half precision"},
      {"fp16[2]",
       "gradients travel as fp32 with option:mode mindspore_reducer option:reduce_method mean"},
      {"bf16[2]", "expected another element type than half precision"},
      {"selected_rows<fp32[8, 2]>", "expected a dense tensor"}};
  for (const auto& [type, error] : types) {
    const std::string program = absl::StrCat("var g : ", type, R"(
      Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=true}
    )");
    EXPECT_THAT(RewriteStatus("lower-to-target", program, ForCpu()), IsUnimplemented(error));
  }
}

TEST(LowerToTarget, OtherDevicesThanCudaAndCpuAreOfThePaddleDialect) {
  RewriteOptions options = OnRanks(2);
  options.device_kind = TargetDevice::kXpu;
  EXPECT_THAT(RewriteStatus("lower-to-target", "", options),
              IsInvalidArgument("the weft dialect writes for device kinds cuda and cpu"));
}

}  // namespace
}  // namespace weft::testing
