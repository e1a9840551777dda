// Buckets of gradients travel between the accelerator and the host at once, and train to the bits
// of one device.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/testing/test.h"
#include "proto/text/program_text.h"
#include "tests/training/placed_training.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

TEST(TrainPlacedBuffers, CollectivesOnTheHostHaveTheBitsOfOneDevice) {
  constexpr int kRanks = 2;
  TrainingPrograms programs = BuildPrograms(ThreeLayers());
  WEFT_ASSERT_OK(Rewrite(kDataParallel, kRanks, &programs));
  ASSERT_THAT(ProgramText(programs.main), HasSubstr("coalesce_tensor"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(programs, kRanks));
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"type:c_allreduce*=cpu,type:tanh_grad=cpu\"}",
                         kRanks, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(programs, kRanks));
  EXPECT_EQ(trained.bits(), expected.bits());
}

// All layers but the first and the last have the same sizes.
TrainingSpec EqualLayers() {
  TrainingSpec spec;
  for (int i = 0; i < 8; ++i) spec.layers.push_back({6, Activation::kTanh, /*bias=*/true});
  spec.layers.push_back({3, Activation::kNone, /*bias=*/true});
  spec.head.layer = static_cast<int>(spec.layers.size());
  spec.weights_by = spec.biases_by = OptimizerKind::kAdam;
  return spec;
}

// Two ranks that update on the host, with so many gradients in a bucket.
TrainingPrograms Buckets(absl::string_view staging, int count) {
  TrainingPrograms programs = BuildPrograms(EqualLayers());
  const std::string passes = absl::StrCat(
      "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=\"count{count=", count,
      "}\"},hetero-partition{place=\"type:adam=cpu\",staging=", staging, "}");
  WEFT_EXPECT_OK(Rewrite(passes, /*ranks=*/2, &programs));
  return programs;
}

// Of a coalesce_tensor as text.
std::vector<std::string> SlicesIn(absl::string_view line) {
  line.remove_prefix(line.find("Input=[") + 7);
  return absl::StrSplit(line.substr(0, line.find(']')), ", ");
}

TEST(TrainPlacedBuckets, EachIsOneCopy) {
  for (const char* staging : {"all", "double"}) {
    const TrainingPrograms programs = Buckets(staging, 2);
    EXPECT_EQ(CountOps(programs.main, "c_allreduce_sum"), 10);
    EXPECT_EQ(CountOps(programs.main, "memcpy_d2h"), 10);
    EXPECT_EQ(CountOps(programs.main, "coalesce_tensor"), 20);
  }
}

constexpr char kBucketsOfTwo[] =
    "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=\"count{count=2}\"}";

struct Change {
  const char* name;
  ClipKind clip;
  bool in_place;
  bool l2_decay = false;
};

// What the accelerator makes of gradients one by one after they are reduced.
class TrainChangedBuckets : public ::testing::TestWithParam<Change> {};

TEST_P(TrainChangedBuckets, EachIsOneCopy) {
  constexpr int kRanks = 2;
  TrainingSpec spec = EqualLayers();
  spec.clip = GetParam().clip;
  spec.clips_in_place = GetParam().in_place;
  spec.l2_decay = GetParam().l2_decay;
  TrainingPrograms programs = BuildPrograms(spec);
  WEFT_ASSERT_OK(Rewrite(kBucketsOfTwo, kRanks, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(programs, kRanks));
  for (const char* options : {"order=early_start", "order=few_switches", "staging=double"}) {
    TrainingPrograms placed = programs;
    WEFT_ASSERT_OK(Rewrite(absl::StrCat("hetero-partition{place=\"type:adam=cpu\",", options, "}"),
                           kRanks, &placed));
    EXPECT_EQ(CountOps(placed.main, "memcpy_d2h"), 10) << options;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(placed, kRanks));
    EXPECT_EQ(trained.bits(), expected.bits()) << options;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Changes, TrainChangedBuckets,
    ::testing::Values(Change{"ByGlobalNormInPlace", ClipKind::kByGlobalNorm, true},
                      Change{"ByGlobalNorm", ClipKind::kByGlobalNorm, false},
                      Change{"ByNorm", ClipKind::kByNorm, false},
                      Change{"DecayedInPlace", ClipKind::kNone, true, true},
                      Change{"DecayedAndByValue", ClipKind::kByValue, false, true}),
    [](const auto& info) { return info.param.name; });

// What the host does not read stays where it is, and so do the buckets of that.
TEST(TrainPlacedBuckets, AreOfOneDeviceIfSomeParametersAreUpdatedOnTheHost) {
  constexpr int kRanks = 2;
  TrainingSpec spec = EqualLayers();
  spec.biases_by = OptimizerKind::kSgd;
  TrainingPrograms programs = BuildPrograms(spec);
  TrainingPrograms placed = programs;
  WEFT_ASSERT_OK(Rewrite(kBucketsOfTwo, kRanks, &programs));
  WEFT_ASSERT_OK(Rewrite(absl::StrCat(kBucketsOfTwo, ",hetero-partition{place=\"type:adam=cpu\"}"),
                         kRanks, &placed));
  EXPECT_EQ(CountOps(placed.main, "c_allreduce_sum"), 10);
  EXPECT_EQ(CountOps(placed.main, "memcpy_d2h"), 5);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(programs, kRanks));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(placed, kRanks));
  EXPECT_EQ(trained.bits(), expected.bits());
}

