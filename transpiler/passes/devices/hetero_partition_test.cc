#include "transpiler/passes/devices/hetero_partition.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/schema/device_ops.h"
#include "proto/text/program_text.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kVars[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var w : fp32[2, 3] parameter persistable
    var lr : fp32[1] persistable
    var y, z, y@GRAD : fp32[-1, 3]
    var w@GRAD : fp32[2, 3]
)";

std::string Step(const std::string& ops) { return absl::StrCat(kVars, ops); }

constexpr char kTraining[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(HeteroPartition, UpdateOnTheHostGetsTheGradientAndGivesTheParameter) {
  ExpectRewrite("hetero-partition{place=\"type:sgd=cpu\"}", Step(kTraining), R"(
  + var w@SIM, w@GRAD@CPU : fp32[2, 3]
  - Out=[y] = mul(X=[x], Y=[w])
  - Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@SIM] = memcpy_h2d(X=[w])
  + Out=[w@SIM] = stream_wait(X=[w@SIM]) {stream="compute", awaited="h2d"}
  + Out=[y] = mul(X=[x], Y=[w@SIM])
  + Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w@SIM]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = stream_wait(X=[w@GRAD]) role=optimize {stream="d2h", awaited="compute"}
  + Out=[w@GRAD@CPU] = memcpy_d2h(X=[w@GRAD]) role=optimize
  + Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

// The mirror has the parameter from before the update.
TEST(HeteroPartition, FetchOpsReadWhatTheHostHasUpdated) {
  const std::string fetches = R"(
    var fetch : fetch_list persistable
    Out=[fetch] = fetch(X=[w]) {col=0}
)";
  const std::string later = R"(
    Out=[fetch] = fetch(X=[w]) {col=1}
    Out=[fetch] = fetch(X=[y]) {col=2}
)";
  ExpectRewrite("hetero-partition{place=\"type:sgd=cpu\"}", Step(fetches + kTraining + later), R"(
    var fetch : fetch_list persistable
    var w@SIM : fp32[2, 3]
    var y@CPU : fp32[-1, 3]
    var w@GRAD@CPU : fp32[2, 3]
    Out=[fetch] = fetch(X=[w]) {col=0, op_device="cpu"}
    Out=[w@SIM] = memcpy_h2d(X=[w])
    Out=[w@SIM] = stream_wait(X=[w@SIM]) {stream="compute", awaited="h2d"}
    Out=[y] = mul(X=[x], Y=[w@SIM])
    Out=[y] = stream_wait(X=[y]) role=backward {stream="d2h", awaited="compute"}
    Out=[y@CPU] = memcpy_d2h(X=[y])
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w@SIM]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = stream_wait(X=[w@GRAD]) role=optimize {stream="d2h", awaited="compute"}
    Out=[w@GRAD@CPU] = memcpy_d2h(X=[w@GRAD]) role=optimize
    Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
    Out=[fetch] = fetch(X=[w]) {col=1, op_device="cpu"}
    Out=[fetch] = fetch(X=[y@CPU]) {col=2, op_device="cpu"}
  )");
}

