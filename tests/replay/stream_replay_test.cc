#include "tests/replay/stream_replay.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "tests/support/program_descs.h"

namespace weft::testing {
namespace {

// Of rank 0. A gradient is averaged on the ring's stream, and used.
constexpr absl::string_view kMain = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[4] parameter persistable
    var v : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var g : fp32[4]
    var h : fp32[4]
    Out=[g] = some_grad(X=[x], Y=[w])
    Out=[h] = other_grad(X=[x], Y=[v])
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=false}
    Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0, use_calc_stream=false}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[g] = scale(X=[g]) {scale=0.5}
    Out=[h] = scale(X=[h]) {scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr])
    ParamOut=[v] = sgd(Param=[v], Grad=[h], LearningRate=[lr])
)";

constexpr absl::string_view kStartup = R"(
    var w : fp32[4] parameter persistable
    var v : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var id : raw
    Out=[w] = uniform_random() {shape=longs[4], seed=0}
    Out=[v] = fill_constant() {shape=longs[4], value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], value=0.5}
    Out=[id] = c_gen_nccl_id() {endpoint="a:1", other_endpoints=strings["b:1"], rank=0}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}
)";

using Edits = std::vector<std::pair<absl::string_view, absl::string_view>>;

pb::ProgramDesc Read(absl::string_view text, const Edits& edits) {
  std::string edited(text);
  for (const auto& [from, to] : edits) {
    EXPECT_GT(absl::StrReplaceAll({{from, to}}, &edited), 0) << from;
  }
  return *ParseCompactProgram(edited);
}

ProgramDescs Programs(const Edits& main = {}, const Edits& startup = {}) {
  return {Read(kMain, main), Read(kStartup, startup)};
}

// The startup program of rank 1 names itself.
ProgramDescs OfRank1(ProgramDescs programs) {
  for (pb::OpDesc& op : *programs.startup.mutable_blocks(0)->mutable_ops()) {
    if (FindAttr(op, "rank") != nullptr) SetInt(&op, "rank", 1);
    for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
      if (attr.name() == "endpoint") attr.set_s("b:1");
      if (attr.name() == "other_endpoints") attr.set_strings(0, "a:1");
    }
  }
  return programs;
}

class StreamReplayTest : public ::testing::Test {
 protected:
  StreamReplayTest()
      : reference_(Programs()),
        of_rank_1_(OfRank1(Programs())),
        replay_({&reference_, &of_rank_1_}, {"w", "v"}, ReplayOptions{2, 2}) {}

  std::string Difference(const ProgramDescs& on_all) {
    const ProgramDescs on_last = OfRank1(on_all);
    return replay_.Difference({&on_all, &on_last});
  }
  std::string DifferenceOfOne(const ProgramDescs& on_last) {
    const ProgramDescs of_rank_1 = OfRank1(on_last);
    return replay_.Difference({&reference_, &of_rank_1});
  }
  // As it is, which may call itself rank 0.
  std::string DifferenceOfOneAsIs(const ProgramDescs& on_last) {
    return replay_.Difference({&reference_, &on_last});
  }

  const ProgramDescs reference_, of_rank_1_;
  StreamReplay replay_;
};

constexpr absl::string_view kReduceG =
    "    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=false}\n";
constexpr absl::string_view kReduceH =
    "    Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0, use_calc_stream=false}\n";
constexpr absl::string_view kWaitForRing = "    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}\n";

TEST_F(StreamReplayTest, AProgramIsNotDifferentFromItself) {
  EXPECT_EQ(replay_.reference().failure, "");
  EXPECT_EQ(replay_.reference().values.size(), 2);
  EXPECT_EQ(Difference(reference_), "");
}

TEST_F(StreamReplayTest, SumsAndFactorsMayBeArrangedOtherwise) {
  // Divided before the sum, by the collective, or not at once.
  EXPECT_EQ(Difference(Programs({{"c_allreduce_sum(X=[g])", "c_allreduce_avg(X=[g])"},
                                 {"    Out=[g] = scale(X=[g]) {scale=0.5}\n", ""}})),
            "");
  EXPECT_EQ(Difference(Programs({{"    Out=[g] = scale(X=[g]) {scale=0.5}\n",
                                  "    Out=[g] = scale(X=[g]) {scale=0.25}\n"
                                  "    Out=[g] = scale(X=[g]) {scale=2.0}\n"}})),
            "");
  EXPECT_EQ(Difference(Programs({{"scale(X=[g]) {scale=0.5}", "scale(X=[g]) {scale=0.25}"}})),
            "w after step 0 on rank 0");
}

