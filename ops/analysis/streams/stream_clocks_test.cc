#include "ops/analysis/streams/stream_clocks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr int kCompute = 0, kRing = 1, kOtherRing = 2;

class StreamClocksTest : public ::testing::Test {
 protected:
  StreamAccess Write(int stream) {
    StreamAccess access;
    access.time = clocks_.Issue(stream);
    access.stream = static_cast<uint16_t>(stream);
    access.in_branch = clocks_.in_branch();
    access.writes = true;
    return access;
  }

  StreamClocks clocks_{3, /*track_sources=*/true};
};

TEST_F(StreamClocksTest, OpsOfOneStreamComeInOrder) {
  EXPECT_TRUE(clocks_.IsBefore(Write(kRing), kRing));
}

TEST_F(StreamClocksTest, NothingOrdersTwoStreamsButAWait) {
  const StreamAccess write = Write(kRing);
  EXPECT_FALSE(clocks_.IsBefore(write, kCompute));
  EXPECT_TRUE(clocks_.Wait(kCompute, kRing, 0));
  EXPECT_TRUE(clocks_.IsBefore(write, kCompute));
  EXPECT_FALSE(clocks_.IsBefore(write, kOtherRing));
}

TEST_F(StreamClocksTest, WaitHandsOverWhatTheOtherSideKnows) {
  const StreamAccess write = Write(kRing);
  clocks_.Wait(kCompute, kRing, 0);
  clocks_.Wait(kOtherRing, kCompute, 1);
  EXPECT_TRUE(clocks_.IsBefore(write, kOtherRing));
}

TEST_F(StreamClocksTest, WaitForKnownOrNoWorkOrdersNothing) {
  EXPECT_FALSE(clocks_.Wait(kCompute, kRing, 0));
  Write(kRing);
  EXPECT_TRUE(clocks_.Wait(kCompute, kRing, 1));
  EXPECT_FALSE(clocks_.Wait(kCompute, kRing, 2));
  EXPECT_TRUE(clocks_.HostWait(kRing, 3));
  EXPECT_FALSE(clocks_.HostWait(kRing, 4));
}

TEST_F(StreamClocksTest, WaitOfTheHostOrdersAllLaterOps) {
  const StreamAccess write = Write(kRing);
  clocks_.HostWait(kRing, 0);
  Write(kCompute);
  Write(kOtherRing);
  EXPECT_TRUE(clocks_.IsBefore(write, kCompute));
  EXPECT_TRUE(clocks_.IsBefore(write, kOtherRing));
}

TEST_F(StreamClocksTest, IncidentalWaitOrdersAndMakesNoOtherWaitRedundant) {
  const StreamAccess write = Write(kCompute);
  clocks_.IncidentalHostWait(kCompute);
  EXPECT_TRUE(clocks_.IsBefore(write, kRing));
  clocks_.Rely(write, kRing);
  EXPECT_TRUE(clocks_.Wait(kRing, kCompute, 0));
  clocks_.Rely(write, kRing);
  EXPECT_THAT(clocks_.MarkedSources(1), ElementsAre(false));
  clocks_.MarkPrecautions();
  EXPECT_THAT(clocks_.MarkedSources(1), ElementsAre(true));
}

// --- Branches ------------------------------------------------------------------------------------

TEST_F(StreamClocksTest, WaitInABranchOrdersOpsOutsideInsideOfItOnly) {
  const StreamAccess write = Write(kRing);
  clocks_.EnterBranch();
  clocks_.Wait(kCompute, kRing, 0);
  EXPECT_TRUE(clocks_.IsBefore(write, kCompute));
  clocks_.LeaveBranch();
  EXPECT_FALSE(clocks_.IsBefore(write, kCompute));
}

TEST_F(StreamClocksTest, WaitOfTheHostInABranchOrdersNothingAfterIt) {
  const StreamAccess write = Write(kRing);
  clocks_.EnterBranch();
  clocks_.HostWait(kRing, 0);
  Write(kCompute);
  clocks_.LeaveBranch();
  Write(kCompute);
  EXPECT_FALSE(clocks_.IsBefore(write, kCompute));
}

TEST_F(StreamClocksTest, WaitOfTheHostBeforeABranchIsNotLostByStreamsThatNoticeItInside) {
  const StreamAccess write = Write(kRing);
  clocks_.HostWait(kRing, 0);
  clocks_.EnterBranch();
  Write(kCompute);
  clocks_.LeaveBranch();
  Write(kCompute);
  EXPECT_TRUE(clocks_.IsBefore(write, kCompute));
}

