#include "tools/inspect/program_stats.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/program_file.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

ProgramStats StatsOf(absl::string_view lines) {
  return ComputeProgramStats(testing::BlockProgram(lines));
}

TEST(ProgramStatsTest, RealProgramIsCounted) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, ReadProgram("tests/data/fit_a_line/main.pb"));
  ProgramStats stats = ComputeProgramStats(program);
  EXPECT_EQ(stats.version, 2006002);
  EXPECT_EQ(stats.blocks, 1);
  EXPECT_EQ(stats.ops, 13);
  EXPECT_EQ(stats.ops_by_type["sgd"][kRoleOptimize], 2);
  EXPECT_EQ(stats.parameters.count, 2);
  EXPECT_EQ(stats.parameters.elements, 14);
  EXPECT_EQ(stats.parameters.bytes, 56);
  EXPECT_EQ(stats.state.elements, 1);  // the learning rate
  EXPECT_EQ(stats.gradients.count, 2);
  EXPECT_EQ(stats.gradients.bytes, 56);
  EXPECT_TRUE(stats.collectives.empty());
}

TEST(ProgramStatsTest, CollectivesAreCountedByRingAndType) {
  const ProgramStats stats = StatsOf(
      "    var a : fp32[10]\n"
      "    var b : fp32[20]\n"
      "    Out=[a] = c_allreduce_sum(X=[a]) role=backward {ring_id=0}\n"
      "    Out=[b] = c_allreduce_sum(X=[b]) role=backward {ring_id=1}\n"
      "    Out=[a] = c_broadcast(X=[a]) role=backward {ring_id=1}\n");
  ASSERT_EQ(stats.collectives.size(), 3u);
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).bytes, 40);
  EXPECT_EQ(stats.collectives.at({1, "c_allreduce_sum"}).bytes, 80);
  EXPECT_EQ(stats.collectives.at({1, "c_broadcast"}).bytes, 40);
  EXPECT_THAT(ProgramStatsText(stats), HasSubstr("2 tensors: 30 elements, 120 bytes\n"));
}

TEST(ProgramStatsTest, MessagesAndBarriersAreCountedAsCollectives) {
  const ProgramStats stats = StatsOf(
      "    var a : fp32[10]\n"
      "    var b : fp32[20]\n"
      "    var c : int32[1]\n"
      "    send_v2(X=[a]) {ring_id=0, peer=1}\n"
      "    Out=[b] = recv_v2() {out_shape=ints[20], ring_id=1, peer=1}\n"
      "    Out=[c] = barrier(X=[c]) {ring_id=1}\n");
  ASSERT_EQ(stats.collectives.size(), 3u);
  EXPECT_EQ(stats.collectives.at({0, "send_v2"}).bytes, 40);
  EXPECT_EQ(stats.collectives.at({1, "recv_v2"}).bytes, 80);
  EXPECT_EQ(stats.collectives.at({1, "barrier"}).bytes, 4);
}

// 64 elements of 4 bytes are 256.
TEST(ProgramStatsTest, FusedTensorHasThePaddingOfItsOp) {
  const ProgramStats stats = StatsOf(
      "    var a : fp32[10]\n"
      "    var b : fp32[65]\n"
      "    var fused : fp32[1]\n"
      "    Output=[a, b], FusedOutput=[fused] = coalesce_tensor(Input=[a, b]) role=backward "
      "{align_size=256, dtype=5}\n"
      "    Out=[fused] = c_allreduce_sum(X=[fused]) role=backward {ring_id=0}\n");
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).elements, 64 + 128);
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).bytes, 256 + 512);
}

TEST(ProgramStatsTest, FusedTensorHasTheDeclaredSizeWhereItsOpLeavesPaddingToTheDevice) {
  const ProgramStats stats = StatsOf(
      "    var a : fp32[10]\n"
      "    var fused : fp32[1024]\n"
      "    Output=[a], FusedOutput=[fused] = coalesce_tensor(Input=[a]) role=backward {dtype=5}\n"
      "    Out=[fused] = c_allreduce_sum(X=[fused]) role=backward {ring_id=0}\n");
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).bytes, 4096);
}

