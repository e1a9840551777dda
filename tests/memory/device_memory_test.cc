// `transpile --device_memory` finds placements with which `weft run` stays below that, on models
// that Paddle has written.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

struct Model {
  const char* name;
  int batch;
  int num_sizes;  // that are tried
};

std::ostream& operator<<(std::ostream& out, const Model& model) { return out << model.name; }

// The number after `what`.
double NumberAfter(const std::string& text, const std::string& what) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  double number = -1;
  if (at != std::string::npos) std::sscanf(text.c_str() + at + what.size(), "%lf", &number);
  return number;
}

class DeviceMemoryTest : public ::testing::TestWithParam<Model> {
 protected:
  std::string Path(const std::string& name) const {
    return absl::StrCat(::testing::TempDir(), "/", GetParam().name, "_", name);
  }
  std::string In(const std::string& name) const {
    return absl::StrCat("tests/data/", GetParam().name, "/", name);
  }

  ProcessResult Place(int64_t bytes, const std::string& out) const {
    return testing::RunProcess({"tools/transpile", "--mode", "none", "--device_memory",
                                absl::StrCat(bytes), "--batch", absl::StrCat(GetParam().batch),
                                "--startup_in", In("startup.pb"), "--startup_out",
                                Path("startup.pb"), In("main.pb"), Path(out)});
  }

  // Of the accelerator, as the run measures it.
  int64_t Run(int64_t bytes) const {
    const ProcessResult result = testing::RunProcess(
        {"tools/weft", "run", Path("main.pb"), "--startup", Path("startup.pb"), "--feeds",
         In("feeds.npz"), "--steps", "2", "--device_memory", absl::StrCat(bytes)});
    EXPECT_EQ(result.status, 0) << result.err;
    const double kept = NumberAfter(result.out, "values of a rank on the accelerator: ");
    const double step = NumberAfter(result.out, "bytes kept between steps, ");
    return static_cast<int64_t>(kept + step);
  }
};

TEST_P(DeviceMemoryTest, RunsStayBelowAndMoreMemoryIsNotSlower) {
  const ProcessResult too_little = Place(1, "main.pb");
  EXPECT_EQ(too_little.status, 1);
  const auto least = static_cast<int64_t>(NumberAfter(too_little.err, "expected at least "));
  const ProcessResult all = Place(int64_t{1} << 40, "main.pb");
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.err, HasSubstr("on the host nothing"));
  const auto most = static_cast<int64_t>(NumberAfter(all.err, "at most "));
  EXPECT_LT(least, most / 2);

  double last_seconds = 1e9;
  for (int i = 0; i < GetParam().num_sizes; ++i) {
    const int64_t bytes = least + (most - 1 - least) * i / (GetParam().num_sizes - 1);
    SCOPED_TRACE(bytes);
    const ProcessResult placed = Place(bytes, "main.pb");
    ASSERT_EQ(placed.status, 0) << placed.err;
    EXPECT_LE(NumberAfter(placed.err, "at most "), bytes);
    const double seconds = NumberAfter(placed.err, " bytes and ");
    EXPECT_LE(seconds, last_seconds);
    last_seconds = seconds;
    EXPECT_LE(Run(bytes), bytes);
  }
}

// Ranks with fused buffers, of gradients or of parameters, run with the memory that was promised.
TEST(RanksMemoryTest, BuffersAreCountedAsTheyAreMade) {
  const std::string in = "tests/data/mlp_adam/";
  const std::string main = ::testing::TempDir() + "/ranks.pb";
  const std::string startup = ::testing::TempDir() + "/ranks_startup.pb";
  for (const char* const mode : {"grad_allreduce", "singa_plain", "local_sgd"}) {
    const auto place = [&](int64_t bytes) {
      return testing::RunProcess({"tools/transpile", "--mode", mode, "--device_memory",
                                  absl::StrCat(bytes), "--batch", "16", "--nranks", "2",
                                  "--startup_in", in + "startup.pb", "--startup_out", startup,
                                  in + "main.pb", main});
    };
    const ProcessResult all = place(int64_t{1} << 40);
    ASSERT_EQ(all.status, 0) << all.err;
    const auto most = static_cast<int64_t>(NumberAfter(all.err, "at most "));
    for (const int64_t bytes : {most, most * 3 / 4}) {
      SCOPED_TRACE(absl::StrCat(mode, " ", bytes));
      ASSERT_EQ(place(bytes).status, 0);
      const ProcessResult result = testing::RunProcess(
          {"tools/weft", "run", main, "--startup", startup, "--feeds", in + "feeds.npz", "--steps",
           "2", "--ranks", "2", "--device_memory", absl::StrCat(bytes)});
      EXPECT_EQ(result.status, 0) << result.err;
    }
  }
}

// Gradients that are merged over steps, by the program or by a pass: the branch that updates goes
// to the host, and results have the bits of one device.
TEST(MergedGradientsMemoryTest, BranchThatUpdatesGoesToTheHost) {
  struct Case {
    const char* model;
    std::vector<std::string> flags;
    int ranks;
    int64_t bytes;
  };
  const std::string out = ::testing::TempDir();
  for (const Case& of :
       {Case{"mlp_gradient_merge", {"--mode", "none"}, 1, 80000},
        Case{"mlp_gradient_merge", {"--mode", "grad_allreduce", "--nranks", "2"}, 2, 80000},
        Case{"mlp_adam", {"--passes", "grad-accumulate{k=2}"}, 1, 3500000}}) {
    const std::string in = absl::StrCat("tests/data/", of.model, "/");
    SCOPED_TRACE(absl::StrCat(of.model, " ", of.flags[1]));
    const auto train = [&](int64_t bytes, const std::string& name) {
      const std::string main = absl::StrCat(out, "/", name, ".pb");
      const std::string startup = absl::StrCat(out, "/", name, "_startup.pb");
      const std::string batch = absl::StrCat(32 / of.ranks);
      std::vector<std::string> transpile = {"tools/transpile"};
      transpile.insert(transpile.end(), of.flags.begin(), of.flags.end());
      const std::vector<std::string> rest = {
          "--device_memory", absl::StrCat(bytes), "--batch", batch,          "--startup_in",
          in + "startup.pb", "--startup_out",     startup,   in + "main.pb", main};
      transpile.insert(transpile.end(), rest.begin(), rest.end());
      const ProcessResult placed = testing::RunProcess(transpile);
      EXPECT_EQ(placed.status, 0) << placed.err;
      EXPECT_THAT(placed.err,
                  HasSubstr(name == "moved" ? "on the host 1 update" : "on the host nothing"));
      const ProcessResult run = testing::RunProcess(
          {"tools/weft", "run", main, "--startup", startup, "--feeds", in + "feeds.npz", "--steps",
           "5", "--ranks", absl::StrCat(of.ranks), "--device_memory", absl::StrCat(bytes), "--save",
           absl::StrCat(out, "/", name, ".params")});
      EXPECT_EQ(run.status, 0) << run.err;
      const absl::StatusOr<FileBytes> saved = ReadFile(absl::StrCat(out, "/", name, ".params"));
      EXPECT_TRUE(saved.ok()) << saved.status();
      return saved.ok() ? std::string(saved->bytes) : "";
    };
    const std::string moved = train(of.bytes, "moved");
    EXPECT_FALSE(moved.empty());
    EXPECT_TRUE(moved == train(int64_t{1} << 40, "all"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceMemoryTest,
                         ::testing::Values(Model{"mlp_adam", 32, 3}, Model{"lenet_momentum", 32, 5},
                                           Model{"wide_deep", 64, 2},
                                           Model{"word2vec_sparse_adam", 32, 3}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