// What the accelerator has, the host can take from there.
TEST(HeteroPartition, FetchOpsOfTheAcceleratorsValuesStayThere) {
  ExpectRewrite("hetero-partition{place=\"type:sgd=cpu\"}", Step(absl::StrCat(kTraining, R"(
    var fetch : fetch_list persistable
    Out=[fetch] = fetch(X=[y]) {col=0}
)")),
                R"(
  + var w@SIM, w@GRAD@CPU : fp32[2, 3]
  - Out=[y] = mul(X=[x], Y=[w])
  - Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w@SIM] = memcpy_h2d(X=[w])
  + Out=[w@SIM] = stream_wait(X=[w@SIM]) {stream="compute", awaited="h2d"}
  + Out=[y] = mul(X=[x], Y=[w@SIM])
  + Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w@SIM]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = stream_wait(X=[w@GRAD]) role=optimize {stream="d2h", awaited="compute"}
  + Out=[w@GRAD@CPU] = memcpy_d2h(X=[w@GRAD]) role=optimize
  + Out=[w@GRAD@CPU] = stream_wait(X=[w@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
  + ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

// A stream_wait is for all that the other stream has been given: the accelerator must not wait for
// the copy of what the host computes meanwhile.
TEST(HeteroPartition, BranchesThatShareAValueDoNotWaitForEachOther) {
  const Program main = Rewrite("hetero-partition{place=\"name:z=cpu\"}", R"(
    var x : fp32[2, 2] need_check_feed
    Out=[z] = relu(X=[x])
    Out=[y] = scale(X=[x]) {scale=2.0}
    Out=[s] = elementwise_add(X=[y], Y=[z])
  )")
                           .main;
  const std::string text = testing::CanonicalText(main.ToProto());
  const size_t wait = text.find("[x@SIM] = stream_wait("), copy = text.find("memcpy_h2d(X=[z])");
  ASSERT_NE(wait, std::string::npos) << text;
  ASSERT_NE(copy, std::string::npos) << text;
  EXPECT_LT(wait, copy) << text;
}

TEST(HeteroPartition, EachValueIsCopiedOnce) {
  ExpectRewrite("hetero-partition{place=\"name:z=cpu\"}", Step(R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[z] = relu(X=[y])
    Out=[z] = scale(X=[z]) {scale=2.0}
    Out=[z] = elementwise_add(X=[z], Y=[y])
    Out=[y@GRAD] = relu(X=[z])
  )"),
                R"(
  + var y@CPU, z@SIM : fp32[-1, 3]
  - Out=[z] = relu(X=[y])
  - Out=[z] = scale(X=[z]) {scale=2.0}
  - Out=[z] = elementwise_add(X=[z], Y=[y])
  - Out=[y@GRAD] = relu(X=[z])
  + Out=[y] = stream_wait(X=[y]) {stream="d2h", awaited="compute"}
  + Out=[y@CPU] = memcpy_d2h(X=[y])
  + Out=[y@CPU] = stream_wait(X=[y@CPU]) {stream="cpu", awaited="d2h"}
  + Out=[z] = relu(X=[y@CPU]) {op_device="cpu"}
  + Out=[z] = scale(X=[z]) {scale=2.0, op_device="cpu"}
  + Out=[z] = elementwise_add(X=[z], Y=[y@CPU]) {op_device="cpu"}
  + Out=[z] = stream_wait(X=[z]) {stream="h2d", awaited="cpu"}
  + Out=[z@SIM] = memcpy_h2d(X=[z])
  + Out=[z@SIM] = stream_wait(X=[z@SIM]) {stream="compute", awaited="h2d"}
  + Out=[y@GRAD] = relu(X=[z@SIM])
  )");
}

// Two gradients in one buffer.
constexpr char kBuffer[] = R"(
    var a, b : fp32[4]
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false, use_align=true, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4]}
    Out=[a] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[b] = fill_constant() {shape=longs[4], dtype=5, value=2.0}
    Out=[fused] = c_allreduce_sum(X=[fused]) {ring_id=0, use_calc_stream=true}
    Out=[sum] = elementwise_add(X=[a], Y=[b])
)";

TEST(HeteroPartition, SliceWrittenOnTheHostIsCopiedIntoItsBuffer) {
  ExpectRewrite("hetero-partition{place=\"name:b=cpu,name:sum=cpu\"}", kBuffer, R"(
  + var fused@CPU : fp32[128]
  + var b@CPU, a@CPU : fp32[4]
  + FusedOutput=[fused@CPU], Output=[a@CPU, b@CPU] = coalesce_tensor(Input=[a@CPU, b@CPU]) {dtype=5, copy_data=false, use_align=true, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4], op_device="cpu"}
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false, use_align=true, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4]}
  + Out=[b@CPU] = fill_constant() {shape=longs[4], dtype=5, value=2.0, op_device="cpu"}
  + Out=[b@CPU] = stream_wait(X=[b@CPU]) {stream="h2d", awaited="cpu"}
  + Out=[b] = stream_wait(X=[b]) {stream="h2d", awaited="compute"}
  + Out=[b] = memcpy_h2d(X=[b@CPU])
  - Out=[b] = fill_constant() {shape=longs[4], dtype=5, value=2.0}
  + Out=[fused] = stream_wait(X=[fused]) {stream="compute", awaited="h2d"}
  - Out=[sum] = elementwise_add(X=[a], Y=[b])
  + Out=[fused] = stream_wait(X=[fused]) {stream="d2h", awaited="compute"}
  + Out=[fused@CPU] = memcpy_d2h(X=[fused])
  + Out=[a@CPU] = stream_wait(X=[a@CPU]) {stream="cpu", awaited="d2h"}
  + Out=[sum] = elementwise_add(X=[a@CPU], Y=[b@CPU]) {op_device="cpu"}
  )");
}

