#include "executor/communicators/rows_all_reduce.h"

#include <memory>
#include <thread>
#include <vector>

#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "ops/cpu/testing.h"
#include "ops/memory.h"

namespace weft::testing {
namespace {

// Ranks with one tensor each, which join the requested number of all-reduces.
class Ranks {
 public:
  explicit Ranks(std::vector<Tensor> tensors)
      : nranks_(static_cast<int>(tensors.size())),
        tensors_(std::move(tensors)),
        reduces_(nranks_),
        statuses_(nranks_) {
    GroupOptions options;
    options.nranks = nranks_;
    options.timeout_s = 60;
    group_ = NewLocalGroup(options);
  }

  const std::vector<absl::Status>& Reduce(Reduction reduction = Reduction::kSum) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < nranks_; ++rank) {
      threads.emplace_back([this, rank, reduction] {
        CollectiveCall call;
        call.desc.reduction = reduction;
        call.op = "op 7 (c_allreduce_sum)";
        call.variable = "g";
        Tensor* tensor = &tensors_[rank];
        statuses_[rank] = reduces_[rank].Run(call, *group_->Get(RingKey{}, rank), *tensor, tensor);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses_;
  }
  Tensor& operator[](int rank) { return tensors_[rank]; }

 private:
  const int nranks_;
  std::vector<Tensor> tensors_;
  std::vector<RowsAllReduce> reduces_;
  std::vector<absl::Status> statuses_;
  std::unique_ptr<CommunicatorGroup> group_;
};

TEST(RowsAllReduceTest, RowsOfAllRanksAreMerged) {
  Ranks ranks({Rows({9, 2}, {5, 1, 5}, {1, 2, 3, 4, 5, 6}), Rows({9, 2}, {8}, {7, 8}),
               Rows({9, 2}, {1, 8}, {10, 20, 30, 40})});
  ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks[rank].rows(), ElementsAre(1, 5, 8));
    EXPECT_THAT(Values<float>(ranks[rank]), ElementsAre(13, 24, 6, 8, 37, 48));
    EXPECT_EQ(ranks[rank].height(), 9);
  }
}

// The memory of a device, as far as the caller can tell.
class DeviceMemory : public Memory {
 public:
  bool IsHost() const override { return false; }
  std::shared_ptr<void> Allocate(size_t bytes) override { return HostMemory()->Allocate(bytes); }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    return HostMemory()->Copy(from, bytes, to, stream);
  }
};

TEST(RowsAllReduceTest, RowsOfADeviceAreRefused) {
  DeviceMemory memory;
  Tensor rows(&memory);
  rows.ResizeRows(DType::kFloat32, {9, 1}, 1);
  Ranks ranks({rows});
  EXPECT_THAT(ranks.Reduce(), Each(StatusIs(absl::StatusCode::kUnimplemented,
                                            "X: expected SelectedRows in the memory of the host in "
                                            "g, found SelectedRows in the memory of a device")));
}

TEST(RowsAllReduceTest, EqualRowsAreAddedInRankOrder) {
  // In fp32, 1e8 + 1 = 1e8.
  Ranks ranks({Rows({1, 1}, {0}, {1}), Rows({1, 1}, {0}, {1e8}), Rows({1, 1}, {0}, {-1e8})});
  ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(Values<float>(ranks[rank]), ElementsAre(0));
}

TEST(RowsAllReduceTest, AverageIsDividedByTheNumberOfRanks) {
  Ranks ranks({Rows({9, 1}, {5}, {1}), Rows({9, 1}, {5, 6}, {4, 8})});
  ASSERT_THAT(ranks.Reduce(Reduction::kAvg), Each(IsOk()));
  EXPECT_THAT(Values<float>(ranks[0]), ElementsAre(2.5, 4));
}

TEST(RowsAllReduceTest, RanksMayHaveNoRows) {
  Ranks some({Rows({9, 1}, {}, {}), Rows({9, 1}, {5, 5}, {4, 8})});
  ASSERT_THAT(some.Reduce(), Each(IsOk()));
  EXPECT_THAT(some[0].rows(), ElementsAre(5));
  EXPECT_THAT(Values<float>(some[0]), ElementsAre(12));
  Ranks all({Rows({9, 1}, {}, {}), Rows({9, 1}, {}, {})});
  ASSERT_THAT(all.Reduce(), Each(IsOk()));
  EXPECT_THAT(all[1].rows(), IsEmpty());
  EXPECT_EQ(all[1].TallDims(), (Dims{9, 1}));
}

TEST(RowsAllReduceTest, OneRankMergesItsRows) {
  Ranks ranks({Rows({9, 1}, {5, 2, 5}, {1, 2, 3})});
  ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
  EXPECT_THAT(ranks[0].rows(), ElementsAre(2, 5));
  EXPECT_THAT(Values<float>(ranks[0]), ElementsAre(2, 4));
}

TEST(RowsAllReduceTest, NumbersOfRowsMayChangeFromCallToCall) {
  Ranks ranks({Rows({9, 1}, {1, 2, 3}, {1, 2, 3}), Rows({9, 1}, {4}, {4})});
  ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
  EXPECT_THAT(Values<float>(ranks[0]), ElementsAre(1, 2, 3, 4));
  ranks[0] = Rows({9, 1}, {4}, {1});
  ranks[1] = Rows({9, 1}, {4}, {2});
  ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
  EXPECT_THAT(ranks[0].rows(), ElementsAre(4));
  EXPECT_THAT(Values<float>(ranks[1]), ElementsAre(3));
}

TEST(RowsAllReduceTest, IndicesOfTallTensorsArriveWhole) {
  for (const int64_t height : {int64_t{1} << 31, (int64_t{1} << 31) + 1, int64_t{1} << 40}) {
    Ranks ranks({Rows({height, 1}, {height - 1, 300}, {1, 2}), Rows({height, 1}, {70000}, {4})});
    ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
    EXPECT_THAT(ranks[0].rows(), ElementsAre(300, 70000, height - 1));
    EXPECT_THAT(Values<float>(ranks[1]), ElementsAre(2, 4, 1));
  }
}

TEST(RowsAllReduceTest, DoublesAreReducedToo) {
  Tensor rows;
  rows.ResizeRows(DType::kFloat64, {3, 1}, 1);
  rows.mutable_rows()[0] = 2;
  *rows.data<double>() = 1e-300;
  Ranks ranks({rows.Clone(), rows.Clone()});
  ASSERT_THAT(ranks.Reduce(), Each(IsOk()));
  EXPECT_THAT(Values<double>(ranks[1]), ElementsAre(2e-300));
}

TEST(RowsAllReduceTest, RowsOfDifferentTensorsAreAnErrorOnEveryRank) {
  Ranks heights({Rows({9, 1}, {1}, {1}), Rows({8, 1}, {1}, {1})});
  EXPECT_THAT(heights.Reduce(),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            "X: SelectedRows of different tensors in g: rank 0 has rows of 1 fp32, "
                            "height 9, rank 1 has rows of 1 fp32, height 8")));
  Ranks widths({Rows({9, 1}, {1}, {1}), Rows({9, 2}, {}, {})});
  EXPECT_THAT(widths.Reduce(),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            "X: SelectedRows of different tensors in g: rank 0 has rows of 1 fp32, "
                            "height 9, rank 1 has rows of 2 fp32, height 9")));
}

}  // namespace
}  // namespace weft::testing