TEST_F(StreamReplayTest, AMissingReductionShows) {
  EXPECT_EQ(Difference(Programs({{kReduceH, ""}})), "v after step 0 on rank 0");
}

TEST_F(StreamReplayTest, AMissingWaitIsARace) {
  EXPECT_EQ(Difference(Programs({{kWaitForRing, ""}})),
            "race: nothing orders op 3 (c_allreduce_sum) and op 5 (scale)");
  EXPECT_THAT(Difference(Programs({{"    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}\n", ""}})),
              StartsWith("race: nothing orders op 0 (some_grad) and op 2"));
  // A block of the host orders as much.
  EXPECT_EQ(Difference(Programs({{"c_wait_comm", "c_sync_comm_stream"}})), "");
  EXPECT_EQ(Difference(Programs({{"c_wait_compute", "c_sync_calc_stream"}})), "");
}

TEST_F(StreamReplayTest, RanksMakeTheSameCalls) {
  EXPECT_THAT(DifferenceOfOne(Programs({{kReduceH, ""}})), StartsWith("deadlock: "));
  EXPECT_THAT(DifferenceOfOne(Programs({{"var g : fp32[4]", "var g : fp32[5]"}})),
              StartsWith("mismatch: all-reduce sum of FP32[4]"));
  // The calls are alike, the values are not.
  EXPECT_EQ(DifferenceOfOne(
                Programs({{absl::StrCat(kReduceG, kReduceH), absl::StrCat(kReduceH, kReduceG)}})),
            "w after step 0 on rank 0");
}

TEST_F(StreamReplayTest, RingsAreSetUp) {
  EXPECT_EQ(
      Difference(Programs({}, {{"    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}\n", ""}})),
      "deadlock: ring 0 is not set up");
}

TEST_F(StreamReplayTest, RanksThatAgreeMeetOnARing) {
  EXPECT_EQ(DifferenceOfOneAsIs(reference_), "deadlock: 2 ranks send an id");
  const auto with_ring = [&](const Edits& edits) { return DifferenceOfOne(Programs({}, edits)); };
  EXPECT_THAT(Difference(Programs({}, {{R"(["b:1"])", R"(["c:1"])"}})), Not(IsEmpty()));
  EXPECT_EQ(with_ring({{"nranks=2", "nranks=3"}}), "deadlock: a ring of 3");
  EXPECT_EQ(with_ring({{"X=[id]", "X=[v]"}}),
            "deadlock: ranks wait in op 4 (c_comm_init) and in op 4 (c_comm_init)");
  EXPECT_EQ(Difference(Programs({}, {{"X=[id]", "X=[v]"}})), "deadlock: an id that nobody made");
  EXPECT_EQ(Difference(Programs({}, {{"    Out=[w] = c_broadcast",
                                      "    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=1}\n"
                                      "    Out=[w] = c_broadcast"}})),
            "deadlock: an id that another ring uses");
}

TEST_F(StreamReplayTest, WhatIsNotKeptIsGone) {
  EXPECT_EQ(Difference(Programs({{"var lr : fp32[1] persistable", "var lr : fp32[1]"}})),
            "w after step 0 on rank 0");
  EXPECT_EQ(
      Difference(Programs({}, {{"var v : fp32[4] parameter persistable", "var v : fp32[4]"}})),
      "v after step 0 on rank 0");
  // A mark that only tools read.
  EXPECT_EQ(Difference(Programs({{"x : fp32[4] need_check_feed", "x : fp32[4]"},
                                 {"w : fp32[4] parameter", "w : fp32[4]"}})),
            "");
}

TEST_F(StreamReplayTest, RingsAreBusyAcrossTheEndOfAStep) {
  constexpr absl::string_view kEnd =
      "    ParamOut=[v] = sgd(Param=[v], Grad=[h], LearningRate=[lr])\n";
  const std::string at_end =
      absl::StrCat(kEnd, "    Out=[v] = c_wait_compute(X=[v]) {ring_id=0}\n",
                   "    Out=[v] = c_broadcast(X=[v]) {ring_id=0, root=0, use_calc_stream=false}\n");
  EXPECT_EQ(Difference(Programs({{kEnd, at_end}})),
            "race: nothing orders earlier op 11 (c_broadcast) and op 1 (other_grad)");
  constexpr absl::string_view kBegin = "    Out=[g] = some_grad(X=[x], Y=[w])\n";
  EXPECT_EQ(
      Difference(Programs(
          {{kEnd, at_end},
           {kBegin, absl::StrCat("    Out=[v] = c_wait_comm(X=[v]) {ring_id=0}\n", kBegin)}})),
      "");
}