TEST(ProgramStatsTest, ConditionalCommunicationIsSeparate) {
  const absl::StatusOr<Program> program = ParseProgramText(R"(program {
  block 0 parent=-1 {
    var a : fp32[10]
    var step : int64[1] persistable
    var k : int64[1]
    var zero : int64[1]
    var rest : int64[1]
    var due : bool[1]
    var flag : bool[1]
    Out=[a] = c_allreduce_sum(X=[a]) role=backward {ring_id=0}
    Out=[step] = increment(X=[step]) role=optimize {step=1.0}
    Out=[k] = fill_constant() role=optimize {value=4.0}
    Out=[zero] = fill_constant() role=optimize {value=0.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) role=optimize
    Out=[due] = equal(X=[rest], Y=[zero]) role=optimize
    conditional_block(Cond=[due]) role=optimize {sub_block=block(1)}
    conditional_block(Cond=[flag]) role=optimize {sub_block=block(2)}
  }
  block 1 parent=0 {
    Out=[a] = c_allreduce_sum(X=[a]) role=optimize {ring_id=0}
  }
  block 2 parent=0 {
    Out=[a] = c_allreduce_sum(X=[a]) role=optimize {ring_id=0}
    Out=[a] = c_allreduce_sum(X=[a]) role=optimize {ring_id=0}
  }
}
)");
  WEFT_ASSERT_OK(program);
  const ProgramStats stats = ComputeProgramStats(*program);
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum", 1}).count, 1);
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum", 4}).count, 1);
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum", 0}).count, 2);
  EXPECT_THAT(
      ProgramStatsText(stats),
      HasSubstr(
          "  ring 0  c_allreduce_sum          2 tensors: 20 elements, 80 bytes, conditional\n"
          "  ring 0  c_allreduce_sum          1 tensors: 10 elements, 40 bytes\n"
          "  ring 0  c_allreduce_sum          1 tensors: 10 elements, 40 bytes, once in 4 steps\n"
          "  ring 0  all                      4 tensors: 40 elements, 160 bytes\n"
          "  ring 0  every step               1 tensors: 10 elements, 40 bytes\n"));
}

TEST(ProgramStatsTest, FusedTensorIsAsLargeAsItsMembersWhereItsPaddingIsNotKnown) {
  const ProgramStats stats = StatsOf(
      "    var a : fp32[10]\n"
      "    var b : fp32[20]\n"
      "    var fused : fp32[1]\n"
      "    Output=[a, b], FusedOutput=[fused] = coalesce_tensor(Input=[a, b]) role=backward {}\n"
      "    Out=[fused] = c_allreduce_sum(X=[fused]) role=backward {ring_id=0}\n");
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).bytes, 120);
}

TEST(ProgramStatsTest, UnknownSizesAreCountedSeparately) {
  const ProgramStats stats = StatsOf(
      "    var a : fp32[10, -1]\n"
      "    Out=[a] = c_allreduce_sum(X=[a]) role=backward {ring_id=0}\n");
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).unknown, 1);
  EXPECT_EQ(stats.collectives.at({0, "c_allreduce_sum"}).bytes, 0);
  EXPECT_THAT(ProgramStatsText(stats), HasSubstr("1 of unknown size"));
}

// Of 30 elements, some pass the threshold: 32 bytes, and 8 for each.
TEST(ProgramStatsTest, ElementsThatPassAThresholdAreBounded) {
  const std::string sparsified =
      "    var a : fp32[10]\n"
      "    var b : fp32[4, 5]\n"
      "    var rows : selected_rows<fp32[30, 1]>\n"
      "    Out=[rows] = sparsify_threshold(X=[a, b]) role=backward {threshold=0.5}\n"
      "    Out=[rows] = c_allreduce_sum(X=[rows]) role=backward {ring_id=0}\n";
  const ProgramStats stats = StatsOf(sparsified);
  const TensorTotals& totals = stats.collectives.at({0, "c_allreduce_sum"});
  EXPECT_EQ(totals.bytes, 0);
  EXPECT_EQ(totals.unknown, 1);
  EXPECT_EQ(totals.bounded, 1);
  EXPECT_EQ(totals.bound_bytes, 32 + 30 * 8);
  EXPECT_THAT(ProgramStatsText(stats), HasSubstr("1 of unknown size: at most 272 bytes"));
  EXPECT_THAT(
      ProgramStatsText(StatsOf("    var c : fp32[10, -1]\n" + sparsified +
                               "    Out=[c] = c_allreduce_sum(X=[c]) role=backward {ring_id=0}\n")),
      HasSubstr("2 of unknown size, 1 of these at most 272 bytes"));
}

TEST(ProgramStatsTest, WithoutMarksTrainedVariablesAreParameters) {
  const ProgramStats stats = StatsOf(
      "    var w : fp32[10] persistable\n"
      "    var lr : fp32[1] persistable\n"
      "    var g : fp32[10]\n"
      "    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr]) role=optimize {}\n");
  EXPECT_EQ(stats.parameters.elements, 10);
  EXPECT_EQ(stats.state.elements, 1);
}

TEST(ProgramStatsTest, WithoutMarksAndUpdatesWhatIsOnlyReadIsAParameter) {
  const ProgramStats stats = StatsOf(
      "    var x : fp32[-1, 4] need_check_feed\n"
      "    var w : fp32[4, 2] persistable\n"
      "    var count : fp32[1] persistable\n"
      "    var y : fp32[-1, 2]\n"
      "    Out=[y] = mul(X=[x], Y=[w])\n"
      "    Out=[count] = increment(X=[count])\n");
  EXPECT_EQ(stats.parameters.count, 1);
  EXPECT_EQ(stats.parameters.elements, 8);
  EXPECT_EQ(stats.state.elements, 1);
}

