#include "executor/run/batch_reader.h"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Parts = absl::StatusOr<std::vector<BatchReader::Part>>;

// Every rank gets one tensor: step and rank.
Parts PartsOf(int64_t step, int nranks) {
  std::vector<BatchReader::Part> parts;
  for (int rank = 0; rank < nranks; ++rank) {
    parts.push_back({Floats({2}, {static_cast<float>(step), static_cast<float>(rank)})});
  }
  return parts;
}

// Counts readings, so that a test can wait for them.
struct Counter {
  std::atomic<int64_t> reads{0};

  BatchReader::ReadParts For(int nranks) {
    return [this, nranks](int64_t step, const std::vector<BatchReader::Part>&) {
      ++reads;
      return PartsOf(step, nranks);
    };
  }
  void WaitFor(int64_t count) const {
    while (reads < count) std::this_thread::yield();
  }
  // After a while in which more would have been read.
  int64_t Later() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return reads;
  }
};

TEST(BatchReaderTest, RanksOnThreadsOfTheirOwnGetTheirPartsOfAllSteps) {
  constexpr int kRanks = 3, kBegin = 7, kEnd = 107;
  Counter counter;
  BatchReader reader(kRanks, kBegin, kEnd, counter.For(kRanks));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int step = kBegin; step < kEnd; ++step) {
        WEFT_ASSERT_OK_AND_ASSIGN(const BatchReader::Part part, reader.Take(step, rank));
        ASSERT_THAT(Values<float>(part[0]), ElementsAre(step, rank));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(counter.reads, kEnd - kBegin);
}

TEST(BatchReaderTest, NothingIsReadBeforeTheFirstStep) {
  Counter counter;
  BatchReader reader(1, 0, 10, counter.For(1));
  EXPECT_EQ(counter.Later(), 0);
}

TEST(BatchReaderTest, StepsAreReadAheadButNoMoreThanTheBound) {
  Counter counter;
  BatchReader reader(2, 0, 100, counter.For(2));
  WEFT_EXPECT_OK(reader.Take(0, 0));
  counter.WaitFor(BatchReader::kMaxBatches);
  for (int64_t step = 1; step < BatchReader::kMaxBatches; ++step) {
    WEFT_EXPECT_OK(reader.Take(step, 0));
  }
  // Rank 1 has taken none.
  EXPECT_EQ(counter.Later(), BatchReader::kMaxBatches);
  for (int64_t step = 0; step < BatchReader::kMaxBatches; ++step) {
    WEFT_EXPECT_OK(reader.Take(step, 1));
  }
  counter.WaitFor(2 * BatchReader::kMaxBatches);
  EXPECT_EQ(counter.Later(), 2 * BatchReader::kMaxBatches);
}

TEST(BatchReaderTest, StepsAfterTheLastAreNotRead) {
  Counter counter;
  BatchReader reader(1, 0, 1, counter.For(1));
  WEFT_EXPECT_OK(reader.Take(0, 0));
  EXPECT_EQ(counter.Later(), 1);
  EXPECT_THAT(reader.Take(1, 0), IsInternal("step 1"));
}

TEST(BatchReaderTest, ErrorsComeInTheirStepAndEndReading) {
  std::atomic<int64_t> reads{0};
  BatchReader reader(2, 0, 100, [&](int64_t step, std::vector<BatchReader::Part>) -> Parts {
    ++reads;
    if (step == 1) return absl::DataLossError("truncated");
    return PartsOf(step, 2);
  });
  for (int rank : {0, 1}) WEFT_EXPECT_OK(reader.Take(0, rank));
  for (int rank : {0, 1}) {
    EXPECT_THAT(reader.Take(1, rank), StatusIs(absl::StatusCode::kDataLoss, "truncated"));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reads, 2);
}

TEST(BatchReaderTest, BatchesThatAreThereInTimeAreReadWhenTheyAreNeeded) {
  Counter counter;
  BatchReader reader(2, 0, 100, counter.For(2), BatchReader::When::kInTime);
  for (int step = 0; step < 3; ++step) {
    for (int rank : {1, 0}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const BatchReader::Part part, reader.Take(step, rank));
      EXPECT_THAT(Values<float>(part[0]), ElementsAre(step, rank));
      EXPECT_EQ(counter.reads, step + 1);
    }
  }
}

