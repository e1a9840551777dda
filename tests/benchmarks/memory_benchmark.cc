// How much memory does a run take? Trains models of tests/data with `weft run` on one rank, and
// prints the most that the process had in memory, and what the run says of its values:
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:memory_benchmark -- [--models a,b]
//   [--batch 64] [--steps 10] [--beside 'COMMAND {model} {batch}']
//
// --beside runs a command that trains the same, and prints the most that it had in memory, and the
// ratio. Programs and libraries count, so the difference between two batches says more than one.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/benchmarks/model_batches.h"
#include "tools/job/process.h"

namespace weft {
namespace {

using testing::ProcessResult;

struct Case {
  const char* model;
  int64_t batch;
};
constexpr std::array<Case, 5> kCases = {{{"mlp_adam", 512},
                                         {"lenet_momentum", 64},
                                         {"resnet18_cifar", 64},
                                         {"bert_tiny", 64},
                                         {"wide_deep", 256}}};

struct Flags {
  std::vector<std::string> models;
  int64_t batch = 0;  // 0: that of the case
  int64_t steps = 10;
  std::string beside;
};

ProcessResult RunOrDie(const std::vector<std::string>& args) {
  ProcessResult result = testing::RunProcess(args);
  if (result.status != 0) Die(absl::StrCat(args.back(), " failed: ", result.err));
  return result;
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void Measure(const Case& one, const Flags& flags) {
  const std::string folder = absl::StrCat("tests/data/", one.model, "/");
  const std::string feeds = absl::StrCat("/tmp/memory_benchmark_", getpid(), ".npz");
  WriteFeeds(SameBatch(folder, one.batch), /*steps=*/2, feeds);
  const ProcessResult run =
      RunOrDie({"tools/weft", "run", folder + "main.pb", "--startup", folder + "startup.pb",
                "--feeds", feeds, "--steps", absl::StrCat(flags.steps)});
  unlink(feeds.c_str());
  std::printf("%-16s %5d  %7.1f MiB", one.model, static_cast<int>(one.batch), MiB(run.peak_bytes));
  if (!flags.beside.empty()) {
    const std::string command = absl::StrReplaceAll(
        flags.beside, {{"{model}", one.model}, {"{batch}", absl::StrCat(one.batch)}});
    const ProcessResult other = RunOrDie({"/bin/sh", "-c", command});
    std::printf("  beside %7.1f MiB  ratio %.3f", MiB(other.peak_bytes),
                MiB(run.peak_bytes) / MiB(other.peak_bytes));
  }
  // The last line.
  const size_t line = run.out.find("values of a rank");
  std::printf("  %s", line == std::string::npos ? "\n" : run.out.c_str() + line);
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures the memory of training runs.");
  app.add_option("--models", flags.models, "Only these models")->delimiter(',');
  app.add_option("--batch", flags.batch, "The rows of a batch");
  app.add_option("--steps", flags.steps, "Steps of a run")->check(CLI::PositiveNumber);
  app.add_option("--beside", flags.beside, "A command to measure beside Weft");
  CLI11_PARSE(app, argc, argv);
  for (Case one : kCases) {
    const auto& models = flags.models;
    if (!models.empty() && std::find(models.begin(), models.end(), one.model) == models.end()) {
      continue;
    }
    if (flags.batch > 0) one.batch = flags.batch;
    Measure(one, flags);
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
