#include "executor/step/pointwise_chains.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/testing/test.h"
#include "executor/rewrites/rewrites_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// Not a multiple of the parts.
constexpr int kRows = 11, kColumns = 8191;

std::string Variable(const std::string& name) {
  return absl::StrCat("var ", name, name[0] == 'w' ? " : fp64[" : " : fp32[", kRows, ", ", kColumns,
                      "]\n");
}

// Expects the same bits on several threads, and if ops run one by one, as in ranges of a step.
void ExpectSameBits(const std::string& block, const std::vector<std::string>& results) {
  PlanExecutorOptions in_one_range;
  in_one_range.next_ops = [is_next = false]() mutable -> absl::optional<OpRange> {
    is_next = !is_next;
    if (!is_next) return absl::nullopt;
    return OpRange{0, std::numeric_limits<int>::max()};
  };
  RewrittenProgram one_by_one(block, results, nullptr, in_one_range);
  for (const int threads : {1, 3}) {
    PlanExecutorOptions options;
    options.threads = threads;
    RewrittenProgram joined(block, results, nullptr, options);
    for (int step = 0; step < 2; ++step) {
      WEFT_ASSERT_OK(joined.RunStep());
      WEFT_ASSERT_OK(one_by_one.RunStep());
      for (const std::string& name : results) {
        EXPECT_TRUE(Values<float>(joined[name]) == Values<float>(one_by_one[name])) << name;
      }
    }
  }
}

// x is the input of a chain of three ops; with a factor of -3e38, the second one makes infinities.
std::string Chain(const char* factor) {
  std::string block;
  for (const char* name : {"x", "a", "b", "c"}) block += Variable(name);
  return absl::StrCat(block, R"(
    Out=[a] = tanh(X=[x])
    Out=[b] = scale(X=[a]) {bias=-3e38, scale=)",
                      factor, R"(}
    Out=[c] = relu(X=[b])
)");
}

TEST(PointwiseChainsTest, ATracedChainIsOneEventWithParts) {
  PlanExecutorOptions options;
  options.trace = true;
  RewrittenProgram program(Chain("1.0"), {"c"}, nullptr, options);
  WEFT_ASSERT_OK(program.RunStep());
  WEFT_ASSERT_OK(program.RunStep());
  ASSERT_EQ(program.executor().spans().size(), 1);
  const std::vector<OpSpan>& spans = program.executor().spans()[0];
  ASSERT_EQ(spans.size(), 1);
  EXPECT_THAT(spans[0].parts, ElementsAre(0, 1, 2));
  EXPECT_EQ(spans[0].bytes, int64_t{3} * kRows * kColumns * 4);
  ASSERT_EQ(spans[0].times.size(), 3);
  std::chrono::steady_clock::duration sum{};
  for (const auto time : spans[0].times) {
    EXPECT_GT(time.count(), 0);
    sum += time;
  }
  EXPECT_LE(sum, spans[0].end - spans[0].begin);
}

// The op after it overwrites the infinities, in place, part by part.
TEST(PointwiseChainsTest, ACheckedChainNamesTheOpThatMakesInfinities) {
  PlanExecutorOptions options;
  options.check_nan = true;
  for (options.threads = 1; options.threads < 4; ++options.threads) {
    RewrittenProgram finite(Chain("1.0"), {"c"}, nullptr, options);
    WEFT_EXPECT_OK(finite.RunStep());
    RewrittenProgram infinite(Chain("-3e38"), {"c"}, nullptr, options);
    EXPECT_THAT(infinite.RunStep(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             "op 1 (scale): makes -inf in variable b"));
  }
}

TEST(PointwiseChainsTest, AChainGivesTheBitsOfItsOps) {
  std::string block;
  for (const char* name : {"x", "y", "a", "b", "c", "d"}) block += Variable(name);
  ExpectSameBits(block + R"(
    Out=[a] = elementwise_sub(X=[x], Y=[y])
    Out=[b] = tanh(X=[a])
    Out=[c] = scale(X=[b]) {scale=3.0}
    Out=[d] = sum(X=[a, c, x])
)",
                 {"d"});
}

// Out=[out] = some op on variables that hold numbers. Names that begin with w are fp64.
std::string RandomOp(const std::vector<std::string>& variables, const std::string& out,
                     std::mt19937* random) {
  std::vector<std::string> alike, others;
  for (const std::string& name : variables) {
    ((name[0] == 'w') == (out[0] == 'w') ? alike : others).push_back(name);
  }
  const auto any = [&] { return alike[(*random)() % alike.size()]; };
  if (alike.empty() || (!others.empty() && (*random)() % 3 == 0)) {
    const bool widens = out[0] == 'w';
    return absl::StrCat("Out=[", out, "] = cast(X=[", others[(*random)() % others.size()],
                        "]) {in_dtype=", widens ? 5 : 6, ", out_dtype=", widens ? 6 : 5, "}\n");
  }
  // An op between two chains, across which values live.
  if (out[0] == 'v' && (*random)() % 4 == 0) {
    return absl::StrCat("Out=[", out, "] = softmax(X=[", any(), "])\n");
  }
  switch ((*random)() % 6) {
    case 0:
      return absl::StrCat("Out=[", out, "] = relu(X=[", any(), "])\n");
    case 1:
      return absl::StrCat("Out=[", out, "] = scale(X=[", any(), "]) {bias=-0.25, scale=0.5}\n");
    case 2:
      return absl::StrCat("Out=[", out, "] = assign(X=[", any(), "])\n");
    case 3:
      return absl::StrCat("Out=[", out, "] = sum(X=[", any(), ", ", any(), ", ", any(), "])\n");
    case 4:
      return absl::StrCat("Out=[", out, "] = elementwise_mul(X=[", any(), "], Y=[", any(), "])\n");
    default:
      return absl::StrCat("Out=[", out, "] = elementwise_sub(X=[", any(), "], Y=[", any(), "])\n");
  }
}

// Values live for a few ops, so that others take their place in the arena. Those of other types
// have other sizes, and overlap them in part. Some variables are written twice.
TEST(PointwiseChainsTest, RandomChainsGiveTheBitsOfTheirOps) {
  std::mt19937 random(7);
  for (int run = 0; run < 40; ++run) {
    std::string block = Variable("x") + Variable("y") + Variable("z"), ops;
    std::vector<std::string> recent = {"x", "y"};
    for (int i = 0; i < 20; ++i) {
      std::string out = absl::StrCat(random() % 3 == 0 ? "w" : "v", i);
      if (random() % 6 == 0 && recent.back() != "y") {
        out = recent.back();
      } else {
        block += Variable(out);
      }
      ops += RandomOp(recent, out, &random);
      if (out != recent.back()) recent.push_back(out);
      if (recent.size() > 4) recent.erase(recent.begin());
    }
    ops += RandomOp(recent, "z", &random);
    SCOPED_TRACE(ops);
    ExpectSameBits(block + ops, {"z"});
  }
}

}  // namespace
}  // namespace weft::testing