TEST(BatchReaderTest, ExceptionsAreThrownInTheirStep) {
  BatchReader reader(2, 0, 100, [&](int64_t step, std::vector<BatchReader::Part>) -> Parts {
    if (step == 1) throw std::bad_alloc();
    return PartsOf(step, 2);
  });
  for (int rank : {0, 1}) WEFT_EXPECT_OK(reader.Take(0, rank));
  for (int rank : {0, 1}) EXPECT_THROW((void)reader.Take(1, rank), std::bad_alloc);
}

TEST(BatchReaderTest, StopReleasesARankThatWaitsForAnother) {
  Counter counter;
  BatchReader reader(2, 0, 100, counter.For(2));
  std::thread ahead([&] {
    absl::Status status;
    for (int64_t step = 0; status.ok(); ++step) status = reader.Take(step, 0).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "the run was aborted"));
  });
  counter.WaitFor(BatchReader::kMaxBatches);
  reader.Stop();
  ahead.join();
}

TEST(BatchReaderTest, PartsThatAreGivenBackAreUsedAgain) {
  std::vector<float> seen;  // numbers of spare parts
  std::atomic<int64_t> reads{0};
  constexpr int64_t kBatches = BatchReader::kMaxBatches, kSteps = 2 * kBatches;
  BatchReader reader(2, 0, kSteps, [&](int64_t step, const std::vector<BatchReader::Part>& spare) {
    for (const BatchReader::Part& part : spare) {
      if (!part.empty()) seen.push_back(*part[0].data<float>() * 10 + part[0].data<float>()[1]);
    }
    ++reads;
    return PartsOf(step, 2);
  });
  for (int64_t step = 0; step < kBatches; ++step) {
    for (int rank : {0, 1}) {
      WEFT_ASSERT_OK_AND_ASSIGN(BatchReader::Part part, reader.Take(step, rank));
      // Before the last part is taken, which wakes the reader.
      if (step == 0) reader.GiveBack(rank, std::move(part));
    }
  }
  while (reads < kSteps) std::this_thread::yield();
  WEFT_EXPECT_OK(reader.Take(kSteps - 1, 0).status());
  EXPECT_THAT(seen, ElementsAre(0, 1));
}

TEST(BatchReaderTest, NextBatchCanBeSeenBeforeItIsTaken) {
  constexpr int64_t kSteps = 3 * BatchReader::kMaxBatches;
  Counter counter;
  BatchReader reader(2, 0, kSteps, counter.For(2));
  EXPECT_FALSE(reader.Peek(1, 0, 0).has_value()) << "nothing is read";
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int rank : {0, 1}) WEFT_EXPECT_OK(reader.Take(step, rank));
    if (step + 1 == kSteps) break;
    // Without a Peek, the reader would wait for the last of its batches to be taken.
    counter.WaitFor(step + 2);
    absl::optional<Tensor> next;
    while (!next.has_value()) next = reader.Peek(step + 1, 1, 0);
    EXPECT_THAT(Values<float>(*next), ElementsAre(step + 1, 1));
    EXPECT_FALSE(reader.Peek(step + 1, 1, 1).has_value()) << "no such tensor";
    EXPECT_FALSE(reader.Peek(step, 0, 0).has_value()) << "taken";
    EXPECT_LE(counter.reads, step + 1 + BatchReader::kMaxBatches);
  }
  EXPECT_FALSE(reader.Peek(kSteps, 0, 0).has_value()) << "not of the run";
}

TEST(BatchReaderTest, BatchThatCannotBeReadIsNotSeen) {
  std::atomic<bool> has_failed{false};
  BatchReader reader(1, 0, 100, [&](int64_t step, std::vector<BatchReader::Part>) -> Parts {
    if (step == 0) return PartsOf(step, 1);
    has_failed = true;
    return absl::DataLossError("truncated");
  });
  WEFT_EXPECT_OK(reader.Take(0, 0));
  while (!has_failed) std::this_thread::yield();
  EXPECT_FALSE(reader.Peek(1, 0, 0).has_value());
  EXPECT_THAT(reader.Take(1, 0), StatusIs(absl::StatusCode::kDataLoss, "truncated"));
  EXPECT_FALSE(reader.Peek(1, 0, 0).has_value());
}

TEST(BatchReaderTest, EndsWhileBatchesAreLeft) {
  Counter counter;
  {
    BatchReader reader(1, 0, 1000, counter.For(1));
    WEFT_EXPECT_OK(reader.Take(0, 0));
  }
  EXPECT_LE(counter.reads, 1 + BatchReader::kMaxBatches);
}

}  // namespace
}  // namespace weft::testing
