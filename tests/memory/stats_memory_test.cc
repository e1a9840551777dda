// `weft stats` prints, from the program alone, the memory that `weft run` measures; and that is
// close to what lives at once.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::Values;

constexpr double kTolerance = 1.1;

// In bytes.
struct Memory {
  long long kept = 0, arena = 0, live = 0;

  double peak() const { return static_cast<double>(kept + arena); }
  double live_at_once() const { return static_cast<double>(kept + live); }
};

Memory MemoryIn(const std::string& text) {
  Memory memory;
  const size_t at = text.find("values of a rank: ");
  EXPECT_NE(at, std::string::npos) << text;
  if (at == std::string::npos) return memory;
  EXPECT_EQ(std::sscanf(text.c_str() + at,
                        "values of a rank: %lld bytes kept between steps, %lld in a step, where at "
                        "most %lld live at once",
                        &memory.kept, &memory.arena, &memory.live),
            3);
  return memory;
}

std::string Output(std::vector<std::string> args) {
  args.insert(args.begin(), "tools/weft");
  const ProcessResult result = testing::RunProcess(args);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

// Rows of the first data variable in the file.
int64_t RowsOf(const std::string& feeds) {
  const absl::StatusOr<NpzFile> file = NpzFile::Open(feeds);
  EXPECT_THAT(file, testing::IsOk());
  const absl::StatusOr<TensorType> type = file->Type(file->names().front());
  EXPECT_THAT(type, testing::IsOk());
  return type->dims[0];
}

class StatsMemoryTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StatsMemoryTest, EstimateIsCloseToARunAndTheRunToWhatLives) {
  const std::string folder = absl::StrCat("tests/data/", GetParam(), "/");
  const std::string main = folder + "main.pb", feeds = folder + "feeds.npz";
  const Memory run = MemoryIn(
      Output({"run", main, "--startup", folder + "startup.pb", "--feeds", feeds, "--steps", "2"}));
  const Memory stats = MemoryIn(Output({"stats", main, "--batch", absl::StrCat(RowsOf(feeds))}));
  EXPECT_GT(run.arena, 0);
  EXPECT_LE(run.peak(), kTolerance * run.live_at_once());
  EXPECT_LE(run.peak(), kTolerance * stats.peak());
  EXPECT_LE(stats.peak(), kTolerance * run.peak());
  EXPECT_LE(run.live_at_once(), kTolerance * stats.live_at_once());
  EXPECT_LE(stats.live_at_once(), kTolerance * run.live_at_once());
}

// What a line of `weft stats` says: "state          6: 403986 elements, 1615944 bytes".
long long BytesOf(const std::string& what, const std::string& stats) {
  const size_t at = absl::StrCat("\n", stats).find(absl::StrCat("\n", what, " "));
  EXPECT_NE(at, std::string::npos) << stats;
  long long count = 0, elements = 0, bytes = 0;
  EXPECT_EQ(std::sscanf(stats.c_str() + at + what.size(), "%lld: %lld elements, %lld bytes", &count,
                        &elements, &bytes),
            3)
      << stats;
  return bytes;
}

// With shares, between steps and in a step.
TEST(ShardedStatsTest, PredictsWhatARankHolds) {
  constexpr double kClose = 1.05;
  for (const std::string model :
       {"mlp_adam", "lenet_momentum", "mlp_clip_global_norm", "mlp_gradient_merge", "bert_tiny"}) {
    const std::string folder = absl::StrCat("tests/data/", model, "/");
    const std::string whole = Output({"stats", folder + "main.pb"});
    for (const std::string stage : {"1", "2", "3"}) {
      for (const int nranks : {2, 4}) {
        SCOPED_TRACE(absl::StrCat(model, ", stage ", stage, ", ", nranks, " ranks"));
        const std::string ranks = absl::StrCat(nranks);
        const std::string main = absl::StrCat(::testing::TempDir(), "/main.pb");
        const std::string startup = absl::StrCat(::testing::TempDir(), "/startup.pb");
        const ProcessResult made =
            RunProcess({"tools/transpile", "--mode", "zero", "--stage", stage, "--nranks", ranks,
                        "--buckets", "count{count=4}", "--startup_in", folder + "startup.pb",
                        "--startup_out", startup, folder + "main.pb", main});
        ASSERT_EQ(made.status, 0) << made.err;
        const std::string feeds = folder + "feeds.npz";
        const std::string batch = absl::StrCat(RowsOf(feeds) / nranks);
        const std::string predicted = Output({"stats", main, "--batch", batch});
        const Memory stats = MemoryIn(predicted);
        const Memory run = MemoryIn(Output({"run", main, "--startup", startup, "--feeds", feeds,
                                            "--ranks", ranks, "--steps", "6"}));
        const auto expect_close = [&](double a, double b) {
          EXPECT_LE(a, kClose * b);
          EXPECT_LE(b, kClose * a);
        };
        expect_close(static_cast<double>(stats.kept), static_cast<double>(run.kept));
        expect_close(stats.peak(), run.peak());
        expect_close(stats.live_at_once(), run.live_at_once());
        if (model == "mlp_gradient_merge") continue;  // gradients that a rank adds up stay whole
        for (const char* what : {"parameters", "state"}) {
          expect_close(static_cast<double>(BytesOf(what, predicted)) * nranks,
                       static_cast<double>(BytesOf(what, whole)));
        }
      }
    }
  }
}

