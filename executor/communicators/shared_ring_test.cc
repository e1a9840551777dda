#include "executor/communicators/shared_ring.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"

namespace weft::testing {
namespace {

// Some call of 1 element or of many, by its number.
absl::Status Call(CommunicatorGroup* group, int rank, int number, std::vector<float>* buffer) {
  buffer->assign(number % 3 == 0 ? 40000 : number % 3 == 1 ? 1 : 900, 1);
  CollectiveCall call;
  call.desc.count = static_cast<int64_t>(buffer->size());
  call.variable = "g";
  call.dims = {call.desc.count};
  return (*group->Get(RingKey{}, rank))->Run(call, buffer->data(), buffer->data());
}

// Ranks agree on which calls have run, whenever the ring breaks: a rank that left a call would take
// its buffer away from those that run it.
TEST(SharedRingTest, AnAbortAtAnyMomentEndsAllRanksAtTheSameCall) {
  constexpr int kRanks = 4, kRounds = 60;
  std::mt19937 random(5);
  int most_calls = 0;
  for (int round = 0; round < kRounds; ++round) {
    GroupOptions options;
    options.nranks = kRanks;
    const auto group = NewLocalGroup(options);
    std::vector<int> num_calls(kRanks);
    std::vector<absl::Status> errors(kRanks);
    std::atomic<bool> is_wrong{false};
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        std::vector<float> buffer;
        while (true) {
          errors[r] = Call(group.get(), r, num_calls[r], &buffer);
          if (!errors[r].ok()) return;
          ++num_calls[r];
          if (std::count(buffer.begin(), buffer.end(), kRanks) !=
              static_cast<int64_t>(buffer.size())) {
            is_wrong = true;
          }
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    group->Abort(absl::InternalError("rank 0 failed: enough"));
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(is_wrong);
    EXPECT_THAT(num_calls, Each(num_calls[0]));
    EXPECT_THAT(errors, Each(IsAborted("aborted: rank 0 failed: enough")));
    most_calls = std::max(most_calls, num_calls[0]);
  }
  EXPECT_GT(most_calls, 0);
}

TEST(SharedRingTest, MoreRanksThanProcessorsMeet) {
  constexpr int kRanks = 40, kCalls = 20;
  GroupOptions options;
  options.nranks = kRanks;
  const auto group = NewLocalGroup(options);
  std::vector<absl::Status> results(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      std::vector<float> buffer;
      for (int i = 0; i < kCalls && results[r].ok(); ++i) {
        results[r] = Call(group.get(), r, i, &buffer);
        if (results[r].ok() && buffer.back() != kRanks) {
          results[r] = absl::InternalError("wrong sum");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, Each(weft::testing::IsOk()));
}

TEST(SharedRingTest, TextsThatAreTooLongAreCut) {
  GroupOptions options;
  options.nranks = 2;
  options.timeout_s = 0.01;
  const auto group = NewLocalGroup(options);
  const std::string name(1000, 'v');
  CollectiveCall call;
  call.desc.count = 1;
  call.variable = name;
  float x = 0;
  EXPECT_THAT((*group->Get(RingKey{}, 0))->Run(call, &x, &x),
              IsDeadlineExceeded("of " + std::string(128, 'v') + "... (fp32"));
}

TEST(SharedRingTest, ReduceScatterInPlaceKeepsWhatOthersStillRead) {
  constexpr int kRanks = 3;
  constexpr int64_t kShare = 30000;
  GroupOptions options;
  options.nranks = kRanks;
  const auto group = NewLocalGroup(options);
  std::vector<int> num_wrong(kRanks, -1);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      num_wrong[r] = 0;
      for (int round = 0; round < 20; ++round) {
        std::vector<int32_t> buffer(kRanks * kShare);
        for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<int32_t>(i) * (r + 1);
        CollectiveCall call;
        call.desc.kind = CollectiveKind::kReduceScatter;
        call.desc.dtype = DType::kInt32;
        call.desc.count = kRanks * kShare;
        if (!(*group->Get(RingKey{}, r))->Run(call, buffer.data(), buffer.data()).ok()) return;
        for (int64_t i = 0; i < kShare; ++i) num_wrong[r] += buffer[i] != 6 * (r * kShare + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(num_wrong, Each(0));
}

}  // namespace
}  // namespace weft::testing