TEST(HeteroPartition, BufferIsWhereItIsUsed) {
  const Program main = Rewrite("hetero-partition{place=\"type:c_allreduce*=cpu\"}", kBuffer).main;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() != "coalesce_tensor") continue;
    EXPECT_EQ(op.StringAttr("op_device"), "cpu");
  }
  EXPECT_THAT(ProgramText(main), HasSubstr("Out=[fused : fp32[128]] = c_allreduce_sum(X=[fused])"));
}

TEST(HeteroPartition, BufferOnTwoDevicesIsRefused) {
  EXPECT_THAT(RewriteStatus("hetero-partition{place=\"type:coalesce_tensor=cpu\"}", kBuffer),
              IsUnimplemented("op 3 (c_allreduce_sum) accesses fused buffer fused, whose slices "
                              "(a, ...) op 0 (coalesce_tensor) makes on the host: expected it on "
                              "the same device, found it on the accelerator"));
}

TEST(HeteroPartition, WriteWaitsForTheCopyThatReads) {
  ExpectRewrite("hetero-partition{place=\"name:z=cpu\"}", Step(R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[z] = relu(X=[y])
    Out=[y] = scale(X=[y]) {scale=2.0}
    Out=[y@GRAD] = relu(X=[y])
  )"),
                R"(
  + var y@CPU : fp32[-1, 3]
  - Out=[z] = relu(X=[y])
  + Out=[y] = stream_wait(X=[y]) {stream="d2h", awaited="compute"}
  + Out=[y@CPU] = memcpy_d2h(X=[y])
  + Out=[y@CPU] = stream_wait(X=[y@CPU]) {stream="cpu", awaited="d2h"}
  + Out=[z] = relu(X=[y@CPU]) {op_device="cpu"}
  + Out=[y] = stream_wait(X=[y]) {stream="compute", awaited="d2h"}
  )");
}

// What the ops of the two devices write, in order.
std::vector<std::string> ComputedBy(const std::string& passes, const std::string& ops) {
  const Program main = Rewrite(passes, ops).main;
  std::vector<std::string> written;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    const bool moves = op.type() == "stream_wait" || CopiesFrom(op.type()).has_value();
    if (!moves) written.emplace_back(main.name(op.output_args()[0]));
  }
  return written;
}

constexpr char kCrossingChains[] = R"(
    var a : fp32[2, 2] persistable
    Out=[a1] = mul(X=[a], Y=[a])
    Out=[h1] = tanh(X=[a1])
    Out=[a2] = mul(X=[h1], Y=[a])
    Out=[b1] = mul(X=[a], Y=[a])
    Out=[g1] = tanh(X=[b1])
    Out=[b2] = mul(X=[g1], Y=[a])
    Out=[out] = elementwise_add(X=[a2], Y=[b2])
)";

TEST(HeteroPartition, ChainsThatCrossVisitTheHostTogether) {
  EXPECT_THAT(
      ComputedBy("hetero-partition{place=\"type:tanh=cpu\",order=few_switches}", kCrossingChains),
      ElementsAre("a1", "b1", "h1", "g1", "a2", "b2", "out"));
  EXPECT_THAT(ComputedBy("hetero-partition{place=\"type:tanh=cpu\"}", kCrossingChains),
              ElementsAre("a1", "h1", "b1", "g1", "a2", "b2", "out"));
}

