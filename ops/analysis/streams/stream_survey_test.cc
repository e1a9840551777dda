#include "ops/analysis/streams/stream_survey.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = StreamSurvey::SpecialOp::Kind;

MATCHER_P3(Special, kind, position, index, "") {
  return arg.kind == kind && arg.position == static_cast<uint32_t>(position) && arg.index == index;
}

ProgramBuilder& Sum(ProgramBuilder& builder, const std::string& in, const std::string& out) {
  return builder.Op("sum", {{"X", {in}}}, {{"Out", {out}}});
}

ProgramBuilder& AllReduce(ProgramBuilder& builder, int ring, const std::string& name,
                          bool on_compute_stream = false) {
  return builder.Op("c_allreduce_sum", {{"X", {name}}}, {{"Out", {name}}})
      .IntAttr("ring_id", ring)
      .BoolAttr("use_calc_stream", on_compute_stream);
}

TEST(StreamSurveyTest, PlainOpsAreNotSpecial) {
  ProgramBuilder builder;
  const Program program = Sum(builder, "a", "b").Build();
  const StreamSurvey survey(program);
  EXPECT_THAT(survey.special(0), IsEmpty());
  EXPECT_THAT(survey.ring_ids(), IsEmpty());
  EXPECT_FALSE(survey.IsWatched(program.FindSymbol("a")));
}

TEST(StreamSurveyTest, RingsHaveStreamsInTheOrderOfTheirNumbers) {
  ProgramBuilder builder;
  AllReduce(builder, 7, "a");
  Sum(builder, "b", "c");
  AllReduce(builder, 3, "b");
  const Program program = builder.Build();
  const StreamSurvey survey(program);
  EXPECT_THAT(survey.ring_ids(), ElementsAre(3, 7));
  EXPECT_EQ(survey.StreamOfRing(3), 1);
  EXPECT_EQ(survey.StreamOfRing(7), 2);
  EXPECT_EQ(survey.StreamOfRing(5), -1);
  EXPECT_THAT(survey.special(0),
              ElementsAre(Special(Kind::kStreamOp, 0, 2), Special(Kind::kStreamOp, 2, 1)));
  EXPECT_TRUE(survey.IsWatched(program.FindSymbol("a")));
  EXPECT_TRUE(survey.IsWatched(program.FindSymbol("b")));
  EXPECT_FALSE(survey.IsWatched(program.FindSymbol("c")));
}

TEST(StreamSurveyTest, CollectiveOnTheComputeStreamIsAPlainOp) {
  ProgramBuilder builder;
  const Program program = AllReduce(builder, 0, "a", /*on_compute_stream=*/true).Build();
  const StreamSurvey survey(program);
  EXPECT_THAT(survey.special(0), IsEmpty());
  EXPECT_THAT(survey.ring_ids(), IsEmpty());
  EXPECT_FALSE(survey.IsWatched(program.FindSymbol("a")));
}

TEST(StreamSurveyTest, MessagesRunOnTheStreamOfTheirRing) {
  const StreamSurvey survey(
      testing::BlockProgram("    send_v2(X=[a]) {ring_id=3, peer=1}\n"
                            "    Out=[a] = recv_v2() {ring_id=5, peer=1, use_calc_stream=true}\n"
                            "    barrier(X=[a]) {ring_id=6}\n"));
  EXPECT_THAT(survey.ring_ids(), ElementsAre(3));
  EXPECT_THAT(survey.special(0), ElementsAre(Special(Kind::kStreamOp, 0, 1)));
  EXPECT_FALSE(survey.unknown_communication().valid());
}

TEST(StreamSurveyTest, WaitsKnowTheirRing) {
  ProgramBuilder builder;
  builder.Op("c_sync_calc_stream", {}, {});
  Sum(builder, "a", "b");
  builder.Op("c_wait_comm", {}, {}).IntAttr("ring_id", 2);
  const StreamSurvey survey(builder.Build());
  EXPECT_THAT(survey.special(0),
              ElementsAre(Special(Kind::kSync, 0, 0), Special(Kind::kSync, 2, 1)));
  ASSERT_THAT(survey.syncs(), SizeIs(2));
  EXPECT_EQ(survey.syncs()[0].sync, StreamSync::kAllWaitForCompute);
  EXPECT_EQ(survey.syncs()[1].sync, StreamSync::kComputeWaitsForRing);
  EXPECT_EQ(survey.syncs()[1].ring_id, 2);
}

TEST(StreamSurveyTest, RingsAreThoseOfAllBlocks) {
  ProgramBuilder builder;
  AllReduce(builder, 4, "a");
  builder.Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  AllReduce(builder, 1, "b");
  const StreamSurvey survey(builder.Build());
  EXPECT_THAT(survey.special(0),
              ElementsAre(Special(Kind::kStreamOp, 0, 2), Special(Kind::kBranch, 1, 0)));
  EXPECT_THAT(survey.special(1), ElementsAre(Special(Kind::kStreamOp, 0, 1)));
}

TEST(StreamSurveyTest, LoopsRingSetUpAndSharedStorageAreSpecial) {
  ProgramBuilder builder;
  builder.Op("c_comm_init", {}, {});
  builder.Op("coalesce_tensor", {{"Input", {"a"}}}, {{"Output", {"a"}}, {"FusedOutput", {"all"}}});
  builder.Op("while", {{"X", {"b"}}}, {{"Out", {"b"}}}).BlockAttr("sub_block", 1).NewBlock();
  const Program program = builder.Build();
  const StreamSurvey survey(program);
  EXPECT_THAT(survey.special(0),
              ElementsAre(Special(Kind::kRingSetup, 0, 0), Special(Kind::kFuse, 1, 0),
                          Special(Kind::kHoldsBlocks, 2, 0)));
  EXPECT_TRUE(survey.IsWatched(program.FindSymbol("all")));
  EXPECT_FALSE(survey.IsWatched(program.FindSymbol("b")));
}

TEST(StreamSurveyTest, UnregisteredOpThatNamesARingIsReported) {
  ProgramBuilder builder;
  Sum(builder, "a", "b");
  builder.Op("my_exchange", {{"X", {"a"}}}, {{"Out", {"a"}}})
      .IntAttr("ring_id", 0)
      .BoolAttr("use_calc_stream", true);
  const Program on_compute = builder.Build();
  EXPECT_FALSE(StreamSurvey(on_compute).unknown_communication().valid());
  EXPECT_EQ(StreamSurvey(on_compute).unknown_on_compute(), on_compute.block(0).ops()[1]);
  const Program sends = testing::BlockProgram("    p_send(x=[a]) {use_calc_stream=true}\n");
  EXPECT_FALSE(StreamSurvey(sends).unknown_on_compute().valid());
  builder.Op("my_exchange", {{"X", {"a"}}}, {{"Out", {"a"}}}).IntAttr("ring_id", 0);
  const Program program = builder.Build();
  EXPECT_EQ(StreamSurvey(program).unknown_communication(), program.block(0).ops()[2]);
}

}  // namespace
}  // namespace weft::testing
