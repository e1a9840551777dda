// Every pair of features: two ranks train as the reference, or the pair is refused.
#include "tests/support/combinations.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/testing/test.h"
#include "tests/support/combination_programs.h"
#include "tests/support/combination_training.h"
#include "tests/support/training_programs.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

// --- Pairs ---------------------------------------------------------------------------------------

std::vector<FeaturePair> Pairs(bool are_refused) {
  std::vector<FeaturePair> pairs;
  for (const FeatureText& second : Features()) {
    for (const FeatureText& first : Features()) {
      if (first.feature >= second.feature) break;
      if (IsRefused(VerdictOf(first.feature, second.feature)) != are_refused) continue;
      pairs.push_back({first.feature, second.feature});
    }
  }
  return pairs;
}

std::string NameOfPair(const ::testing::TestParamInfo<FeaturePair>& info) {
  return absl::StrCat(NameOf(info.param.first), "_", NameOf(info.param.second));
}

TEST(CombinationsTest, TableHasEveryPair) {
  const size_t n = Features().size();
  EXPECT_EQ(n, static_cast<size_t>(Feature::kServers) + 1);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(static_cast<size_t>(Features()[i].feature), i);
  EXPECT_EQ(Pairs(false).size() + Pairs(true).size(), n * (n - 1) / 2);
}

class LegalPairTest : public ::testing::TestWithParam<FeaturePair> {};

TEST_P(LegalPairTest, RanksTrainAsTheReference) {
  const FeaturePair& pair = GetParam();
  const std::string passes = PassesOf(pair);
  SCOPED_TRACE(passes);
  TrainingPrograms programs = ProgramsOf(pair);
  WEFT_ASSERT_OK_AND_ASSIGN(const absl::optional<Program> server, RewritePair(pair, &programs));
  EXPECT_EQ(server.has_value(), pair.Has(Feature::kServers));
  const bool has_effect = VerdictOf(pair.first, pair.second) != Verdict::kWhole;
  EXPECT_TRUE(Shows(pair.first, programs.main));
  EXPECT_EQ(Shows(pair.second, programs.main), has_effect);
  const FeedSource feeds = FeedsOf(pair, programs.feeds);
  const int64_t steps = int64_t{kPairUpdates} * pair.steps();
  const bool has_parts = server.has_value() || pair.Has(Feature::kShares);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found,
                            has_parts
                                ? TrainAndSave(programs, server.has_value() ? &*server : nullptr,
                                               feeds, steps, pair.ranks())
                                : Train(programs, feeds, steps, pair.ranks()));
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds expected, Reference(pair));
  EXPECT_EQ(NumDifferent(UpdatesOf(found, pair.steps()), expected), 0);
  if (VerdictOf(pair.first, pair.second) != Verdict::kPerRank) return;
  const TrainingPrograms original = ProgramsOf(pair);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, Train(original, original.feeds, kPairUpdates, 1));
  EXPECT_GT(NumDifferent(UpdatesOf(whole, 1), expected), 0);
}

INSTANTIATE_TEST_SUITE_P(All, LegalPairTest, ValuesIn(Pairs(false)), NameOfPair);

// The beginning of the message that a verdict stands for.
std::pair<absl::StatusCode, std::string> RefusalOf(const FeaturePair& pair) {
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  switch (VerdictOf(pair.first, pair.second)) {
    case Verdict::kOneExchange:
      if (pair.HasAny({Feature::kLocalSgd, Feature::kGroups, Feature::kOuter}) &&
          pair.Has(Feature::kPartial)) {
        return {absl::StatusCode::kInvalidArgument,
                "pass local-sgd claims parameters averaged every 1 step"};
      }
      return {kRefused, "cannot run: gradients-reduced already holds: pass "};
    case Verdict::kNeedsFp32:
      return {kRefused, "expected fp32"};
    case Verdict::kNeedsDense:
      return {kRefused, "expected a dense tensor to accumulate"};
    case Verdict::kNeedsReduction:
      return {kRefused, "pass periodic-broadcast needs gradients-reduced"};
    case Verdict::kNeedsEveryStep:
      return {kRefused, "pass parameter-server cannot run: gradients-accumulated already holds"};
    case Verdict::kNeedsMerged:
      return {kRefused, "workers and servers together: op "};
    case Verdict::kNeedsWhole:
      return pair.Has(Feature::kServers)
                 ? std::pair(kRefused, std::string("pass shard-updates cannot run: "
                                                   "parameters-served already holds"))
                 : std::pair(kRefused, std::string("pass periodic-broadcast cannot run: "
                                                   "parameters-divided already holds"));
    default:
      return {absl::StatusCode::kOk, ""};
  }
}

class IllegalPairTest : public ::testing::TestWithParam<FeaturePair> {};

// By the verifier, or before the main program changes.
TEST_P(IllegalPairTest, IsRefused) {
  const FeaturePair& pair = GetParam();
  const std::string passes = PassesOf(pair);
  SCOPED_TRACE(passes);
  TrainingPrograms programs = ProgramsOf(pair);
  const std::string main = programs.main.Serialize(), startup = programs.startup.Serialize();
  const auto [code, message] = RefusalOf(pair);
  const Verdict verdict = VerdictOf(pair.first, pair.second);
  const bool is_verified = verdict == Verdict::kNeedsMerged;
  EXPECT_THAT(
      RewritePair(pair, &programs, is_verified ? Verification::kAtEnd : Verification::kNever)
          .status(),
      StatusIs(code, HasSubstr(message)));
  if (is_verified) return;
  EXPECT_TRUE(programs.main.Serialize() == main);
  if (verdict == Verdict::kOneExchange || verdict == Verdict::kNeedsReduction ||
      verdict == Verdict::kNeedsEveryStep || verdict == Verdict::kNeedsWhole) {
    EXPECT_TRUE(programs.startup.Serialize() == startup) << "a contract refuses the pair";
  }
}