TEST_F(StreamReplayTest, OpsThatCommunicateInsideWaitForOtherRanks) {
  constexpr absl::string_view kBegin = "    Out=[g] = some_grad(X=[x], Y=[w])\n";
  const ProgramDescs barrier =
      Programs({{kBegin, absl::StrCat("    barrier(X=[x]) {ring_id=0}\n", kBegin)}});
  EXPECT_EQ(Difference(barrier), "");
  EXPECT_THAT(DifferenceOfOne(barrier), StartsWith("deadlock: ranks wait in"));
  const ProgramDescs send =
      Programs({{kBegin, absl::StrCat("    send_v2(X=[x]) {peer=0, ring_id=0}\n", kBegin)}});
  EXPECT_THAT(Difference(send), StartsWith("deadlock: all ranks send"));
}

TEST_F(StreamReplayTest, WhoseDrawAllRanksGetDoesNotMatter) {
  EXPECT_EQ(Difference(Programs({}, {{"root=0", "root=1"}})), "");
  EXPECT_EQ(Difference(Programs({}, {{"root=0", "root=2"}})), "deadlock: root 2 is no rank");
  EXPECT_THAT(Difference(Programs({}, {{"seed=0}", "seed=0, max=2.0}"}})),
              HasSubstr("w after step 0"));
  EXPECT_THAT(
      Difference(Programs(
          {},
          {{"    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}\n", ""}})),
      HasSubstr("w after step 0"));
}

// What is computed of it, such as a part, is the same, too.
TEST(StreamReplay, WhoseDrawIsTakenApartDoesNotMatter) {
  const auto of_both = [](const std::string& root) {
    const std::string sends =
        absl::StrCat(root, ", use_calc_stream=true}\n    Out=[v] = some_part(X=[w])\n");
    ProgramDescs of_rank_0 = Programs({}, {{"root=0, use_calc_stream=true}\n", sends}});
    ProgramDescs of_rank_1 = OfRank1(of_rank_0);
    return std::make_pair(std::move(of_rank_0), std::move(of_rank_1));
  };
  const auto [first, second] = of_both("root=0");
  const auto [other_first, other_second] = of_both("root=1");
  StreamReplay replay({&first, &second}, {"w", "v"}, ReplayOptions{2, 2});
  EXPECT_EQ(replay.reference().failure, "");
  EXPECT_EQ(replay.Difference({&other_first, &other_second}), "");
}

TEST_F(StreamReplayTest, VariableOfAnotherTypeDiffers) {
  EXPECT_EQ(Difference(Programs({{"var g : fp32[4]", "var g : fp16[4]"}})),
            "w after step 0 on rank 0");
}

// --- Buffers, shards, conditions
// ------------------------------------------------------------------

// Of two programs without startup programs, on both ranks.
std::string DifferenceOfTexts(absl::string_view reference, const Edits& edits) {
  const ProgramDescs one{Read(reference, {}), {}}, other{Read(reference, edits), {}};
  StreamReplay replay({&one, &one}, {"w"}, ReplayOptions{2, 4});
  EXPECT_EQ(replay.reference().failure, "");
  return replay.Difference({&other, &other});
}

TEST(StreamReplay, SlicesOfABufferAreItsMembers) {
  constexpr absl::string_view kBuffer = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[4] persistable
    var g : fp32[4]
    var buffer : fp32[64]
    FusedOutput=[buffer], Output=[g] = coalesce_tensor(Input=[g]) {copy_data=false}
    Out=[g] = some_grad(X=[x])
    Out=[buffer] = c_allreduce_avg(X=[buffer]) {ring_id=0, use_calc_stream=true}
    ParamOut=[w] = sgd(Param=[w], Grad=[g])
)";
  EXPECT_EQ(DifferenceOfTexts(kBuffer, {{"c_allreduce_avg(X=[buffer])", "c_allreduce_avg(X=[g])"},
                                        {"Out=[buffer] = ", "Out=[g] = "}}),
            "");
  EXPECT_EQ(DifferenceOfTexts(kBuffer, {{"c_allreduce_avg", "c_allreduce_sum"}}),
            "w after step 0 on rank 0");
}

