#include "executor/communicators/local_communicator.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

GroupOptions Options(int nranks, double timeout_s = 60) {
  GroupOptions options;
  options.nranks = nranks;
  options.timeout_s = timeout_s;
  return options;
}

// Calls body(rank) on one thread per rank; returns the results by rank.
std::vector<absl::Status> OnRanks(int nranks, const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> results(nranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < nranks; ++r) {
    threads.emplace_back([&, r] { results[r] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

absl::Status AllReduce(CommunicatorGroup* group, int rank, std::vector<float>* buffer,
                       absl::string_view variable = "g") {
  CollectiveCall call;
  call.desc.count = static_cast<int64_t>(buffer->size());
  call.op = "op 7 (c_allreduce_sum)";
  call.variable = variable;
  call.dims = {call.desc.count};
  return (*group->Get(RingKey{}, rank))->Run(call, buffer->data(), buffer->data());
}

TEST(LocalCommunicatorTest, SumsAreBitIdenticalOnEveryRankForSmallAndLargeOddCounts) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 1000);
  for (int nranks : {1, 2, 3, 4}) {
    for (size_t count : {0, 1, 13, 4095, 40001}) {
      std::vector<std::vector<float>> buffers(nranks, std::vector<float>(count));
      for (auto& buffer : buffers) {
        for (float& x : buffer) x = normal(rng);
      }
      std::vector<float> expected = buffers[0];
      for (int r = 1; r < nranks; ++r) {
        for (size_t i = 0; i < count; ++i) expected[i] += buffers[r][i];
      }
      auto group = NewLocalGroup(Options(nranks));
      const auto results =
          OnRanks(nranks, [&](int r) { return AllReduce(group.get(), r, &buffers[r]); });
      EXPECT_THAT(results, Each(IsOk()));
      EXPECT_THAT(buffers, Each(expected)) << nranks << " ranks, " << count << " elements";
    }
  }
}

TEST(LocalCommunicatorTest, RingsOverSomeRanksSumOverTheseOnly) {
  const RingKey all{0, false}, low{1, false, {0, 2}}, high{2, false, {1, 3}};
  for (size_t count : {3, 40001}) {
    auto group = NewLocalGroup(Options(4));
    std::vector<std::vector<float>> buffers(4), of_all(4);
    const auto results = OnRanks(4, [&](int r) {
      buffers[r].assign(count, std::pow(10.0f, r));
      of_all[r] = buffers[r];
      CollectiveCall call;
      call.desc.count = static_cast<int64_t>(count);
      Communicator* const end = *group->Get(low.Has(r) ? low : high, r);
      EXPECT_EQ(end->nranks(), 2);
      EXPECT_EQ(end->rank(), r / 2);
      absl::Status status = end->Run(call, buffers[r].data(), buffers[r].data());
      status.Update((*group->Get(all, r))->Run(call, of_all[r].data(), of_all[r].data()));
      return status;
    });
    EXPECT_THAT(results, Each(IsOk()));
    for (int r = 0; r < 4; ++r) {
      EXPECT_THAT(buffers[r], Each(r % 2 == 0 ? 101 : 1010)) << r;
      EXPECT_THAT(of_all[r], Each(1111)) << r;
    }
  }
}

TEST(LocalCommunicatorTest, ErrorsOfRingsOverSomeRanksNameRanksOfTheRun) {
  auto group = NewLocalGroup(Options(4, /*timeout_s=*/0.01));
  const RingKey ring{1, false, {1, 3}};
  float x = 0;
  CollectiveCall call;
  call.desc.count = 1;
  EXPECT_THAT(
      (*group->Get(ring, 3))->Run(call, &x, &x),
      IsDeadlineExceeded(AllOf(HasSubstr("ring 1 of ranks 1, 3, all-reduce #0"),
                               HasSubstr("rank 1 has not arrived after 0.01 s; waiting: rank 3; "
                                         "rank 1 has never arrived"))));
}

TEST(LocalCommunicatorTest, ManyCallsInARowKeepTheirBuffersApart) {
  auto group = NewLocalGroup(Options(3));
  const auto results = OnRanks(3, [&](int rank) -> absl::Status {
    for (int i = 0; i < 300; ++i) {
      // Covers both the small and the large path.
      std::vector<float> buffer(i % 2 == 0 ? 3 : 5000, static_cast<float>(i + rank));
      absl::Status status = AllReduce(group.get(), rank, &buffer);
      if (!status.ok()) return status;
      for (float x : buffer) {
        if (x != static_cast<float>(3 * i + 3)) return absl::InternalError("wrong sum");
      }
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(LocalCommunicatorTest, TheSameRingOnTwoStreamsIsTwoRings) {
  // Rank 0 calls on the communication stream first, rank 1 on the compute stream.
  auto group = NewLocalGroup(Options(2));
  std::vector<float> own[2] = {{1}, {2}}, compute[2] = {{10}, {20}};
  const auto call = [&](int rank, RingKey key, std::vector<float>* buffer) {
    CollectiveCall call;
    call.desc.count = 1;
    return (*group->Get(key, rank))->Run(call, buffer->data(), buffer->data());
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] { WEFT_EXPECT_OK(call(r, {0, false}, &own[r])); });
    threads.emplace_back([&, r] { WEFT_EXPECT_OK(call(r, {0, true}, &compute[r])); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(own[0], ElementsAre(3));
  EXPECT_THAT(compute[1], ElementsAre(30));
}

TEST(LocalCommunicatorTest, DifferentCallsAreAnErrorThatNamesBoth) {
  auto group = NewLocalGroup(Options(2));
  const auto results = OnRanks(2, [&](int rank) {
    std::vector<float> a = {1}, b = {1, 2};
    absl::Status status = AllReduce(group.get(), rank, &a);
    return status.ok() ? AllReduce(group.get(), rank, rank == 0 ? &a : &b, rank == 0 ? "w" : "v")
                       : status;
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            "ring 0: ranks call different collectives: rank 0 calls all-reduce #1 "
                            "of w (fp32[1]) in op 7 (c_allreduce_sum), rank 1 calls all-reduce #1 "
                            "of v (fp32[2]) in op 7 (c_allreduce_sum)")));
}

TEST(LocalCommunicatorTest, RankThatDoesNotArriveIsNamedOnAllThatWait) {
  auto group = NewLocalGroup(Options(4, /*timeout_s=*/0.3));
  const auto results = OnRanks(4, [&](int rank) {
    std::vector<float> buffer = {1};
    absl::Status status = AllReduce(group.get(), rank, &buffer, "b@GRAD");
    if (!status.ok() || rank == 1) return status;
    return AllReduce(group.get(), rank, &buffer, "w@GRAD");
  });
  WEFT_EXPECT_OK(results[1]);
  for (int rank : {0, 2, 3}) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         "ring 0, all-reduce #1 of w@GRAD (fp32[1]): rank 1 has not arrived after "
                         "0.3 s; waiting: rank 0, 2, 3; rank 1 last arrived at all-reduce #0 of "
                         "b@GRAD (fp32[1])"));
  }
}

TEST(LocalCommunicatorTest, RankThatComesAfterTheTimeoutFailsToo) {
  auto group = NewLocalGroup(Options(2, /*timeout_s=*/0.01));
  std::vector<float> buffer = {1};
  EXPECT_THAT(AllReduce(group.get(), 0, &buffer), IsDeadlineExceeded("rank 1 has never arrived"));
  EXPECT_THAT(AllReduce(group.get(), 1, &buffer), IsDeadlineExceeded("rank 1 has never arrived"));
}

TEST(LocalCommunicatorTest, WarnsOnceOfARankThatIsLate) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  GroupOptions options = Options(3);
  options.warn_after_s = 0.02;
  options.warn = [&](const std::string& message) {
    std::lock_guard<std::mutex> lock(mutex);
    warnings.push_back(message);
  };
  auto group = NewLocalGroup(options);
  const auto results = OnRanks(3, [&](int rank) {
    // Rank 2 arrives after it was reported.
    while (rank == 2) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!warnings.empty()) break;
    }
    std::vector<float> buffer = {1};
    return AllReduce(group.get(), rank, &buffer);
  });
  EXPECT_THAT(results, Each(IsOk()));
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("ring 0, all-reduce #0 of g (fp32[1]): rank"),
                                          HasSubstr("not arrived after 0.02 s"))));
}