TEST(TrainPlacedBuckets, TakingTurnsNeedTheMemoryOfTwo) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained all, TrainOnHost(Buckets("all", 2), /*ranks=*/2));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained two, TrainOnHost(Buckets("double", 2), /*ranks=*/2));
  EXPECT_EQ(two.bits(), all.bits());
  constexpr int64_t kBucket = 2 * 256;  // 6 x 6 and 6 elements, aligned
  EXPECT_GE(all.memory.host_live, 10 * kBucket);
  EXPECT_LE(two.memory.host_live, 3 * kBucket);
  EXPECT_LE(two.memory.live, all.memory.live - 2 * kBucket);
  EXPECT_EQ(two.memory.host_kept, all.memory.host_kept);
}

// Buffers of two devices lie in arenas, which steps of two sizes share.
TEST(TrainPlacedBuckets, BatchesOfTwoSizesHaveTheBitsOfOneDevice) {
  constexpr int kRanks = 2;
  TrainingPrograms whole = BuildPrograms(EqualLayers());
  WEFT_ASSERT_OK(Rewrite(kBucketsOfTwo, kRanks, &whole));
  whole.feeds = WithHalfBatches(whole.feeds);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(whole, kRanks));
  for (const char* staging : {"all", "double"}) {
    TrainingPrograms placed = Buckets(staging, 2);
    placed.feeds = WithHalfBatches(placed.feeds);
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(placed, kRanks));
    EXPECT_EQ(trained.bits(), expected.bits()) << staging;
  }
}

// Mutants: the verifier finds buffers of the host whose slices are not those of the accelerator.
TEST(TrainPlacedBuckets, BufferOnTheHostHasTheSlicesOfTheOther) {
  const TrainingPrograms original = BuildPrograms(EqualLayers());
  const TrainingPrograms programs = Buckets("double", 4);
  VerifyOptions options;
  options.setting.nranks = 2;
  options.original = {&original.main, &original.startup};
  const std::string text = ProgramText(programs.main);
  const auto has_errors = [&](const std::string& mutant) {
    const absl::StatusOr<Program> main = ParseProgramText(mutant);
    WEFT_EXPECT_OK(main.status());
    return main.ok() && Verify({{&*main, &programs.startup}}, options).HasErrors();
  };
  EXPECT_FALSE(has_errors(text));
  const size_t begin = text.find("FusedOutput=[fused_gradient_2@CPU");
  ASSERT_NE(begin, std::string::npos);
  const std::string line = text.substr(begin, text.find('\n', begin) - begin);
  const auto with = [&](const std::string& other) {
    EXPECT_NE(other, line);
    return absl::StrReplaceAll(text, {{line, other}});
  };
  EXPECT_TRUE(has_errors(with("")));
  EXPECT_TRUE(has_errors(with(absl::StrReplaceAll(line, {{"size=256", "size=128"}}))));
  EXPECT_TRUE(has_errors(with(absl::StrReplaceAll(line, {{"[6, 6", "[6, 3"}}))));
  EXPECT_TRUE(has_errors(with(absl::StrReplaceAll(line, {{", op_device=\"cpu\"", ""}}))));
  // Two gradients of the same size change places.
  const std::vector<std::string> names = SlicesIn(line);
  ASSERT_EQ(names.size(), 4);
  EXPECT_TRUE(
      has_errors(with(absl::StrReplaceAll(line, {{names[0], names[2]}, {names[2], names[0]}}))));
}

}  // namespace
}  // namespace weft::testing