// Random draws keep their order, and nothing passes an op that waits for streams.
TEST(HeteroPartition, OpsThatAreOrderedKeepTheirOrder) {
  const std::string chains = kCrossingChains;
  const auto with = [&](const std::string& from, const std::string& to) {
    return ComputedBy("hetero-partition{place=\"type:tanh=cpu\",order=few_switches}",
                      absl::StrReplaceAll(chains, {{from, to}}));
  };
  EXPECT_THAT(
      with("    Out=[b1]", "    Out=[b1] = c_sync_comm_stream(X=[b1]) {ring_id=0}\n    Out=[b1]"),
      ElementsAre("a1", "h1", "a2", "b1", "b1", "g1", "b2", "out"));
  const std::string drawn = absl::StrReplaceAll(
      chains, {{"Out=[a2] = mul(X=[h1], Y=[a])", "Mask=[m], Out=[a2] = dropout(X=[h1])"},
               {"Out=[b1] = mul(X=[a], Y=[a])", "Mask=[n], Out=[b1] = dropout(X=[a])"}});
  EXPECT_THAT(ComputedBy("hetero-partition{place=\"type:tanh=cpu\",order=few_switches}", drawn),
              ElementsAre("a1", "h1", "m", "n", "g1", "b2", "out"));
}

TEST(HeteroPartition, ProgramOnOneDeviceStays) {
  ExpectNoRewrite("hetero-partition", Step(kTraining));
  ExpectNoRewrite("hetero-partition{place=\"type:*=sim\"}", Step(kTraining));
}

// --- Buffers of the startup program --------------------------------------------------------------

constexpr char kParts[] = R"(
    var flat : fp32[6] persistable
    var a : fp32[2] persistable
    var b : fp32[4] persistable
)";
constexpr char kPartsStartup[] = R"(
    var flat : fp32[6] persistable
    var a : fp32[2] persistable
    var b : fp32[4] persistable
    FusedOutput=[flat], Output=[a, b] = coalesce_tensor(Input=[a, b]) {copy_data=true, dtype=5, use_align=false}
)";

constexpr char kScaleOnHost[] = "hetero-partition{place=\"type:scale=cpu\",order=early_start}";
ProgramTexts WithParts(const std::string& ops) {
  return {absl::StrCat(kParts, "var y : fp32[6]\nvar z : fp32[2]\n", ops), kPartsStartup};
}

TEST(HeteroPartition, BufferOfTheStartupProgramIsReadBeforeItsPartsAreWritten) {
  const std::string ops =
      "Out=[z] = relu(X=[a])\nOut=[y] = relu(X=[flat])\nOut=[a] = scale(X=[a])\n";
  const std::string text = ProgramText(Rewrite(kScaleOnHost, WithParts(ops)).main);
  EXPECT_LT(text.find("relu(X=[flat])"), text.find("scale(X=[a])")) << text;
}

TEST(HeteroPartition, BufferOfTheStartupProgramThatIsReadLaterIsRefused) {
  EXPECT_THAT(
      RewriteStatus(kScaleOnHost, WithParts("Out=[a] = scale(X=[a])\nOut=[y] = relu(X=[flat])\n")),
      IsUnimplemented("op 1 (relu) reads flat after op 0 (scale) has written a: the startup "
                      "program makes a a part of flat; expected that on one device"));
}

// On one device, the two share memory as they did.
TEST(HeteroPartition, BufferOfTheStartupProgramMayBeReadLaterOnOneDevice) {
  for (const char* device : {"gpu:0", "cpu"}) {
    const ProgramTexts programs =
        WithParts(absl::StrReplaceAll("Out=[a] = scale(X=[a]) {op_device=\"DEVICE\"}\n"
                                      "Out=[y] = relu(X=[flat]) {op_device=\"DEVICE\"}\n",
                                      {{"DEVICE", device}}));
    ExpectRewrite("hetero-partition{place=op_device}", programs, programs);
  }
}

TEST(HeteroPartition, WhatCannotRunOnTheHostIsRefused) {
  EXPECT_THAT(RewriteStatus("hetero-partition{place=\"type:dropout=cpu\"}",
                            Step("Mask=[z], Out=[y] = dropout(X=[x])\n")),
              IsUnimplemented("random numbers are drawn"));
  EXPECT_THAT(
      RewriteStatus("hetero-partition{place=\"type:my_op=cpu\"}", Step("Out=[y] = my_op(X=[x])\n")),
      IsUnimplemented("unregistered op"));
}

// There are no copies of arrays.
constexpr char kArray[] = R"(
    var i : int64[1] need_check_feed
    var array : lod_tensor_array<fp32[-1, 3] lod=0>
    Out=[y] = mul(X=[x], Y=[w])
    Out=[array] = write_to_array(X=[y], I=[i])
    Out=[z] = read_from_array(X=[array], I=[i])
)";