TEST(StreamReplay, PartsOfAllRanksAreTheWhole) {
  constexpr absl::string_view kShards = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[4] persistable
    var part : fp32[2]
    var g : fp32[4]
    Out=[g] = some_grad(X=[x])
    Out=[part] = c_reducescatter(X=[g]) {ring_id=0, use_calc_stream=true}
    Out=[g] = c_allgather(X=[part]) {ring_id=0, use_calc_stream=true}
    ParamOut=[w] = sgd(Param=[w], Grad=[g])
)";
  EXPECT_EQ(
      DifferenceOfTexts(
          kShards,
          {{"    Out=[part] = c_reducescatter(X=[g])", "    Out=[g] = c_allreduce_sum(X=[g])"},
           {"    Out=[g] = c_allgather(X=[part]) {ring_id=0, use_calc_stream=true}\n", ""}}),
      "");
}

// Ranks have parts of a buffer of two tensors, which what each of them has of the other changes.
TEST(StreamReplay, PartsOfBuffersArePutTogether) {
  constexpr absl::string_view kParts = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[2] persistable
    var g, h, a, b, part, parts, own : fp32[2]
    var gradients, whole : fp32[4]
    FusedOutput=[gradients], Output=[g, h] = coalesce_tensor(Input=[g, h]) {copy_data=false}
    FusedOutput=[whole], Output=[a, b] = coalesce_tensor(Input=[a, b]) {copy_data=false}
    Out=[g] = some_grad(X=[x])
    Out=[h] = other_grad(X=[x])
    Out=[part] = c_reducescatter(X=[gradients]) {ring_id=0, use_calc_stream=true}
    Out=[whole] = c_allgather(X=[part]) {ring_id=0, use_calc_stream=true}
    Out=[parts] = alltoall(X=[whole]) {ring_id=0, use_calc_stream=true}
    Out=[own] = slice(Input=[parts]) {axes=ints[0], starts=ints[0], ends=ints[1]}
    ParamOut=[w] = sgd(Param=[w], Grad=[own], Other=[b])
)";
  EXPECT_EQ(DifferenceOfTexts(kParts, {{"Other=[b]", "Other=[a]"}}), "w after step 0 on rank 0");
  EXPECT_EQ(
      DifferenceOfTexts(kParts, {{"c_reducescatter(X=[gradients])", "c_reducescatter(X=[whole])"}}),
      "w after step 0 on rank 0");
  EXPECT_EQ(
      DifferenceOfTexts(kParts, {{"starts=ints[0], ends=ints[1]", "starts=ints[1], ends=ints[2]"}}),
      "");  // all ranks have sent the same
  EXPECT_EQ(
      DifferenceOfTexts(kParts, {{"starts=ints[0], ends=ints[1]", "starts=ints[2], ends=ints[3]"}}),
      "w after step 0 on rank 0");
}

TEST(StreamReplay, ConditionsAreComputedOrGuessed) {
  constexpr absl::string_view kBranch = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[4] persistable
    var step : int64[1]
    var due : bool[1]
    var scope : step_scopes
    ParamOut=[w] = sgd(Param=[w], Grad=[x])
    Out=[step] = fill_constant() {value=1.0}
    Out=[due] = equal(X=[step], Y=[step])
    Scope=[scope] = conditional_block(Cond=[due]) {is_scalar_condition=true, sub_block=block(1)}
    block 1:
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
)";
  EXPECT_EQ(DifferenceOfTexts(kBranch, {{"equal(", "less_than("}}), "w after step 0 on rank 0");
  // Each rank decides for itself.
  EXPECT_THAT(DifferenceOfTexts(kBranch, {{"equal(X=[step], Y=[step])", "some_test(X=[x])"}}),
              StartsWith("deadlock: "));
}

TEST(StreamReplay, LoopsAreNotRun) {
  const ProgramDescs loop{Read(R"(
    while() {sub_block=block(1)}
    block 1:
)",
                               {}),
                          {}};
  EXPECT_EQ(StreamReplay({&loop, &loop}, {}, {}).reference().unsupported, "while");
}

}  // namespace
}  // namespace weft::testing
