#include "executor/gpu/local_gpu_communicator.h"

#include <chrono>
#include <thread>
#include <vector>

#include "base/testing/test.h"
#include "executor/communicators/collective_cases.h"
#include "executor/gpu/gpu_api_testing.h"

namespace weft::testing {
namespace {

std::unique_ptr<CommunicatorGroup> NewGroup(GroupOptions options, FakeGpu* gpu) {
  return *NewLocalGpuGroup(std::move(options), gpu);
}

GroupOptions Options(int nranks, double timeout_s = 60) {
  GroupOptions options;
  options.nranks = nranks;
  options.timeout_s = timeout_s;
  return options;
}

CollectiveCall AllReduce(int64_t count, FakeStream* stream) {
  CollectiveCall call;
  call.desc.count = count;
  call.op = "op 3 (c_allreduce_sum)";
  call.variable = "w@GRAD";
  call.dims = {count};
  call.stream = stream;
  return call;
}

// Makes the calls of RunCases finish before they return, as they do on the host.
class Synchronized : public Communicator {
 public:
  explicit Synchronized(Communicator* inner) : inner_(*inner) {}
  int rank() const override { return inner_.rank(); }
  int nranks() const override { return inner_.nranks(); }
  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    CollectiveCall enqueued = call;
    enqueued.stream = &stream_;
    const absl::Status status = inner_.Run(enqueued, in, out);
    stream_.Synchronize();
    return status;
  }

 private:
  Communicator& inner_;
  FakeStream stream_;
};

class RanksOnOneGpu : public ::testing::TestWithParam<int> {};

TEST_P(RanksOnOneGpu, ComputeTheBitsOfRanksOnTheHost) {
  const int nranks = GetParam();
  const std::vector<CollectiveCase> cases = CollectiveCases(nranks);
  const auto expected = ExpectedResults(cases, nranks);
  FakeGpu gpu;
  const auto group = NewGroup(Options(nranks), &gpu);
  const auto results = OnRankThreads(nranks, [&](int rank) -> absl::Status {
    Synchronized end(*group->Get(RingKey{}, rank));
    const auto found = RunCases(cases, &end);
    if (!found.ok()) return found.status();
    EXPECT_EQ(FirstDifference(cases, *found, expected[rank]), "");
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

INSTANTIATE_TEST_SUITE_P(Numbers, RanksOnOneGpu, ::testing::Values(1, 2, 3));

// The hosts run ahead of streams that are slow by turns.
TEST(LocalGpuCommunicator, StreamsWaitForEachOtherWhileHostsRunAhead) {
  constexpr int kRanks = 3, kCalls = 40;
  FakeGpu gpu;
  const auto group = NewGroup(Options(kRanks), &gpu);
  std::vector<int64_t> sums(kRanks, 0);
  const auto results = OnRankThreads(kRanks, [&](int rank) -> absl::Status {
    Communicator* const ring = *group->Get(RingKey{}, rank);
    int64_t value = 0;
    FakeStream stream;
    for (int i = 0; i < kCalls; ++i) {
      stream.Enqueue([&value, i, rank] {
        if (i % kRanks == rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        value += rank + i;
      });
      CollectiveCall call = AllReduce(1, &stream);
      call.desc.dtype = DType::kInt64;
      call.desc.reduction = Reduction::kMax;
      const absl::Status status = ring->Run(call, &value, &value);
      if (!status.ok()) return status;
    }
    stream.Synchronize();
    sums[rank] = value;
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
  // The largest is always that of the last rank.
  EXPECT_THAT(sums, Each(kCalls * (kRanks - 1) + kCalls * (kCalls - 1) / 2));
}

TEST(LocalGpuCommunicator, BarrierWaitsForTheStreamsOfOthers) {
  FakeGpu gpu;
  const auto group = NewGroup(Options(2), &gpu);
  std::atomic<bool> has_run{false};
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    FakeStream stream;
    if (rank == 1) {
      stream.Enqueue([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        has_run = true;
      });
    }
    const absl::Status status = (*group->Get(RingKey{}, rank))->Barrier(&stream);
    if (rank == 0) stream.Enqueue([&] { EXPECT_TRUE(has_run); });
    stream.Synchronize();
    return status;
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(LocalGpuCommunicator, RanksThatDifferAreReported) {
  FakeGpu gpu;
  const auto group = NewGroup(Options(2), &gpu);
  const auto results = OnRankThreads(2, [&](int rank) {
    FakeStream stream;
    std::vector<float> buffer(2);
    return (*group->Get(RingKey{}, rank))
        ->Run(AllReduce(1 + rank, &stream), buffer.data(), buffer.data());
  });
  EXPECT_THAT(results, Each(IsFailedPrecondition("ranks call different collectives")));
}

TEST(LocalGpuCommunicator, RankThatDoesNotComeIsAnErrorAndLeavesNoWork) {
  FakeGpu gpu;
  const auto group = NewGroup(Options(2, /*timeout_s=*/0.05), &gpu);
  FakeStream stream;
  float x = 1;
  EXPECT_THAT((*group->Get(RingKey{}, 0))->Run(AllReduce(1, &stream), &x, &x),
              IsDeadlineExceeded("rank 1 has never arrived"));
  stream.Synchronize();
}

TEST(LocalGpuCommunicator, AbortReleasesARankThatWaits) {
  FakeGpu gpu;
  const auto group = NewGroup(Options(2), &gpu);
  const auto results = OnRankThreads(2, [&](int rank) {
    FakeStream stream;
    float x = 1;
    if (rank == 1) {
      group->Abort(absl::InternalError("rank 1 failed: no luck"));
      return absl::OkStatus();
    }
    return (*group->Get(RingKey{}, rank))->Run(AllReduce(1, &stream), &x, &x);
  });
  EXPECT_THAT(results[0], IsAborted("no luck"));
}

TEST(LocalGpuCommunicator, BuildWithoutCudaSaysSo) {
  EXPECT_THAT(NewLocalGpuGroup(Options(2), nullptr).status(),
              StatusIs(absl::StatusCode::kUnavailable, "built without CUDA"));
}

}  // namespace
}  // namespace weft::testing
