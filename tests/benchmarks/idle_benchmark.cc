// How much of a run is neither in kernels nor in collectives? Trains models of tests/data as `weft
// run` does, with batches from a file and generated ones, and prints the time of a step and the
// share of it in which no op of rank 0 runs on any stream:
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:idle_benchmark -- [--models a,b]
//   [--batch 64] [--ranks 2] [--steps 1000] [--rounds 3] [--output FILE]
//
// A step lasts from the end of the last op of the step before to the end of its last op. Idle time
// is of two kinds: "between steps", until the first op begins (results, loss checks, printed lines,
// metrics; then feeds and random draws), and "between ops". It includes the clock readings around
// every op, about 50 ns, and rests on the round with the smallest share. "set-up" is what the whole
// run takes before its first step ends: reading types of feeds, planning, the startup program,
// binding.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/formats/program_file.h"
#include "tests/benchmarks/model_batches.h"
#include "tools/inspect/run_report.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* model;
  int64_t batch;  // of a rank
};
constexpr std::array<Case, 5> kCases = {{{"mlp_adam", 64},
                                         {"lenet_momentum", 64},
                                         {"resnet18_cifar", 16},
                                         {"bert_tiny", 16},
                                         {"wide_deep", 256}}};

struct Flags {
  std::vector<std::string> models = {"mlp_adam"};
  int64_t batch = 0;  // 0: that of the case
  int ranks = 1;
  int64_t steps = 1000;
  int rounds = 3;
  std::string output = "/dev/null";
};

double Ms(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Milliseconds of rank 0 in all steps but the first.
struct Times {
  double set_up = 0, all = 0, between_steps = 0, between_ops = 0;

  double share() const { return (between_steps + between_ops) / all; }
};

// Adds up the times in which no op runs.
class IdleTime {
 public:
  explicit IdleTime(Clock::time_point start) : start_(start) {}

  void Add(const StepTrace& trace) {
    const Clock::time_point begin = Clock::now();
    spans_.clear();
    for (const std::vector<OpSpan>& stream : trace.spans) {
      for (const OpSpan& span : stream) spans_.emplace_back(span.begin, span.end);
    }
    if (spans_.empty()) Die("a step without ops");
    std::sort(spans_.begin(), spans_.end());
    Clock::time_point end = spans_.front().first;
    Clock::duration between_ops{};
    for (const auto& [span_begin, span_end] : spans_) {
      if (span_begin > end) between_ops += span_begin - end;
      end = std::max(end, span_end);
    }
    if (is_first_) {
      times_.set_up = Ms(end - start_);
    } else {
      times_.all += Ms(end - last_end_ - last_add_);
      times_.between_steps += Ms(spans_.front().first - last_end_ - last_add_);
      times_.between_ops += Ms(between_ops);
    }
    is_first_ = false;
    last_end_ = end;
    last_add_ = Clock::now() - begin;
  }

  const Times& times() const { return times_; }

 private:
  const Clock::time_point start_;
  std::vector<std::pair<Clock::time_point, Clock::time_point>> spans_;
  bool is_first_ = true;
  Clock::time_point last_end_;
  Clock::duration last_add_{};  // which a run without this measurement does not take
  Times times_;
};

// The batch, with other real numbers in every step.
FeedSource Generated(FeedSource source) {
  source.read = [read = source.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::minstd_rand random(static_cast<uint32_t>(step + 1));
    std::vector<Tensor> batch = ValueOrDie(read(step));
    for (Tensor& tensor : batch) {
      if (tensor.dtype() != DType::kFloat32) continue;
      tensor = tensor.Clone();
      std::uniform_real_distribution<float> uniform(0, 1);
      std::generate_n(tensor.data<float>(), tensor.size(), [&] { return uniform(random); });
    }
    return batch;
  };
  return source;
}

Times RunOnce(const Program& main, const Program& startup, const FeedSource& feeds,
              const Flags& flags) {
  std::FILE* const output = std::fopen(flags.output.c_str(), "we");
  if (output == nullptr) Die(flags.output + ": cannot open for writing");
  StepLines lines(flags.ranks);
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.feeds = feeds;
  inputs.on_result = [&](const StepResult& result) {
    std::fputs(lines.Add(result).c_str(), output);
    std::fflush(output);
    return absl::OkStatus();
  };
  IdleTime idle(Clock::now());
  inputs.on_trace = [&](const StepTrace& trace) {
    if (trace.rank == 0) idle.Add(trace);
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = flags.ranks;
  options.steps = flags.steps;
  ValueOrDie(RunProgram(inputs, options));
  std::fclose(output);
  return idle.times();
}

void Measure(const Case& one, const Flags& flags) {
  const std::string folder = absl::StrCat("tests/data/", one.model);
  Program main = ValueOrDie(ReadProgram(folder + "/main.pb"));
  Program startup = ValueOrDie(ReadProgram(folder + "/startup.pb"));
  if (flags.ranks > 1) {
    TranspileOptions options;
    options.mode = "grad_allreduce";
    options.cluster.nranks = flags.ranks;
    ProgramPair programs{&main, &startup};
    ValueOrDie(Transpile(options, programs));
  }
  const int64_t batch = flags.batch > 0 ? flags.batch : one.batch;
  const FeedSource same = SameBatch(folder, batch * flags.ranks);
  const std::string file = absl::StrCat("/tmp/idle_benchmark_", getpid(), ".npz");
  WriteFeeds(same, /*steps=*/10, file);
  const std::pair<const char*, FeedSource> sources[] = {{"file", ValueOrDie(FeedsFromFile(file))},
                                                        {"generated", Generated(same)}};
  for (const auto& [name, source] : sources) {
    Times best;
    for (int round = 0; round < flags.rounds; ++round) {
      const Times times = RunOnce(main, startup, source, flags);
      if (round == 0 || times.share() < best.share()) best = times;
    }
    const double us_a_step = 1000 / static_cast<double>(flags.steps - 1);
    std::printf(
        "%-15s %4d  %d rank%s  %-9s  %8.1f us a step  idle %5.2f %%: %6.1f us between steps, %6.1f "
        "between ops; set-up %.1f ms\n",
        one.model, static_cast<int>(batch), flags.ranks, flags.ranks == 1 ? " " : "s", name,
        best.all * us_a_step, 100 * best.share(), best.between_steps * us_a_step,
        best.between_ops * us_a_step, best.set_up);
    std::fflush(stdout);
  }
  unlink(file.c_str());
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures what training steps lose outside kernels and collectives.");
  app.add_option("--models", flags.models, "Only these models")->delimiter(',');
  app.add_option("--batch", flags.batch, "The rows of a rank's batch");
  app.add_option("--ranks", flags.ranks, "Ranks, in one process")->check(CLI::Range(1, 64));
  app.add_option("--steps", flags.steps, "Steps of a round")->check(CLI::Range(2, 1000000));
  app.add_option("--rounds", flags.rounds, "Rounds; the best counts")->check(CLI::PositiveNumber);
  app.add_option("--output", flags.output, "Where the lines of steps go");
  CLI11_PARSE(app, argc, argv);
  for (const Case& one : kCases) {
    const auto& models = flags.models;
    if (std::find(models.begin(), models.end(), one.model) != models.end()) Measure(one, flags);
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