TEST_F(StreamClocksTest, WorkAndWaitsOfABranchAreKnownAfterIt) {
  clocks_.EnterBranch();
  const StreamAccess write = Write(kRing);
  clocks_.Wait(kCompute, kRing, 0);
  const StreamAccess late = Write(kRing);
  clocks_.LeaveBranch();
  EXPECT_TRUE(clocks_.IsBefore(write, kCompute));
  EXPECT_FALSE(clocks_.IsBefore(late, kCompute));
}

// The first branch may have run, and the second one not.
TEST_F(StreamClocksTest, WaitInABranchDoesNotOrderOpsOfAnEarlierOne) {
  clocks_.EnterBranch();
  const StreamAccess write = Write(kRing);
  clocks_.LeaveBranch();
  clocks_.EnterBranch();
  clocks_.Wait(kCompute, kRing, 0);
  EXPECT_TRUE(clocks_.IsBefore(write, kCompute));
  clocks_.LeaveBranch();
  EXPECT_FALSE(clocks_.IsBefore(write, kCompute));
}

TEST_F(StreamClocksTest, WaitInAnInnerBranchDoesNotOrderOpsOfTheOuterOne) {
  clocks_.EnterBranch();
  const StreamAccess outer = Write(kRing);
  clocks_.EnterBranch();
  clocks_.Wait(kCompute, kRing, 0);
  clocks_.LeaveBranch();
  EXPECT_FALSE(clocks_.IsBefore(outer, kCompute));
  clocks_.Wait(kCompute, kRing, 1);
  clocks_.EnterBranch();
  const StreamAccess inner = Write(kRing);
  clocks_.Wait(kCompute, kRing, 2);
  clocks_.LeaveBranch();
  clocks_.LeaveBranch();
  EXPECT_TRUE(clocks_.IsBefore(outer, kCompute));
  EXPECT_TRUE(clocks_.IsBefore(inner, kCompute));
}

TEST_F(StreamClocksTest, IncidentalWaitInABranchOrdersNothingAfterIt) {
  const StreamAccess write = Write(kCompute);
  clocks_.EnterBranch();
  const StreamAccess inside = Write(kCompute);
  clocks_.IncidentalHostWait(kCompute);
  EXPECT_TRUE(clocks_.IsBefore(write, kRing));
  clocks_.LeaveBranch();
  EXPECT_FALSE(clocks_.IsBefore(write, kRing));
  EXPECT_TRUE(clocks_.IsBefore(inside, kRing));
}

// --- Sources -------------------------------------------------------------------------------------

TEST_F(StreamClocksTest, EveryWaitOnTheWayIsMarked) {
  const StreamAccess write = Write(kRing);
  Write(kCompute);
  clocks_.Wait(kCompute, kRing, 0);
  clocks_.Wait(kRing, kCompute, 1);
  clocks_.Wait(kOtherRing, kCompute, 2);
  clocks_.Rely(write, kOtherRing);
  EXPECT_THAT(clocks_.MarkedSources(3), ElementsAre(true, false, true));
}

TEST_F(StreamClocksTest, OrderFromMarkedWaitsMarksNoOther) {
  const StreamAccess first = Write(kRing);
  clocks_.Wait(kCompute, kRing, 0);
  const StreamAccess second = Write(kRing);
  clocks_.Wait(kCompute, kRing, 1);
  clocks_.Rely(second, kCompute);
  Write(kRing);
  clocks_.Wait(kCompute, kRing, 2);
  clocks_.Rely(first, kCompute);
  EXPECT_THAT(clocks_.MarkedSources(3), ElementsAre(false, true, false));
}

TEST_F(StreamClocksTest, KnowledgeFromTwoPathsMarksTheWaitsOfBoth) {
  clocks_.EnterBranch();
  Write(kRing);
  clocks_.LeaveBranch();
  clocks_.Wait(kCompute, kRing, 0);
  clocks_.EnterBranch();
  const StreamAccess write = Write(kRing);
  clocks_.Wait(kCompute, kRing, 1);
  clocks_.LeaveBranch();
  clocks_.Rely(write, kCompute);
  EXPECT_THAT(clocks_.MarkedSources(2), ElementsAre(true, true));
}

}  // namespace
}  // namespace weft