// Blocks that run in some steps make buffers of parameters and states, and matrices: they stay.
TEST(StatsOfBlocksTest, PredictsWhatBlocksLeave) {
  constexpr double kClose = 1.05;
  const std::string folder = "tests/data/mlp_adam/";
  const std::string feeds = folder + "feeds.npz", ranks = "4";
  const std::string main = absl::StrCat(::testing::TempDir(), "/blocks.pb");
  const std::string startup = absl::StrCat(::testing::TempDir(), "/blocks_startup.pb");
  const std::vector<std::string> local = {"--mode", "local_sgd", "--k_steps", "4", "--outer"};
  const auto with = [&local](const std::vector<std::string>& more) {
    std::vector<std::string> flags = local;
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  struct Case {
    std::vector<std::string> mode;
    bool shares_buffers = false;  // of blocks, which hold nothing but states
  };
  for (const auto& [mode, shares_buffers] : std::vector<Case>{
           {with({"slowmo"}), true},
           {with({"slowmo", "--delay", "1"}), true},
           {with({"nesterov", "--delay", "1", "--fragments", "2"}), true},
           {with({"averaging", "--group_size", "2", "--rounds", "2"}), true},
           {with({"nesterov", "--group_size", "2", "--rounds", "2"}), true},
           {with({"slowmo", "--comm_dtype", "bf16"})},
           {with({"nesterov", "--delay", "1", "--comm_dtype", "bf16"})},
           {{"--mode", "power_sgd", "--rank_approximation", "2", "--start_step", "2"}}}) {
    SCOPED_TRACE(absl::StrJoin(mode, " "));
    std::vector<std::string> args = {"tools/transpile",     "--nranks",      ranks,  "--startup_in",
                                     folder + "startup.pb", "--startup_out", startup};
    args.insert(args.end(), mode.begin(), mode.end());
    args.insert(args.end(), {folder + "main.pb", main});
    const ProcessResult made = RunProcess(args);
    ASSERT_EQ(made.status, 0) << made.err;
    const std::string predicted =
        Output({"stats", main, "--batch", absl::StrCat(RowsOf(feeds) / 4)});
    const Memory stats = MemoryIn(predicted);
    const Memory run = MemoryIn(Output(
        {"run", main, "--startup", startup, "--feeds", feeds, "--ranks", ranks, "--steps", "9"}));
    EXPECT_LE(static_cast<double>(stats.kept), kClose * static_cast<double>(run.kept));
    EXPECT_LE(static_cast<double>(run.kept), kClose * static_cast<double>(stats.kept));
    EXPECT_LE(stats.peak(), kClose * run.peak());
    EXPECT_LE(run.peak(), kClose * stats.peak());
    if (!shares_buffers) continue;
    const double states =
        static_cast<double>(BytesOf("parameters", predicted) + BytesOf("state", predicted));
    EXPECT_LE(static_cast<double>(run.kept), kClose * states);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StatsMemoryTest,
                         Values("mlp_adam", "lenet_momentum", "resnet18_cifar", "bert_tiny",
                                "wide_deep"));

}  // namespace
}  // namespace weft::testing