TEST(HeteroPartition, ArrayOnTwoDevicesIsRefused) {
  EXPECT_THAT(
      RewriteStatus("hetero-partition{place=\"type:read_from_array=cpu\"}", Step(kArray)),
      IsUnimplemented("op 2 (read_from_array) accesses array, which is no tensor and cannot be "
                      "copied: expected it on the accelerator as op 1 (write_to_array)"));
  WEFT_EXPECT_OK(RewriteStatus("hetero-partition{place=\"type:*_array=cpu\"}", Step(kArray)));
}

TEST(HeteroPartition, ProgramOnTwoDevicesIsNotPlacedAgain) {
  const std::string place = "hetero-partition{place=\"type:sgd=cpu\"}";
  EXPECT_THAT(RewriteStatus(absl::StrCat(place, ",", place), Step(kTraining)),
              IsFailedPrecondition("place: expected a program on one device, found one on two"));
}

TEST(HeteroPartition, OpOfParameterServersIsRefusedWithItsReason) {
  EXPECT_THAT(RewriteStatus("hetero-partition{place=\"type:ps_push=cpu\"}",
                            Step("ps_push(Grad=[w@GRAD], LearningRate=[lr]) {server_key=0}\n")),
              IsUnimplemented("ops of parameter servers share the messages of a worker"));
}

TEST(HeteroPartition, RuleWithoutAnOpIsRefused) {
  EXPECT_THAT(RewriteStatus("hetero-partition{place=\"type:adam=cpu\"}", Step(kTraining)),
              IsInvalidArgument("place 'type:adam=cpu': expected a rule for an op"));
}

// --- Memory of the accelerator -------------------------------------------------------------------

// The program with memory for `bytes`; what it notes and remarks.
absl::StatusOr<TranspileResult> Chosen(int64_t bytes, Program* main) {
  ProgramPair programs{main, nullptr};
  TranspileOptions options;
  options.mode = "none";
  options.placement.device_memory = bytes;
  options.placement.batch = 4;
  options.explain = true;
  return Transpile(options, programs);
}

// 24 KB of state, and as much for the parameter and its gradient.
constexpr char kAdam[] = R"(
    var x : fp32[-1, 3] need_check_feed
    var w : fp32[3, 1000] parameter persistable
    var m, v : fp32[3, 1000] persistable
    var lr : fp32[1] persistable
    Out=[y] = mul(X=[x], Y=[w])
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize
)";

TEST(HeteroPartition, WhatFitsStays) {
  Program main = testing::CompactProgram(kAdam);
  const std::string before = ProgramText(main);
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Chosen(100000, &main));
  EXPECT_EQ(ProgramText(main), before);
  EXPECT_THAT(testing::ResultLines(result.messages), ElementsAre(HasSubstr("on the host nothing")));
}

// A program that needs one memory, with the buffer of its startup program.
TEST(HeteroPartition, WhatFitsIsNotTriedOnTwoDevices) {
  Program startup = testing::CompactProgram(kPartsStartup);
  Program main = testing::CompactProgram(
      absl::StrCat(kParts, "var y : fp32[6]\nOut=[a] = scale(X=[a])\nOut=[y] = relu(X=[flat])\n"));
  ProgramPair programs{&main, &startup};
  TranspileOptions options;
  options.mode = "none";
  options.placement.device_memory = 100000;
  WEFT_EXPECT_OK(Transpile(options, programs).status());
  options.placement.device_memory = 1;
  EXPECT_THAT(Transpile(options, programs).status(), IsUnimplemented("reads flat after"));
}

TEST(HeteroPartition, StateOfTheOptimizerLeavesFirst) {
  Program main = testing::CompactProgram(kAdam);
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Chosen(60000, &main));
  EXPECT_THAT(testing::ResultLines(result.messages),
              ElementsAre(HasSubstr("batch of 4: on the host 1 update; at most")));
  const std::string text = ProgramText(main);
  EXPECT_THAT(text, HasSubstr("mul(X=[x], Y=[w@SIM])"));
  EXPECT_THAT(text, HasSubstr("Grad=[w@GRAD@CPU]"));
  std::vector<std::string> decisions;
  for (const Remark& remark : result.remarks) {
    if (remark.what != "tried") decisions.push_back(absl::StrCat(remark.subject, " ", remark.what));
  }
  EXPECT_THAT(decisions, ElementsAre("w on the host", "sim segments"));
}

