#include "ops/analysis/streams/access_history.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

StreamAccess Access(uint32_t time, int stream, bool writes, bool in_branch = false) {
  StreamAccess access;
  access.time = time;
  access.stream = static_cast<uint16_t>(stream);
  access.writes = writes;
  access.in_branch = in_branch;
  return access;
}

std::vector<uint32_t> Times(AccessHistory& history) {
  std::vector<uint32_t> times;
  for (const AccessHistory::Entry& entry : history.entries()) times.push_back(entry.access.time);
  return times;
}

TEST(AccessHistory, KeepsTheLastWriteAndTheLastReadOfEachStreamSince) {
  AccessHistory history;
  history.Add(Access(1, 0, false), 1);
  history.Add(Access(2, 0, true), 1);
  history.Add(Access(3, 1, false), 1);
  history.Add(Access(4, 1, false), 1);
  history.Add(Access(5, 0, false), 1);
  EXPECT_THAT(Times(history), ElementsAre(2, 4, 5));
}

TEST(AccessHistory, HoldsAnyNumberOfStreams) {
  AccessHistory history;
  history.Add(Access(1, 0, true), 1);
  for (int stream = 0; stream < 6; ++stream) history.Add(Access(2 + stream, stream, false), 1);
  EXPECT_THAT(Times(history), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  history.Add(Access(9, 3, false), 1);
  EXPECT_THAT(Times(history), ElementsAre(1, 2, 3, 4, 9, 6, 7));
  history.Add(Access(10, 2, true), 1);
  EXPECT_THAT(Times(history), ElementsAre(10));
}

TEST(AccessHistory, WriteInABranchCoversThatBranchOnly) {
  AccessHistory history;
  history.Add(Access(1, 0, true), 1);
  history.Add(Access(2, 1, false, true), 1);
  history.Add(Access(5, 2, false, true), 1);
  history.Add(Access(6, 0, true, true), /*branch_start=*/4);
  EXPECT_THAT(Times(history), ElementsAre(1, 2, 6));
}

}  // namespace
}  // namespace weft
