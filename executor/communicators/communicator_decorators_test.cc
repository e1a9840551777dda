#include "executor/communicators/communicator_decorators.h"

#include <chrono>
#include <thread>
#include <vector>

#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"

namespace weft::testing {
namespace {

GroupOptions TwoRanks() {
  GroupOptions options;
  options.nranks = 2;
  return options;
}

// An all-reduce of `count` ones on both ranks; the results of each.
std::vector<std::vector<float>> AllReduceOnes(CommunicatorGroup* group, int ring, int64_t count) {
  std::vector<std::vector<float>> values(2, std::vector<float>(count, 1));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      CollectiveCall call;
      call.desc.count = count;
      call.dims = {count};
      const auto communicator = group->Get({ring, false}, rank);
      WEFT_ASSERT_OK(communicator.status());
      EXPECT_EQ((*communicator)->rank(), rank);
      EXPECT_EQ((*communicator)->nranks(), 2);
      WEFT_EXPECT_OK((*communicator)->Run(call, values[rank].data(), values[rank].data()));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return values;
}

TEST(RecordingGroup, CountsCallsAndBytesByRing) {
  TrafficLog log;
  const auto group = NewRecordingGroup(NewLocalGroup(TwoRanks()), &log);
  EXPECT_THAT(AllReduceOnes(group.get(), 0, 3), Each(Each(2)));
  AllReduceOnes(group.get(), 0, 5);
  AllReduceOnes(group.get(), 7, 1);
  for (int rank : {0, 1}) {
    const auto traffic = log.OfRank(rank);
    ASSERT_EQ(traffic.size(), 2);
    EXPECT_EQ(traffic.at(0).calls, 2);
    EXPECT_EQ(traffic.at(0).bytes, 32);
    EXPECT_EQ(traffic.at(7).bytes, 4);
  }
}

TEST(RecordingGroup, FailedCallsDoNotCount) {
  TrafficLog log;
  const auto group = NewRecordingGroup(NewLocalGroup(TwoRanks()), &log);
  group->Abort(absl::InternalError("rank 1 failed: gone"));
  CollectiveCall call;
  call.desc.count = 1;
  float one = 1;
  EXPECT_FALSE((*group->Get({}, 0))->Run(call, &one, &one).ok());
  EXPECT_TRUE(log.OfRank(0).empty());
}

TEST(ModelledGroup, TakesLatencyAndBytesOverBandwidthAtLeast) {
  const auto group = NewModelledGroup(NewLocalGroup(TwoRanks()), 0.02, 1e5);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(AllReduceOnes(group.get(), 0, 1000), Each(Each(2)));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(elapsed.count(), 0.02 + 0.04);
}

}  // namespace
}  // namespace weft::testing
