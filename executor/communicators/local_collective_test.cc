#include "executor/communicators/local_collective.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/testing/test.h"
#include "ops/tensor.h"

namespace weft::testing {
namespace {

// Runs a collective of ranks whose buffers are `in`, one part after the other.
template <typename T>
std::vector<std::vector<T>> RunAll(CollectiveDesc desc, std::vector<std::vector<T>> in,
                                   int64_t out_size, int num_parts) {
  desc.dtype = DTypeOf<T>::value;
  desc.count = static_cast<int64_t>(in[0].size());
  std::vector<std::vector<T>> out(in.size(), std::vector<T>(out_size));
  std::vector<const void*> in_data;
  std::vector<void*> out_data;
  for (size_t r = 0; r < in.size(); ++r) {
    in_data.push_back(in[r].data());
    out_data.push_back(out[r].data());
  }
  for (int part = 0; part < num_parts; ++part) {
    RunLocalCollective(desc, in_data, out_data, part, num_parts);
  }
  return out;
}

CollectiveDesc Desc(CollectiveKind kind, Reduction reduction = Reduction::kSum, int root = 0) {
  CollectiveDesc desc;
  desc.kind = kind;
  desc.reduction = reduction;
  desc.root = root;
  return desc;
}

std::vector<std::vector<float>> RandomBuffers(int nranks, size_t count) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, 100);
  std::vector<std::vector<float>> buffers(nranks, std::vector<float>(count));
  for (auto& buffer : buffers) {
    for (float& x : buffer) x = normal(rng);
  }
  return buffers;
}

TEST(LocalCollectiveTest, SumIsALeftFoldInRankOrderForAnyCutIntoParts) {
  for (int nranks : {1, 2, 3, 4}) {
    for (size_t count : {1, 1023, 5001}) {
      const auto in = RandomBuffers(nranks, count);
      std::vector<float> expected = in[0];
      for (int r = 1; r < nranks; ++r) {
        for (size_t i = 0; i < count; ++i) expected[i] += in[r][i];
      }
      for (int num_parts : {1, 2, 3, 7}) {
        const auto out = RunAll(Desc(CollectiveKind::kAllReduce), in, count, num_parts);
        for (int r = 0; r < nranks; ++r) ASSERT_EQ(out[r], expected) << nranks << " " << count;
      }
    }
  }
}

TEST(LocalCollectiveTest, AverageDividesTheSum) {
  const auto out = RunAll<float>(Desc(CollectiveKind::kAllReduce, Reduction::kAvg),
                                 {{1, 2}, {2, 4}, {6, 3}}, 2, 1);
  EXPECT_THAT(out[2], ElementsAre(3, 3));
}

// 1 is less than half a unit in the last place of 4096 in fp16 and of 512 in bf16: adding ones one
// by one would lose them.
TEST(LocalCollectiveTest, HalfPrecisionIsAddedInSinglePrecision) {
  const auto sum = Desc(CollectiveKind::kAllReduce);
  EXPECT_EQ(float(RunAll<Float16>(sum, {{4096}, {1}, {1}, {1}, {1}}, 1, 1)[4][0]), 4100);
  EXPECT_EQ(float(RunAll<BFloat16>(sum, {{512}, {1}, {1}, {1}, {1}}, 1, 1)[4][0]), 516);
  const auto average = Desc(CollectiveKind::kAllReduce, Reduction::kAvg);
  EXPECT_EQ(float(RunAll<Float16>(average, {{60000}, {60000}}, 1, 1)[0][0]), 60000);
  EXPECT_TRUE(std::isinf(float(RunAll<Float16>(sum, {{60000}, {60000}}, 1, 1)[0][0])));
  const auto max = Desc(CollectiveKind::kAllReduce, Reduction::kMax);
  EXPECT_EQ(float(RunAll<Float16>(max, {{-2}, {-3}}, 1, 1)[0][0]), -2);
}

TEST(LocalCollectiveTest, NativeAdditionRoundsEachTime) {
  CollectiveDesc sum = Desc(CollectiveKind::kAllReduce);
  sum.rounds_each_addition = true;
  EXPECT_EQ(float(RunAll<Float16>(sum, {{4096}, {1}, {1}, {1}, {1}}, 1, 1)[4][0]), 4096);
  EXPECT_EQ(float(RunAll<BFloat16>(sum, {{512}, {1}, {1}, {1}, {1}}, 1, 1)[4][0]), 512);
  CollectiveDesc average = Desc(CollectiveKind::kAllReduce, Reduction::kAvg);
  average.rounds_each_addition = true;
  EXPECT_TRUE(std::isinf(float(RunAll<Float16>(average, {{60000}, {60000}}, 1, 1)[0][0])));
  EXPECT_EQ(RunAll<float>(sum, {{4096}, {1}}, 1, 1)[0][0], 4097);
  CollectiveDesc max = Desc(CollectiveKind::kAllReduce, Reduction::kMax);
  max.rounds_each_addition = true;
  EXPECT_EQ(float(RunAll<Float16>(max, {{4}, {1}}, 1, 1)[0][0]), 4);
}