TEST(HeteroPartition, ChoiceIsTheSameEveryTime) {
  Program one = testing::CompactProgram(kAdam), two = one;
  WEFT_ASSERT_OK(Chosen(60000, &one).status());
  WEFT_ASSERT_OK(Chosen(60000, &two).status());
  EXPECT_EQ(ProgramText(one), ProgramText(two));
}

// 26 updates, whose gradients are in buckets of 14 and 12. Numbers of updates that are tried are
// multiples of 26 / 12, rounded up.
std::string TwoBuckets() {
  const auto each = [](int begin, int end, absl::string_view text) {
    std::string all;
    for (int i = begin; i < end; ++i) {
      absl::StrAppend(&all, absl::StrReplaceAll(text, {{"#", absl::StrCat(i)}}));
    }
    return all;
  };
  std::string text = each(0, 26, R"(
    var w# : fp32[1000] parameter persistable
    var v# : fp32[1000] persistable
    var g# : fp32[1000])");
  absl::StrAppend(&text, R"(
    var x : fp32[1000] need_check_feed
    var lr : fp32[1] persistable
    var fused_0 : fp32[14336]
    var fused_1 : fp32[12288]
)");
  for (const auto& [begin, end] : {std::make_pair(0, 14), std::make_pair(14, 26)}) {
    const std::string fused = begin == 0 ? "fused_0" : "fused_1";
    std::vector<std::string> names;
    for (int i = begin; i < end; ++i) names.push_back(absl::StrCat("g", i));
    const std::string slices = absl::StrJoin(names, ", ");
    const std::string ones = absl::StrJoin(std::vector<std::string>(end - begin, "1"), ", ");
    const std::string sizes = absl::StrJoin(std::vector<std::string>(end - begin, "1000"), ", ");
    absl::StrAppend(&text, "    FusedOutput=[", fused, "], Output=[", slices,
                    "] = coalesce_tensor(Input=[", slices,
                    "]) role=backward {dtype=5, use_align=true, align_size=256, "
                    "concated_ranks=longs[",
                    ones, "], concated_shapes=longs[", sizes, "]}\n");
    absl::StrAppend(
        &text, each(begin, end,
                    "    Out=[g#] = elementwise_mul(X=[x], Y=[w#]) role=backward vars=[w#, g#]\n"));
    absl::StrAppend(&text, "    Out=[", fused, "] = scale(X=[", fused, "]) role=backward\n");
  }
  return absl::StrCat(
      text, each(0, 26,
                 "    ParamOut=[w#], VelocityOut=[v#] = momentum(Grad=[g#], LearningRate=[lr], "
                 "Param=[w#], Velocity=[v#]) role=optimize {mu=0.9}\n"));
}

TEST(HeteroPartition, UpdatesUpToTheEndOfABucketAreTried) {
  const std::string program = TwoBuckets();
  bool is_one_copy = false;
  for (int64_t bytes = 400000; bytes > 200000 && !is_one_copy; bytes -= 4000) {
    Program main = testing::CompactProgram(program);
    if (!Chosen(bytes, &main).ok()) break;
    std::vector<std::string> copied;
    for (OpId id : main.block(0).ops()) {
      const Op op = main.op(id);
      if (op.type() == "memcpy_d2h") copied.emplace_back(main.name(op.Input("X")[0]));
    }
    is_one_copy = copied == std::vector<std::string>{"fused_0"};
  }
  EXPECT_TRUE(is_one_copy);
}

TEST(HeteroPartition, TooLittleMemoryIsRefusedWithTheLeastThatWouldDo) {
  Program main = testing::CompactProgram(kAdam);
  EXPECT_THAT(Chosen(100, &main).status(), IsResourceExhausted("expected at least "));
  EXPECT_THAT(Chosen(0, &main).status(), IsInvalidArgument("device_memory"));
}

}  // namespace
}  // namespace weft::testing