TEST(LocalCommunicatorTest, AbortReleasesWaitingRanksAndNamesTheOneThatFailed) {
  auto group = NewLocalGroup(Options(3));
  const auto results = OnRanks(3, [&](int rank) {
    std::vector<float> buffer = {1};
    if (rank == 2) {
      group->Abort(absl::InternalError("rank 2 failed: op 5 (mul): out of luck"));
      return absl::OkStatus();
    }
    return AllReduce(group.get(), rank, &buffer);
  });
  for (int rank : {0, 1}) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kAborted,
                         "ring 0, all-reduce #0 of g (fp32[1]): aborted: rank 2 failed: op 5 "
                         "(mul): out of luck"));
  }
}

TEST(LocalCommunicatorTest, RingMadeAfterAnAbortFailsToo) {
  auto group = NewLocalGroup(Options(2));
  group->Abort(absl::InternalError("rank 1 failed: gone"));
  std::vector<float> buffer = {1};
  EXPECT_THAT(AllReduce(group.get(), 0, &buffer), IsAborted("rank 1 failed: gone"));
}

TEST(LocalCommunicatorTest, ElementTypeThatCannotBeReducedIsAnError) {
  auto group = NewLocalGroup(Options(1));
  CollectiveCall call;
  call.desc.dtype = DType::kInt16;
  call.desc.count = 1;
  call.variable = "w";
  call.dims = {1};
  int16_t buffer = 0;
  EXPECT_THAT(
      (*group->Get(RingKey{}, 0))->Run(call, &buffer, &buffer),
      IsUnimplemented(
          "ring 0, all-reduce #0 of w (int16[1]): ranks in one process cannot reduce int16"));
}

TEST(LocalCommunicatorTest, UnequalPartsAreGatheredInRankOrder) {
  auto group = NewLocalGroup(Options(3));
  const std::vector<int64_t> counts = {2, 0, 3};
  std::vector<std::vector<float>> out(3, std::vector<float>(5));
  const auto results = OnRanks(3, [&](int rank) {
    const std::vector<float> in(counts[rank], rank + 1);
    CollectiveCall call;
    call.op = "op 0 (gather)";
    call.variable = "rows";
    return AllGatherUnequal(call, counts, in.data(), out[rank].data(),
                            *group->Get(RingKey{}, rank));
  });
  EXPECT_THAT(results, Each(IsOk()));
  EXPECT_THAT(out, Each(ElementsAre(1, 1, 3, 3, 3)));
}

TEST(LocalCommunicatorTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  auto group = NewLocalGroup(Options(3));
  std::atomic<int> num_there{0};
  const auto results = OnRanks(3, [&](int rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * rank));
    ++num_there;
    const absl::Status status = (*group->Get(RingKey{}, rank))->Barrier(nullptr);
    EXPECT_EQ(num_there, 3);
    return status;
  });
  EXPECT_THAT(results, Each(IsOk()));
}

}  // namespace
}  // namespace weft::testing