TEST(LocalCollectiveTest, ReducesWithMaxMinAndProd) {
  const std::vector<std::vector<int64_t>> in = {{1, 9, -4}, {5, 2, -6}};
  const auto run = [&](Reduction reduction) {
    return RunAll(Desc(CollectiveKind::kAllReduce, reduction), in, 3, 1)[0];
  };
  EXPECT_THAT(run(Reduction::kMax), ElementsAre(5, 9, -4));
  EXPECT_THAT(run(Reduction::kMin), ElementsAre(1, 2, -6));
  EXPECT_THAT(run(Reduction::kProd), ElementsAre(5, 18, 24));
}

TEST(LocalCollectiveTest, MaxOfNaNIsNaNOnWhicheverRankItIs) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto out = RunAll<double>(Desc(CollectiveKind::kAllReduce, Reduction::kMax),
                                  {{nan, 1, 1}, {1, nan, 1}}, 3, 1);
  EXPECT_TRUE(std::isnan(out[0][0]));
  EXPECT_TRUE(std::isnan(out[0][1]));
  EXPECT_EQ(out[0][2], 1);
}

TEST(LocalCollectiveTest, IntegerSumWrapsAround) {
  const int32_t max = std::numeric_limits<int32_t>::max();
  const auto out = RunAll<int32_t>(Desc(CollectiveKind::kAllReduce), {{max}, {1}}, 1, 1);
  EXPECT_THAT(out[0], ElementsAre(std::numeric_limits<int32_t>::min()));
}

TEST(LocalCollectiveTest, ReduceGivesTheRootTheSumAndOthersTheirInput) {
  const auto out = RunAll<float>(Desc(CollectiveKind::kReduce, Reduction::kSum, 1),
                                 {{1, 2}, {10, 20}, {100, 200}}, 2, 2);
  EXPECT_THAT(out[0], ElementsAre(1, 2));
  EXPECT_THAT(out[1], ElementsAre(111, 222));
  EXPECT_THAT(out[2], ElementsAre(100, 200));
}

TEST(LocalCollectiveTest, ReduceScatterGivesEachRankItsPartOfTheSum) {
  const auto in = RandomBuffers(3, 3 * 700);
  for (int num_parts : {1, 2, 3}) {
    const auto out = RunAll(Desc(CollectiveKind::kReduceScatter), in, 700, num_parts);
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < 700; ++i) {
        const int at = r * 700 + i;
        ASSERT_EQ(out[r][i], in[0][at] + in[1][at] + in[2][at]);
      }
    }
  }
}

TEST(LocalCollectiveTest, AllGatherPutsRanksOneAfterTheOther) {
  const auto out = RunAll<uint8_t>(Desc(CollectiveKind::kAllGather), {{1, 2}, {3, 4}}, 4, 2);
  EXPECT_THAT(out[0], ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(out[1], ElementsAre(1, 2, 3, 4));
}

TEST(LocalCollectiveTest, BroadcastCopiesTheRoot) {
  const auto out =
      RunAll<int64_t>(Desc(CollectiveKind::kBroadcast, Reduction::kSum, 1), {{1}, {2}, {3}}, 1, 3);
  EXPECT_THAT(out, ElementsAre(ElementsAre(2), ElementsAre(2), ElementsAre(2)));
}

TEST(LocalCollectiveTest, WorksInPlace) {
  std::vector<float> a = {1, 2}, b = {10, 20};
  CollectiveDesc desc = Desc(CollectiveKind::kAllReduce);
  desc.count = 2;
  RunLocalCollective(desc, {a.data(), b.data()}, {a.data(), b.data()}, 0, 1);
  EXPECT_THAT(a, ElementsAre(11, 22));
  EXPECT_THAT(b, ElementsAre(11, 22));
}

TEST(LocalCollectiveTest, RefusesImpossibleCollectives) {
  EXPECT_THAT(CheckLocalCollective(Desc(CollectiveKind::kBroadcast, Reduction::kSum, 2), 2),
              IsInvalidArgument("root 2 is none of the 2"));

  CollectiveDesc odd = Desc(CollectiveKind::kReduceScatter);
  odd.count = 5;
  EXPECT_THAT(CheckLocalCollective(odd, 2), IsInvalidArgument("5 elements cannot be split"));

  CollectiveDesc send = Desc(CollectiveKind::kSend);
  send.peer = 2;
  EXPECT_THAT(CheckLocalCollective(send, 2), IsInvalidArgument("peer 2 is none of the 2"));

  CollectiveDesc shorts = Desc(CollectiveKind::kAllReduce);
  shorts.dtype = DType::kInt16;
  EXPECT_THAT(CheckLocalCollective(shorts, 2), IsUnimplemented("cannot reduce int16"));
}

}  // namespace
}  // namespace weft::testing