// What exact losses and batch norms over the batches of all ranks exchange.
TEST(ProgramStatsTest, BatchesAndMomentsThatRanksExchangeCount) {
  const Program program = testing::BlockProgram(R"(
    var x : fp32[-1, 4, 6]
    var y : fp32[-1, 4, 6]
    var all : fp32[-1, 5]
    var all@GRAD : fp32[-1, 5]
    var part : fp32[-1, 5]
    var part@GRAD : fp32[-1, 5]
    var scale : fp32[4] persistable
    var bias : fp32[4] persistable
    var mean : fp32[4] persistable
    var variance : fp32[4] persistable
    Out=[all] = c_allgather(X=[part]) {ring_id=0, nranks=2}
    Out=[part@GRAD] = c_reducescatter(X=[all@GRAD]) role=backward {ring_id=0, nranks=2}
    MeanOut=[mean], VarianceOut=[variance], Y=[y] = sync_batch_norm(Bias=[bias], Mean=[mean], Scale=[scale], Variance=[variance], X=[x])
)");
  const ProgramStats stats = ComputeProgramStats(program, 8);
  const auto bytes = [&](const char* type) {
    const TensorTotals& totals = stats.collectives.at({0, type, 1});
    EXPECT_EQ(totals.unknown, 0) << type;
    return totals.bytes;
  };
  EXPECT_EQ(bytes("c_allgather"), 8 * 5 * 4);
  EXPECT_EQ(bytes("c_reducescatter"), 2 * 8 * 5 * 4);
  EXPECT_EQ(bytes("sync_batch_norm"), (2 * 4 + 1) * 8);
}

TEST(ProgramStatsTest, PeakMemoryGrowsWithTheBatch) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, ReadProgram("tests/data/fit_a_line/main.pb"));
  const ProgramStats one = ComputeProgramStats(program);
  const ProgramStats twenty = ComputeProgramStats(program, 20);
  // One row of x (13), and what one column has besides.
  EXPECT_EQ(one.peak_memory.persistable_bytes, 60);
  EXPECT_GT(twenty.peak_memory.bytes, one.peak_memory.bytes + 19 * 13 * 4);
  EXPECT_THAT(ProgramStatsText(twenty),
              HasSubstr(absl::StrCat("estimated for a batch of 20: ", twenty.peak_memory.bytes,
                                     " bytes, 60 of them persistable, at op ")));
}

TEST(ProgramStatsTest, SumsOfHugeTensorsDoNotOverflow) {
  std::string lines;
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&lines, "    var v", i, " : fp64[281474976710656] persistable\n");
  }
  EXPECT_EQ(StatsOf(lines).state.bytes, std::numeric_limits<int64_t>::max());
}

// The same program, once with an op too many.
ProgramBuilder Example() {
  ProgramBuilder builder;
  builder.Param("w").Op("mul", {{"Y", {"w"}}}, {{"Out", {"y"}}});
  return builder;
}

TEST(FingerprintTest, EqualBytesGiveEqualFingerprints) {
  EXPECT_EQ(Fingerprint(Example().Build()), Fingerprint(Example().Build()));
}

TEST(FingerprintTest, IsTheSameOnEveryMachine) {
  // XXH3-64 of a program of one empty block: bytes 0a 0d 08 00 10 ff*9 01.
  pb::ProgramDesc desc;
  desc.add_blocks()->set_idx(0);
  desc.mutable_blocks(0)->set_parent_idx(-1);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(desc));
  EXPECT_EQ(Fingerprint(program), "0affd987e07daca0");
}

TEST(FingerprintTest, EveryChangeOfBytesChangesIt) {
  const std::string before = Fingerprint(Example().Build());
  EXPECT_NE(Fingerprint(Example().IntAttr("axis", 1).Build()), before);
  EXPECT_NE(Fingerprint(Example().Var("unused").Build()), before);
}

TEST(FingerprintTest, RewrittenProgramHasThatOfItsBytes) {
  Program program = Example().Build();
  Rewriter rewriter(&program);
  rewriter.Append(0, ProgramBuilder().Op("relu", {}, {}).last_op());
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, Program::Parse(program.Serialize()));
  EXPECT_EQ(Fingerprint(program), Fingerprint(again));
  EXPECT_NE(Fingerprint(program), Fingerprint(Example().Build()));
}

TEST(FingerprintTest, TextIsSixteenDigits) {
  EXPECT_THAT(Fingerprint(Example().Build()), MatchesRegex("[0-9a-f]{16}"));
}

}  // namespace
}  // namespace weft::testing