INSTANTIATE_TEST_SUITE_P(All, IllegalPairTest, ValuesIn(Pairs(true)), NameOfPair);

// --- Order ---------------------------------------------------------------------------------------

constexpr int kRanks = 2;

struct Order {
  const char* passes;
  const char* refusal;
};

// What docs/modes.md says about the order, by passes in another one.
constexpr Order kWrongOrders[] = {
    {"grad-accumulate{k=2},set-optimizer",
     "pass set-optimizer cannot run: gradients-accumulated already holds"},
    {"grad-accumulate{k=2},grad-accumulate{k=2}",
     "pass grad-accumulate cannot run: gradients-accumulated already holds"},
    {"comm-init,grad-accumulate{k=2},grad-all-reduce",
     "pass grad-accumulate cannot run: rings-set-up already holds"},
    {"comm-init,set-optimizer,grad-all-reduce",
     "pass set-optimizer cannot run: rings-set-up already holds"},
    {"comm-init,scale-loss-grad,set-optimizer,grad-all-reduce",
     "pass set-optimizer cannot run: loss-gradient-scaled already holds"},
    {"comm-init,scale-loss-grad,grad-accumulate{k=2},grad-all-reduce",
     "pass grad-accumulate cannot run: loss-gradient-scaled already holds"},
    {"comm-init,grad-all-reduce,grad-accumulate{k=2}",
     "pass grad-accumulate cannot run: gradients-reduced already holds"},
    {"comm-init,local-sgd,grad-accumulate{k=2}",
     "pass grad-accumulate cannot run: parameters-averaged already holds"},
    {"comm-init,grad-all-reduce,set-optimizer",
     "pass set-optimizer cannot run: gradients-reduced already holds"},
    {"comm-init,partial-averaging,set-optimizer",
     "pass set-optimizer cannot run: parameters-averaged already holds"},
    {"broadcast-params,comm-init,grad-all-reduce",
     "pass broadcast-params needs rings-set-up, which no earlier pass provides"},
    {"comm-init,grad-all-reduce,scale-loss-grad",
     "pass scale-loss-grad cannot run: gradients-reduced already holds"},
    {"comm-init,grad-all-reduce,exact-loss",
     "pass exact-loss cannot run: gradients-reduced already holds"},
    {"comm-init,grad-all-reduce,dense-gradients",
     "pass dense-gradients cannot run: gradients-reduced already holds"},
    {"comm-init,scale-loss-grad,local-sgd",
     "pass local-sgd cannot run: loss-gradient-scaled already holds"},
    {"comm-init,scale-loss-grad,partial-averaging",
     "pass partial-averaging cannot run: loss-gradient-scaled already holds"},
    {"comm-init,local-sgd,scale-loss-grad",
     "pass scale-loss-grad cannot run: parameters-averaged already holds"},
    {"comm-init,grad-all-reduce,sparsify-gradients",
     "pass sparsify-gradients cannot run: gradients-reduced already holds"},
    {"comm-init,periodic-broadcast{bcast_period=2},grad-all-reduce",
     "pass periodic-broadcast needs gradients-reduced, which no earlier pass provides"},
    {"comm-init,grad-all-reduce,periodic-broadcast{bcast_period=2},periodic-broadcast{bcast_period="
     "2}",
     "pass periodic-broadcast cannot run: parameters-broadcast already holds"},
};

TEST(CombinationsTest, ContractsRefuseAnotherOrder) {
  for (const Order& order : kWrongOrders) {
    SCOPED_TRACE(order.passes);
    TrainingPrograms programs = SmallProgram(/*has_rows=*/false, /*is_narrow=*/false);
    const std::string main = programs.main.Serialize(), startup = programs.startup.Serialize();
    EXPECT_THAT(Rewrite(order.passes, kRanks, &programs, Verification::kNever),
                IsFailedPrecondition(order.refusal));
    EXPECT_TRUE(programs.main.Serialize() == main);
    EXPECT_TRUE(programs.startup.Serialize() == startup);
  }
}

// Rows can be accumulated as dense gradients.
TEST(CombinationsTest, AllPassesInTheOrderOfTheManualTrainAsOneDevice) {
  constexpr char kOptimizer[] = "set-optimizer{lr=0.1,momentum=0.5}";
  const TrainingPrograms original = SmallProgram(/*has_rows=*/true, /*is_narrow=*/false);
  TrainingPrograms one_device = original, ranks = original;
  WEFT_ASSERT_OK(Rewrite(kOptimizer, kRanks, &one_device));
  WEFT_ASSERT_OK(Rewrite(
      absl::StrCat(kOptimizer, ",dense-gradients{sparse=dense},grad-accumulate{k=", kPairParts,
                   ",average=true},comm-init,broadcast-params,exact-loss,reduce-statistics,"
                   "dense-gradients,scale-loss-grad,grad-all-reduce{buckets=bytes},"
                   "periodic-broadcast{bcast_period=2},sync-elimination"),
      kRanks, &ranks));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const RoundingBounds expected,
      MeasureUpdates(
          {{}, original.feeds}, [&](const TrainingInputs& from) -> absl::StatusOr<Updates> {
            WEFT_ASSIGN_OR_RETURN(const Trained trained,
                                  Train(one_device, from.feeds, kPairUpdates, 1, from.kernels));
            return UpdatesOf(trained, 1);
          }));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(ranks, InTurn(original.feeds, kPairParts),
                                                       int64_t{kPairUpdates} * kPairParts, kRanks));
  EXPECT_EQ(NumDifferent(UpdatesOf(found, kPairParts), expected), 0);
}

}  // namespace
}  // namespace weft::testing
